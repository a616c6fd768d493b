"""The loss of counts as a deviance: zero where it cannot be less."""

import jax.numpy as jnp
from jaxtyping import Scalar

from cofed.losses import Label, Poisson, Prediction


class PoissonDeviance(Poisson):
    """exp(z) - y z - (y - y log y): the Poisson loss less its least value, half the deviance of a count.

    Subtracting means of large numbers would lose what is small: here nothing large is subtracted.

    >>> round(float(PoissonDeviance()(jnp.log(3.0), jnp.array(3.0))), 6)
    0.0
    """

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        y = y.astype(prediction.dtype)
        count = jnp.where(y > 0, y, 1)
        off = prediction - jnp.log(count)
        return jnp.sum(jnp.where(y > 0, count * (jnp.expm1(off) - off), jnp.exp(prediction)))
