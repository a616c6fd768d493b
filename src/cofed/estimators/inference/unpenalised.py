"""The model without a penalty, by Newton's steps: least squares, or the maximum of a likelihood.

A column that depends on the columns before it has no coefficient of its own, and is left out (its coefficient is 0, as
in R, which shows NA). Every point that is looked at tells loss, gradient and Hessian: the last step costs no exchange.
"""

import dataclasses

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from cofed.estimators.inference.independence import Independence, independence
from cofed.estimators.inference.likelihood import Likelihood, LikelihoodPoint

MOST = 12  # the most points looked at
NEAR = 1e-3  # a step of so many standard errors is the last
STILL = 1e-2  # and the squared changes of predictions that it makes sum up to less than this
REFINED = 1e-6  # columns that have less than this of their variance for themselves are solved for twice
SHRINK = 5.0  # a step that raises the loss is made so many times shorter


class Separated(ValueError):
    """Without a penalty there is no best model, or it is too far to be found."""

    def __init__(self, column: int):
        super().__init__(column)
        self.column = column  # where the coefficients grow most


@dataclasses.dataclass(frozen=True)
class Step:
    """A point that was looked at, Newton's step from there, and the inverse of the information."""

    at: LikelihoodPoint
    step: np.ndarray
    inverse: np.ndarray


@dataclasses.dataclass(frozen=True)
class UnpenalisedModel:
    """The best model without a penalty."""

    theta: np.ndarray  # all parameters, 0 where they are not free
    where: np.ndarray  # the positions of those that are free
    inverse: np.ndarray  # of the information, which the last point told
    information: np.ndarray
    loss: float  # of all rows
    columns: Independence


def unpenalised(likelihood: Likelihood, theta: np.ndarray, among: np.ndarray | None = None) -> UnpenalisedModel:
    """The best model without a penalty, from a start; on all columns, or on some, the others having no parameters."""
    found = independent(likelihood, among)
    kept = np.flatnonzero(found.kept)
    where = likelihood.positions(kept)
    if likelihood.problem.hessian is not None:
        last = refined(likelihood, likelihood.at_null(where), found.smallest)
    else:
        begin = np.zeros((likelihood.columns, likelihood.outputs))
        begin[kept] = found.shares @ theta.reshape(begin.shape)  # the same predictions, from the kept columns
        last = settled(likelihood, likelihood.look(begin.ravel(), where), kept)
    at = last.at
    loss = at.loss + float(at.gradient @ last.step) / 2
    return UnpenalisedModel(at.moved(last.step), where, last.inverse, at.information, loss, found)


def independent(likelihood: Likelihood, among: np.ndarray | None) -> Independence:
    """The columns that depend on none before them, the intercept being the first."""
    p, size = likelihood.features, likelihood.columns
    products = likelihood.own_products
    if among is not None:
        asked = np.isin(np.arange(size), among)
        products = np.where(np.outer(asked, asked), products, 0)
    return independence(products, np.append(np.arange(p, size), np.arange(p)))


def refined(likelihood: Likelihood, at: LikelihoodPoint, smallest: float) -> Step:
    """One step of a squared loss; where rounding may count, another from a look at where the first has led."""
    first = newton_step(at)
    left = at.loss + float(at.gradient @ first.step) / 2
    if smallest >= REFINED and left >= REFINED * at.loss:
        return first
    seen = likelihood.look(at.moved(first.step), at.where, at.information)
    return Step(seen, -first.inverse @ seen.gradient, first.inverse)


def settled(likelihood: Likelihood, at: LikelihoodPoint, columns: np.ndarray) -> Step:
    """Steps until the next one is too short to matter; that one is the result."""
    length, last = 1.0, newton_step(at)
    for _ in range(MOST - 1):
        distance = -float(at.gradient @ last.step)  # squared, in standard errors
        if distance <= NEAR**2 and likelihood.change(last.step, columns) <= STILL:
            return last
        seen = likelihood.look(at.moved(length * last.step), at.where)
        if np.isfinite(seen.loss) and seen.loss <= at.loss + 1e-12 * abs(at.loss):
            try:
                at, last, length = seen, newton_step(seen), 1.0
            except np.linalg.LinAlgError:
                break
        else:
            length /= SHRINK
    growth = np.abs(last.step.reshape(len(columns), -1)).max(axis=1) * np.sqrt(np.diag(likelihood.products)[columns])
    features = columns < likelihood.features
    raise Separated(int(columns[features][growth[features].argmax()]))


def newton_step(at: LikelihoodPoint) -> Step:
    """The step to the minimum of the quadratic model at a point."""
    scale = 1 / np.sqrt(np.diag(at.information))
    factor = cho_factor(at.information * np.outer(scale, scale))
    inverse = cho_solve(factor, np.eye(len(scale))) * np.outer(scale, scale)
    return Step(at, -scale * cho_solve(factor, scale * at.gradient), inverse)
