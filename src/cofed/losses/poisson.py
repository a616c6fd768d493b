"""The Poisson loss of counts."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Scalar

from cofed.losses.base import AbstractLoss, Label, Prediction, preview
from cofed.losses.label_units import LabelMoments, LabelUnits


class Poisson(AbstractLoss):
    """exp(prediction) - y prediction: the negative log-likelihood of counts, with the prediction on the log scale.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> float(cofed.Poisson()(jnp.array(0.0), jnp.array(3)))
    1.0
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True
    least_label: ClassVar[float | None] = 0.0

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        return jnp.sum(jnp.exp(prediction) - y.astype(prediction.dtype) * prediction)

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, or None."""
        if y.min() < 0:
            return f"Poisson expects counts >= 0, got {preview([y.min()])}"
        return None

    @property
    def curvature(self) -> float:
        """1: it has no bound, but in `label_units` its mean is near 1."""
        return 1.0

    @property
    def self_concordance(self) -> float:
        """1"""
        return 1.0

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """q log q - q with q = theta + y >= 0"""
        q = theta + y.astype(theta.dtype)
        return -jnp.sum(jax.scipy.special.entr(q) + q)

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """1 + mean: derivatives have no bound, but are of this size in the mean."""
        return 1.0 + mean

    def saturated(self, y: np.ndarray) -> np.ndarray:
        """y - y log y"""
        from scipy.special import xlogy

        return y - xlogy(y, y)

    def as_deviance(self) -> "PoissonDeviance":
        """The same, computed without a subtraction of large numbers."""
        return PoissonDeviance()

    def deviance(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """2 (exp(prediction) - y prediction - (y - y log y))"""
        return 2 * (np.exp(prediction) - y[:, None] * prediction - Poisson.saturated(self, y)[:, None])

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """1: the mean fixes the variance of a count."""
        return 1.0

    def events(self, n: int, labels: np.ndarray) -> float:
        """All that was counted."""
        return float(labels[0])

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Divided by their mean (where there is an intercept, which takes it up)."""
        mean = float(labels.mean) if fit_intercept else 1.0
        return LabelUnits(0.0, mean, 1.0, float(np.log(mean)), mean, labels.saturated)

    def link(self, mean: Array) -> Array:
        """The logarithm."""
        return jnp.log(mean)

    def inverse_link(self, prediction: Array) -> Array:
        """exp(prediction)"""
        return jnp.exp(prediction)

    def cumulant(self, prediction: Array) -> Array:
        """exp(prediction)"""
        return jnp.exp(prediction)

    def mean_margin(self, mean: Array) -> Scalar:
        """Half the way to 0."""
        return jnp.min(mean) / 2


class PoissonDeviance(Poisson):
    """exp(z) - y z - (y - y log y): the Poisson loss above that of the saturated model, half the deviance of a count.

    Subtracting means of large numbers would lose what is small: here nothing large is subtracted.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cofed.losses.poisson import PoissonDeviance
    >>> round(float(PoissonDeviance()(jnp.log(3.0), jnp.array(3.0))), 6)
    0.0
    """

    attains_zero: ClassVar[bool] = True

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        y = y.astype(prediction.dtype)
        count = jnp.where(y > 0, y, 1)
        off = prediction - jnp.log(count)
        return jnp.sum(jnp.where(y > 0, count * (jnp.expm1(off) - off), jnp.exp(prediction)))

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """The Poisson loss's, plus the loss of the saturated model."""
        y = y.astype(theta.dtype)
        return super().conjugate(theta, y) + jnp.sum(y + jax.scipy.special.entr(y))

    def saturated(self, y: np.ndarray) -> np.ndarray:
        """0"""
        return np.zeros(len(y))
