"""Random subsets and orders, drawn by JAX: the same for the same key wherever they are needed.

`most` is the size of the largest set at hand, on which shuffles depend; `width` is an upper bound of n that saves work
for small ones and changes no draw.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

FEW = 64  # up to this many distinct numbers are drawn one by one (Floyd's algorithm); more by sorting random keys
PACKED = 4096  # up to this many samples, a position and 20 random bits fit into one 32-bit sort key
RARE = 4  # with this many clients per participant, independent draws seldom repeat, and twice as many are enough


def some_of(key: PRNGKeyArray, clients: int, count: int) -> Int[Array, " count"]:
    """A uniform random subset of 0..clients-1, sorted.

    The work depends on the number of participants, not on that of all clients.
    """
    if count <= FEW or clients < RARE * count:
        return jnp.sort(distinct(key, jnp.asarray(clients, jnp.int32), clients, 1, count)[0])
    return first_distinct(key, clients, count)


def first_distinct(key: PRNGKeyArray, n: int, count: int) -> Int[Array, " count"]:
    """The first `count` distinct numbers among independent draws from 0..n-1, sorted.

    By symmetry every subset is equally likely, also given that 2 * count draws contain enough distinct numbers. If they
    do not, all are drawn again.
    """
    size = 2 * count

    def attempt(i):
        draw = jax.random.bits(jax.random.fold_in(key, i), (size,), jnp.uint32) % jnp.uint32(n)
        value, when = jax.lax.sort((draw.astype(jnp.int32), jnp.arange(size, dtype=jnp.int32)), num_keys=2)
        new = jnp.concatenate([jnp.ones(1, bool), value[1:] != value[:-1]])
        # When each distinct value was first drawn; repetitions count as never drawn.
        came = jnp.where(new, when, size)
        enough = jnp.sort(came)[count - 1]
        kept = jnp.sort(jnp.where(came <= enough, value, n))[:count]
        return i + 1, kept, enough < size

    return jax.lax.while_loop(lambda carry: ~carry[2], lambda carry: attempt(carry[0]), attempt(jnp.uint32(0)))[1]


def distinct(
    key: PRNGKeyArray, n: Int[Array, ""], most: int, rows: int, count: int, width: int | None = None
) -> Int[Array, "rows count"]:
    """Rows of `count` distinct numbers from 0..n-1, every subset equally likely; where n < count, all n and then zeros.

    Few numbers are drawn by Floyd's algorithm, whose work is count^2 whatever n is, many by sorting random keys.
    """
    position = jnp.arange(count, dtype=jnp.int32)[None, :]
    if count > FEW:
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(rows, dtype=jnp.int32))
        chosen = jax.vmap(lambda k: shuffled(k, n, most, width))(keys)[:, :count]
        chosen = jnp.pad(chosen, ((0, 0), (0, count - chosen.shape[1])))
    else:
        # Floyd: draw from 0..top, and take top if that is taken already. The bias of the modulo is below n / 2^32.
        top = jnp.maximum(n - count, 0) + position
        draw = (jax.random.bits(key, (rows, count), jnp.uint32) % (top + 1).astype(jnp.uint32)).astype(jnp.int32)

        def take(i, chosen):
            one = jax.lax.dynamic_slice_in_dim(draw, i, 1, axis=1)
            taken = jnp.any((chosen == one) & (position < i), axis=1, keepdims=True)
            return jnp.where(position == i, jnp.where(taken, jnp.maximum(n - count, 0) + i, one), chosen)

        chosen = jax.lax.fori_loop(0, count, take, draw)
        chosen = jnp.where(n < count, position, chosen)
    return jnp.where(position < n, chosen, 0)


def shuffled(key: PRNGKeyArray, n: Int[Array, ""], most: int, width: int | None = None) -> Int[Array, " width"]:
    """0..n-1 in random order, followed by the rest of 0..width-1."""
    width = most if width is None else width
    position = jnp.arange(width, dtype=jnp.int32)
    order = jax.random.bits(key, (width,), jnp.uint32)  # the first of `most`: each depends on its position alone
    order = jnp.where(position < n, order, jnp.uint32(2**32 - 1))
    if most > PACKED:
        return jax.lax.sort((order, position), num_keys=1, is_stable=True)[1]
    # Put the position into the low bits of the key: sorting one array is several times faster than sorting two.
    low = jnp.uint32(max(1, (most - 1).bit_length()))
    packed = (order >> low << low) | position.astype(jnp.uint32)
    return (jnp.sort(packed) & ((jnp.uint32(1) << low) - jnp.uint32(1))).astype(jnp.int32)
