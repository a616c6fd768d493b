"""Losses of one sample: a function of the model's prediction and the label.

A loss is anything that maps `(prediction, y)` of ONE sample to a number, so a plain function serves as well.
The engine takes the mean over a client's samples. The classes here add what a function cannot say: which
labels they accept, how many outputs the model needs, and when a prediction counts as correct.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Num, Scalar

from cofed._util import checks
from cofed._util.contracts import as_given
from cofed._util.scalars import number, require_flag, require_positive

Prediction = Float[Array, "..."]
Label = Num[Array, "..."]


class AbstractLoss(eqx.Module):
    """The loss of ONE sample. A loss of one's own that says more than a function can derives from this class.

    Only `__call__` is needed. What else a loss may say has a default that says nothing: `elementwise` (the label has
    the prediction's shape), `likelihood` (with Linear, a generalised linear model in its natural parameter), `refuses`,
    `outputs` and `correct`.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> class Absolute(cofed.AbstractLoss):
    ...     def __call__(self, prediction, y):
    ...         return jnp.abs(prediction - y)
    >>> float(Absolute()(jnp.array(3.0), jnp.array(1.0)))
    2.0
    """

    elementwise: ClassVar[bool] = False  # whether the label has the prediction's shape
    likelihood: ClassVar[bool] = False  # whether it is, with Linear, a generalised linear model

    @abstractmethod
    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        """The loss of a prediction."""

    @property
    def has_domain(self) -> bool:
        """Whether there are labels that it refuses."""
        return type(self).refuses is not AbstractLoss.refuses

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, in a sentence; None where they are not."""
        return None

    def outputs(self, y: np.ndarray) -> int | None:
        """How many numbers the model must predict, given all labels; None is a single one."""
        return None

    @property
    def has_accuracy(self) -> bool:
        """Whether a prediction can be right or wrong."""
        return type(self).correct is not AbstractLoss.correct

    def correct(self, prediction: Prediction, y: Label) -> Scalar:
        """1 where the prediction is right, else 0, of a loss that knows right and wrong."""
        raise TypeError(f"{type(self).__name__} knows no right and wrong predictions")


class Squared(AbstractLoss):
    """(prediction - y)^2 / 2, or without the half where `half=False`.

    >>> import jax.numpy as jnp
    >>> float(Squared()(jnp.array(3.0), jnp.array(1.0)))
    2.0
    >>> float(Squared(half=False)(jnp.array(3.0), jnp.array(1.0)))
    4.0
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True

    half: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        require_flag("Squared", half=self.half)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        square = jnp.sum((prediction - y.astype(prediction.dtype)) ** 2)
        return square / 2 if self.half else square


class Logistic(AbstractLoss):
    """log(1 + exp(-s prediction)), s = +1 for the labels 1 and -1 for the labels 0 or -1.

    >>> import jax.numpy as jnp
    >>> round(float(Logistic()(jnp.array(0.0), jnp.array(1))), 4)
    0.6931
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True

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


class Softmax(AbstractLoss):
    """Multinomial cross-entropy: log sum exp(prediction) - prediction[y], with y in 0..classes-1.

    `classes=None` counts them: the largest label of the federation, plus one.

    >>> import jax.numpy as jnp
    >>> round(float(Softmax()(jnp.zeros(4), jnp.array(2))), 4)
    1.3863
    """

    likelihood: ClassVar[bool] = True

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


class Huber(AbstractLoss):
    """r^2/2 for |r| <= delta, else delta (|r| - delta/2), with r = prediction - y.

    >>> import jax.numpy as jnp
    >>> float(Huber(delta=1.0)(jnp.array(3.0), jnp.array(0.0)))
    2.5
    """

    elementwise: ClassVar[bool] = True

    delta: Any = eqx.field(converter=number, default=1.0)

    def __check_init__(self):
        require_positive("Huber", delta=self.delta)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        r = jnp.abs(prediction - y.astype(prediction.dtype))
        clipped = jnp.minimum(r, self.delta)
        return jnp.sum(clipped * (r - clipped / 2))


class Poisson(AbstractLoss):
    """exp(prediction) - y prediction: the negative log-likelihood of counts, with the prediction on the log scale.

    >>> import jax.numpy as jnp
    >>> float(Poisson()(jnp.array(0.0), jnp.array(3)))
    1.0
    """

    elementwise: ClassVar[bool] = True
    likelihood: ClassVar[bool] = True

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        return jnp.sum(jnp.exp(prediction) - y.astype(prediction.dtype) * prediction)

    def refuses(self, y: np.ndarray) -> str | None:
        """Why these labels are outside the loss's domain, or None."""
        if y.min() < 0:
            return f"Poisson expects counts >= 0, got {preview([y.min()])}"
        return None


class FunctionLoss(AbstractLoss):
    """A user's own function `(prediction, y) -> number` of one sample.

    >>> import jax.numpy as jnp
    >>> float(FunctionLoss(lambda p, y: abs(p - y))(jnp.array(3.0), jnp.array(1.0)))
    2.0
    """

    function: Callable[[Any, Any], Any] = eqx.field(static=True, converter=as_given)

    def __call__(self, prediction: Prediction, y: Label) -> Any:
        return self.function(prediction, y)


def preview(values: Any, most: int = 6) -> str:
    """A few values for a sentence."""
    listed = sorted(values)
    return ", ".join(f"{v:g}" for v in listed[:most]) + (", ..." if len(listed) > most else "")
