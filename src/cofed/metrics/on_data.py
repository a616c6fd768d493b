"""Metrics that see data: of a client's predictions and labels."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jaxtyping import Array, Float, Num, Scalar

from cofed._util import checks
from cofed._util.types import Given


class HigherIsBetter(eqx.Module):
    """A metric of which more is better: `cofed.tune` maximises it."""


class AbstractDataMetric(eqx.Module):
    """A metric that sees data: of a client's predictions and labels. One of your own gives `__call__`.

    It is computed for each client, on its samples and on its held-out ones. The history has the means over clients by
    their weights, `name` and `test_name` (there by numbers of samples), and `history.clients("test_name")` with
    `per_client=True` every client's own.

    Examples
    --------
    How much of the variance of a client's labels a model explains:

    >>> import jax.numpy as jnp, numpy as np, cofed
    >>> class Explained(cofed.metrics.AbstractDataMetric):
    ...     def __call__(self, predictions, y, share):
    ...         rest = share @ (y - predictions) ** 2
    ...         return 1 - rest / (share @ (y - share @ y) ** 2)
    >>> data = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))] * 3)
    >>> options = {"rounds": 20, "metrics": {"explained": Explained()}, "evaluation": data, "per_client": True}
    >>> result = cofed.run(cofed.Problem(cofed.Linear(intercept=False)), data, cofed.FedAvg(1.0), **options)
    >>> round(float(result.history["explained"][-1]), 3)
    1.0
    >>> result.history.clients("test_explained").iloc[-1].round(3).tolist()
    [1.0, 1.0, 1.0]
    """

    @abstractmethod
    def __call__(self, predictions: Float[Array, "n ..."], y: Num[Array, "n ..."], share: Float[Array, " n"]) -> Any:
        """The metric of one client, by JAX.

        Parameters
        ----------
        predictions : array of shape (n, ...)
            What the model gives for each sample.
        y : array of shape (n, ...)
            The labels.
        share : array of shape (n,)
            1 / n_m for each of the client's n_m samples, and 0 where a place only fills up.

        Returns
        -------
        scalar
            One number.
        """


class SampleMean(AbstractDataMetric):
    """See `on_samples`."""

    measure: Callable[[Array, Array], Scalar]

    def __call__(self, predictions: Float[Array, "n ..."], y: Num[Array, "n ..."], share: Float[Array, " n"]) -> Any:
        return jax.vmap(self.measure)(predictions, y).astype(share.dtype) @ share


def on_samples(measure: Given[Callable[[Any, Any], Any]]) -> AbstractDataMetric:
    """A metric that is a mean over samples.

    Parameters
    ----------
    measure : callable
        A JAX function of the prediction and the label of one sample that gives one number.

    Returns
    -------
    AbstractDataMetric
        The metric, for `cofed.run(..., metrics=)`.

    Raises
    ------
    TypeError
        Where `measure` is not a function.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> absolute_error = cofed.metrics.on_samples(lambda prediction, y: abs(prediction - y))
    >>> float(absolute_error(jnp.array([1.0, 2.0]), jnp.array([1.0, 5.0]), jnp.array([0.5, 0.5])))
    1.5
    """
    if not callable(measure) or isinstance(measure, type):
        raise TypeError(f"measure must be a function of a prediction and a label, got {checks.shown(measure)}")
    return SampleMean(measure)
