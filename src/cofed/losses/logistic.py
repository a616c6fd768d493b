"""The logistic loss of two classes."""

from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Scalar

from cofed.losses.base import AbstractLoss, Label, Prediction, preview


class Logistic(AbstractLoss):
    """log(1 + exp(-s prediction)), s = +1 for the labels 1 and -1 for the labels 0 or -1.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> round(float(cofed.Logistic()(jnp.array(0.0), jnp.array(1))), 4)
    0.6931
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        return jnp.sum(jax.nn.softplus(jnp.where(y > 0, -prediction, prediction)))

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, or None."""
        values = set(np.unique(y).tolist())
        if values <= {0, 1} or values <= {-1, 1}:
            return None
        return f"Logistic expects labels 0/1 or -1/+1, got {preview(values)}"

    def correct(self, prediction: Prediction, y: Label) -> Scalar:
        """1 where the sign of the prediction is that of the label."""
        return jnp.mean(((prediction > 0) == (y > 0)).astype(prediction.dtype))

    @property
    def curvature(self) -> float:
        """1/4"""
        return 0.25

    @property
    def self_concordance(self) -> float:
        """1"""
        return 1.0

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """q log q + (1 - q) log(1 - q) with q = -s theta in [0, 1]"""
        q = jnp.where(y > 0, -theta, theta)
        return -jnp.sum(jax.scipy.special.entr(q) + jax.scipy.special.entr(1 - q))

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """sqrt(min(mean loss, 1)): no derivative exceeds 1, nor its square the loss."""
        return jnp.sqrt(jnp.minimum(mean_loss, 1))

    def deviance(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """-2 log of the probability of the label"""
        from scipy.special import expit

        return -2 * np.log(np.maximum(expit(np.where(y[:, None] > 0, prediction, -prediction)), 1e-300))

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """1: the probability fixes the variance of a label."""
        return 1.0

    def events(self, n: int, labels: np.ndarray) -> float:
        """The rows of the rarer class."""
        return float(min(labels[0], n - labels[0]))

    def link(self, mean: Array) -> Array:
        """The log odds."""
        return jnp.log(mean) - jnp.log1p(-mean)

    def inverse_link(self, prediction: Array) -> Array:
        """The probability of the label 1."""
        return jax.nn.sigmoid(prediction)

    def cumulant(self, prediction: Array) -> Array:
        """log(1 + exp(prediction))"""
        return jax.nn.softplus(prediction)

    def mean_margin(self, mean: Array) -> Scalar:
        """Half the way to 0 or 1."""
        return jnp.minimum(mean, 1 - mean) / 2
