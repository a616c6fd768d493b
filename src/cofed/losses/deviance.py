"""Any loss with a conjugate, above that of the saturated model."""

from typing import ClassVar

import jax.numpy as jnp
from jaxtyping import Scalar

from cofed._util.types import Hyperparameter
from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.dual_room import DualRoom


class Deviance(AbstractLoss):
    """A loss less the least value that it can have for the label, which is half the deviance.

    Parameters
    ----------
    loss : AbstractLoss
        A loss with a conjugate.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> from cofed.losses.deviance import Deviance
    >>> round(float(Deviance(cofed.Poisson())(jnp.log(3.0), jnp.array(3.0))), 6)
    0.0
    """

    attains_zero: ClassVar[bool] = True

    loss: AbstractLoss

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        return self.loss(prediction, y) + self.loss.conjugate(jnp.zeros_like(prediction), y)

    @property
    def curvature(self) -> Hyperparameter | None:
        """The loss's own."""
        return self.loss.curvature

    @property
    def self_concordance(self) -> Hyperparameter | None:
        """The loss's own."""
        return self.loss.self_concordance

    def dual_room(self, farthest: Scalar) -> DualRoom | None:
        """The loss's own."""
        return self.loss.dual_room(farthest)

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """The loss's, plus its least value"""
        return self.loss.conjugate(theta, y) - self.loss.conjugate(jnp.zeros_like(theta), y)
