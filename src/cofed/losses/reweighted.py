"""The weighted squares of iteratively reweighted least squares."""

from typing import ClassVar

import jax
from jaxtyping import Scalar

from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.label_units import LabelUnits


class Reweighted(AbstractLoss):
    """Pearson's residual, squared and halved, as the quadratic that a step of Fisher's scoring minimises.

    (y - mean)^2 / (2 variance) at the prediction itself. Its first derivative is that of the negative log-likelihood,
    and its second is the expected one, mean'^2 / variance, as mean and variance count as fixed. So a look at it tells
    Pearson's statistic and Fisher's information, from which generalised linear models have their standard errors.

    Parameters
    ----------
    loss : AbstractLoss
        A loss with an inverse link and a variance.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, cofed
    >>> from cofed.losses.reweighted import Reweighted
    >>> loss, at, y = Reweighted(cofed.Gamma()), jnp.log(2.0), jnp.array(3.0)
    >>> float(loss(at, y)), float(jax.grad(loss)(at, y)), float(jax.grad(jax.grad(loss))(at, y))
    (0.125, -0.5, 1.0)
    """

    elementwise: ClassVar[bool] = True
    attains_zero: ClassVar[bool] = True

    loss: AbstractLoss

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        at = jax.lax.stop_gradient(prediction)
        mean, slope = jax.value_and_grad(self.loss.inverse_link)(at)
        residual = y.astype(prediction.dtype) - mean - slope * (prediction - at)
        return residual**2 / (2 * self.loss.variance(mean))

    @property
    def fitted_by(self) -> AbstractLoss:
        """The loss whose models it judges."""
        return self.loss

    @property
    def least_label(self) -> float | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The loss's own."""
        return self.loss.least_label

    @property
    def excludes_least_label(self) -> bool:
        """The loss's own."""
        return self.loss.excludes_least_label

    def in_units(self, labels: LabelUnits) -> "Reweighted":
        """Of the loss in these units."""
        return Reweighted(self.loss.in_units(labels))
