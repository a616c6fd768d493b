"""The squared loss."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Scalar

from cofed._util import checks
from cofed._util.scalars import require_flag
from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.label_units import LabelMoments, LabelUnits, standard_units


class Squared(AbstractLoss):
    """(prediction - y)^2 / 2, or without the half where `half=False`; of several responses, their sum.

    Parameters
    ----------
    half : bool, default=True
        Whether to halve the square.
    responses : int, optional
        How many numbers a model predicts for a row, each a column of the labels; None is a single one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.Squared()(jnp.array(3.0), jnp.array(1.0)))
    2.0
    >>> float(cofed.Squared(half=False)(jnp.array(3.0), jnp.array(1.0)))
    4.0
    >>> float(cofed.Squared(responses=2)(jnp.array([3.0, 0.0]), jnp.array([1.0, 1.0])))
    2.5
    """

    elementwise: ClassVar[bool] = True
    location: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True
    quadratic: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True

    half: bool = eqx.field(static=True, default=True)
    responses: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        require_flag("Squared", half=self.half)
        checks.optional_integer("Squared: responses", self.responses, least=2)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        square = jnp.sum((prediction - y.astype(prediction.dtype)) ** 2)
        return square / 2 if self.half else square

    def outputs(self, y: np.ndarray) -> int | None:
        """How many numbers the model must predict; None is a single one."""
        return self.responses

    @property
    def curvature(self) -> float:
        """1, or 2 without the half"""
        return 1.0 if self.half else 2.0

    @property
    def self_concordance(self) -> float:
        """0"""
        return 0.0

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """theta^2 / (2 curvature) + y theta"""
        return jnp.sum(theta**2 / (2 * self.curvature) + y.astype(theta.dtype) * theta)

    def deviance(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """curvature * (y - prediction)^2, summed over responses"""
        squares = (y[:, None] - prediction) ** 2
        return self.curvature * (squares if self.responses is None else squares.sum(axis=2))

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """The sum of the squared residuals over the degrees of freedom."""
        return 2 * mean_loss / self.curvature * n / max(freedom, 1)

    @property
    def estimates_dispersion(self) -> bool:
        """True"""
        return True

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Centred (where there is an intercept) and divided by the standard deviation, one for all responses."""
        return standard_units(labels, fit_intercept, 2)

    def link(self, mean: Array) -> Array:
        """The mean itself."""
        return mean

    def cumulant(self, prediction: Array) -> Array:
        """prediction^2 / 2, summed over responses"""
        return jnp.sum(prediction**2) / 2

    def mean_margin(self, mean: Array) -> Scalar:
        """Infinite: every number is the mean of some prediction."""
        return jnp.full((), jnp.inf, mean.dtype)
