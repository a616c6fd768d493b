"""The smoothed loss of a quantile."""

from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Scalar

from cofed._util.scalars import number, require_between, require_positive
from cofed._util.types import Hyperparameter
from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.label_units import LabelMoments, LabelUnits, standard_units


class SmoothQuantile(AbstractLoss):
    """The loss of a quantile, max(level r, (level - 1) r) with r = y - prediction, smoothed over a width.

    It is width times the divergence of sigmoid(-r / width) from the level, the loss convolved with a logistic
    distribution of that scale (less its least value). So it predicts the quantile of labels to which such a noise is
    added: the nearer to that of the labels themselves the smaller the width is, and the more steps it takes.

    Parameters
    ----------
    level : float, default=0.5
        Of the quantile, from 0.001 to 0.999: 0.5 is the median.
    width : float, default=0.1
        Over which the loss is smoothed, in the units of y; > 0.

    Notes
    -----
    Reference: He, Pan, Tan and Zhou 2023, Smoothed quantile regression with large-scale inference, Journal of
    Econometrics.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> loss = cofed.SmoothQuantile(0.9, width=0.01)
    >>> [round(float(loss(jnp.array(z), jnp.array(0.0))), 2) for z in (-1.0, 1.0)]
    [0.9, 0.1]
    """

    elementwise: ClassVar[bool] = True
    location: ClassVar[bool] = True
    absolute: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True
    advice: ClassVar[str] = "A larger width may help."

    level: Hyperparameter = eqx.field(converter=number, default=0.5)
    width: Hyperparameter = eqx.field(converter=number, default=0.1)

    def __check_init__(self):
        require_between("SmoothQuantile", 0.001, 0.999, level=self.level)
        require_positive("SmoothQuantile", width=self.width)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        level, off = self.level, (prediction - y.astype(prediction.dtype)) / self.width
        best = jnp.log(level) - jnp.log1p(-level)  # where the divergence is 0
        # softplus(off) - softplus(best) - level (off - best), without a difference of large numbers near the best
        away = off - best
        grown = jnp.where(away > 30, away + jnp.log(level), jnp.log1p(level * jnp.expm1(jnp.minimum(away, 30))))
        return jnp.sum(self.width * (grown - level * away))

    @property
    def curvature(self) -> Hyperparameter:
        """1 / (4 width)"""
        return 1 / (4 * self.width)

    @property
    def self_concordance(self) -> Hyperparameter:
        """1 / width"""
        return 1 / self.width

    def conjugate(self, theta: Prediction, y: Label) -> Scalar:
        """y theta + width (q log q + (1 - q) log(1 - q) + the level's entropy) with q = level + theta in [0, 1]"""
        entropies = [
            jax.scipy.special.entr(q) + jax.scipy.special.entr(1 - q) for q in (self.level + theta, self.level)
        ]
        return jnp.sum(y.astype(theta.dtype) * theta + self.width * (entropies[1] - entropies[0]))

    def label_units(self, labels: LabelMoments, fit_intercept: bool) -> LabelUnits:
        """Centred (where there is an intercept) and divided by the standard deviation."""
        return standard_units(labels, fit_intercept, 1)

    def in_units(self, labels: LabelUnits) -> "SmoothQuantile":
        """With the width in these units."""
        return self if np.isinf(labels.size) else SmoothQuantile(self.level, self.width / labels.size)
