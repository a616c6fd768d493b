"""The dispersion of negative binomial counts, estimated by maximum likelihood in turn with the model.

Given theta the coefficients minimise a convex objective, as of any other loss. Given the model, theta maximises the
likelihood of the counts, a function of one number whose values and derivatives are sums over the sites' rows. The two
hardly depend on each other (without a penalty their estimates are uncorrelated in large samples), so that few turns
reach a point where neither changes: the maximum likelihood of both, as R's `glm.nb` finds it.
"""

import dataclasses
import warnings
from collections.abc import Callable

import numpy as np
from scipy.interpolate import CubicHermiteSpline
from sklearn.exceptions import ConvergenceWarning

from cofed.estimators.progress import Solve, Solved
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.survey import Survey
from cofed.losses import NegativeBinomial
from cofed.models import Weights
from cofed.sites.queries import DispersionMessage, LookMessage, dispersion, look

TRIED = 9  # dispersions in a question
WIDEST, NARROWEST = 3.0, 1e-4  # how far they go to both sides, in log theta
LARGEST = 1e6  # theta, beside the mean: counts that vary like Poisson's
QUESTIONS = 40  # the most about one model
TURNS = 40  # the most of theta and the model
FASTEST = 0.7  # the most of a step that may come back for the next to be extrapolated


def likeliest(problem: StandardizedProblem, w: Weights, begin: float, width: float) -> float:
    """The logarithm of the theta that makes the counts likeliest, the model's means being known.

    A question tells slopes at several theta around a guess. Where the slope changes its sign between two of them, a
    spline tells where; else the guess goes on in the direction in which the likelihood grows.
    """
    labels, p = problem.units.labels, len(problem.units.mean)
    most = float(np.log(LARGEST * max(problem.survey.label_moments.mean, 1.0)))
    guess = begin
    for _ in range(QUESTIONS):
        tried = np.unique(np.minimum(guess + width * np.linspace(-1, 1, TRIED), most))
        message = DispersionMessage(
            coef=np.reshape(np.asarray(w.coef, np.float64), (p, 1)),
            intercept=np.zeros(1) if w.intercept is None else np.reshape(np.asarray(w.intercept, np.float64), 1),
            unit=np.array([labels.size]),
            log_theta=tried,
            scaling=problem.units.scaling,
            folds=problem.survey.folds,
            loss=problem.asked_loss,
        )
        found = problem.sites.ask(dispersion, message)
        slope = np.asarray(found.slope)
        if slope[-1] <= 0 and tried[-1] >= most:
            return most
        if slope[0] < 0 < slope[-1]:
            roots = CubicHermiteSpline(tried, slope, np.asarray(found.bend)).roots(extrapolate=False)
            rising = [one for one in roots if np.isfinite(one)]
            return float(min(rising, key=lambda one: abs(one - guess)))
        guess = tried[-1] if slope[-1] <= 0 else tried[0]
        width = min(2 * width, WIDEST)
    return guess


def surveyed_at(problem: StandardizedProblem, theta: float) -> Survey:
    """What the survey would have told with another theta: one exchange for the losses of its constant, by fold, unless
    the best constant is sought anyway."""
    loss = problem.survey.loss.with_rows(NegativeBinomial(theta))
    found = dataclasses.replace(problem.survey, loss=loss, null=None)
    if not found.has_closed_null:
        return found
    labels, parts = problem.units.labels, found.n_folds + 1
    constant = (found.constant - labels.shift) / labels.stretch
    message = LookMessage(
        coef=np.zeros((parts, len(problem.units.mean), 1)),
        intercept=np.tile(constant, (parts, 1)),
        without=np.arange(-1, parts - 1, dtype=np.int32),
        closer=np.zeros(0, np.int32),
        where=np.zeros((0, 0), np.int32),
        scaling=problem.units.scaling,
        folds=found.folds,
        loss=found.loss.in_units(labels),
    )
    losses = labels.objective * np.asarray(found.sites.ask(look, message).loss)  # of all rows, then without each fold
    by_fold = losses[0] - losses[1:] if parts > 1 else losses
    return dataclasses.replace(found, gram=found.gram._replace(loss=by_fold))


def alternated(
    problem: StandardizedProblem,
    pose: Callable[[Survey], StandardizedProblem],
    solve: Solve,
    near: float,
) -> Solved:
    """Theta and the model in turn, until log theta changes by at most `near`; the last problem, and its answer.

    Parameters
    ----------
    problem : StandardizedProblem
        With the first theta.
    pose : function
        The problem that a survey tells of.
    solve : function
        The answer of a problem, begun from another one's.
    near : float
        When to stop.
    """
    fit, change, turns = solve(problem, None), WIDEST / 4, []
    for _ in range(TURNS):
        loss = problem.survey.loss.of_rows
        assert isinstance(loss, NegativeBinomial)
        before = float(np.log(float(loss.known_theta)))
        after = likeliest(problem, fit.w, before, float(np.clip(4 * change, NARROWEST, WIDEST)))
        change = abs(after - before)
        if change <= near:
            break
        turns.append((before, after))
        problem = pose(surveyed_at(problem, float(np.exp(next_theta(turns)))))
        fit = solve(problem, fit)
    else:
        warnings.warn(
            f"theta changes still, by {change:.2g} of itself, after {TURNS} turns of it and the model",
            ConvergenceWarning,
            stacklevel=4,
        )
    warn_of_poisson(problem)
    return problem, fit


def next_theta(turns: list[tuple[float, float]]) -> float:
    """Where the turns lead to, if the answer is a linear function of the question, as the last two were.

    >>> from cofed.estimators.dispersion import next_theta
    >>> next_theta([(0.0, 1.0), (1.0, 1.25)])  # a quarter of every step comes back
    1.3333333333333333
    """
    before, after = turns[-1]
    if len(turns) < 2 or turns[-2][0] == before:
        return after
    rate = (after - turns[-2][1]) / (before - turns[-2][0])
    return before + (after - before) / (1 - rate) if abs(rate) < FASTEST else after


def warn_of_poisson(problem: StandardizedProblem) -> None:
    """Say where theta has no end."""
    loss, mean = problem.survey.loss.of_rows, max(problem.survey.label_moments.mean, 1.0)
    assert isinstance(loss, NegativeBinomial)
    if float(loss.known_theta) >= LARGEST * mean * (1 - 1e-9):
        warnings.warn(
            "the counts vary no more than Poisson's do, so that the likeliest theta is infinite: take FederatedPoisson",
            ConvergenceWarning,
            stacklevel=5,
        )


def first_theta(problem: StandardizedProblem) -> float:
    """The likeliest theta of the model without features, begun from the counts' mean and variance."""
    found = problem.survey.label_moments
    least = found.mean**2 / (LARGEST * max(found.mean, 1.0))  # where all counts are the same
    excess = max(found.var - found.mean, 1e-3 * found.var, least)
    begin = float(np.log(found.mean**2 / excess))
    return float(np.exp(likeliest(problem, problem.start, begin, WIDEST)))
