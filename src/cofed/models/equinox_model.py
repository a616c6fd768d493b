"""A user's own equinox module as a model."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cofed.models.base import AbstractModel, Sample


def trained(leaf: object) -> bool:
    """Whether a leaf of a user's module is a parameter; equinox's own test counts NumPy's constants too."""
    return isinstance(leaf, jax.Array) and eqx.is_inexact_array(leaf)


class EquinoxModel(AbstractModel):
    """A user's own equinox module: `module(x)` predicts from one sample, its floating JAX arrays are the parameters.

    Everything else (numbers, flags, functions, NumPy arrays, integer arrays) is used as it is, and not trained.

    Parameters
    ----------
    module : equinox.Module
        The user's module.

    Examples
    --------
    >>> import equinox as eqx, jax, jax.numpy as jnp
    >>> from cofed.models.equinox_model import EquinoxModel
    >>> model = EquinoxModel(eqx.nn.Linear(3, 1, key=jax.random.key(0)))
    >>> w = model.init(jax.random.key(0), jnp.ones(3), None)
    >>> model(w, jnp.ones(3)).shape
    (1,)
    """

    start: PyTree  # the parameters: floating arrays of JAX
    others: PyTree  # other arrays, which are not trained: whole numbers, and NumPy's
    rest: PyTree = eqx.field(static=True)  # everything else stays as it is: numbers, flags, functions

    def __init__(self, module: eqx.Module):
        self.start, others = eqx.partition(module, trained)
        if any(jnp.iscomplexobj(leaf) for leaf in jax.tree.leaves(self.start)):
            raise TypeError(f"model: {type(module).__name__} has complex arrays; parameters must be real")
        if not jax.tree.leaves(self.start):
            raise TypeError(
                f"model: {type(module).__name__} has no floating array of JAX in it, so there is nothing to train; "
                "make its parameters with jax.numpy"
            )
        self.others, self.rest = eqx.partition(
            others, lambda leaf: isinstance(leaf, (jax.Array, np.ndarray, np.generic))
        )

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> PyTree:
        """The module's own arrays, in the dtype of the data."""
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, x.dtype), self.start)

    def __call__(self, w: PyTree, x: Sample) -> Float[Array, "..."]:
        return self.ready(w)(x)

    @property
    def title(self) -> str:
        """The name of the user's class."""
        return type(self.rest).__name__

    def ready(self, w: PyTree) -> PyTree:
        """The module with these parameters."""
        return eqx.combine(jax.tree.map(jnp.asarray, w), self.others, self.rest)
