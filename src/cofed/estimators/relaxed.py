"""Relaxed paths: every model of a path, mixed with the model without a penalty on the features that it uses.

    w(gamma) = gamma w_alpha + (1 - gamma) w_S,    w_S the least mean loss of models with the features S of w_alpha,

as glmnet's `relax` (Meinshausen 2007; Hastie, Tibshirani, Tibshirani 2020). The models of all sets S are sought
together by Newton's steps, each from the penalised one: a squared loss takes no exchange, others some five for the
whole path.
"""

import dataclasses
import warnings

import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from cofed._util.rounding import EPS
from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_number
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.path import PathRequest, SolvedPath, shown_models, solved_path
from cofed.estimators.second_orders import SecondOrder, check_size, second_orders
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.training_set import flat, weights
from cofed.sites.intake import Clients, FitFeatures, Labels
from cofed.sites.row_options import RowNumbers, row_options

STEPS = 20  # the most looks: the loss of separable data falls by a factor of e with each
SHRINK = 4.0  # a step that raises the loss is made so many times shorter


def relaxed_path(
    estimator: Given[FederatedLinearModel],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    gamma: Given[float] = 0.0,
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
    alphas: Given[npt.ArrayLike | None] = None,
    n_alphas: Given[int] = 100,
    eps: Given[float] = 1e-3,
    dfmax: Given[int | None] = None,
) -> RegularizationPath:
    """The relaxed path of an estimator with a strength `alpha`: glmnet's `relax=TRUE`.

    Parameters
    ----------
    estimator : FederatedLinearModel
        An estimator with a parameter `alpha`, whose value does not matter, and one vector of coefficients.
    X, y, clients, sample_weight, offset
        As in the estimator's `fit`.
    gamma : float, default=0.0
        The part of the penalised model, from 0 (refitted without a penalty) to 1 (the path as it is).
    alphas, n_alphas, eps, dfmax
        As in `regularization_path`.

    Returns
    -------
    RegularizationPath
        The mixed models, with their deviances. `gaps` has, of gamma = 0, how far the mean loss of each refitted model
        is from the least on its features, by Newton's decrement; of others NaN, since they minimise nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso, relaxed_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> path = relaxed_path(FederatedLasso(), X, X[:, 0] + 0.1 * rng.normal(size=60), np.arange(60) % 3, n_alphas=5)
    >>> path.coefs[1].round(2).tolist(), bool(path.converged.all())
    ([1.02, 0.0, 0.0, 0.0, 0.0], True)
    """
    owner = type(estimator).__name__
    check_number(owner, "gamma", gamma, low=0, high=1)
    given, asked = row_options(owner, X, sample_weight, offset), PathRequest(alphas, n_alphas, eps, dfmax)

    def check(problem: StandardizedProblem) -> None:
        options = estimator._feature_options()
        if options is not None and options.is_bounded:
            raise ValueError(f"{owner}: relaxed fits have no limits of coefficients (low, high)")
        check_size(owner, "relaxed fits", problem)

    found = solved_path(estimator, given, y, clients, asked, check)
    if gamma == 1:
        return found.path
    refitted = without_penalty(found, float(estimator.tol))
    good = np.array([one.settled for one in refitted])
    if not good.all():
        warnings.warn(
            f"{owner}: {int((~good).sum())} of {len(good)} relaxed fits are not converged: without a penalty their "
            "coefficients grow without end, as where features tell labels with certainty",
            ConvergenceWarning,
            stacklevel=2,
        )
    part, problem = float(gamma), found.problem
    mixed = [part * flat(fit.w) + (1 - part) * one.theta for fit, one in zip(found.answers, refitted, strict=True)]
    losses = [one.loss for one in refitted] if part == 0 else [one.loss for one in second_orders(problem, mixed)]
    coefs, intercepts = shown_models(estimator, problem, [weights(theta, problem.start) for theta in mixed])
    size = problem.units.objective
    return dataclasses.replace(
        found.path,
        coefs=coefs,
        intercepts=intercepts,
        deviance=2 * size * np.array(losses),
        gaps=size * np.array([one.short for one in refitted]) if part == 0 else np.full(len(mixed), np.nan),
        converged=good,
        n_rounds=problem.n_rounds,
        bytes=problem.bytes,
    )


@dataclasses.dataclass
class Refit:
    """A model without a penalty on some parameters, on its way."""

    where: np.ndarray  # the parameters in use
    at: SecondOrder  # the best model so far
    step: np.ndarray  # of these parameters, to the minimum of the quadratic model there
    short: float  # half of Newton's decrement squared: how much that step would lower the loss
    length: float = 1.0
    settled: bool = False

    @property
    def theta(self) -> np.ndarray:
        """The model: where it is settled, after the last step, which takes no look."""
        return moved(self) if self.settled else self.at.theta

    @property
    def loss(self) -> float:
        """Its mean loss."""
        return max(self.at.loss - self.short, 0.0) if self.settled else self.at.loss


def without_penalty(found: SolvedPath, tol: float) -> list[Refit]:
    """The best model without a penalty on the features of each model of a path; equal sets are solved once."""
    problem, target = found.problem, tol * max(float(found.problem.null.loss), EPS)
    starts = [flat(fit.w) for fit in found.answers]
    p = problem.start.coef.size
    keys = [tuple((theta[:p] != 0).tolist()) for theta in starts]
    first = {key: starts[i] for i, key in reversed(list(enumerate(keys)))}
    seen = second_orders(problem, list(first.values()))
    fits = {}
    for (key, theta), at in zip(first.items(), seen, strict=True):
        where = np.append(np.flatnonzero(key), np.arange(p, len(theta)))
        fits[key] = begun(where, at)
    for _ in range(STEPS):
        for one in fits.values():
            one.settled = one.settled or one.short <= target
        open_ = [one for one in fits.values() if not one.settled]
        if not open_:
            break
        new = second_orders(problem, [moved(one) for one in open_])
        for one, at in zip(open_, new, strict=True):
            advance(one, at)
    return [fits[key] for key in keys]


def begun(where: np.ndarray, at: SecondOrder) -> Refit:
    """A model with Newton's step on some parameters."""
    H, g = at.hessian[np.ix_(where, where)], at.gradient[where]
    step = (
        -np.linalg.lstsq(H, g, rcond=None)[0] if len(where) else g
    )  # features that depend on others share what they explain
    return Refit(where, at, step, -float(g @ step) / 2)


def moved(one: Refit) -> np.ndarray:
    """The model after the step."""
    theta = one.at.theta.copy()
    theta[one.where] += one.length * one.step
    return theta


def advance(one: Refit, at: SecondOrder) -> None:
    """Go to a model that was looked at, or make the step shorter where it is worse."""
    if np.isfinite(at.loss) and at.loss <= one.at.loss + 8 * EPS * abs(one.at.loss):
        next_one = begun(one.where, at)
        one.at, one.step, one.short, one.length = at, next_one.step, next_one.short, 1.0
    else:
        one.length /= SHRINK
