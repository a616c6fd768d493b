"""What a model is: how a parameter pytree predicts from the features of ONE sample."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

Sample = Float[Array, "..."]


class AbstractModel(eqx.Module):
    """How parameters predict from ONE sample.

    A model of your own derives from this class and gives `init` and `__call__`, or it is any equinox module with
    `__call__(x)`. One that draws in training, such as by dropout, sets `is_random = True` and gives `train`, too.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> class Scale(cofed.AbstractModel):
    ...     def init(self, key, x, outputs):
    ...         return {"scale": jnp.ones((), x.dtype)}
    ...
    ...     def __call__(self, w, x):
    ...         return w["scale"] * x.sum()
    >>> model = Scale()
    >>> float(model(model.init(None, jnp.ones(3), None), jnp.ones(3)))
    3.0
    """

    @abstractmethod
    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> PyTree:
        """The parameters to begin with.

        Parameters
        ----------
        key : PRNG key
            For random starts.
        x : array
            One sample, which gives the shapes and the dtype.
        outputs : int or None
            The number of outputs that the loss asks for; None is a single number.

        Returns
        -------
        PyTree
            Arrays of the sample's dtype.
        """

    @abstractmethod
    def __call__(self, w: PyTree, x: Sample) -> Float[Array, "..."]:
        """The prediction for one sample.

        Parameters
        ----------
        w : PyTree
            The parameters.
        x : array
            One sample.

        Returns
        -------
        array
            A number, or one for each output.
        """

    @property
    def is_random(self) -> bool:
        """Whether training draws: gradients are then those of `train`, with another key for each sample and step."""
        return False

    def train(self, w: PyTree, x: Sample, key: PRNGKeyArray) -> Float[Array, "..."]:
        """The prediction for one sample in a local step, if the model `is_random`; the prediction unless it says more.

        Histories, metrics and what users get are of the prediction without draws, `__call__`.

        Parameters
        ----------
        w : PyTree
            The parameters.
        x : array
            One sample.
        key : PRNG key
            For the draws: of the run's seed, the round, the client, the local step and the sample's place in its batch.

        Returns
        -------
        array
            What `__call__` gives, drawn.
        """
        return self(w, x)

    @property
    def obstacle(self) -> str | None:
        """What may keep the model from being called on a sample alone, as a sentence; None where nothing is known."""
        return None

    @property
    def title(self) -> str:
        """What it is called in sentences."""
        return type(self).__name__

    def ready(self, w: PyTree) -> PyTree:
        """What users get as the model: the parameters, unless the model says otherwise.

        Parameters
        ----------
        w : PyTree
            The parameters.

        Returns
        -------
        PyTree
            The model, ready to use.
        """
        return w
