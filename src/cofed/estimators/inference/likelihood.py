"""The likelihood of a model in the solver's units: its parameters as one vector, its sums in the user's objective.

Parameters are laid out as in the query `look`: coefficients by feature and output, then the intercepts. Of several
classes, the parameters of the first are 0: coefficients are log odds against it.
"""

import dataclasses
import functools

import jax.numpy as jnp
import numpy as np

from cofed.estimators.inference.independence import LEAST
from cofed.estimators.standardized_problem import StandardizedProblem, second_moments
from cofed.estimators.training_set import null_curvature
from cofed.losses import AbstractLoss, Reweighted
from cofed.models import Weights
from cofed.solvers.curvature import unpack


def reweighted(loss: AbstractLoss) -> AbstractLoss:
    """`Reweighted`, of a loss of all rows of a site that of a row."""
    return loss.with_rows(Reweighted(loss.of_rows))


@dataclasses.dataclass(frozen=True)
class LikelihoodPoint:
    """A model that was looked at: the loss of all rows, and its derivatives by some parameters."""

    theta: np.ndarray  # all parameters
    where: np.ndarray  # positions of those that are free
    loss: float
    gradient: np.ndarray  # by the free ones
    information: np.ndarray  # the Hessian by the free ones

    def moved(self, step: np.ndarray) -> np.ndarray:
        """All parameters, after a step of the free ones."""
        theta = self.theta.copy()
        theta[self.where] += step
        return theta


@dataclasses.dataclass(frozen=True)
class Likelihood:
    """The sum of the rows' losses, as a function of the parameters."""

    problem: StandardizedProblem
    excluded: np.ndarray  # whether each feature is left out
    expected: bool = True  # whether the information is Fisher's, as the model's own standard errors have it

    @property
    def used(self) -> np.ndarray:
        """The columns that have parameters: all features but those that are left out, and the intercept."""
        return np.append(np.flatnonzero(~self.excluded), np.arange(self.features, self.columns))

    @property
    def n(self) -> int:
        """How many rows there are."""
        return self.problem.n

    @property
    def features(self) -> int:
        """p"""
        return len(self.problem.units.mean)

    @property
    def outputs(self) -> int:
        """How many numbers a model predicts for a row."""
        return int(np.size(self.problem.null.mean))

    @property
    def columns(self) -> int:
        """The features and, where there is one, the intercept."""
        return self.features + (self.problem.start.intercept is not None)

    @property
    def at_sites(self) -> int:
        """The intercepts that the sites have for themselves."""
        return self.problem.survey.loss.site_parameters * len(self.problem.sites.names)

    @property
    def is_linear(self) -> bool:
        """Whether the loss is squared, with an unknown variance."""
        return self.problem.survey.loss.of_rows.quadratic

    @property
    def contrasts(self) -> range:
        """The outputs that have parameters: all but the first of several classes."""
        return range(1 if self.problem.loss.any_shift else 0, self.outputs)

    @property
    def weight(self) -> float:
        """A sum over rows of the solved loss is so many times smaller than one of the user's."""
        return self.problem.units.objective

    @property
    def events(self) -> float:
        """The rows that tell coefficients: of the rarest class, or what was counted."""
        labels = np.sum(self.problem.survey.sums.labels, axis=0) * self.n / self.problem.weight
        return self.problem.survey.loss.events(self.n, labels)

    @property
    def rough_dispersion(self) -> float:
        """The dispersion beside the model without features, which is rather too large."""
        loss, found = self.problem.survey.loss, self.problem.survey.label_moments
        if not loss.has_variance:
            return 1.0
        return loss.dispersion(
            float(found.var) / (2 * float(loss.variance(jnp.asarray(found.mean)))), self.n, self.n - 1
        )

    def positions(self, columns: np.ndarray) -> np.ndarray:
        """The positions of the parameters of these columns, column by column."""
        return (np.asarray(columns)[:, None] * self.outputs + np.array(self.contrasts)[None, :]).ravel()

    def vector(self, coef: np.ndarray, intercept: np.ndarray) -> np.ndarray:
        """The parameters of a fitted model: coef of shape (p, outputs), in the user's units."""
        units = self.problem.units
        solved = coef / units.coef[:, None]
        parts = [solved]
        if self.columns > self.features:
            parts.append(((intercept + units.mean @ coef - units.labels.shift) / units.labels.stretch)[None, :])
        table = np.concatenate(parts)
        return (table - table[:, :1] if self.problem.loss.any_shift else table).ravel()

    def model(self, theta: np.ndarray) -> Weights:
        """The parameters as a model."""
        start, split = self.problem.start, self.features * self.outputs
        coef = jnp.asarray(theta[:split].reshape(np.shape(start.coef)))
        if start.intercept is None:
            return Weights(coef, None)
        return Weights(coef, jnp.asarray(theta[split:].reshape(np.shape(start.intercept))))

    def look(self, theta: np.ndarray, where: np.ndarray, information: np.ndarray | None = None) -> LikelihoodPoint:
        """Look at a model, with derivatives by the parameters `where`: one exchange.

        The information is asked for unless it is known.
        """
        answer = self.problem.look([self.model(theta)], [0] if information is None else [], where)
        gradient = np.append(np.ravel(answer.gradient[0]), np.ravel(answer.slope[0]))[where]
        if information is None:
            information = self.weight * unpack(np.asarray(answer.hessian[0]), len(where))
        return LikelihoodPoint(theta, where, self.weight * float(answer.loss[0]), self.weight * gradient, information)

    @property
    def reweighted(self) -> StandardizedProblem:
        """The problem whose loss is `Reweighted`, where the loss has a variance."""
        survey = self.problem.survey
        if not survey.loss.has_variance:
            return self.problem
        asked = dataclasses.replace(survey, loss=reweighted(survey.loss))
        return dataclasses.replace(self.problem, survey=asked)

    def scored(self, theta: np.ndarray, where: np.ndarray) -> LikelihoodPoint:
        """Look at a model as generalised linear models are judged: by Fisher's information and Pearson's residuals.

        Of a loss whose second derivative is its own expectation, or that has no variance, it is `look`; so it is for
        robust standard errors, which believe no variance.
        """
        return (
            dataclasses.replace(self, problem=self.reweighted).look(theta, where)
            if self.expected
            else self.look(theta, where)
        )

    def at_null(self, where: np.ndarray) -> LikelihoodPoint:
        """The model without features, of a squared loss: what the survey has told, without an exchange."""
        null, start = self.problem.null, self.problem.start
        hessian = self.problem.hessian
        assert hessian is not None
        parts = [np.ravel(null.gradient.coef)]
        values = [np.ravel(start.coef)]
        if start.intercept is not None:
            parts.append(np.ravel(null.gradient.intercept))
            values.append(np.ravel(start.intercept))
        total = self.problem.weight * self.weight
        return LikelihoodPoint(
            np.concatenate(values),
            where,
            total * float(null.loss),
            total * np.concatenate(parts)[where],
            total * np.asarray(hessian)[np.ix_(where, where)],
        )

    def response_losses(self, theta: np.ndarray) -> np.ndarray:
        """The losses of a model of several responses, each summed over all rows: from what the survey has told."""
        start, part = self.at_null(np.arange(len(theta))), self.problem.survey.part()
        squares = part.label_var + (0.0 if self.problem.survey.fit_intercept else part.labels**2)
        total = float(self.problem.weight) * self.weight
        first = squares / self.problem.units.labels.size**2
        first = first * (start.loss / total / first.sum())  # the loss may have no half
        away, slope = ((one).reshape(-1, self.outputs) for one in (theta - start.theta, start.gradient / total))
        bent = (start.information @ (theta - start.theta) / total).reshape(-1, self.outputs)
        return total * np.maximum(first + np.sum(away * (slope + bent / 2), axis=0), 0)

    @functools.cached_property
    def products(self) -> np.ndarray:
        """The mean products of all columns: what the survey has told, or one exchange.

        The Hessian of a model that predicts the same for every row is a multiple of them.
        """
        known = second_moments(self.problem)
        if known is not None:
            return known
        where = np.arange(self.columns) * self.outputs
        answer = self.reweighted.look([self.problem.start], [0], where)
        found = unpack(np.asarray(answer.hessian[0]), self.columns)
        spread = np.asarray(self.problem.null.spread)
        largest = int(spread.argmax())
        return found * (spread[largest] ** 2 / found[largest, largest])

    @functools.cached_property
    def own_products(self) -> np.ndarray:
        """Products that tell which columns say something new; beside intercepts or baselines of sites, of what varies
        within a site: the Hessian of the model without features, with zeros for a column that is the same there."""
        problem = self.problem
        if problem.survey.loss.rowwise:
            return self.products
        known, where = null_curvature(problem), np.arange(self.columns) * self.outputs
        if known is None:
            answer = problem.look([problem.start], [0], where)
            found = unpack(np.asarray(answer.hessian[0]), self.columns) / problem.weight
        else:
            found = known[np.ix_(where, where)]
        varies = np.diag(found) > LEAST * problem.units.spread**2
        return np.where(np.outer(varies, varies), found, 0)

    @property
    def within(self) -> str:
        """Among which rows columns say something new, in words for sentences about those that do not."""
        return "" if self.problem.survey.loss.rowwise else " within every site"

    def change(self, step: np.ndarray, columns: np.ndarray) -> float:
        """The sum over all rows of the squared changes of predictions, where these columns' parameters change so."""
        moved = step.reshape(len(columns), len(step) // max(len(columns), 1))
        return self.n * float(np.sum(moved * (self.products[np.ix_(columns, columns)] @ moved)))
