"""Huber's loss."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Scalar

from cofed._util.scalars import number, require_positive
from cofed._util.types import Hyperparameter
from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.dual_room import DualRoom
from cofed.losses.label_units import LabelMoments, LabelUnits, standard_units


class Huber(AbstractLoss):
    """r^2/2 for |r| <= delta, else delta (|r| - delta/2), with r = prediction - y.

    Parameters
    ----------
    delta : float, default=1.0
        Where the square ends and the straight line begins, in the units of y; > 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.Huber(delta=1.0)(jnp.array(3.0), jnp.array(0.0)))
    2.5
    """

    elementwise: ClassVar[bool] = True
    location: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True

    delta: Hyperparameter = eqx.field(converter=number, default=1.0)

    def __check_init__(self):
        require_positive("Huber", delta=self.delta)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        r = jnp.abs(prediction - y.astype(prediction.dtype))
        clipped = jnp.minimum(r, self.delta)
        return jnp.sum(clipped * (r - clipped / 2))

    @property
    def curvature(self) -> float:
        """1"""
        return 1.0

    def dual_room(self, farthest: Scalar) -> DualRoom:
        """The conjugate is a quadratic up to delta, which slopes exceed by `farthest` at most."""
        return DualRoom(jnp.ones_like(farthest), self.delta / (self.delta + farthest), jnp.isfinite(farthest))

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Centred (where there is an intercept) and divided by the standard deviation."""
        return standard_units(labels, fit_intercept, 2)

    def in_units(self, labels: LabelUnits) -> "Huber":
        """With delta in these units."""
        return self if np.isinf(labels.size) else Huber(self.delta / labels.size)

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """theta^2 / 2 + y theta for |theta| <= delta"""
        value = theta**2 / 2 + y.astype(theta.dtype) * theta
        return jnp.sum(jnp.where(jnp.abs(theta) <= self.delta, value, jnp.inf))
