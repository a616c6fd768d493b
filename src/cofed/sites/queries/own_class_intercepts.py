"""A look at models of several classes whose sites have intercepts of their own: as in `own_intercepts.py`, with a
vector of them for each site."""

from typing import TYPE_CHECKING

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cofed.losses import SiteClassIntercepts
from cofed.losses.site_class_intercepts import ClassTerms, Scores, solved
from cofed.sites.queries.base import Message
from cofed.sites.queries.own_intercepts import ARRAYS, WithinLook, learnt
from cofed.sites.table import ENTRIES, Table
from cofed.solvers.curvature import pack

if TYPE_CHECKING:
    from cofed.sites.queries.look import LookMessage, ProductMessage


def scores_of(table: Table, coef: Float[Array, "m p k"]) -> Scores:
    """What m models predict for every row."""
    models, p, k = coef.shape
    z = table.X @ jnp.moveaxis(coef, 1, 0).reshape(p, models * k)
    return z.reshape(-1, models, k) + table.offset[:, None, None]


def class_terms_of(
    table: Table, loss: SiteClassIntercepts, coef: Float[Array, "m p k"], without: Int[Array, " m"]
) -> ClassTerms:
    """The parts of the loss of m models, each without the rows of a fold; -1 is none."""
    return loss.terms(scores_of(table, coef), table.y, learnt(table, without), table.cluster)


def class_look(table: Table, message: "LookMessage") -> WithinLook:
    """Loss, gradient and held-out loss of many models."""
    loss = class_loss_of(message)
    coef, without = jnp.asarray(message.coef), jnp.asarray(message.without)
    (models, p, k), n = coef.shape, table.weight.shape[0]
    size = models
    while size % 2 == 0 and size * n * k * (ARRAYS + k) > ENTRIES:
        size //= 2

    def some(asked: tuple[Array, Array]) -> WithinLook:
        found = class_terms_of(table, loss, *asked)
        held = jnp.zeros(size, found.value.dtype)
        if message.n_folds > 1:
            own = learnt(table, asked[1])
            z, others = scores_of(table, asked[0]), table.weight[:, None] - own
            held = loss.held(z, table.y, (own, others), table.cluster)
        gradient = table.X.transposed_times(found.slope.reshape(n, size * k)).reshape(p, size, k)
        return WithinLook(jnp.sum(found.value, axis=0), jnp.moveaxis(gradient, 0, 1), held)

    found = jax.lax.map(some, (coef.reshape(-1, size, p, k), without.reshape(-1, size)))
    return jax.tree.map(lambda part: part.reshape(models, *part.shape[2:]), found)


def class_hessians(table: Table, message: "LookMessage") -> Float[Array, "A packed"]:
    """The Hessians of the models that are looked at more closely, as upper triangles."""
    loss = class_loss_of(message)
    coef, without = jnp.asarray(message.coef), jnp.asarray(message.without)
    count, size = np.shape(message.where)
    k = coef.shape[2]
    if count == 0:
        return jnp.zeros((0, size * (size + 1) // 2), table.weight.dtype)

    def one(chosen: tuple[Array, Array]) -> Array:
        model, where = chosen
        found = class_terms_of(table, loss, coef[model][None], without[model][None])
        hot = jnp.arange(k, dtype=where.dtype)[:, None] == (where % k)[None, :]
        columns = jnp.where(hot[None], table.X.columns(where // k)[:, None, :], 0)  # n x k x size
        moved = off_site_vectors(columns, found, learnt(table, without[model][None]), table)
        share = found.share[:, 0]
        # A class at a time, so that no array is larger than the columns.
        whole = jnp.zeros((size, size), share.dtype)
        parts = (jnp.moveaxis(moved, 1, 0), share.T)
        return pack(
            jax.lax.scan(lambda total, own: (total + own[0].T @ (own[0] * own[1][:, None]), None), whole, parts)[0]
        )

    def one_or_none(chosen: tuple[Array, Array]) -> Array:
        nothing = jnp.zeros(size * (size + 1) // 2, table.weight.dtype)
        return jax.lax.cond(chosen[0] >= 0, one, lambda _: nothing, chosen)  # what pads the message costs nothing

    return jax.lax.map(one_or_none, (jnp.asarray(message.closer, jnp.int32), jnp.asarray(message.where, jnp.int32)))


def class_products(table: Table, message: "ProductMessage") -> Float[Array, "V p k"]:
    """The Hessian of the summed loss times the directions."""
    return jax.lax.map(table.X.transposed_times, class_bends(table, message))


def class_bends(table: Table, message: "ProductMessage") -> Float[Array, "V n k"]:
    """How the slopes of the rows change along the directions."""
    everybody = jnp.full(1, -1, table.fold.dtype)
    found = class_terms_of(table, class_loss_of(message), jnp.asarray(message.coef)[None], everybody)

    def one(direction: Array) -> Array:
        moved = off_site_vectors((table.X @ direction)[..., None], found, learnt(table, everybody), table)
        return found.share[:, 0] * moved[..., 0]

    return jax.lax.map(one, jnp.asarray(message.direction))


def off_site_vectors(
    values: Float[Array, "n k c"], found: ClassTerms, weight: Float[Array, "n 1"], table: Table
) -> Float[Array, "n k c"]:
    """Changes of predictions, with what the intercepts of the sites change along with them, each row's less its mean by
    the probabilities: times `share` they are what slopes change by."""
    total = jnp.where(weight > 0, weight, 1)
    p = (found.share[:, 0] / total)[..., None]

    def less_mean(moved: Float[Array, "n k c"]) -> Float[Array, "n k c"]:
        return moved - jnp.sum(p * moved, axis=1, keepdims=True)

    pull = found.share[:, 0, :, None] * less_mean(values)
    own = solved(found.share, weight, table.cluster, pull[:, None])[:, 0]
    return less_mean(values - own)


def class_loss_of(message: Message) -> SiteClassIntercepts:
    """The loss of a question about one."""
    loss = message.half_deviance
    assert isinstance(loss, SiteClassIntercepts)
    return loss
