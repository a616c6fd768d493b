"""The loss of counts that vary more than Poisson's: the negative binomial model with a logarithmic link."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Scalar

from cofed._util.scalars import optional_number, require_positive
from cofed._util.types import Hyperparameter
from cofed.losses.base import AbstractLoss, Label, Prediction, preview
from cofed.losses.label_units import LabelMoments, LabelUnits

FAR = 300.0  # beyond it exponentials come near to overflow


class NegativeBinomial(AbstractLoss):
    """Half the deviance of counts with the variance mean + mean^2 / theta, with the prediction on the log scale.

    With u = prediction - log y it is (y + theta) log(1 + y (exp(u) - 1) / (y + theta)) - y u. It is convex, and its
    third derivative never exceeds the second. Large theta are Poisson's deviance.

    Parameters
    ----------
    theta : float, optional
        What R's `glm.nb` calls so, 1 / alpha of other books; > 0. None is not known: `FederatedGLM` estimates it by
        maximum likelihood, together with the coefficients.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> loss = cofed.NegativeBinomial(2.0)
    >>> round(float(loss(jnp.array(0.0), jnp.array(0.0))), 4), float(jnp.log1p(0.5) * 2).__round__(4)
    (0.8109, 0.8109)
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True
    least_label: ClassVar[float | None] = 0.0

    theta: Hyperparameter | None = eqx.field(converter=optional_number, default=None)

    def __check_init__(self):
        if self.theta is not None:
            require_positive("NegativeBinomial", theta=self.theta)

    @property
    def is_open(self) -> bool:
        """Whether theta is yet to be estimated."""
        return self.theta is None

    @property
    def known_theta(self) -> Hyperparameter:
        """theta; `ValueError` where it is yet to be estimated."""
        if self.theta is None:
            raise ValueError("NegativeBinomial: theta is not known here; give it, or let FederatedGLM estimate it")
        return self.theta

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        theta, y = self.known_theta, y.astype(prediction.dtype)
        some = jnp.where(y > 0, y, 1)
        u = prediction - jnp.log(some)
        part, near = some / (some + theta), jnp.minimum(u, FAR)
        # log(1 - part + part exp(u)), whose terms are as small as u and part are
        grown = jnp.log1p(part * jnp.expm1(near)) + jnp.where(u > FAR, u - FAR, 0)
        return jnp.sum(jnp.where(y > 0, (some + theta) * grown - some * u, self.cumulant(prediction)))

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, or None."""
        if y.min() < 0:
            return f"NegativeBinomial expects counts >= 0, got {preview([y.min()])}"
        return None

    @property
    def curvature(self) -> float:
        """1: it has no bound, but in `label_units` its mean is at most near 1."""
        return 1.0

    @property
    def self_concordance(self) -> float:
        """1: the third derivative is (theta - mean) / (theta + mean) times the second."""
        return 1.0

    def residual_scale(self, mean_loss: Scalar, mean: Array) -> Scalar:
        """1 + mean: derivatives have no bound, but are of this size in the mean."""
        return 1.0 + mean

    def dispersion(self, mean_loss: float, n: int, freedom: int) -> float:
        """1: the mean and theta fix the variance of a count."""
        return 1.0

    def events(self, n: int, labels: np.ndarray) -> float:
        """How many events of Poisson's model would tell as much: n mean theta / (mean + theta)."""
        mean, theta = float(labels[0]) / n, float(self.known_theta)
        return n * mean * theta / (mean + theta)

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Divided by their mean (where there is an intercept, which takes it up)."""
        mean = float(labels.mean) if fit_intercept else 1.0
        return LabelUnits(0.0, mean, 1.0, float(np.log(mean)), mean, 0.0)

    def in_units(self, labels: LabelUnits) -> "NegativeBinomial":
        """With theta in these units."""
        return NegativeBinomial(self.known_theta / labels.size)

    def link(self, mean: Array) -> Array:
        """The logarithm."""
        return jnp.log(mean)

    def inverse_link(self, prediction: Array) -> Array:
        """exp(prediction)"""
        return jnp.exp(prediction)

    def variance(self, mean: Array) -> Array:
        """mean + mean^2 / theta"""
        return mean + mean**2 / self.known_theta

    def cumulant(self, prediction: Array) -> Array:
        """theta log(1 + exp(prediction) / theta)"""
        return self.known_theta * jax.nn.softplus(prediction - jnp.log(self.known_theta))

    def natural(self, prediction: Array) -> Array:
        """-log(1 + theta exp(-prediction))"""
        return -jax.nn.softplus(jnp.log(self.known_theta) - prediction)

    def mean_margin(self, mean: Array) -> Scalar:
        """Half the way to 0."""
        return jnp.min(mean) / 2


def surprise(log_theta: Float[Array, ""], prediction: Float[Array, ""], y: Float[Array, ""]) -> Scalar:
    """Minus the log-likelihood of a count, as a function of theta: terms without it are left out.

    >>> import jax.numpy as jnp
    >>> from scipy.stats import nbinom
    >>> from cofed.losses.negative_binomial import surprise
    >>> theta, mean = 2.0, 3.0
    >>> own = [float(surprise(jnp.log(theta), jnp.log(mean), jnp.array(y))) for y in (0.0, 4.0)]
    >>> theirs = nbinom.logpmf([0, 4], theta, theta / (theta + mean))
    >>> bool(abs((own[1] - own[0]) - (theirs[0] - theirs[1] - jnp.log(24.0) + 4 * jnp.log(mean))) < 1e-5)
    True
    """
    theta = jnp.exp(log_theta)
    told = jax.scipy.special.gammaln(y + theta) - jax.scipy.special.gammaln(theta)
    # log(theta + mean) = log theta + softplus
    over = jax.nn.softplus(prediction - log_theta)
    return (y + theta) * over + y * log_theta - told
