"""Every random draw of a run: which clients take part, which samples form a batch, which links of a graph fail.

The method's own draws, such as those of a random compressor, and a model's, such as by dropout, come from keys made
here too.

A draw depends on (seed, round, client id, local step) alone. A client's id is the rank of its name, so the draws do not
depend on the order of the clients, on how rounds are grouped into chunks, or on the engine.

In the functions below, n is the size of the client at hand. `most` is the size of the largest client, on which shuffles
depend; `width` is an upper bound of n that saves work for small clients and changes no draw.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key, Num, PRNGKeyArray

from cofed._util.draws import distinct, shuffled, some_of


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


def mean_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key by which the server's mean draws in a round."""
    return jax.random.fold_in(key, 2**32 - 3)


def batches_key(client: PRNGKeyArray) -> PRNGKeyArray:
    """The key by which a batch sampler draws for all steps of a client's round."""
    return jax.random.fold_in(client, 2**32 - 2)


def step_keys(client: PRNGKeyArray, steps: int) -> Key[Array, " steps"]:
    """The key by which a batch sampler draws for each step of a client's round."""
    return jax.vmap(lambda k: jax.random.fold_in(client, k))(jnp.arange(steps, dtype=jnp.int32))


def model_key(client: PRNGKeyArray) -> PRNGKeyArray:
    """The key for what the model draws in the training of a client in a round."""
    return jax.random.fold_in(client, 2**32 - 3)


def sample_keys(model: PRNGKeyArray, k: Num[Array, ""], samples: int) -> Key[Array, " samples"]:
    """The key for each sample of the k-th step, by its place: that of the padding behind it changes none."""
    step = jax.random.fold_in(model, jnp.asarray(k).astype(jnp.int32))
    return jax.vmap(lambda i: jax.random.fold_in(step, i))(jnp.arange(samples, dtype=jnp.int32))


def sampler_key(key: PRNGKeyArray) -> PRNGKeyArray:
    """The key by which the clients of a round are drawn."""
    return jax.random.fold_in(key, 0)


def participants(key: PRNGKeyArray, clients: int, count: int) -> Int[Array, " count"]:
    """The ids of a uniform random subset of the clients, by the key of a round."""
    return some_of(sampler_key(key), clients, count)


def working_links(key: PRNGKeyArray, failure: Float[Array, ""], edges: int) -> Bool[Array, " edges"]:
    """Which links of a graph work in a round; each fails independently with this probability."""
    return jax.random.uniform(jax.random.fold_in(key, 2**32 - 1), (edges,), failure.dtype) >= failure


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
