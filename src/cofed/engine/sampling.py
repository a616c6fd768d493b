"""Every random draw of a run: which clients take part, which samples make a batch, what a method draws by itself.

A draw depends on (seed, round, client id, local step) alone. The id is the rank of the client's name, so the order of
the clients, the chunking of the rounds and the engine change nothing. (Shuffles know the largest client's size too.)

`most` is the largest client's size, on which the draws depend; `width` bounds that of the client at hand, and only the
work depends on it.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

FEW = 64  # up to so many distinct draws are found one by one, more by sorting
PACKED = 4096  # up to so many samples, a position and 20 random bits fit into one sort key
RARE = 4  # from so many clients per participant on, few of twice the draws are drawn before


def round_key(seed_key: PRNGKeyArray, round: Int[Array, ""]) -> PRNGKeyArray:
    """The key of one round."""
    return jax.random.fold_in(seed_key, round)


def client_key(key: PRNGKeyArray, client_id: Int[Array, ""]) -> PRNGKeyArray:
    """The key of one client in a round; number 0 is the sampling's."""
    return jax.random.fold_in(key, client_id + 1)


def own_key(client: PRNGKeyArray) -> PRNGKeyArray:
    """The key of a client's own draws in a round, those of the method itself; smaller numbers are the batches'."""
    return jax.random.fold_in(client, 2**32 - 1)


def participants(key: PRNGKeyArray, clients: int, count: int) -> Int[Array, " count"]:
    """The ids of the clients that take part in a round: distinct, uniform, in rising order.

    The work depends on their number, not on that of all clients.
    """
    key = jax.random.fold_in(key, 0)
    if count <= FEW or clients < RARE * count:
        return jnp.sort(distinct(key, jnp.asarray(clients, jnp.int32), clients, 1, count)[0])
    return first_distinct(key, clients, count)


def first_distinct(key: PRNGKeyArray, n: int, count: int) -> Int[Array, " count"]:
    """The first `count` distinct ones of independent draws from 0..n-1, in rising order: by symmetry every set is
    equally likely, also given that twice as many draws were enough. Should they not be, all are drawn anew."""
    size = 2 * count

    def attempt(i):
        draw = jax.random.bits(jax.random.fold_in(key, i), (size,), jnp.uint32) % jnp.uint32(n)
        value, when = jax.lax.sort((draw.astype(jnp.int32), jnp.arange(size, dtype=jnp.int32)), num_keys=2)
        new = jnp.concatenate([jnp.ones(1, bool), value[1:] != value[:-1]])
        # When each distinct value came first; the others come never.
        came = jnp.where(new, when, size)
        enough = jnp.sort(came)[count - 1]
        kept = jnp.sort(jnp.where(came <= enough, value, n))[:count]
        return i + 1, kept, enough < size

    return jax.lax.while_loop(lambda carry: ~carry[2], lambda carry: attempt(carry[0]), attempt(jnp.uint32(0)))[1]


def working_links(key: PRNGKeyArray, failure: Float[Array, ""], edges: int) -> Bool[Array, " edges"]:
    """Which links work in a round, each failing with this probability."""
    return jax.random.uniform(jax.random.fold_in(key, 2**32 - 1), (edges,), failure.dtype) >= failure


def distinct(
    key: PRNGKeyArray, n: Int[Array, ""], most: int, rows: int, count: int, width: int | None = None
) -> Int[Array, "rows count"]:
    """Rows of `count` distinct numbers out of 0..n-1, n <= most, every set equally likely; where n < count, all n,
    then 0s. Few are drawn by Floyd's algorithm (work count^2, whatever n is), many by ordering random keys.
    """
    position = jnp.arange(count, dtype=jnp.int32)[None, :]
    if count > FEW:
        keys = jax.vmap(lambda k: jax.random.fold_in(key, k))(jnp.arange(rows, dtype=jnp.int32))
        chosen = jax.vmap(lambda k: shuffled(k, n, most, width))(keys)[:, :count]
        chosen = jnp.pad(chosen, ((0, 0), (0, count - chosen.shape[1])))
    else:
        # Floyd: draw from 0..top; if that is taken, take top. The bias of the remainder is below n / 2^32.
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
    order = jax.random.bits(key, (width,), jnp.uint32)  # the first of `most`: each depends on its place alone
    order = jnp.where(position < n, order, jnp.uint32(2**32 - 1))
    if most > PACKED:
        return jax.lax.sort((order, position), num_keys=1, is_stable=True)[1]
    # The position in the low bits, in place of random ones: sorting one array is several times faster than two.
    low = jnp.uint32(max(1, (most - 1).bit_length()))
    packed = (order >> low << low) | position.astype(jnp.uint32)
    return (jnp.sort(packed) & ((jnp.uint32(1) << low) - jnp.uint32(1))).astype(jnp.int32)


def random_batches(
    key: PRNGKeyArray, n: Int[Array, ""], most: int, batch: int, steps: int, width: int | None = None
) -> tuple[Int[Array, "steps batch"], Bool[Array, "steps batch"]]:
    """For each local step a batch of distinct samples, uniformly at random; all n where the batch is larger."""
    chosen = distinct(key, n, most, steps, batch, width)
    real = jnp.broadcast_to(jnp.arange(batch, dtype=jnp.int32) < n, (steps, batch))
    return chosen, real


def epoch_batches(
    key: PRNGKeyArray, n: Int[Array, ""], most: int, batch: int, epochs: int, width: int | None = None
) -> tuple[Int[Array, "steps batch"], Bool[Array, "steps batch"]]:
    """Batches over a fresh shuffle of the n samples per epoch, ceil(n/batch) steps each, the last one short."""
    room = most if width is None else width
    longest = -(-room // batch)  # steps of an epoch of the largest client that there is room for
    keys = jax.vmap(lambda e: jax.random.fold_in(key, e))(jnp.arange(epochs, dtype=jnp.int32))
    orders = jax.vmap(lambda k: shuffled(k, n, most, room))(keys)
    place = jnp.arange(longest * batch, dtype=jnp.int32).reshape(longest, batch)
    chosen = jnp.pad(orders, ((0, 0), (0, longest * batch - room))).reshape(epochs, longest, batch)
    real = jnp.broadcast_to(place < n, (epochs, longest, batch))
    if epochs > 1:  # a smaller client's next epoch begins right after its own last step
        step = jnp.arange(epochs * longest, dtype=jnp.int32)
        per_epoch = (n + batch - 1) // batch
        epoch, within = jnp.minimum(step // per_epoch, epochs - 1), step % per_epoch
        chosen, real = chosen[epoch, within], real[epoch, within]
    chosen, real = chosen.reshape(-1, batch), real.reshape(-1, batch)
    return jnp.where(real, chosen, 0), real
