"""What a model is: how a parameter pytree predicts from the features of ONE sample."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

Sample = Float[Array, "..."]


class AbstractModel(eqx.Module):
    """How parameters predict from ONE sample.

    A model of your own derives from this class and gives `init` and `__call__`, or it is any equinox module with
    `__call__(x)`.

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
