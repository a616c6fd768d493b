"""What the losses with intercepts of the sites' own have in common."""

from typing import ClassVar

import numpy as np
from jaxtyping import Array, Scalar

from cofed._util.types import Hyperparameter
from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.label_units import LabelMoments, LabelUnits


class AbstractSiteLoss(AbstractLoss):
    """The loss of all rows of a site at the best intercepts for them, which are no parameters of the model.

    Parameters
    ----------
    loss : AbstractLoss
        The loss of a row.
    """

    rowwise: ClassVar[bool] = False

    loss: AbstractLoss

    @property
    def of_rows(self) -> AbstractLoss:
        """The loss of a row."""
        return self.loss

    def with_rows(self, loss: AbstractLoss) -> "AbstractSiteLoss":
        """The same made of another loss of a row."""
        return type(self)(loss)

    def outputs(self, y: np.ndarray) -> int | None:
        """As the loss of a row."""
        return self.loss.outputs(y)

    @property
    def attains_zero(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the loss of a row."""
        return self.loss.attains_zero

    @property
    def any_shift(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the loss of a row."""
        return self.loss.any_shift

    @property
    def least_label(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """As the loss of a row."""
        return self.loss.least_label

    @property
    def excludes_least_label(self) -> bool:
        """As the loss of a row."""
        return self.loss.excludes_least_label

    @property
    def has_variance(self) -> bool:
        """As the loss of a row."""
        return self.loss.has_variance

    def variance(self, mean: Array) -> Array:
        """The loss's own."""
        return self.loss.variance(mean)

    def in_units(self, labels: LabelUnits) -> "AbstractSiteLoss":
        """The same of the loss in these units."""
        return self.with_rows(self.loss.in_units(labels))

    @property
    def curvature(self) -> Hyperparameter | None:
        """The loss's own."""
        return self.loss.curvature

    def as_deviance(self) -> "AbstractSiteLoss":
        """The same of the loss less that of the saturated model."""
        return self.with_rows(self.loss.as_deviance())

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """That of a row's loss: at 0, its saturated model is the same."""
        return self.loss.conjugate(theta, y)

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """The loss's own."""
        return self.loss.residual_scale(mean_loss, mean)

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """The loss's own."""
        return self.loss.dispersion(mean_loss, n, freedom)

    def events(self, n: int, labels: np.ndarray) -> float:
        """The loss's own."""
        return self.loss.events(n, labels)

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """The loss's own, of a model with an intercept."""
        return self.loss.label_units(labels, True)
