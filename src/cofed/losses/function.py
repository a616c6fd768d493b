"""A plain function as a loss."""

from collections.abc import Callable
from typing import Any

import equinox as eqx

from cofed._util.contracts import as_given
from cofed.losses.base import AbstractLoss, Label, Prediction


class FunctionLoss(AbstractLoss):
    """A user's own function `(prediction, y) -> number` of one sample.

    Parameters
    ----------
    function : callable
        Maps the prediction and the label of one sample to a number.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cofed.losses.function import FunctionLoss
    >>> float(FunctionLoss(lambda p, y: abs(p - y))(jnp.array(3.0), jnp.array(1.0)))
    2.0
    """

    function: Callable[[Any, Any], Any] = eqx.field(static=True, converter=as_given)

    def __call__(self, prediction: Prediction, y: Label) -> Any:
        return self.function(prediction, y)
