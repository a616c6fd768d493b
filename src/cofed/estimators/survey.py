"""The first two exchanges of a fit: sums, then squares and products around the means, by fold.

From these the server knows, for all rows and for the rows of all folds but one: means, variances, the model without
features with its loss and gradient, and (where the features are not too many) all of a squared loss. Everything is
centred at the sites, so that no large numbers are subtracted.
"""

import dataclasses
from collections.abc import Callable

import jax.numpy as jnp
import numpy as np

from cofed.estimators.moments import Moments
from cofed.losses import AbstractLoss, LabelMoments
from cofed.sites import AbstractSites, Folds
from cofed.sites.queries import GramAnswer, GramMessage, LookAnswer, Message, SumsAnswer, gram, sums
from cofed.sites.queries.base import is_classes, n_responses
from cofed.solvers.curvature import unpack

# The most features whose products are asked for, if the loss is quadratic or not; of several responses, coefficients.
PRODUCTS = {True: 2048, False: 512}


@dataclasses.dataclass(frozen=True)
class PartMoments:
    """What is known of a part of the rows: all, or those of all folds but one."""

    n: int  # rows
    weight: float  # what they count, all together: n where they count alike
    columns: Moments
    shift: np.ndarray  # the columns' means less the centre
    labels: np.ndarray  # the means of the labels' statistic
    label_shift: np.ndarray  # those less their centre
    label_var: np.ndarray
    saturated: float  # the mean loss of the saturated model
    covariance: np.ndarray  # of features (rows) and labels (columns)
    constant_loss: float  # the mean loss of the constant that was asked about


@dataclasses.dataclass(frozen=True)
class Survey:
    """What the first two exchanges told."""

    sites: AbstractSites
    loss: AbstractLoss
    folds: Folds | None
    fit_intercept: bool
    before: int  # the exchanges before them
    sums: SumsAnswer
    gram: GramAnswer
    centre: np.ndarray  # the columns' means
    label_centre: np.ndarray  # the means of the labels' statistic
    constant: np.ndarray  # the best constant prediction, or 0
    # Of a loss that is no sum over rows: a look at the model without features, of all rows and without each fold.
    null: LookAnswer | None = None

    @property
    def has_closed_null(self) -> bool:
        """Whether sums tell the best constant prediction; an offset may be off the labels."""
        return self.loss.has_link and (self.loss.location or not self.sites.has_offsets)

    @property
    def n_folds(self) -> int:
        """How many folds there are."""
        return 0 if self.folds is None else self.folds.n

    def part(self, without: int = -1) -> PartMoments:
        """What is known of the rows of all folds but one; -1 leaves none out."""
        keep = np.arange(len(self.sums.n)) != without
        weight = float(np.sum(np.asarray(self.sums.n)[keep]))
        n = round(weight)
        if self.sites.has_weights:
            n = round(sum(self.sites.sizes) * (weight / float(np.sum(self.sums.n)) if without >= 0 else 1.0))
        mean = lambda values: np.sum(np.asarray(values)[keep], axis=0) / weight  # noqa: E731
        shift, label_shift = mean(self.gram.X), mean(self.gram.labels)
        variances = np.maximum(mean(self.gram.squares) - shift**2, 0)
        return PartMoments(
            n=n,
            weight=weight,
            columns=Moments(n, self.centre + shift, variances),
            shift=shift,
            labels=self.label_centre + label_shift,
            label_shift=label_shift,
            label_var=np.maximum(mean(self.gram.label_squares) - label_shift**2, 0),
            saturated=float(mean(self.sums.saturated)),
            covariance=mean(self.gram.cross) - np.outer(shift, label_shift),
            constant_loss=float(mean(self.gram.loss)),
        )

    def products(self, without: int = -1) -> np.ndarray | None:
        """The mean products of the features around the centre, where they were asked for; parts as in `part`."""
        if not self.gram.products.shape[1]:
            return None
        keep = np.arange(len(self.sums.n)) != without
        n = np.sum(np.asarray(self.sums.n)[keep])
        return unpack(np.sum(np.asarray(self.gram.products)[keep], axis=0) / n, self.sites.n_features)

    @property
    def label_moments(self) -> LabelMoments:
        """What is known of all labels, for their units."""
        part = self.part()
        if is_classes(self.loss):  # whose labels have no mean
            return LabelMoments(part.n, 0.0, 1.0, part.saturated)
        if len(part.labels) > 1:
            return LabelMoments(part.n, part.labels, part.label_var, part.saturated)
        return LabelMoments(part.n, float(part.labels[0]), float(part.label_var[0]), part.saturated)


def survey(
    sites: AbstractSites,
    loss: AbstractLoss,
    fit_intercept: bool,
    check: Callable[[SumsAnswer], None],
    folds: Folds | None = None,
    most: int | None = None,
) -> Survey:
    """Ask the sites for what every fit needs: two exchanges. `check` refuses sums that nothing can be fitted to.

    Products are asked for of at most so many features, by default as PRODUCTS says; of more, of none.
    """
    before, p = len(sites.exchanges), sites.n_features
    found: SumsAnswer = sites.ask(sums, Message(loss=loss, folds=folds))
    check(found)
    n = np.sum(found.n)
    centre, label_centre = np.sum(found.X, axis=0) / n, np.sum(found.labels, axis=0) / n
    constant = np.zeros_like(label_centre)
    uneven = sites.has_weights or sites.has_offsets
    if fit_intercept and loss.has_link:
        one = label_centre[0] if len(label_centre) == 1 else label_centre
        constant = np.reshape(np.asarray(loss.link(jnp.asarray(one))), -1)
    limit = (PRODUCTS[loss.quadratic] // n_responses(loss) if loss.rowwise else 0) if most is None else most
    where = np.arange(p if p <= limit else 0, dtype=np.int32)
    products = sites.ask(gram, GramMessage(centre, label_centre, where, constant, uneven, loss=loss, folds=folds))
    return Survey(sites, loss, folds, fit_intercept, before, found, products, centre, label_centre, constant)
