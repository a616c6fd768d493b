"""The best constant predictions where sums do not tell them: of a loss without a link function, and beside offsets."""

import dataclasses
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from scipy.interpolate import BarycentricInterpolator

from cofed.estimators.certificate import FirstOrder
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.models import Weights
from cofed.sites.queries import LookMessage, look

LOOKS = 9  # the most
EVENLY = 65  # constants between two
NEARER = 2.0 ** -np.arange(2, 54, 2)  # distances to where the slope seems to vanish, in parts of the way between two
NODES = 8  # constants whose slopes tell where that is

Bracket = tuple[FirstOrder, FirstOrder]


def best_constants(problems: Sequence[StandardizedProblem]) -> list[StandardizedProblem]:
    """The problems, all of the same rows or of parts of them, with their models without features.

    Of each, a constant below the best one, and one above, are kept for the certificate.
    """
    first = problems[0]
    name = type(first.loss).__name__
    if first.start.intercept is None:
        known = first.survey.null
        if known is not None:
            ends = [one.seen(one.start, known, one.without + 1) for one in problems]
        else:
            ends = [one[0] for one in looked_at(problems, [np.zeros(1)] * len(problems))]
        return [with_null(problem, at, None) for problem, at in zip(problems, ends, strict=True)]
    if np.ndim(first.start.intercept):
        raise TypeError(f"{name} has several outputs but no link, which an intercept needs; see cofed.AbstractLoss")
    doubled = 2.0 ** np.arange(100)
    ends = np.concatenate([-doubled[::-1], [0.0], doubled])
    seen = looked_at(problems, [ends] * len(problems))
    wide = [around(one) for one in seen]
    brackets = [one for one in wide if one is not None]
    if len(brackets) < len(problems):
        raise ValueError(f"{name} has no best constant prediction for these labels")
    outer = list(brackets)
    for _ in range(LOOKS - 1):
        open_ = [s for s, one in enumerate(brackets) if not is_narrow(one)]
        if not open_:
            break
        values = [between(brackets[s], seen[s]) for s in open_]
        for s, found in zip(open_, looked_at([problems[s] for s in open_], values), strict=True):
            seen[s], nearer = found, around(found)
            brackets[s] = brackets[s] if nearer is None else nearer
    best = [min(one, key=lambda end: abs(slope_of(end))) for one in brackets]
    return [with_null(*parts) for parts in zip(problems, best, outer, strict=True)]


def looked_at(problems: Sequence[StandardizedProblem], values: Sequence[np.ndarray]) -> list[list[FirstOrder]]:
    """What is seen of constants, some for each problem: one exchange."""
    first = problems[0]
    count, p = sum(map(len, values)), len(first.units.mean)
    message = LookMessage(
        coef=np.zeros((count, p, 1)),
        intercept=np.concatenate(values)[:, None],
        without=np.repeat([one.without for one in problems], list(map(len, values))).astype(np.int32),
        closer=np.zeros(0, np.int32),
        where=np.zeros((0, 0), np.int32),
        scaling=first.units.scaling,
        folds=first.survey.folds,
        loss=first.asked_loss,
    )
    answer, place, found = first.sites.ask(look, message), 0, []
    for problem, own in zip(problems, values, strict=True):
        zero, free = problem.start.coef, problem.start.intercept is not None
        models = [Weights(zero, jnp.asarray(value) if free else None) for value in own.tolist()]
        found.append([problem.seen(w, answer, place + i) for i, w in enumerate(models)])
        place += len(own)
    return found


def between(bracket: Bracket, seen: list[FirstOrder]) -> np.ndarray:
    """The next constants: evenly between two, and ever nearer to where the slope seems to vanish."""
    low, high = (float(one.w.intercept) for one in bracket)
    x, slope = (np.array([f(one) for one in seen]) for f in (lambda one: float(one.w.intercept), slope_of))
    near = np.argsort(np.abs(x - (low + high) / 2), kind="stable")[:NODES]
    even = np.linspace(low, high, EVENLY)
    if len(np.unique(slope[near])) < NODES or not np.isfinite(slope[near]).all():
        return even
    guess = float(BarycentricInterpolator(slope[near], x[near])(0.0))
    if not low < guess < high:
        return even
    closer = guess + (high - low) * np.concatenate([-NEARER, [0.0], NEARER])
    return np.unique(np.clip(np.concatenate([even, closer]), low, high))


def slope_of(seen: FirstOrder) -> float:
    """The slope of the loss by the constant."""
    return float(seen.gradient.intercept)


def around(seen: list[FirstOrder]) -> Bracket | None:
    """The last constant with a falling loss and the first with a rising one."""
    slopes = list(map(slope_of, seen))
    falling = [i for i, slope in enumerate(slopes) if slope < 0]
    rising = [i for i, slope in enumerate(slopes) if slope > 0]
    if not falling or not rising:
        return None
    return seen[max(falling)], seen[min(rising)]


def is_narrow(bracket: Bracket) -> bool:
    """Whether nothing is left between two constants."""
    low, high = (float(one.w.intercept) for one in bracket)
    return high - low <= 4e-16 * max(1.0, abs(low), abs(high))


def with_null(problem: StandardizedProblem, at: FirstOrder, bracket: Bracket | None) -> StandardizedProblem:
    """The problem with its model without features."""
    null = dataclasses.replace(problem.null, loss=at.loss, gradient=at.gradient, bracket=bracket)
    return dataclasses.replace(problem, null=null, start=at.w)
