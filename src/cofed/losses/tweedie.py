"""The losses of Tweedie's models with a logarithmic link: counts, amounts with many zeros, positive amounts."""

from typing import ClassVar

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Scalar

from cofed._util.scalars import known, number, require_between
from cofed._util.types import Hyperparameter
from cofed.losses.base import AbstractLoss, Label, Prediction, preview
from cofed.losses.label_units import LabelMoments, LabelUnits


class AbstractTweedie(AbstractLoss):
    """Half the deviance of labels whose variance is a multiple of mean^power, with the prediction on the log scale.

    With u = prediction - log y it is y^(2 - power) (g(2 - power, u) - g(1 - power, u)), g(a, u) = (exp(a u) - 1) / a
    and g(0, u) = u; convex for the powers from 1 to 2.

    Attributes
    ----------
    power : float
        From 1 to 2. Labels are at least 0, and above 0 for the power 2.
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True
    least_label: ClassVar[float | None] = 0.0

    power: eqx.AbstractVar[Hyperparameter]

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        y = y.astype(prediction.dtype)
        some = jnp.where(y > 0, y, 1)
        u, over, under = prediction - jnp.log(some), 2 - self.power, 1 - self.power
        value = some**over * (grown(over, u) - grown(under, u))
        nothing = jnp.exp(over * prediction) / jnp.where(over == 0, 1, over)  # a label of 0
        return jnp.sum(jnp.where(y > 0, value, nothing))

    @property
    def excludes_least_label(self) -> bool:
        """Whether the power is 2."""
        return known(self.power) and float(self.power) == 2

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, or None."""
        if y.min() < 0 or (self.excludes_least_label and y.min() == 0):
            least = "> 0" if self.excludes_least_label else ">= 0"
            return f"{type(self).__name__} expects labels {least}, got {preview([y.min()])}"
        return None

    @property
    def curvature(self) -> float:
        """1: it has no bound, but in `label_units` its mean is near 1."""
        return 1.0

    @property
    def self_concordance(self) -> float:
        """1: the second derivative is a sum of exponentials of (2 - power) and (1 - power) times the prediction."""
        return 1.0

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """1 + mean: derivatives have no bound, but are of this size in the mean."""
        return 1.0 + mean

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """Pearson's: the sum of the squared residuals, each divided by its variance, over the degrees of freedom."""
        return 2 * mean_loss * n / max(freedom, 1)

    @property
    def estimates_dispersion(self) -> bool:
        """True"""
        return True

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Divided by their mean (where there is an intercept, which takes it up)."""
        mean = float(labels.mean) if fit_intercept else 1.0
        return LabelUnits(0.0, mean, 1.0, float(np.log(mean)), mean ** (2 - float(self.power)), 0.0)

    def link(self, mean: Array) -> Array:
        """The logarithm."""
        return jnp.log(mean)

    def inverse_link(self, prediction: Array) -> Array:
        """exp(prediction)"""
        return jnp.exp(prediction)

    def variance(self, mean: Array) -> Array:
        """mean^power"""
        return mean**self.power

    def cumulant(self, prediction: Array) -> Array:
        """g(2 - power, prediction)"""
        return grown(2 - self.power, prediction)

    def natural(self, prediction: Array) -> Array:
        """g(1 - power, prediction)"""
        return grown(1 - self.power, prediction)

    def mean_margin(self, mean: Array) -> Scalar:
        """Half the way to 0."""
        return jnp.min(mean) / 2


class Tweedie(AbstractTweedie):
    """Half the deviance of amounts of which many may be 0, with the prediction on the log scale.

    The variance is a multiple of mean^power. The power 1 is Poisson's deviance, 2 that of `Gamma`, and between them are
    sums of a random number of positive amounts, such as costs.

    Parameters
    ----------
    power : float, default=1.5
        From 1 to 2: with a log link no other is convex. Labels are at least 0, and above 0 for the power 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> loss = cofed.Tweedie(1.5)
    >>> round(float(loss(jnp.array(0.0), jnp.array(0.0))), 4), float(loss(jnp.log(3.0), jnp.array(3.0)))
    (2.0, 0.0)
    """

    power: Hyperparameter = eqx.field(converter=number, default=1.5)

    def __check_init__(self):
        require_between("Tweedie", 1.0, 2.0, power=self.power)


class Gamma(AbstractTweedie):
    """y exp(-prediction) + prediction - 1 - log y: half the deviance of positive amounts with a constant coefficient of
    variation, with the prediction on the log scale. It is Tweedie's with the power 2.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> round(float(cofed.Gamma()(jnp.array(0.0), jnp.array(2.0))), 4)
    0.3069
    """

    @property
    def power(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """2"""
        return 2.0


def grown(rate: Hyperparameter, u: Array) -> Array:
    """(exp(rate u) - 1) / rate, and u where the rate is 0."""
    return jnp.where(rate == 0, u, jnp.expm1(rate * u) / jnp.where(rate == 0, 1, rate))
