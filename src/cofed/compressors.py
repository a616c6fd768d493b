"""Compressors: what of an array goes over the wire, and how the other end reads it.

TopK        the k largest entries by size, and where they are
RandomK     k entries at places drawn from a seed; the seed (4 bytes) is sent, the places follow from it
Quantised   every entry as one of 2^b evenly spaced levels, s (2c + 1 - 2^b) for c = 0..2^b-1, and the one number s

Each is a contraction, ||v - C(v)||^2 <= (1 - delta) ||v||^2: TopK with delta >= k/d, RandomK with delta = k/d in the
mean, Quantised with s by least squares, so that delta is the squared cosine between v and its levels (2/pi for one bit
and normal entries). That is what error feedback needs (`cofed.Compressed`), and it is why nothing here is stochastic
rounding, or divided by k/d to be unbiased: at a few bits, or a small share, the noise would exceed the signal.

An array acts alone: each leaf of an update has its own k and its own s. A leaf whose message would not be smaller than
itself goes as it is (a single number always does), and so nothing is lost of it.

`share` and `bits` are shapes to the compiled program: another value compiles another program.
"""

import math
from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Float, PRNGKeyArray, PyTree, UInt

from cofed._util import checks, trees
from cofed._util.types import Given

ROUNDS = 6  # of Quantised's search for s: levels for a given s, then s for given levels


class CompressedArray(eqx.Module):
    """An array on the wire. What is static is known to both ends and is not sent."""

    @abstractmethod
    def expand(self) -> Array:
        """The array that the other end reads."""


class AbstractCompressor(eqx.Module):
    """What makes messages of arrays: a contraction, ||v - C(v)||^2 <= (1 - delta) ||v||^2.

    A compressor of one's own derives from this class and gives `compress`.
    """

    @abstractmethod
    def compress(self, v: Float[Array, "..."], key: PRNGKeyArray) -> CompressedArray:
        """The message of an array.

        Parameters
        ----------
        v : array
            What is to be sent.
        key : PRNG key
            For draws.

        Returns
        -------
        CompressedArray
            What goes over the wire; its `expand` is the other end.
        """


def compress(compressor: AbstractCompressor, tree: PyTree, key: PRNGKeyArray) -> PyTree:
    """A tree of messages, with the array itself where its message would not be smaller.

    >>> import jax, jax.numpy as jnp
    >>> import cofed
    >>> from cofed.compressors import compress, expand
    >>> tree = {"coef": jnp.array([3.0, 0.0, -5.0, 1.0, 0.0, 2.0]), "intercept": jnp.array(1.5)}
    >>> message = compress(cofed.TopK(share=0.3), tree, jax.random.key(0))
    >>> message["coef"].values.tolist(), message["coef"].places.tolist(), message["intercept"].tolist()
    ([-5.0, 3.0], [2, 0], 1.5)
    >>> expand(message)["coef"].tolist()
    [3.0, 0.0, -5.0, 0.0, 0.0, 0.0]
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(smaller(compressor, leaf, jax.random.fold_in(key, i)) for i, leaf in enumerate(leaves))


def smaller(compressor: AbstractCompressor, leaf: Array, key: PRNGKeyArray) -> CompressedArray | Array:
    """The message of a leaf, or the leaf."""
    if leaf.size < 2:
        return leaf
    message = compressor.compress(leaf, key)
    return message if trees.nbytes(message) < trees.nbytes(leaf) else leaf


def expand(tree: PyTree) -> PyTree:
    """The arrays of a tree of messages."""
    is_message = lambda node: isinstance(node, CompressedArray)  # noqa: E731
    return jax.tree.map(lambda node: node.expand() if is_message(node) else node, tree, is_leaf=is_message)


class Sparse(CompressedArray):
    """Some entries, and where they are in the array laid out as one row."""

    values: Float[Array, " k"]
    places: UInt[Array, " k"]
    shape: tuple[int, ...] = eqx.field(static=True)

    def expand(self) -> Array:
        return scattered(self.values, self.places, self.shape)


class Drawn(CompressedArray):
    """Some entries, and the seed of where they are."""

    values: Float[Array, " k"]
    seed: UInt[Array, ""]
    shape: tuple[int, ...] = eqx.field(static=True)

    def expand(self) -> Array:
        return scattered(self.values, drawn(self.seed, math.prod(self.shape), self.values.size), self.shape)


class Coded(CompressedArray):
    """The number of each entry's level, `bits` bits each, and what the levels are multiples of."""

    codes: UInt[Array, " bytes"]
    scale: Float[Array, ""]
    bits: int = eqx.field(static=True)
    shape: tuple[int, ...] = eqx.field(static=True)

    def expand(self) -> Array:
        flags = jnp.unpackbits(self.codes, count=math.prod(self.shape) * self.bits).reshape(-1, self.bits)
        weights = 2 ** np.arange(self.bits, dtype=np.int32)
        codes = jnp.sum(flags.astype(jnp.int32) * weights[None, :], axis=1, dtype=jnp.int32)
        return (self.scale * level(codes, self.bits).astype(self.scale.dtype)).reshape(self.shape)


def plain(value: Given[float]) -> Given[float]:
    """A number of NumPy's as one of Python's, which is static and hashable."""
    return checks.as_float(value) if checks.is_real(value) else value


class TopK(AbstractCompressor):
    """The share of an array's entries that is largest by size, with their places (1, 2 or 4 bytes each).

    Of a large float32 array, 5 % of the entries are 7.5 % of the bytes up to 65,536 entries, 10 % above.

    Parameters
    ----------
    share : float
        The part of the entries to send, in (0, 1]; their number is rounded up.

    Examples
    --------
    >>> import cofed, jax, jax.numpy as jnp
    >>> cofed.TopK(share=0.5).compress(jnp.array([0.1, -2.0, 3.0, 0.2]), jax.random.key(0)).expand().tolist()
    [0.0, -2.0, 3.0, 0.0]
    """

    share: float = eqx.field(static=True, converter=plain)

    def __check_init__(self):
        require_share("TopK", self.share)

    def compress(self, v: Float[Array, "..."], key: PRNGKeyArray) -> Sparse:
        flat = v.reshape(-1)
        places = jax.lax.top_k(jnp.abs(flat), count(self.share, v.size))[1]
        return Sparse(flat[places], places.astype(places_dtype(v.size)), v.shape)


class RandomK(AbstractCompressor):
    """A share of an array's entries, drawn anew in every round; their places cost 4 bytes in all.

    Both ends must draw alike, and so run the same JAX.

    Parameters
    ----------
    share : float
        The part of the entries to send, in (0, 1]; their number is rounded up.

    Examples
    --------
    >>> import cofed, jax, jax.numpy as jnp
    >>> message = cofed.RandomK(share=0.25).compress(jnp.arange(1.0, 9.0), jax.random.key(0))
    >>> message.values.size, int((message.expand() != 0).sum())
    (2, 2)
    """

    share: float = eqx.field(static=True, converter=plain)

    def __check_init__(self):
        require_share("RandomK", self.share)

    def compress(self, v: Float[Array, "..."], key: PRNGKeyArray) -> Drawn:
        seed = jax.random.bits(key, (), jnp.uint32)
        return Drawn(v.reshape(-1)[drawn(seed, v.size, count(self.share, v.size))], seed, v.shape)


class Quantised(AbstractCompressor):
    """Every entry by a few bits; one bit is its sign, times the mean size of the entries.

    Deterministic: with error feedback, what rounding loses now is sent later, and rounding to the nearest loses least.

    Parameters
    ----------
    bits : int
        Bits per entry, from 1 to 16.

    Examples
    --------
    >>> import cofed, jax, jax.numpy as jnp
    >>> message = cofed.Quantised(bits=1).compress(jnp.array([0.5, -2.0, 3.0, 0.5]), jax.random.key(0))
    >>> message.codes.nbytes, message.expand().tolist()
    (1, [1.5, -1.5, 1.5, 1.5])
    """

    bits: Given[int] = eqx.field(static=True)

    def __check_init__(self):
        if checks.integer("Quantised: bits", self.bits) > 16:
            raise ValueError(f"Quantised: bits must be an integer from 1 to 16, got {self.bits!r}")

    def compress(self, v: Float[Array, "..."], key: PRNGKeyArray) -> Coded:
        flat = v.reshape(-1)
        scale = jnp.max(jnp.abs(flat)) / (2**self.bits - 1)
        codes = nearest(flat, scale, self.bits)
        # Neither half of a round makes the error larger, so it is never above that of the levels up to max |v|. Signs
        # do not depend on s, so one bit is done at once.
        scale = fitted(flat, codes, self.bits)
        for _ in range(ROUNDS if self.bits > 1 else 0):
            codes = nearest(flat, scale, self.bits)
            scale = fitted(flat, codes, self.bits)
        flags = (codes[:, None] >> np.arange(self.bits, dtype=np.int32)[None, :]) & 1
        return Coded(jnp.packbits(flags.astype(bool)), scale, self.bits, v.shape)


def level(codes: Array, bits: int) -> Array:
    """2c + 1 - 2^b: the odd numbers around 0."""
    return 2 * codes + (1 - 2**bits)


def nearest(v: Float[Array, " d"], scale: Float[Array, ""], bits: int) -> Array:
    """The codes of the levels nearest to v."""
    steps = jnp.floor(v / (2 * jnp.where(scale > 0, scale, 1))) + 2 ** (bits - 1)
    return jnp.clip(steps, 0, 2**bits - 1).astype(jnp.int32)


def fitted(v: Float[Array, " d"], codes: Array, bits: int) -> Float[Array, ""]:
    """The scale that is best for these codes, by least squares."""
    levels = level(codes, bits).astype(v.dtype)
    return (v @ levels) / (levels @ levels)


def count(share: float, entries: int) -> int:
    """k, the number of entries to send."""
    return min(entries, math.ceil(share * entries - 1e-9))  # 0.07 * 100 is 7, but 7.000000000000001 to a computer


def places_dtype(entries: int) -> DTypeLike:
    """The smallest type that numbers so many entries."""
    return next(kind for kind in (jnp.uint8, jnp.uint16, jnp.uint32) if entries - 1 <= jnp.iinfo(kind).max)


def drawn(seed: UInt[Array, ""], entries: int, k: int) -> Array:
    """k distinct places, every set equally likely (but for ties of 32 random bits)."""
    return jax.lax.top_k(jax.random.bits(jax.random.key(seed), (entries,), jnp.uint32), k)[1]


def scattered(values: Float[Array, " k"], places: Array, shape: tuple[int, ...]) -> Array:
    """Zeros but for these entries. A place that is not there, in a foreign message, is left out."""
    return jnp.zeros(math.prod(shape), values.dtype).at[places].set(values, mode="drop").reshape(shape)


def require_compressor(owner: str, compressor: object) -> None:
    """Refuse what is no compressor."""
    if not isinstance(compressor, AbstractCompressor):
        raise TypeError(
            f"{owner}: compressor must be one such as TopK(share=0.05) or Quantised(bits=1), got "
            f"{checks.shown(compressor)}; one of your own derives from cofed.compressors.AbstractCompressor"
        )


def require_share(owner: str, share: Given[float]) -> None:
    """Refuse what is not a share."""
    inside = checks.is_real(share) and 0 < checks.as_float(share) <= 1
    checks.real(f"{owner}: share", share, "a number in (0, 1], the part of the entries to send", inside)
