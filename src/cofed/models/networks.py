"""Neural networks: dense, and convolutional."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray

from cofed._util import checks
from cofed.models.base import AbstractModel, Sample


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
    >>> import cofed
    >>> model = cofed.MLP(hidden=(8,))
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
    >>> import cofed
    >>> w = cofed.CNN().init(jax.random.key(0), jnp.ones((28, 28)), 10)
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
