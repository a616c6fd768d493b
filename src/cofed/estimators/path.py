"""Whole paths of models, from the strength at which nothing is used down to a fraction of it.

A squared loss is known from its gradient and Hessian, so where those are not too large (2048 parameters) the clients
send them once and the server finds the whole path, and its certificates, by itself. Other losses take a few rounds
per strength, each begun from the answer before.
"""

import dataclasses
import warnings
from pathlib import Path as FilePath
from typing import Any

import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from cofed.estimators.base import FederatedLinearModel, check_count, check_number
from cofed.estimators.certificate import Look, gradient_rounding
from cofed.estimators.penalty import EPS, WeightedElasticNet, sets_to_zero
from cofed.estimators.polish import by_pieces, has_pieces
from cofed.estimators.quadratic import Quadratic, refined, seen_on_server
from cofed.estimators.solver import LARGEST, Run, Solved, parameters, solve
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Squared
from cofed.models import Weights

MOST = 10_000  # strengths of a path


@dataclasses.dataclass(frozen=True)
class RegularizationPath:
    """Models by strength, the strongest first; coefficients are for the features as they were given.

    `deviance` is twice the mean loss: the mean squared error, or the deviance per row.
    """

    alphas: np.ndarray
    coefs: np.ndarray  # (strengths, features), or (strengths, classes, features)
    scale: np.ndarray  # the features' standard deviations; 1 where they were not standardised
    intercepts: np.ndarray
    deviance: np.ndarray
    nonzero: np.ndarray  # coefficients that are not zero
    gaps: np.ndarray
    converged: np.ndarray
    n: int
    n_rounds: int
    bytes: int
    gaussian: bool  # the loss is squared, with an unknown variance
    feature_names: tuple[str, ...]

    def criterion(self, kind: str) -> np.ndarray:
        """ "aic" or "bic" of every model, with the number of non-zero coefficients as degrees of freedom."""
        fit = self.n * (np.log(np.maximum(self.deviance, 1e-300)) if self.gaussian else self.deviance)
        return fit + {"aic": 2.0, "bic": np.log(self.n)}[kind] * self.nonzero

    def plot(self, path: str | FilePath | None = None) -> Figure:
        """The coefficients by strength, as in glmnet; written to `path` where one is given."""
        from cofed.estimators.plots import plot_path

        return plot_path(self, path)


def alpha_max(estimator: Any, posed: Posed) -> float:
    """The least strength at which no feature is used, from the gradient of the model without features."""
    psi, g = estimator._penalty(posed, 1.0), posed.null.gradient.coef
    if isinstance(psi, WeightedElasticNet):
        # With less than a thousandth of l1 norm, that of a thousandth.
        least = 1e-3 * posed.units.weights(g.ndim) / posed.units.objective
        largest = float(jnp.max(jnp.abs(g) / jnp.maximum(psi.l1, least)))
    else:
        largest = float(psi.dual_norm(g)) / float(psi.strength)
    return largest * (1 + 4 * EPS)  # the quotient is rounded


def strengths(estimator: Any, posed: Posed, n_alphas: int, eps: float) -> np.ndarray:
    """From alpha_max down to eps times it, evenly on a logarithmic scale."""
    top = alpha_max(estimator, posed)
    return np.geomspace(top if top > 0 else 1.0, eps * (top if top > 0 else 1.0), n_alphas)


def solve_path(estimator: Any, posed: Posed, alphas: np.ndarray) -> list[Solved]:
    """The answers for every strength, each begun from the one before."""
    if estimator.algorithm == "auto" and isinstance(posed.loss, Squared) and parameters(posed.start) <= LARGEST:
        return solve_on_server(estimator, posed, alphas)
    answers: list[Solved] = []
    for alpha in alphas:
        psi = estimator._penalty(posed, float(alpha))
        warm = answers[-1] if answers else None
        answers.append(solve(posed, psi, estimator.algorithm, estimator.tol, estimator.max_rounds, warm))
    return answers


def solve_on_server(estimator: Any, posed: Posed, alphas: np.ndarray) -> list[Solved]:
    """The path of a squared loss, from one exchange of its gradient and Hessian."""
    _, gradient, hessian = posed.second_order(posed.start)
    quadratic = Quadratic(hessian, gradient, posed.start, posed.null.loss)
    penalties = [estimator._penalty(posed, float(alpha)) for alpha in alphas]
    guesses = by_coordinates(posed, quadratic, penalties) if all(map(sets_to_zero, penalties)) else None
    answers: list[Solved] = []
    curved = None
    for k, psi in enumerate(penalties):
        problem, run = posed.problem(psi), Run(posed, psi, estimator.tol, 1, hessian, curved)
        w = guesses[k] if guesses is not None else answers[-1].w if answers else posed.start
        seen = seen_on_server(problem, posed.null, quadratic, w)
        if not run.done(seen):
            w, seen = refined(problem, posed.null, quadratic, w)
            w, seen = polished_on_server(run, quadratic, w, run.sharper(w, seen))
            curved = run.curved
        answers.append(run.solved(w, seen, "newton"))
    return answers


def polished_on_server(run: Run, quadratic: Quadratic, w: Weights, seen: Look) -> tuple[Weights, Look]:
    """A direct solve where iterations did not get there, and what has the better certificate."""
    if run.done(seen) or not has_pieces(run.psi):
        return w, seen
    noise = gradient_rounding(run.posed.loss, run.posed.null, w, seen.loss)
    new = by_pieces(run.psi, quadratic.hessian, seen.gradient, w, noise)
    found = run.sharper(new, seen_on_server(run.posed.problem(run.psi), run.posed.null, quadratic, new))
    return min((w, seen), (new, found), key=lambda one: float(one[1].gap) + float(one[1].rounding))


def warn(answers: list[Solved], what: str = "models of the path", stacklevel: int = 3) -> None:
    """One warning for all answers that are not good enough, with the first one's cause."""
    causes = [answer.cause for answer in answers if answer.cause]
    if causes:
        sentence = f"{len(causes)} of {len(answers)} {what} are not converged; the first: {causes[0]}"
        warnings.warn(sentence, ConvergenceWarning, stacklevel=stacklevel)


def by_coordinates(posed: Posed, quadratic: Quadratic, penalties: list[WeightedElasticNet]) -> list[Weights]:
    """scikit-learn's coordinate descent, on p + 1 rows that have this Hessian, gradient and loss.

    H = Q D Q' makes the rows D^(1/2) Q', whatever the true rows are; one more row carries what no feature explains.
    Columns are in the user's units, in which all have the same penalty.
    """
    p, unit = posed.start.coef.size, posed.units.penalised
    alphas = [float(psi.l1[0] / unit[0] + psi.ridge[0] / unit[0] ** 2) for psi in penalties]
    ratio = float(penalties[0].l1[0]) / unit[0] / alphas[0]
    H = np.asarray(quadratic.hessian)[:p, :p]
    values, Q = np.linalg.eigh(H)
    root = np.sqrt(np.maximum(values, 0) * (p + 1))
    seen = -(Q.T @ np.asarray(quadratic.gradient.coef)) * (p + 1)
    real = root > root.max(initial=0) * np.sqrt(np.finfo(float).eps) * 1e-3
    target = np.where(real, seen / np.where(real, root, 1), 0)
    rest = 2 * float(quadratic.value) * (p + 1) - target @ target
    X, y = np.vstack([root[:, None] * Q.T / unit, np.zeros(p)]), np.append(target, np.sqrt(max(rest, 0)))
    descend: Any = enet_path  # its annotations name strings only
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what it does not reach is refined, by the certificate
        coefs = descend(
            X,
            y,
            l1_ratio=ratio,
            alphas=alphas,
            precompute=X.T @ X,
            Xy=X.T @ y,
            tol=1e-15,
            max_iter=1000,
        )[1]
    return [Weights(jnp.asarray(coef / unit), posed.start.intercept) for coef in coefs.T]


def collect(estimator: Any, posed: Posed, alphas: np.ndarray, answers: list[Solved]) -> RegularizationPath:
    """The answers as a path."""
    models = [posed.original(answer.w) for answer in answers]
    shown = [estimator._output(coef, intercept) for coef, intercept in models]
    names = getattr(estimator, "feature_names_in_", None)
    if names is None:
        names = [f"x{j}" for j in range(len(posed.units.mean))]
    size = posed.units.objective
    return RegularizationPath(
        alphas=np.asarray(alphas, float),
        coefs=np.stack([coef for coef, _ in shown]),
        scale=posed.units.standard,
        intercepts=np.stack([intercept for _, intercept in shown]),
        deviance=np.array([2 * size * float(answer.look.loss) for answer in answers]),
        nonzero=np.array([np.count_nonzero(coef) for coef, _ in models]),
        gaps=np.array([answer.certificate.gap for answer in answers]),
        converged=np.array([answer.certificate.converged for answer in answers]),
        n=posed.n,
        n_rounds=posed.traffic.rounds,
        bytes=posed.traffic.bytes,
        gaussian=isinstance(posed.loss, Squared),
        feature_names=tuple(str(name) for name in names),
    )


def regularization_path(
    estimator: Any,
    X: Any,
    y: Any = None,
    clients: Any = None,
    *,
    alphas: Any = None,
    n_alphas: Any = 100,
    eps: Any = 1e-3,
) -> RegularizationPath:
    """The path of an estimator with a strength `alpha`, such as FederatedLasso() or FederatedLogisticRegression().

    alphas: the strengths, or None: `n_alphas` of them from alpha_max (found by the federation) down to eps times it.

    >>> from cofed.estimators import FederatedLasso
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> path = regularization_path(FederatedLasso(), X, X[:, 0] + 0.1 * rng.normal(size=60), np.arange(60) % 3)
    >>> path.coefs.shape, int(path.nonzero[0]), int(path.nonzero[-1]), bool(path.converged.all())
    ((100, 5), 0, 5, True)
    """
    name = type(estimator).__name__
    if not isinstance(estimator, FederatedLinearModel) or "alpha" not in estimator.get_params():
        raise ValueError(f"{name} has no strength alpha, and so no path")
    estimator._check_numbers()
    check_count(name, "n_alphas", n_alphas, high=MOST)
    check_number(name, "eps", eps, low=0, high=1, strict=True)
    alphas = None if alphas is None else ordered(name, alphas)
    posed = estimator._pose(estimator._intake(X, y, clients))
    alphas = strengths(estimator, posed, n_alphas, eps) if alphas is None else alphas
    answers = solve_path(estimator, posed, alphas)
    warn(answers)
    return collect(estimator, posed, alphas, answers)


def ordered(owner: str, alphas: Any) -> np.ndarray:
    """Given strengths, the strongest first."""
    try:
        given = np.asarray(alphas, float)
    except (TypeError, ValueError):
        given = np.zeros(0)
    if given.ndim != 1 or given.size == 0 or not np.isfinite(given).all() or (given < 0).any():
        raise ValueError(f"{owner}: alphas must be finite numbers >= 0, one after another, got {alphas!r}")
    if given.size > MOST:
        raise ValueError(f"{owner}: alphas must be at most {MOST} numbers, got {given.size}")
    return np.sort(given)[::-1]
