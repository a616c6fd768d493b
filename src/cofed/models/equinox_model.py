"""A user's own equinox module as a model."""

import inspect
from collections.abc import Iterator

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cofed.models.base import AbstractModel, Sample


def trained(leaf: object) -> bool:
    """Whether a leaf of a user's module is a parameter; equinox's own test counts NumPy's constants too."""
    return isinstance(leaf, jax.Array) and eqx.is_inexact_array(leaf)


def layers(module: eqx.Module) -> Iterator[eqx.Module]:
    """A module, and all modules that it is made of."""
    yield module
    parts = jax.tree.leaves(module, is_leaf=lambda node: isinstance(node, eqx.Module) and node is not module)
    for part in parts:
        if isinstance(part, eqx.Module):
            yield from layers(part)


def argument(module: eqx.Module, name: str) -> inspect.Parameter | None:
    """What a module's call says of an argument of this name; None where it takes none."""
    return inspect.signature(type(module).__call__).parameters.get(name)


def is_active_dropout(layer: eqx.Module) -> bool:
    """Whether a layer is a Dropout that draws."""
    return isinstance(layer, eqx.nn.Dropout) and not layer.inference


def draws(module: eqx.Module) -> bool:
    """Whether a module's training draws: its call takes a key, and something in it uses the key.

    Calls of equinox's own layers all take one, and of these Dropout alone uses it.
    """

    def own(layer: eqx.Module) -> bool:
        return not type(layer).__module__.startswith("equinox.") and argument(layer, "key") is not None

    if argument(module, "key") is None:
        return False
    return own(module) or any(own(layer) or is_active_dropout(layer) for layer in layers(module))


class EquinoxModel(AbstractModel):
    """A user's own equinox module: `module(x)` predicts from one sample, its floating JAX arrays are the parameters.

    Everything else (numbers, flags, functions, NumPy arrays, integer arrays) is used as it is, and not trained.

    A module that takes a key, `module(x, key=key)`, gets one for each sample in training. Without draws, as in the
    history, it is called with `key=None` and in `equinox.nn.inference_mode`; users get it with its flags as they were.

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
        module = self.ready(w)
        return eqx.nn.inference_mode(module)(x, key=None) if self.is_random else module(x)

    @property
    def is_random(self) -> bool:
        """Whether the module's call takes a key, and uses it."""
        return draws(self.rest)

    def train(self, w: PyTree, x: Sample, key: PRNGKeyArray) -> Float[Array, "..."]:
        """The module's call with a key, where it takes one."""
        return self.ready(w)(x, key=key) if self.is_random else self(w, x)

    @property
    def obstacle(self) -> str | None:
        """A state, which no module may have here, or a Dropout without a key."""
        parts = list(layers(self.rest))
        state = argument(self.rest, "state")
        stateful = sorted(
            {
                type(layer).__name__
                for layer in parts
                if any(isinstance(value, eqx.nn.StateIndex) for value in vars(layer).values())
            }
        )
        if stateful or (state is not None and state.default is inspect.Parameter.empty):
            where = f" (of its {' and '.join(stateful)})" if stateful else ""
            return (
                f"model: {self.title} has a state{where}, which changes in training beside the parameters, and "
                "states are not averaged here. Normalise by eqx.nn.GroupNorm or eqx.nn.LayerNorm, which have none"
            )
        if any(is_active_dropout(layer) for layer in parts) and argument(self.rest, "key") is None:
            return (
                f"model: {self.title} has a Dropout, which draws in training, but its __call__ takes no key: write "
                "__call__(self, x, key=None) and hand the key on, as in self.dropout(h, key=key); "
                "eqx.nn.inference_mode(module) is trained without draws"
            )
        return None

    @property
    def title(self) -> str:
        """The name of the user's class."""
        return type(self.rest).__name__

    def ready(self, w: PyTree) -> PyTree:
        """The module with these parameters."""
        return eqx.combine(jax.tree.map(jnp.asarray, w), self.others, self.rest)
