"""A look at models whose sites have intercepts of their own: each site finds its own, and tells nobody.

What leaves a site is the loss of its rows at the best intercept for them, with the derivatives of that by the
coefficients: sums over rows, as of any other model. Loss, gradient and Hessian of all sites add up to those of the
model with a column for every site that is not penalised, of which the sites' columns are eliminated.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.losses import SiteIntercepts
from cofed.losses.site_intercepts import SiteTerms, Values, by_site
from cofed.sites.queries.base import Message
from cofed.sites.table import ENTRIES, Table
from cofed.solvers.curvature import pack

if TYPE_CHECKING:
    from cofed.sites.queries.look import LookMessage, ProductMessage

ARRAYS = 12  # as large as the predictions, on the way to an answer


class WithinLook(NamedTuple):
    """What a look at models tells, but for curvature: see `LookAnswer`."""

    loss: Float[Array, " M"]
    gradient: Float[Array, "M p"]
    held: Float[Array, " M"]


def terms_of(table: Table, loss: SiteIntercepts, coef: Float[Array, "m p"], without: Array) -> SiteTerms:
    """The parts of the loss of m models, each without the rows of a fold; -1 is none."""
    z = table.X @ coef.T + table.offset[:, None]
    return loss.terms(z, table.y, learnt(table, without), table.cluster)


def learnt(table: Table, without: Array) -> Values:
    """The weights of the rows that models learn from."""
    return jnp.where(table.fold[:, None] != without[None, :], table.weight[:, None], 0)


def within_look(table: Table, message: "LookMessage") -> WithinLook:
    """Loss, gradient and held-out loss of many models."""
    loss = loss_of(message)
    coef, without = jnp.asarray(message.coef)[..., 0], jnp.asarray(message.without)
    models, n = coef.shape[0], table.weight.shape[0]
    size = models
    while size % 2 == 0 and size * n * ARRAYS > ENTRIES:
        size //= 2

    def some(asked: tuple[Array, Array]) -> WithinLook:
        found = terms_of(table, loss, *asked)
        held = jnp.zeros(asked[0].shape[0], found.value.dtype)
        if message.n_folds > 1:
            own = learnt(table, asked[1])
            z, others = table.X @ asked[0].T + table.offset[:, None], table.weight[:, None] - own
            held = loss.held(z, table.y, (own, others), table.cluster)
        return WithinLook(jnp.sum(found.value, axis=0), table.X.transposed_times(found.slope).T, held)

    found = jax.lax.map(some, (coef.reshape(-1, size, coef.shape[1]), without.reshape(-1, size)))
    return jax.tree.map(lambda part: part.reshape(models, *part.shape[2:]), found)


def within_hessians(table: Table, message: "LookMessage") -> Float[Array, "A packed"]:
    """The Hessians of the models that are looked at more closely, as upper triangles."""
    loss = loss_of(message)
    coef, without = jnp.asarray(message.coef)[..., 0], jnp.asarray(message.without)
    if np.shape(message.where)[0] == 0:
        size = np.shape(message.where)[1]
        return jnp.zeros((0, size * (size + 1) // 2), table.weight.dtype)

    def one(chosen: tuple[Array, Array]) -> Array:
        model, where = chosen
        bend = terms_of(table, loss, coef[model][None], without[model][None]).bend
        A = off_site_means(table.X.columns(where), bend, table)
        return pack(A.T @ (A * bend))

    return jax.lax.map(one, (jnp.asarray(message.closer, jnp.int32), jnp.asarray(message.where, jnp.int32)))


def within_products(table: Table, message: "ProductMessage") -> Float[Array, "V p 1"]:
    """The Hessian of the summed loss times the directions."""
    return jax.lax.map(lambda moved: table.X.transposed_times(moved[:, None]), within_bends(table, message))


def within_bends(table: Table, message: "ProductMessage") -> Float[Array, "V n"]:
    """How the slopes of the rows change along the directions."""
    coef = jnp.asarray(message.coef)[:, 0][None]
    bend = terms_of(table, loss_of(message), coef, jnp.full(1, -1, table.fold.dtype)).bend

    def one(direction: Array) -> Array:
        return (bend * off_site_means(table.X @ direction, bend, table))[:, 0]

    return jax.lax.map(one, jnp.asarray(message.direction))


def off_site_means(values: Values, bend: Float[Array, "n 1"], table: Table) -> Values:
    """Values less the means of their sites, in which rows count by their bends."""
    count = len(table.cluster)
    total = by_site(bend, table.cluster, count)
    return values - by_site(bend * values, table.cluster, count) / jnp.where(total > 0, total, 1)


def loss_of(message: Message) -> SiteIntercepts:
    """The loss of a question about one, above that of the saturated model."""
    loss = message.half_deviance
    assert isinstance(loss, SiteIntercepts)
    return loss
