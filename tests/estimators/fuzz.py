"""Random problems of every family and penalty, at any scale, and what becomes of them beside the exact minimum."""

import dataclasses
import warnings

import numpy as np
from scipy.optimize import linprog
from sklearn.exceptions import ConvergenceWarning
from tests.estimators import exactly, first_order

from cofed.estimators import (
    FederatedConstrained,
    FederatedElasticNet,
    FederatedGroupLasso,
    FederatedLogisticRegression,
    FederatedPoisson,
    FederatedTraceRegression,
)

SHAPES = ((40, 6), (12, 20))
GROUPS = {6: [0, 0, 1, 1, 2, 2], 20: [j // 4 for j in range(20)]}
MATRIX = {6: (2, 3), 20: (4, 5)}
SEPARABLE = ("squared", "logistic", "multinomial", "poisson")
TOGETHER = (
    "group",
    "trace",
    "l1_ball",
    "l2_ball",
    "simplex",
    "logistic group",
)  # the penalty sees more than one feature at a time
OTHERS = ("group", "trace", "nonnegative", "l1_ball", "l2_ball", "simplex", "box", "logistic group")
FAMILIES = (*SEPARABLE, *OTHERS)


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One problem: all numbers relative to the loss of the model without features."""

    text: str
    suboptimality: float  # of the coefficients that were returned, in the user's own units
    gap: float
    rounding: float
    outcome: str
    warned: bool
    without_end: bool  # there is no best model: data that are separable, without a penalty

    @property
    def false_certificate(self):
        """The minimum is further away than the certificate says, or there is none."""
        if self.without_end:
            return self.outcome != "not converged"
        return self.suboptimality > self.gap + self.rounding or (
            self.outcome == "converged" and self.suboptimality > 1e-11
        )

    @property
    def false_limit(self):
        """Said to be all that float64 can give, where it can give more."""
        return self.outcome == "limited by rounding" and self.suboptimality > max(1e-9, self.rounding)

    @property
    def false_warning(self):
        """A warning although the objective is right to 1e-9."""
        return self.warned and self.suboptimality <= 1e-9 and not self.without_end


def draw(rng, n, p):
    """Features of any scale and mean, some of them collinear."""
    X = rng.normal(size=(n, p)) @ (np.eye(p) + 0.5 * rng.normal(size=(p, p)))
    kind = rng.integers(6)
    if kind == 0:
        X[:, -1] = X[:, 0]
    elif kind == 1:
        X[:, -1] = X[:, 0] + X[:, 1]
    return X


def problem(seed, family, n, p):
    """A random problem, and the estimator for it."""
    rng = np.random.default_rng([seed, n, FAMILIES.index(family)])
    X = draw(rng, n, p)
    z = X[:, 0] - X[:, 1]
    intercept, standardize = bool(rng.integers(2)), bool(rng.integers(2))
    kind = rng.integers(3)
    wide = 10 ** rng.uniform(-8, 8) * (10 ** rng.uniform(-3, 3, size=p) if kind == 0 else np.ones(p))
    if kind == 1:
        wide = 10 ** rng.uniform(-8, 8, size=p)
    if family in TOGETHER and not standardize:
        wide = np.full(p, 10 ** rng.uniform(-8, 8))
    off = 10 ** rng.uniform(0, 6) * rng.normal(size=p) if intercept and rng.integers(2) else 0.0
    X = (X + off) * wide
    tall = 10 ** rng.uniform(-8, 8)
    if family in ("logistic", "logistic group"):
        y = (z + rng.logistic(size=n) > 0).astype(int)
        y[:2] = 0, 1
    elif family == "multinomial":
        y = np.argmax(np.column_stack([z, -z, 0 * z]) + rng.gumbel(size=(n, 3)), axis=1)
        y[:3] = 0, 1, 2
    elif family == "poisson":
        y = rng.poisson(np.exp(np.clip(z / 2, -3, 3))) * (10 ** rng.uniform(-3, 6) if intercept else 1.0)
        y[0] = max(y[0], 1)
    else:
        y = (z + rng.normal(size=n) + (10 ** rng.uniform(0, 6) if intercept and rng.integers(2) else 0)) * tall
    ratio = [1.0, 1.0, float(rng.uniform(0.1, 0.9)), float(rng.uniform(0.1, 0.9)), 0.0][rng.integers(5)]
    alpha = strongest(family, X, y, standardize, intercept) * 10 ** rng.uniform(-12, 0)
    if rng.integers(4) == 0 and family not in OTHERS:
        alpha = 10 ** rng.uniform(-8, 8)
    if rng.integers(8) == 0 and family in SEPARABLE:
        alpha = 0.0
    same = {"fit_intercept": intercept, "standardize": standardize}
    return X, y, alpha, ratio, same, (tall if standardize else tall / wide[0]) * 10 ** rng.uniform(-3, 1)


def strongest(family, X, y, standardize, intercept):
    """The largest entry of the gradient of the model without features."""
    centre = X.mean(axis=0) if intercept else 0.0
    wide = X.std(axis=0) if standardize else 1.0
    if family == "multinomial":
        theta = np.full((len(y), 3), 1 / 3) - np.eye(3)[y]
        return np.abs(((X - centre) / np.atleast_1d(wide)).T @ theta).max() / len(y)
    theta = y - (y.mean() if intercept else {"logistic": 0.5, "logistic group": 0.5, "poisson": 1.0}.get(family, 0.0))
    return np.abs(((X - centre) / wide).T @ theta).max() / len(y)


def estimator(family, p, alpha, ratio, same, radius):
    """For a problem."""
    match family:
        case "squared":
            return FederatedElasticNet(alpha, l1_ratio=ratio, **same)
        case "logistic" | "multinomial":
            return FederatedLogisticRegression(alpha, penalty="elasticnet", l1_ratio=ratio, **same)
        case "poisson":
            return FederatedPoisson(alpha, l1_ratio=ratio, **same)
        case "group":
            return FederatedGroupLasso(alpha, groups=GROUPS[p], **same)
        case "logistic group":
            return FederatedLogisticRegression(alpha, penalty="group", groups=GROUPS[p], **same)
        case "trace":
            return FederatedTraceRegression(alpha, shape=MATRIX[p], **same)
    return FederatedConstrained(constraint=family, radius=radius, low=-radius, high=radius, **same)


def judge(seed, family, shape):
    """Fit one problem and compare."""
    n, p = shape
    X, y, alpha, ratio, same, radius = problem(seed, family, n, p)
    model = estimator(family, p, alpha, ratio, same, radius)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model.fit(X, y, clients=np.arange(n) % 3)
    said = [str(one.message) for one in caught if issubclass(one.category, ConvergenceWarning)]
    without_end = alpha == 0 and separable(family, X, y, same["fit_intercept"])
    wide = X.astype(exactly.LONG).std(axis=0) if same["standardize"] else np.ones(p, exactly.LONG)
    coef = np.asarray(model.coef_, exactly.LONG).T if family == "multinomial" else np.ravel(model.coef_)
    intercept = model.intercept_ if family == "multinomial" else np.ravel(model.intercept_)[0]
    if family in SEPARABLE:
        l1, ridge = alpha * ratio * wide, alpha * (1 - ratio) * wide**2
        column = (slice(None), *(None,) * (coef.ndim - 1))
        penalty = lambda w: (l1[column] * np.abs(w) + ridge[column] * w**2 / 2).sum()  # noqa: E731
        least, _ = exactly.minimum(
            family, X, y, l1, ridge, same["fit_intercept"], 3 if family == "multinomial" else 1, (coef, intercept)
        )
        value = exactly.objective(family, X, y, coef, intercept, penalty)
    elif family == "logistic group":
        value, least = first_order.compare_logistic_groups(X, y, coef, intercept, wide, alpha, same["fit_intercept"])
    else:
        value, least = first_order.compare(family, X, y, coef, intercept, wide, alpha, radius, same["fit_intercept"])
    certificate = model.certificate_
    numbers = (float(value - least), certificate.gap, certificate.rounding)
    text = f"{family} seed={seed} n={n} p={p} alpha={alpha:.3g} l1_ratio={ratio:.3g} {same} {certificate}"
    return Verdict(text, *(one / certificate.scale for one in numbers), certificate.outcome, bool(said), without_end)


def separable(family, X, y, intercept):
    """Whether a loss without a penalty falls for ever along some direction: a linear program."""
    if family not in ("logistic", "multinomial", "poisson"):
        return False
    centre = X.mean(axis=0) if intercept else np.zeros(X.shape[1])
    A = (X - centre) / np.sqrt(((X - centre) ** 2).mean(axis=0))
    A = np.column_stack([A, np.ones(len(A))]) if intercept else A
    if family == "poisson":
        rows, even = -A[y == 0], A[y > 0]
    elif family == "logistic":
        rows, even = np.where(y > 0, 1, -1)[:, None] * A, A[:0]
    else:  # the own class's prediction is at least any other's
        rows = [
            np.kron(np.eye(3)[own] - np.eye(3)[k], a) for a, own in zip(A, y, strict=True) for k in {0, 1, 2} - {own}
        ]
        rows, even = np.array(rows), np.zeros((0, 3 * A.shape[1]))
    found = linprog(
        -rows.sum(axis=0), A_ub=-rows, b_ub=np.zeros(len(rows)), A_eq=even, b_eq=np.zeros(len(even)), bounds=(-1, 1)
    )
    return bool(-found.fun > 1e-7)
