"""Streams: clients that draw fresh samples whenever they take a step."""

import jax
import jax.numpy as jnp
import numpy as np

from cofed._util import machine
from cofed.federation.base import Draw, Samples

KEY = 64  # bytes of a client's random key, with the copies that splitting it makes


def drawn(draw: Draw, clients: int, samples: int, seed: int) -> list[Samples]:
    """Fixed samples of every client, which the history is measured on."""
    machine.require(clients * KEY, f"the random keys of {clients:,} clients")
    check_follows_key(draw, min(samples, 8))
    pairs = []
    for m, key in enumerate(jax.random.split(jax.random.key(seed), clients)):
        try:
            X, y = draw(key, jnp.asarray(m, jnp.int32), samples)
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise ValueError(f"draw(key, {m}, {samples}) must give a pair (X, y) of arrays, but {what}") from error
        pairs.append((np.asarray(X), np.asarray(y)))
        if m == 0:  # the others are as large as the first
            needed = 2 * clients * (pairs[0][0].nbytes + pairs[0][1].nbytes)
            machine.require(needed, f"{samples:,} samples of each of {clients:,} clients", "ask for fewer")
    return pairs


def check_follows_key(draw: Draw, size: int) -> None:
    """Refuse a stream that ignores its key: NumPy's random numbers would be drawn only once, when JAX compiles it."""
    try:
        first, again, other = (sample(draw, seed, size) for seed in (0, 0, 1))
    except Exception:  # `drawn` calls it again and says what is wrong
        return
    if not equal(first, again):
        raise ValueError(
            "draw gave other samples for the same key: it must take its random numbers from the key, with jax.random"
        )
    if equal(first, other):
        raise ValueError(
            "draw gave the same samples for two different keys: it must take its random numbers from the key, with "
            "jax.random"
        )


def sample(draw: Draw, seed: int, size: int) -> Samples:
    """A few samples of the first client."""
    X, y = draw(jax.random.key(seed), jnp.zeros((), jnp.int32), size)
    return np.asarray(X), np.asarray(y)


def equal(one: Samples, other: Samples) -> bool:
    """Whether two draws are the same."""
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))
