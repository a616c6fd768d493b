"""Paths of penalties that are not convex, MCP and SCAD, by local linear approximation.

Problem   minimise F(w) + sum_j p_alpha(s_j |w_j|), F the mean loss over all rows, s_j the feature's standard deviation
Step      w <- argmin of F(w) + sum_j p_alpha'(s_j |w_j| of the step before) s_j |w_j|: a lasso with a weight for each
          feature. p_alpha is concave, so that this is never below the objective and touches it: every step lowers it.
          Where the weights no longer change, w is stationary.
Server    F is replaced by its quadratic model around the best model so far, known of a squared loss from the survey; of
          others, all strengths are looked at together. At last a linear system on the features in use, between the
          penalty's knots, makes the point stationary to rounding.
Start     of every strength, the lasso's answer.
Assumes   nothing: the objective may have several stationary points, and this is one of them, none worse than the lasso.
Reference Zou and Li 2008, Fan, Xue and Zou 2014 (both Annals of Statistics); Zhang 2010 (MCP); Fan and Li 2001 (SCAD).

What is certified. No duality gap holds where the objective is not convex. `stationarity` has the largest violation of
the conditions of a stationary point, as a part of the penalty's slope at 0: 0 exactly at one.
"""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from cofed._util.rounding import EPS
from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.path import PathRequest, SolvedPath, shown_models, solved_path
from cofed.estimators.penalty import LARGEST
from cofed.estimators.second_orders import SecondOrder, check_size, second_orders
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.training_set import flat, weights
from cofed.regularizers import MCP, SCAD
from cofed.sites.intake import Clients, FitFeatures, Labels
from cofed.sites.row_options import RowNumbers, row_options
from cofed.solvers import active_set
from cofed.solvers.active_set import ElasticQuadratic

STATIONARY = 1e-8  # of the slope at 0: gradients are known to some 1e-12 of it, and coefficients follow them
NEAR = 1e-11  # of that slope: no further look is worth it
LOOKS = 25  # the most
LINEAR = 60  # approximations of the penalty in one quadratic model
SHRINK = 4.0  # a step that raises the objective is made so many times shorter


@dataclasses.dataclass(frozen=True)
class ConcavePath(RegularizationPath):
    """The models of a path of a penalty that is not convex.

    Attributes
    ----------
    stationarity : ndarray of shape (strengths,)
        The largest violation of the conditions of a stationary point, as a part of the penalty's slope at 0.
        `converged` says whether it is at most 1e-8; `gaps` are NaN, since no duality gap holds.
    """

    stationarity: np.ndarray = dataclasses.field(default_factory=lambda: np.zeros(0))


def concave_path(
    estimator: Given[FederatedLinearModel],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    penalty: Given[MCP | SCAD],
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
    alphas: Given[npt.ArrayLike | None] = None,
    n_alphas: Given[int] = 100,
    eps: Given[float] = 1e-3,
    dfmax: Given[int | None] = None,
) -> ConcavePath:
    """The path of MCP or SCAD in place of an estimator's l1 norm: large coefficients are not shrunk.

    Parameters
    ----------
    estimator : FederatedLasso, FederatedLogisticRegression (of two classes) or FederatedPoisson
        An estimator with a lasso's penalty, whose strength does not matter; it says the loss, `standardize`,
        `penalty_factor` (which multiplies the strength), `exclude` and `site_effects`.
    X, y, clients, sample_weight, offset
        As in the estimator's `fit`.
    penalty : MCP or SCAD
        `cofed.MCP(1.0, gamma=3.0)` or `cofed.SCAD(1.0, a=3.7)`, of strength 1: the strengths are `alphas`.
    alphas, n_alphas, eps, dfmax
        As in `regularization_path`: the strengths are those of the lasso.

    Returns
    -------
    ConcavePath
        The models, each a stationary point that is reached from the lasso's of the same strength.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> from cofed.estimators import FederatedLasso, concave_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> y, site = 3 * X[:, 0] + rng.normal(size=60), np.arange(60) % 3
    >>> path = concave_path(FederatedLasso(), X, y, site, penalty=cofed.MCP(1.0), alphas=[0.5])
    >>> path.coefs.round(1).tolist(), bool(path.converged.all())
    ([[3.2, 0.0, 0.0, 0.0, 0.0]], True)
    """
    owner = type(estimator).__name__
    if not isinstance(penalty, (MCP, SCAD)):
        raise TypeError(f"{owner}: penalty must be a cofed.MCP or a cofed.SCAD, got {penalty!r}")
    if float(penalty.strength) != 1:
        raise ValueError(f"{owner}: penalty must have the strength 1, which alphas multiply, got {penalty!r}")
    given, asked = row_options(owner, X, sample_weight, offset), PathRequest(alphas, n_alphas, eps, dfmax)

    def check(problem: StandardizedProblem) -> None:
        check_size(owner, "paths of MCP and SCAD", problem)
        check_l1(estimator, problem)

    found = solved_path(estimator, given, y, clients, asked, check)
    points = solved(found, penalties(estimator, found, penalty))
    far = np.array([one.violation() for one in points])
    good = far <= STATIONARY
    if not good.all():
        warnings.warn(
            f"{owner}: {int((~good).sum())} of {len(good)} models are not stationary: the largest violation is "
            f"{far.max():.3g} of the penalty's slope, and {STATIONARY:g} was to be reached",
            ConvergenceWarning,
            stacklevel=2,
        )
    problem = found.problem
    coefs, intercepts = shown_models(estimator, problem, [weights(one.at.theta, problem.start) for one in points])
    values = {field.name: getattr(found.path, field.name) for field in dataclasses.fields(RegularizationPath)}
    return ConcavePath(
        **values
        | {
            "coefs": coefs,
            "intercepts": intercepts,
            "deviance": 2 * problem.units.objective * np.array([one.at.loss for one in points]),
            "nonzero": np.array([np.count_nonzero(coef) for coef in coefs]),
            "gaps": np.full(len(points), np.nan),
            "converged": good,
            "n_rounds": problem.n_rounds,
            "bytes": problem.bytes,
        },
        stationarity=far,
    )


@dataclasses.dataclass(frozen=True)
class ConcavePenalty:
    """sum_j p(unit_j |v_j|) / objective with the strengths alpha_j, of the parameters v as they are solved for."""

    shape: MCP | SCAD
    alpha: np.ndarray  # the strengths, by feature; 0 is not penalised
    unit: np.ndarray  # what the penalty is about is so many times the solved coefficients
    objective: float  # by which the user's objective is divided
    out: np.ndarray  # features that are left out

    @property
    def own(self) -> MCP | SCAD:
        """The penalty of strength 1. Of another it is alpha^2 p_1(u / alpha), so that this serves all."""
        return dataclasses.replace(self.shape, strength=1.0)

    def slope(self, theta: np.ndarray) -> np.ndarray:
        """The derivatives by |v_j|, for all parameters; 0 for the intercept."""
        p = len(self.unit)
        size = np.abs(theta[:p]) * self.unit
        alpha = np.where(self.alpha > 0, self.alpha, 1)
        relative = np.where(size > 0, np.abs(np.asarray(self.own.subgradient(jnp.asarray(size / alpha)))), 1.0)
        found = np.where(self.alpha > 0, self.alpha * relative, 0) * self.unit / self.objective
        return np.append(np.where(self.out, LARGEST, found), np.zeros(len(theta) - p))

    def bend(self, theta: np.ndarray) -> np.ndarray:
        """How much the slopes fall where |v_j| grows."""
        p = len(self.unit)
        full, now = self.slope(np.zeros_like(theta))[:p], self.slope(theta)[:p]
        curved = (now > 0) & (now < full)
        rate = float(self.shape.weak_convexity) * self.unit**2 / self.objective
        return np.append(np.where(curved, rate, 0), np.zeros(len(theta) - p))

    def value(self, theta: np.ndarray) -> float:
        """The penalty."""
        p = len(self.unit)
        size, alpha = np.abs(theta[:p]) * self.unit, np.where(self.alpha > 0, self.alpha, 1)
        each = np.asarray(jax.vmap(self.own.value)(jnp.asarray(size / alpha)[:, None]))
        return float(np.sum(np.where(self.alpha > 0, alpha**2 * each, 0))) / self.objective


@dataclasses.dataclass
class ConcavePoint:
    """A model on its way to a stationary point."""

    penalty: ConcavePenalty
    at: SecondOrder  # the best model so far
    length: float = 1.0  # of the next step
    done: bool = False

    @property
    def objective(self) -> float:
        """Loss and penalty."""
        return self.at.loss + self.penalty.value(self.at.theta)

    def violation(self) -> float:
        """The largest violation of the conditions of a stationary point, as a part of the slope at 0."""
        theta, g = self.at.theta, self.at.gradient
        full, now = self.penalty.slope(np.zeros_like(theta)), self.penalty.slope(theta)
        off = np.where(theta != 0, np.abs(g + np.sign(theta) * now), np.maximum(np.abs(g) - full, 0))
        typical = full[(full > 0) & (full < LARGEST)].max(initial=EPS)
        return float(np.max(off / np.where((full > 0) & (full < LARGEST), full, typical)))

    def candidate(self) -> np.ndarray:
        """The next model: towards the stationary point of the penalised quadratic model, as far as `length`."""
        theta, H, g = self.at.theta, self.at.hessian, self.at.gradient
        z = theta
        for _ in range(LINEAR):
            l1 = self.penalty.slope(z)
            new = active_set.minimise(ElasticQuadratic(H, g, theta, l1, np.zeros_like(l1)), z)
            same = np.array_equal(new != 0, z != 0)
            z = new
            exact = self.polished(z) if same else None
            if exact is not None:
                z = exact
                break
        return z if self.length == 1 else theta + self.length * (z - theta)

    def polished(self, z: np.ndarray) -> np.ndarray | None:
        """The stationary point of the quadratic model with the same features in use, between the same knots."""
        own, bend = np.flatnonzero((z != 0) | (self.penalty.slope(np.zeros_like(z)) == 0)), self.penalty.bend(z)
        H = self.at.hessian[np.ix_(own, own)] - np.diag(bend[own])
        slope = self.at.gradient + self.at.hessian @ (z - self.at.theta) + np.sign(z) * self.penalty.slope(z)
        try:
            np.linalg.cholesky(H)  # else it is no minimum on these features
            step = np.linalg.solve(H, -slope[own])
        except np.linalg.LinAlgError:
            return None
        new = z.copy()
        new[own] += step
        kept = np.array_equal(np.sign(new), np.sign(z)) and np.array_equal(self.penalty.bend(new) > 0, bend > 0)
        return new if kept else None

    def advance(self, seen: SecondOrder) -> None:
        """Go to a model that was looked at, or make the step shorter where it is worse."""
        new = ConcavePoint(self.penalty, seen)
        room = 16 * EPS * abs(self.objective)
        if np.isfinite(seen.loss) and new.objective <= self.objective + room:
            stuck = self.objective - new.objective <= room and new.violation() >= self.violation() / 2
            if not stuck or new.violation() < self.violation():
                self.at = seen
            self.length, self.done = 1.0, stuck
        else:
            self.length /= SHRINK
        self.done = self.done or self.violation() <= NEAR or self.length < SHRINK**-10


def check_l1(estimator: FederatedLinearModel, problem: StandardizedProblem) -> None:
    """Refuse an estimator whose penalty is not an l1 norm alone."""
    options, form = estimator._feature_options(), estimator._penalty(problem, 1.0).piecewise_quadratic()
    if form is None or np.any(np.asarray(form.ridge)) or (options is not None and options.is_bounded):
        raise ValueError(
            f"{type(estimator).__name__}: MCP and SCAD take the place of an l1 norm alone, without ridge, groups and "
            "limits"
        )


def penalties(estimator: FederatedLinearModel, found: SolvedPath, penalty: MCP | SCAD) -> list[ConcavePenalty]:
    """The penalty of each strength of a path."""
    problem, options = found.problem, estimator._feature_options()
    factor = np.ones(len(problem.units.mean)) if options is None else options.factor
    out = np.isinf(factor)
    made = [(penalty, alpha * np.where(out, 1.0, factor)) for alpha in found.path.alphas]
    return [ConcavePenalty(*one, problem.units.penalised, problem.units.objective, out) for one in made]


def solved(found: SolvedPath, given: list[ConcavePenalty]) -> list[ConcavePoint]:
    """Stationary points from the lasso's answers: all strengths are looked at together."""
    seen = second_orders(found.problem, [flat(fit.w) for fit in found.answers])
    points = [ConcavePoint(*parts) for parts in zip(given, seen, strict=True)]
    for _ in range(LOOKS):
        open_ = [one for one in points if not one.done]
        if not open_:
            break
        looks = second_orders(found.problem, [one.candidate() for one in open_])
        for one, at in zip(open_, looks, strict=True):
            one.advance(at)
    return points
