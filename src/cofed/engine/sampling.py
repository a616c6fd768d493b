"""Every random draw of a run: which clients take part, which samples form a batch, which links of a graph fail.

The method's own draws, such as those of a random compressor, come from keys made here too.

A draw depends on (seed, round, client id, local step) alone. A client's id is the rank of its name, so the draws do not
depend on the order of the clients, on how rounds are grouped into chunks, or on the engine.

In the functions below, n is the size of the client at hand. `most` is the size of the largest client, on which shuffles
depend; `width` is an upper bound of n that saves work for small clients and changes no draw.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

FEW = 64  # up to this many distinct numbers are drawn one by one (Floyd's algorithm); more by sorting random keys
PACKED = 4096  # up to this many samples, a position and 20 random bits fit into one 32-bit sort key
RARE = 4  # with this many clients per participant, independent draws seldom repeat, and twice as many are enough


def round_key(seed_key: PRNGKeyArray, round: Int[Array, ""]) -> PRNGKeyArray:
    """The key of one round."""
    return jax.random.fold_in(seed_key, round)


def client_key(key: PRNGKeyArray, client_id: Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client in a round. Number 0 is taken by the sampling of clients, hence the + 1."""
    return jax.random.fold_in(key, client_id + 1)


def own_key(client: PRNGKeyArray) -> PRNGKeyArray:
    """The key for what the method itself draws at a client in a round; smaller numbers are taken by the batches."""
    return jax.random.fold_in(client, 2**32 - 1)


def shared_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key for what the method draws for all clients of a round alike. Links that fail take the number above it."""
    return jax.random.fold_in(key, 2**32 - 2)


def participants(key: PRNGKeyArray, clients: int, count: int) -> Int[Array, " count"]:
    """The ids of the clients that take part in a round: a uniform random subset, sorted.

    The work depends on the number of participants, not on that of all clients.
    """
    key = jax.random.fold_in(key, 0)
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


def working_links(key: PRNGKeyArray, failure: Float[Array, ""], edges: int) -> Bool[Array, " edges"]:
    """Which links of a graph work in a round; each fails independently with this probability."""
    return jax.random.uniform(jax.random.fold_in(key, 2**32 - 1), (edges,), failure.dtype) >= failure


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


def random_batches(
    key: PRNGKeyArray, n: Int[Array, ""], most: int, batch: int, steps: int, width: int | None = None
) -> tuple[Int[Array, "steps batch"], Bool[Array, "steps batch"]]:
    """For each local step a uniform random batch of distinct samples, and which of its places are filled.

    A client with fewer samples than a batch gives all of them.
    """
    chosen = distinct(key, n, most, steps, batch, width)
    real = jnp.broadcast_to(jnp.arange(batch, dtype=jnp.int32) < n, (steps, batch))
    return chosen, real


def epoch_batches(
    key: PRNGKeyArray, n: Int[Array, ""], most: int, batch: int, epochs: int, width: int | None = None
) -> tuple[Int[Array, "steps batch"], Bool[Array, "steps batch"]]:
    """Batches from a fresh shuffle per epoch, and which of their places are filled.

    An epoch has ceil(n / batch) steps, of which the last may be short.
    """
    room = most if width is None else width
    longest = -(-room // batch)  # steps per epoch of a client of this size
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(jnp.arange(epochs, dtype=jnp.int32))
    orders = jax.vmap(lambda k: shuffled(k, n, most, room))(keys)
    place = jnp.arange(longest * batch, dtype=jnp.int32).reshape(longest, batch)
    chosen = jnp.pad(orders, ((0, 0), (0, longest * batch - room))).reshape(epochs, longest, batch)
    real = jnp.broadcast_to(place < n, (epochs, longest, batch))
    if epochs > 1:  # the next epoch of a smaller client begins right after its own last step
        step = jnp.arange(epochs * longest, dtype=jnp.int32)
        per_epoch = (n + batch - 1) // batch
        epoch, within = jnp.minimum(step // per_epoch, epochs - 1), step % per_epoch
        chosen, real = chosen[epoch, within], real[epoch, within]
    chosen, real = chosen.reshape(-1, batch), real.reshape(-1, batch)
    return jnp.where(real, chosen, 0), real
