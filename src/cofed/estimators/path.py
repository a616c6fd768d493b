"""Whole paths of models, from the strength at which nothing is used down to a fraction of it.

A squared loss is known from the survey, so where there are not too many features (2048) the server finds the whole
path, and its certificates, by itself; of more features it asks for columns of their products, and then looks at all
models together. For other losses the models of all strengths, and of all folds, are looked at
together, in some ten exchanges. Where neither serves, strengths are solved one after another.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning

from cofed._util.rounding import EPS
from cofed._util.types import Given
from cofed.estimators import lock_step
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_count, check_number
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.fitted_state import refuse_privacy
from cofed.estimators.lock_step import PathsAnswer
from cofed.estimators.penalty import elastic_net
from cofed.estimators.progress import CertifiedFit
from cofed.estimators.site_effects import mean_intercepts
from cofed.estimators.solver import choose, solve
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.models import Weights
from cofed.sites.intake import Clients, FitFeatures, Labels, feature_names
from cofed.sites.row_options import RowNumbers, RowOptions, row_options

MOST = 10_000  # strengths of a path
NEAR = 1e-3  # how exactly numbers of a loss are estimated, beside strengths
STRONG = 1e50  # times a penalty, and no feature that is penalised is in use


def alpha_max(estimator: FederatedLinearModel, problem: StandardizedProblem) -> float:
    """The least strength at which no feature is used, from the gradient of the model without features."""
    psi, g, room = estimator._penalty(problem, 1.0), problem.null.gradient.coef, 4 * EPS  # the quotient is rounded
    options = estimator._feature_options()
    free = np.zeros(len(g), bool) if options is None else options.factor == 0
    if free.any():  # the features that are not penalised are always in use
        tol, most = float(estimator.tol), int(estimator.max_rounds)
        strong = psi.scaled(STRONG)
        g, room = solve(problem, strong, estimator.algorithm, tol, most).assessment.gradient.coef, 1e-9
        g = jnp.where(jnp.asarray(free).reshape((-1,) + (1,) * (g.ndim - 1)), 0, g)
    # A ridge alone sets nothing to zero: with less than a thousandth of l1 norm, the strength for a thousandth.
    thousandth = elastic_net(1.0, 1e-3, problem.units, g.ndim, options)
    largest = min(float(psi.zeroing_factor(g)), float(thousandth.zeroing_factor(g)))
    return largest * (1 + room)


def strengths(estimator: FederatedLinearModel, problem: StandardizedProblem, n_alphas: int, eps: float) -> np.ndarray:
    """From alpha_max down to eps times it, evenly on a logarithmic scale."""
    top = alpha_max(estimator, problem)
    return np.geomspace(top if top > 0 else 1.0, eps * (top if top > 0 else 1.0), n_alphas)


def solve_paths(
    estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray, folds: bool = False
) -> PathsAnswer:
    """The answers for every strength, with `folds` also those without each fold."""
    return solve_grids([estimator], problem, [alphas], folds)[0]


def solve_grids(
    estimators: Sequence[FederatedLinearModel], problem: StandardizedProblem, alphas: Sequence[np.ndarray], folds: bool
) -> list[PathsAnswer]:
    """The answers of estimators with different penalties for every strength of each.

    All together where a grid serves (see `lock_step.py`); else, and without a penalty, one strength after another.
    """
    first = estimators[0]
    parts = [problem, *(problem.parts if folds else [])]
    together = [own[own > 0] if by_grid(one, problem) else own[:0] for one, own in zip(estimators, alphas, strict=True)]
    grids = [(one._penalty, own) for one, own in zip(estimators, together, strict=True) if len(own)]
    solved = iter(lock_step.solve_paths(parts, grids, float(first.tol), int(first.max_rounds)) if grids else [])
    nothing = PathsAnswer([], [[] for _ in parts[1:]], np.zeros((len(parts) - 1, 0)))
    return [
        with_the_rest(one, parts, own, next(solved) if len(begun) else nothing)
        for one, own, begun in zip(estimators, alphas, together, strict=True)
    ]


def with_the_rest(
    estimator: FederatedLinearModel, parts: Sequence[StandardizedProblem], alphas: np.ndarray, found: PathsAnswer
) -> PathsAnswer:
    """The answers of a grid, of the first of the strengths, and those that it does not serve for."""
    problem, together, rest = parts[0], alphas[: len(found.models)], alphas[len(found.models) :]
    # Without a penalty on some coefficients, a certificate takes the model's own Hessian.
    if not estimator._penalty(problem, 1.0).coercive:
        models = [
            fit if not fit.cause else one_by_one(estimator, problem, np.array([alpha]), [fit])[0]
            for alpha, fit in zip(together, found.models, strict=True)
        ]
        found = dataclasses.replace(found, models=models)
    if not len(rest):
        return found
    # Each part begins from its own last model: what is known of that of all rows has seen the rows held out.
    own_last = [found.models[-1:], *(own[-1:] for own in found.of_folds)]
    answers = [one_by_one(estimator, part, rest, last) for part, last in zip(parts, own_last, strict=True)]
    held = [
        part.look([fit.w for fit in own]).held / problem.survey.sums.n[part.without]
        for part, own in zip(parts[1:], answers[1:], strict=True)
    ]
    return PathsAnswer(
        found.models + answers[0],
        [[*before, *after] for before, after in zip(found.of_folds, answers[1:], strict=True)],
        np.hstack([found.held, np.reshape(held, (len(parts) - 1, len(rest)))]),
    )


def by_grid(estimator: FederatedLinearModel, problem: StandardizedProblem) -> bool:
    """Whether all strengths are solved together."""
    psi, algorithm = estimator._penalty(problem, 1.0), estimator.algorithm
    if not isinstance(algorithm, str) or algorithm not in ("auto", "newton") or not lock_step.serves(problem, psi):
        return False
    return algorithm == "newton" or problem.loss.quadratic or choose(problem, psi) == "newton"


def one_by_one(
    estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray, warm: list[CertifiedFit]
) -> list[CertifiedFit]:
    """The answers for every strength, each begun from the one before."""
    answers = warm[:1]
    for alpha in alphas:
        psi, before = estimator._penalty(problem, float(alpha)), answers[-1] if answers else None
        answers.append(
            solve(problem, psi, estimator.algorithm, float(estimator.tol), int(estimator.max_rounds), before)
        )
    return answers[len(warm[:1]) :]


def warn(answers: list[CertifiedFit], what: str = "models of the path", stacklevel: int = 3) -> None:
    """One warning for all answers that are not good enough, with the first one's cause."""
    causes = [answer.cause for answer in answers if answer.cause]
    if causes:
        sentence = f"{len(causes)} of {len(answers)} {what} are not converged; the first: {causes[0]}"
        warnings.warn(sentence, ConvergenceWarning, stacklevel=stacklevel)


def collect(
    estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray, answers: list[CertifiedFit]
) -> RegularizationPath:
    """The answers as a path."""
    coefs, intercepts = shown_models(estimator, problem, [answer.w for answer in answers])
    size, loss = problem.units.objective, problem.loss.of_rows
    return RegularizationPath(
        alphas=np.asarray(alphas, float),
        coefs=coefs,
        scale=problem.units.standard,
        intercepts=intercepts,
        deviance=np.array([2 * size * float(answer.assessment.loss) for answer in answers]),
        nonzero=np.array([np.count_nonzero(coef) for coef in coefs]),
        gaps=np.array([answer.certificate.gap for answer in answers]),
        converged=np.array([answer.certificate.converged for answer in answers]),
        n=problem.n,
        n_rounds=problem.n_rounds,
        bytes=problem.bytes,
        gaussian=loss.location or loss.estimates_dispersion,
        absolute=loss.absolute,
        feature_names=tuple(feature_names(estimator)),
        weight=problem.weight if problem.sites.has_weights else None,
        has_offset=problem.sites.has_offsets,
    )


def shown_models(
    estimator: FederatedLinearModel, problem: StandardizedProblem, models: Sequence[Weights]
) -> tuple[np.ndarray, np.ndarray]:
    """The coefficients and intercepts of models for the features as they were given, one after another."""
    own = mean_intercepts(problem, models) if problem.survey.loss.site_parameters else None
    found = [problem.original(w, None if own is None else own[i]) for i, w in enumerate(models)]
    shown = [estimator._output(coef, intercept) for coef, intercept in found]
    coefs = np.stack([coef for coef, _ in shown]) + 0.0  # no -0
    return coefs, np.stack([np.asarray(intercept) for _, intercept in shown])


class PathRequest(NamedTuple):
    """Which strengths a path has."""

    alphas: Given[npt.ArrayLike | None]
    n_alphas: Given[int]
    eps: Given[float]
    dfmax: Given[int | None]


@dataclasses.dataclass(frozen=True)
class SolvedPath:
    """A path, with the problem in the solver's units and the answers there."""

    problem: StandardizedProblem
    answers: list[CertifiedFit]
    path: RegularizationPath


def solved_path(
    estimator: FederatedLinearModel,
    given: RowOptions,
    y: Labels,
    clients: Clients,
    asked: PathRequest,
    check: Callable[[StandardizedProblem], None] = lambda problem: None,
) -> SolvedPath:
    """The path of an estimator, up to the first model with more than `dfmax` features; `check` may refuse its problem,
    before any model is sought."""
    name = type(estimator).__name__
    if not isinstance(estimator, FederatedLinearModel) or "alpha" not in estimator.get_params():
        raise ValueError(f"{name} has no strength alpha, and so no path")
    estimator._check_parameters()
    refuse_privacy(estimator, "paths", "every strength would cost; the CV estimators give a path_ for the price of one")
    check_count(name, "n_alphas", asked.n_alphas, high=MOST)
    check_number(name, "eps", asked.eps, low=0, high=1, strict=True)
    if asked.dfmax is not None:
        check_count(name, "dfmax", asked.dfmax)
    alphas = None if asked.alphas is None else ordered(name, asked.alphas)
    answers: list[CertifiedFit] = []

    def solved(problem: StandardizedProblem, before: CertifiedFit | None) -> CertifiedFit:
        nonlocal alphas
        if asked.alphas is None:
            alphas = strengths(estimator, problem, int(asked.n_alphas), float(asked.eps))
        assert alphas is not None
        answers[:] = solve_paths(estimator, problem, alphas).models
        return answers[-1]

    begin = estimator._standardized(estimator._sites_of(given, y, clients))
    check(begin)
    problem, _ = estimator._settled(begin, solved, NEAR)
    assert alphas is not None
    if asked.dfmax is not None:
        used = [int(np.any(np.atleast_2d(np.asarray(fit.w.coef).T), axis=0).sum()) for fit in answers]
        kept = next((i for i, count in enumerate(used) if count > int(asked.dfmax)), len(used))
        if kept == 0:
            raise ValueError(f"{name}: dfmax={asked.dfmax}, but the first model of the path has {used[0]} features")
        alphas, answers = alphas[:kept], answers[:kept]
    warn(answers, stacklevel=4)
    return SolvedPath(problem, answers, collect(estimator, problem, alphas, answers))


def regularization_path(
    estimator: Given[FederatedLinearModel],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
    alphas: Given[npt.ArrayLike | None] = None,
    n_alphas: Given[int] = 100,
    eps: Given[float] = 1e-3,
    dfmax: Given[int | None] = None,
) -> RegularizationPath:
    """The path of an estimator with a strength `alpha`, such as FederatedLasso() or FederatedLogisticRegression().

    Parameters
    ----------
    estimator : FederatedLinearModel
        An estimator with a parameter `alpha`, whose value does not matter.
    X, y, clients, sample_weight, offset
        As in the estimator's `fit`.
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from alpha_max (found by the federation) down to eps times it.
    n_alphas : int, default=100
        How many strengths.
    eps : float, default=1e-3
        The last strength as a part of the first.
    dfmax : int, optional
        The path ends before the first model that uses more features.

    Returns
    -------
    RegularizationPath
        The models.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso, regularization_path
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(60, 5))
    >>> path = regularization_path(FederatedLasso(), X, X[:, 0] + 0.1 * rng.normal(size=60), np.arange(60) % 3)
    >>> path.coefs.shape, int(path.nonzero[0]), int(path.nonzero[-1]), bool(path.converged.all())
    ((100, 5), 0, 5, True)
    """
    given = row_options(type(estimator).__name__, X, sample_weight, offset)
    return solved_path(estimator, given, y, clients, PathRequest(alphas, n_alphas, eps, dfmax)).path


def ordered(owner: str, alphas: Given[npt.ArrayLike]) -> np.ndarray:
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
