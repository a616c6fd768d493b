"""Models: how a parameter pytree predicts from the features of ONE sample.

A model is a description without parameters: `init(key, x, outputs)` makes them from the shape of one sample and
the number of outputs that the loss asks for (None: a single number), and `model(w, x)` predicts. Any equinox
module with `__call__(x)` serves as a model too: its floating arrays are the parameters.
"""

import itertools
import math
from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cofed._util import checks

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


class Weights(eqx.Module):
    """Parameters of a linear model: `coef`, and `intercept` (None where the model has none)."""

    # Arrays, or what stands for them in a pytree: shapes, flags, specifications of how they are sharded.
    coef: PyTree
    intercept: PyTree = None


class Linear(AbstractModel):
    """x . coef + intercept, with `coef` of shape (d,), or (d, k) where the loss needs k outputs.

    Parameters
    ----------
    intercept : bool, default True
        Whether there is an intercept.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> w = Linear().init(jax.random.key(0), jnp.ones(3), None)
    >>> w.coef.shape, w.intercept.shape
    ((3,), ())
    """

    intercept: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        checks.flag("Linear: intercept", self.intercept)

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> Weights:
        """All zero."""
        if x.ndim != 1:
            raise ValueError(
                f"Linear expects each sample to be a vector, got samples of shape {x.shape}; "
                "use Trace(d1, d2) for matrices or flatten them"
            )
        tail = () if outputs is None else (outputs,)
        return Weights(jnp.zeros(x.shape + tail, x.dtype), jnp.zeros(tail, x.dtype) if self.intercept else None)

    def __call__(self, w: Weights, x: Sample) -> Float[Array, "..."]:
        if x.ndim != 1:  # a product with an array of higher rank would be something else
            raise ValueError(f"Linear predicts from one sample X[i], a vector, got one of shape {x.shape}")
        prediction = x @ w.coef
        return prediction if w.intercept is None else prediction + w.intercept


class Trace(AbstractModel):
    """<x, coef> + intercept with matrix covariates x and a matrix `coef` of shape (d1, d2).

    Parameters
    ----------
    d1, d2 : int
        The numbers of rows and columns.
    intercept : bool, default False
        Whether there is an intercept.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> Trace(2, 3).init(jax.random.key(0), jnp.ones((2, 3)), None).coef.shape
    (2, 3)
    """

    d1: int = eqx.field(static=True)
    d2: int = eqx.field(static=True)
    intercept: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        for name, size in (("d1", self.d1), ("d2", self.d2)):
            checks.integer(f"Trace: {name}", size)
        checks.flag("Trace: intercept", self.intercept)

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> Weights:
        """All zero."""
        if outputs is not None or math.prod(x.shape) != self.d1 * self.d2:
            raise ValueError(
                f"Trace({self.d1}, {self.d2}) expects samples of shape ({self.d1}, {self.d2}) and a loss of one "
                f"output, got samples of shape {x.shape} and {outputs or 1} outputs"
            )
        intercept = jnp.zeros((), x.dtype) if self.intercept else None
        return Weights(jnp.zeros((self.d1, self.d2), x.dtype), intercept)

    def __call__(self, w: Weights, x: Sample) -> Float[Array, ""]:
        # Flattened, so that a batch of predictions is one matrix-vector product.
        prediction = jnp.ravel(x) @ jnp.ravel(w.coef)
        return prediction if w.intercept is None else prediction + w.intercept


class Layer(eqx.Module):
    """Parameters of a dense or convolutional layer."""

    kernel: Float[Array, "..."]
    bias: Float[Array, " out"]


def layer(key: PRNGKeyArray, shape: tuple[int, ...], dtype: DTypeLike) -> Layer:
    """He's initialisation: the variance of the kernel is 2 over the number of inputs."""
    inputs = math.prod(shape[:-1])
    if inputs * shape[-1] > checks.MOST:
        raise ValueError(f"a layer of {inputs} inputs and {shape[-1]} outputs is too large: check hidden and maps")
    return Layer(jax.random.normal(key, shape, dtype) * math.sqrt(2 / inputs), jnp.zeros(shape[-1], dtype))


class Layers(eqx.Module):
    """Parameters of a network, layer by layer."""

    layers: tuple[Layer, ...]


def widths(values: object) -> Any:
    """A field converter: a list of sizes as a tuple, which is hashable, as a static field must be; NumPy's integers
    become Python's. `check_widths` refuses the rest."""
    if not isinstance(values, (list, tuple)):
        return values
    return tuple(int(value) if isinstance(value, np.integer) else value for value in values)


def check_widths(name: str, values: object) -> None:
    """Refuse anything but a tuple of sizes."""
    if not isinstance(values, tuple):
        raise TypeError(f"{name} must be a list of sizes, such as (64, 32), got {checks.shown(values)}")
    for i, size in enumerate(values):
        checks.integer(f"{name}[{i}]", size)


def check_activation(name: str, activation: object) -> None:
    """Refuse anything but a function."""
    if not callable(activation) or isinstance(activation, type):
        raise TypeError(f"{name} must be a function such as jax.nn.relu, got {checks.shown(activation)}")


class MLP(AbstractModel):
    """A fully connected network; its leaves are `layers.0.kernel`, `layers.0.bias`, ...

    Parameters
    ----------
    hidden : tuple of int, default (64, 64)
        The widths of the hidden layers.
    activation : callable, default jax.nn.relu
        The function between the layers.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> model = MLP(hidden=(8,))
    >>> w = model.init(jax.random.key(0), jnp.ones(3), 2)
    >>> model(w, jnp.ones(3)).shape
    (2,)
    """

    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 64), converter=widths)
    activation: Callable = eqx.field(static=True, default=jax.nn.relu)

    def __check_init__(self):
        check_widths("MLP: hidden", self.hidden)
        check_activation("MLP: activation", self.activation)

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> Layers:
        """He's initialisation."""
        sizes = (math.prod(x.shape), *self.hidden, outputs or 1)
        keys = jax.random.split(key, len(sizes) - 1)
        return Layers(
            tuple(layer(k, (i, o), x.dtype) for k, (i, o) in zip(keys, itertools.pairwise(sizes), strict=True))
        )

    def __call__(self, w: Layers, x: Sample) -> Float[Array, "..."]:
        return dense(w.layers, jnp.ravel(x), self.activation)


class CNN(AbstractModel):
    """A convolutional network, that of zhang2025, Section 4.2.

    3x3 convolutions with padding, each followed by 2x2 max pooling, then dense layers. With the defaults, on 28 x 28
    images and 10 classes, it has 112,394 parameters.

    Parameters
    ----------
    image : tuple of int, default (28, 28, 1)
        Height, width and channels of an image.
    maps : tuple of int, default (32, 32)
        The numbers of feature maps of the convolutions.
    hidden : tuple of int, default (64, 32)
        The widths of the hidden dense layers.
    activation : callable, default jax.nn.relu
        The function between the layers.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> w = CNN().init(jax.random.key(0), jnp.ones((28, 28)), 10)
    >>> sum(leaf.size for leaf in jax.tree.leaves(w))
    112394
    """

    image: tuple[int, int, int] = eqx.field(static=True, default=(28, 28, 1), converter=widths)
    maps: tuple[int, ...] = eqx.field(static=True, default=(32, 32), converter=widths)
    hidden: tuple[int, ...] = eqx.field(static=True, default=(64, 32), converter=widths)
    activation: Callable = eqx.field(static=True, default=jax.nn.relu)

    def __check_init__(self):
        for name, values in (("image", self.image), ("maps", self.maps), ("hidden", self.hidden)):
            check_widths(f"CNN: {name}", values)
        if len(self.image) != 3:
            raise ValueError(f"CNN: image must be (height, width, channels), got {self.image}")
        halved = 2 ** len(self.maps)
        if min(self.image[:2]) < halved:
            raise ValueError(
                f"CNN: image of {self.image[0]} x {self.image[1]} is too small to be halved {len(self.maps)} times, "
                f"once for each of maps={self.maps}; at least {halved} x {halved} is needed"
            )
        check_activation("CNN: activation", self.activation)

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> Layers:
        """He's initialisation."""
        height, width, channels = self.image
        if math.prod(x.shape) != math.prod(self.image):
            raise ValueError(f"CNN(image={self.image}) expects images of that size, got samples of shape {x.shape}")
        shapes: list[tuple[int, ...]] = []
        for maps in self.maps:
            shapes.append((3, 3, channels, maps))
            height, width, channels = height // 2, width // 2, maps
        dense_sizes = (height * width * channels, *self.hidden, outputs or 1)
        shapes += list(itertools.pairwise(dense_sizes))
        keys = jax.random.split(key, len(shapes))
        return Layers(tuple(layer(k, shape, x.dtype) for k, shape in zip(keys, shapes, strict=True)))

    def __call__(self, w: Layers, x: Sample) -> Float[Array, "..."]:
        h = jnp.reshape(x, self.image)
        for conv in w.layers[: len(self.maps)]:
            h = pooled(self.activation(convolved(h, conv.kernel) + conv.bias.reshape(1, 1, -1)))
        return dense(w.layers[len(self.maps) :], jnp.ravel(h), self.activation)


def convolved(h: Float[Array, "rows columns maps"], kernel: Float[Array, "3 3 maps out"]) -> Float[Array, "..."]:
    """A 3x3 convolution with padding, as one matrix product of all patches with the kernel: with a kernel per client,
    XLA's own convolution on a CPU takes several times as long."""
    rows, columns, maps = h.shape
    wide = jnp.pad(h, ((1, 1), (1, 1), (0, 0)))
    patches = [wide[i : i + rows, j : j + columns] for i in range(3) for j in range(3)]
    product = jnp.concatenate(patches, axis=-1).reshape(rows * columns, 9 * maps) @ kernel.reshape(9 * maps, -1)
    return product.reshape(rows, columns, -1)


def pooled(h: Float[Array, "rows columns maps"]) -> Float[Array, "..."]:
    """The largest of each 2x2 square; an odd last row or column is left out."""
    rows, columns, maps = h.shape[0] // 2, h.shape[1] // 2, h.shape[2]
    return jnp.max(h[: 2 * rows, : 2 * columns].reshape(rows, 2, columns, 2, maps), axis=(1, 3))


def dense(layers: tuple[Layer, ...], h: Float[Array, " d"], activation: Callable) -> Float[Array, "..."]:
    """Dense layers with the activation between them; a single output is a number, not an array of one."""
    for i, one in enumerate(layers):
        h = h @ one.kernel + one.bias
        if i < len(layers) - 1:
            h = activation(h)
    return h[0] if h.shape == (1,) else h


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
