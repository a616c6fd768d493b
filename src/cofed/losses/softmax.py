"""The multinomial cross-entropy of several classes."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Scalar

from cofed._util import checks
from cofed.losses.base import AbstractLoss, Label, Prediction, preview


class Softmax(AbstractLoss):
    """Multinomial cross-entropy: log sum exp(prediction) - prediction[y], with y in 0..classes-1.

    Parameters
    ----------
    classes : int, optional
        The number of classes; None counts them: the largest label of the federation, plus one.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> round(float(cofed.Softmax()(jnp.zeros(4), jnp.array(2))), 4)
    1.3863
    """

    likelihood: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True
    any_shift: ClassVar[bool] = True

    classes: int | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        checks.optional_integer("Softmax: classes", self.classes, least=2)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        return jax.nn.logsumexp(prediction) - prediction[y.astype(jnp.int32)]

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, or None."""
        values = np.unique(y)
        limit = self.classes
        if np.any(values != np.round(values)) or values.min() < 0 or (limit and values.max() >= limit):
            allowed = f"0..{limit - 1}" if limit else "0, 1, 2, ..."
            return f"Softmax expects class labels {allowed}, got {preview(values.tolist())}"
        return None

    def outputs(self, y: np.ndarray) -> int:
        """How many numbers the model must predict."""
        return self.classes or int(y.max()) + 1

    def correct(self, prediction: Prediction, y: Label) -> Scalar:
        """1 where the largest output is the label's."""
        return (jnp.argmax(prediction).astype(jnp.int32) == y.astype(jnp.int32)).astype(prediction.dtype)

    @property
    def curvature(self) -> float:
        """1/2"""
        return 0.5

    @property
    def self_concordance(self) -> float:
        """1"""
        return 1.0

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """sum_k q_k log q_k with q = theta + the indicator of the label, on the simplex (to 64 units of round-off)"""
        q = theta.at[y.astype(jnp.int32)].add(1)
        room = 64 * float(jnp.finfo(theta.dtype).eps)
        inside = (jnp.abs(jnp.sum(q) - 1) <= room) & jnp.all(q >= -room)
        return jnp.where(inside, -jnp.sum(jax.scipy.special.entr(jnp.maximum(q, 0))), jnp.inf)

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """sqrt(min(2 mean loss, 2)): the square of no derivative exceeds 2, nor twice the loss."""
        return jnp.sqrt(jnp.minimum(2 * mean_loss, 2))

    def deviance(self, prediction: np.ndarray, y: np.ndarray) -> np.ndarray:
        """-2 log of the probability of the label"""
        from scipy.special import logsumexp

        own = np.take_along_axis(prediction, y[:, None, None].astype(int), axis=2)[..., 0]
        return 2 * (logsumexp(prediction, axis=2) - own)

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """1: the probabilities fix the variances of the classes."""
        return 1.0

    def events(self, n: int, labels: np.ndarray) -> float:
        """The rows of the rarest class."""
        return float(labels.min())

    def link(self, mean: Array) -> Array:
        """The logarithms of the probabilities."""
        return jnp.log(mean)

    def inverse_link(self, prediction: Array) -> Array:
        """The probabilities of the classes."""
        return jax.nn.softmax(prediction)

    def cumulant(self, prediction: Array) -> Array:
        """log sum exp(prediction)"""
        return jax.nn.logsumexp(prediction)

    def mean_margin(self, mean: Array) -> Scalar:
        """Half the way to a probability of 0."""
        return jnp.min(mean) / 2
