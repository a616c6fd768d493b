"""Whole paths of models, from the strength at which nothing is used down to a fraction of it.

A squared loss is known from its gradient and Hessian, so where those are not too large (2048 parameters) the clients
send them once and the server finds the whole path, and its certificates, by itself. Other losses take a few rounds
per strength, each begun from the answer before.
"""

import warnings

import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from cofed._util.rounding import EPS
from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.certificate import Assessment, gradient_rounding
from cofed.estimators.checks import check_count, check_number
from cofed.estimators.newton import sharper_of
from cofed.estimators.polish import by_pieces
from cofed.estimators.progress import LARGEST, CertifiedFit, FitProgress
from cofed.estimators.quadratic import Quadratic, assess_on_server, refined
from cofed.estimators.regularization_path import RegularizationPath
from cofed.estimators.solver import solve
from cofed.estimators.standardized_problem import StandardizedProblem, n_parameters
from cofed.models import Weights
from cofed.regularizers import AbstractRegularizer
from cofed.sites.intake import Clients, FitFeatures, Labels, feature_names

MOST = 10_000  # strengths of a path


def alpha_max(estimator: FederatedLinearModel, problem: StandardizedProblem) -> float:
    """The least strength at which no feature is used, from the gradient of the model without features."""
    psi, g = estimator._penalty(problem, 1.0), problem.null.gradient.coef
    # A ridge alone sets nothing to zero: with less than a thousandth of l1 norm, the strength for a thousandth.
    thousandth = 1e-3 * problem.units.weights(g.ndim) / problem.units.objective
    largest = min(float(psi.zeroing_factor(g)), float(jnp.max(jnp.abs(g) / thousandth)))
    return largest * (1 + 4 * EPS)  # the quotient is rounded


def strengths(estimator: FederatedLinearModel, problem: StandardizedProblem, n_alphas: int, eps: float) -> np.ndarray:
    """From alpha_max down to eps times it, evenly on a logarithmic scale."""
    top = alpha_max(estimator, problem)
    return np.geomspace(top if top > 0 else 1.0, eps * (top if top > 0 else 1.0), n_alphas)


def solve_path(estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray) -> list[CertifiedFit]:
    """The answers for every strength, each begun from the one before."""
    automatic = isinstance(estimator.algorithm, str) and estimator.algorithm == "auto"
    if automatic and problem.hessian is not None and n_parameters(problem.start) <= LARGEST:
        return solve_on_server(estimator, problem, alphas)
    answers: list[CertifiedFit] = []
    tol = float(estimator.tol)
    for alpha in alphas:
        psi = estimator._penalty(problem, float(alpha))
        warm = answers[-1] if answers else None
        answers.append(solve(problem, psi, estimator.algorithm, tol, int(estimator.max_rounds), warm))
    return answers


def solve_on_server(
    estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray
) -> list[CertifiedFit]:
    """The path of a quadratic loss, which is known from the survey: no exchange."""
    hessian = problem.hessian
    assert hessian is not None
    quadratic = Quadratic(hessian, problem.null.gradient, problem.start, problem.null.loss)
    penalties = [estimator._penalty(problem, float(alpha)) for alpha in alphas]
    guesses = by_coordinates(problem, quadratic, penalties)
    answers: list[CertifiedFit] = []
    tol, factors = float(estimator.tol), None
    for k, psi in enumerate(penalties):
        posed, fit = problem.problem(psi), FitProgress(problem, psi, tol, 1, factors)
        w = guesses[k] if guesses is not None else answers[-1].w if answers else problem.start
        seen = assess_on_server(posed, problem.null, quadratic, w)
        if not fit.done(seen):
            w, seen = refined(posed, problem.null, quadratic, w)
            w, seen = polished_on_server(fit, quadratic, w, fit.sharpened(w, seen))
            factors = fit.factors
        answers.append(fit.finished(w, seen, "newton"))
    return answers


def polished_on_server(
    fit: FitProgress, quadratic: Quadratic, w: Weights, seen: Assessment
) -> tuple[Weights, Assessment]:
    """A direct solve where iterations did not get there, and what has the better certificate."""
    problem = fit.problem
    if fit.done(seen) or fit.psi.piecewise_quadratic() is None:
        return w, seen
    noise = gradient_rounding(problem.loss, problem.null, w, seen.loss)
    new = by_pieces(fit.psi, quadratic.hessian, seen.gradient, w, noise)
    found = assess_on_server(problem.problem(fit.psi), problem.null, quadratic, new)
    return sharper_of((w, seen), (new, fit.sharpened(new, found)))


def warn(answers: list[CertifiedFit], what: str = "models of the path", stacklevel: int = 3) -> None:
    """One warning for all answers that are not good enough, with the first one's cause."""
    causes = [answer.cause for answer in answers if answer.cause]
    if causes:
        sentence = f"{len(causes)} of {len(answers)} {what} are not converged; the first: {causes[0]}"
        warnings.warn(sentence, ConvergenceWarning, stacklevel=stacklevel)


def by_coordinates(
    problem: StandardizedProblem, quadratic: Quadratic, penalties: list[AbstractRegularizer]
) -> list[Weights] | None:
    """scikit-learn's coordinate descent, on p + 1 rows that have this Hessian, gradient and loss.

    H = Q D Q' makes the rows D^(1/2) Q', whatever the true rows are; one more row carries what no feature explains.
    Columns are in the user's units, in which all have the same penalty. None where the penalties are no elastic nets
    that set coefficients to zero.
    """
    forms = [psi.piecewise_quadratic() if psi.sparsifying else None for psi in penalties]
    nets = [(np.ravel(form.l1)[0], np.ravel(form.ridge)[0]) for form in forms if form is not None]
    if len(nets) < len(penalties):
        return None
    p, unit = problem.start.coef.size, problem.units.penalised
    alphas = [float(l1 / unit[0] + ridge / unit[0] ** 2) for l1, ridge in nets]
    ratio = float(nets[0][0]) / unit[0] / alphas[0]
    H = np.asarray(quadratic.hessian)[:p, :p]
    values, Q = np.linalg.eigh(H)
    root = np.sqrt(np.maximum(values, 0) * (p + 1))
    seen = -(Q.T @ np.asarray(quadratic.gradient.coef)) * (p + 1)
    real = root > root.max(initial=0) * np.sqrt(EPS) * 1e-3
    target = np.where(real, seen / np.where(real, root, 1), 0)
    rest = 2 * float(quadratic.value) * (p + 1) - target @ target
    X, y = np.vstack([root[:, None] * Q.T / unit, np.zeros(p)]), np.append(target, np.sqrt(max(rest, 0)))
    # What it does not reach is refined, by the certificate.
    options = {"precompute": X.T @ X, "Xy": X.T @ y, "tol": 1e-15, "max_iter": 1000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        coefs = enet_path(X, y, l1_ratio=ratio, alphas=alphas, **options)[1]  # pyright: ignore[reportArgumentType]
    return [Weights(jnp.asarray(coef / unit), problem.start.intercept) for coef in coefs.T]


def collect(
    estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray, answers: list[CertifiedFit]
) -> RegularizationPath:
    """The answers as a path."""
    models = [problem.original(answer.w) for answer in answers]
    shown = [estimator._output(coef, intercept) for coef, intercept in models]
    size = problem.units.objective
    return RegularizationPath(
        alphas=np.asarray(alphas, float),
        coefs=np.stack([coef for coef, _ in shown]),
        scale=problem.units.standard,
        intercepts=np.stack([np.asarray(intercept) for _, intercept in shown]),
        deviance=np.array([2 * size * float(answer.assessment.loss) for answer in answers]),
        nonzero=np.array([np.count_nonzero(coef) for coef, _ in models]),
        gaps=np.array([answer.certificate.gap for answer in answers]),
        converged=np.array([answer.certificate.converged for answer in answers]),
        n=problem.n,
        n_rounds=problem.n_rounds,
        bytes=problem.bytes,
        gaussian=problem.loss.quadratic,
        feature_names=tuple(feature_names(estimator)),
    )


def regularization_path(
    estimator: Given[FederatedLinearModel],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    alphas: Given[npt.ArrayLike | None] = None,
    n_alphas: Given[int] = 100,
    eps: Given[float] = 1e-3,
) -> RegularizationPath:
    """The path of an estimator with a strength `alpha`, such as FederatedLasso() or FederatedLogisticRegression().

    Parameters
    ----------
    estimator : FederatedLinearModel
        An estimator with a parameter `alpha`, whose value does not matter.
    X, y, clients
        As in the estimator's `fit`.
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from alpha_max (found by the federation) down to eps times it.
    n_alphas : int, default=100
        How many strengths.
    eps : float, default=1e-3
        The last strength as a part of the first.

    Returns
    -------
    RegularizationPath
        The models.

    Examples
    --------
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
    estimator._check_parameters()
    check_count(name, "n_alphas", n_alphas, high=MOST)
    check_number(name, "eps", eps, low=0, high=1, strict=True)
    given = None if alphas is None else ordered(name, alphas)
    problem = estimator._standardized(estimator._intake(X, y, clients))
    taken = strengths(estimator, problem, int(n_alphas), float(eps)) if given is None else given
    answers = solve_path(estimator, problem, taken)
    warn(answers)
    return collect(estimator, problem, taken, answers)


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
