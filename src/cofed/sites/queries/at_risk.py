"""A look at models of time to an event, whose loss is a partial likelihood: each site is a stratum.

The rows of a site belong together, as everybody who is at risk is in the loss of an event; so that they are taken all
at once, and models some at a time. The loss of rows held out is that of all rows less that of the rows learnt from, as
in Verweij and van Houwelingen 1993, Statistics in Medicine (and in glmnet): a few rows alone have hardly a risk set.
"""

from typing import TYPE_CHECKING, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cofed.losses import AbstractPartialLikelihood
from cofed.losses.cox import PartialTerms, follow_up
from cofed.losses.risk_sets import RiskSets
from cofed.sites.table import ENTRIES, Table
from cofed.solvers.curvature import pack

if TYPE_CHECKING:
    from cofed.sites.queries.look import LookMessage, ProductMessage
    from cofed.sites.queries.meat import MeatMessage

ARRAYS = 8  # as large as the predictions, on the way to an answer


class PartialLook(NamedTuple):
    """What a look at models tells, but for curvature: see `LookAnswer`."""

    loss: Float[Array, " M"]
    gradient: Float[Array, "M p"]
    held: Float[Array, " M"]


class Followed(NamedTuple):
    """The rows of all strata in the order of their times, with their risk sets."""

    rows: Table  # but for the features, which stay in the order of the table
    risk: RiskSets
    loss: AbstractPartialLikelihood
    order: Int[Array, " n"]

    def predictions(self, coef: Float[Array, "p m"]) -> Float[Array, "n m"]:
        """What m models predict, by stratum and time."""
        return self.moves(coef) + self.rows.offset[:, None]

    def moves(self, coef: Float[Array, "p m"]) -> Float[Array, "n m"]:
        """The same without offsets: how predictions change where coefficients do."""
        return (self.rows.X @ coef)[self.order]

    def pull(self, slope: Float[Array, "n m"]) -> Float[Array, "p m"]:
        """The sums of the rows, each times its slope."""
        return self.rows.X.transposed_times(jnp.zeros_like(slope).at[self.order].set(slope))

    def terms(self, z: Float[Array, "n m"], without: Array | None) -> PartialTerms:
        """The parts of the loss of m models; without the rows of the fold that each does not learn from."""
        counts = jnp.broadcast_to(self.rows.weight[:, None], z.shape)
        if without is not None:
            counts = jnp.where(self.rows.fold[:, None] != without[None, :], counts, 0)
        return self.loss.terms(self.risk, z, counts, self.rows.y[:, -1])


def followed(table: Table, loss: AbstractPartialLikelihood) -> Followed:
    """The rows of a table by stratum and time."""
    order, risk = follow_up(table.y, table.site)
    return Followed(table.beside(table.X, lambda values: values[order]), risk, loss, order)


def partial_look(table: Table, message: "LookMessage") -> PartialLook:
    """Loss, gradient and held-out loss of many models."""
    rows = followed(table, partial_of(message))
    coef, without = jnp.asarray(message.coef)[..., 0], jnp.asarray(message.without)
    models, n = coef.shape[0], table.weight.shape[0]
    size = models
    while size % 2 == 0 and size * n * ARRAYS > ENTRIES:
        size //= 2

    def some(asked: tuple[Array, Array]) -> PartialLook:
        z = rows.predictions(asked[0].T)
        found = rows.terms(z, asked[1])
        held = jnp.zeros_like(found.value)
        if message.n_folds > 1:
            held = rows.terms(z, None).value - found.value
        return PartialLook(found.value, rows.pull(found.slope).T, held)

    found = jax.lax.map(some, (coef.reshape(-1, size, coef.shape[1]), without.reshape(-1, size)))
    return jax.tree.map(lambda part: part.reshape(models, *part.shape[2:]), found)


def partial_hessians(table: Table, message: "LookMessage") -> Float[Array, "A packed"]:
    """The Hessians of the models that are looked at more closely, as upper triangles."""
    rows = followed(table, partial_of(message))
    coef, without = jnp.asarray(message.coef)[..., 0], jnp.asarray(message.without)
    if np.shape(message.where)[0] == 0:
        size = np.shape(message.where)[1]
        return jnp.zeros((0, size * (size + 1) // 2), table.weight.dtype)

    def one(chosen: tuple[Array, Array]) -> Array:
        model, where = chosen
        A = rows.rows.X.columns(where)[rows.order]
        found = rows.terms(rows.predictions(coef[model][:, None]), without[model][None])
        mean = found.means(rows.risk, A)
        return pack(A.T @ (A * found.expected) - mean.T @ (found.counted * mean))

    return jax.lax.map(one, (jnp.asarray(message.closer, jnp.int32), jnp.asarray(message.where, jnp.int32)))


def partial_products(table: Table, message: "ProductMessage") -> Float[Array, "V p 1"]:
    """The Hessian of the summed loss times the directions."""
    rows = followed(table, partial_of(message))
    z = rows.predictions(jnp.asarray(message.coef))

    def one(direction: Array) -> Array:
        return rows.pull(jax.jvp(lambda z: rows.terms(z, None).slope, (z,), (rows.moves(direction),))[1])

    return jax.lax.map(one, jnp.asarray(message.direction))


def partial_scores(table: Table, message: "MeatMessage") -> Float[Array, "n s"]:
    """The scores of the rows by some parameters, in the order of the table: a site knows who is at risk there."""
    rows = followed(table, partial_of(message))
    A = rows.rows.X.columns(jnp.asarray(message.where, jnp.int32))[rows.order]
    found = rows.terms(rows.predictions(jnp.asarray(message.coef)), None).scores(rows.risk, A)
    return jnp.zeros_like(found).at[rows.order].set(found)


def partial_of(message: "LookMessage | ProductMessage | MeatMessage") -> AbstractPartialLikelihood:
    """The loss of a question about one."""
    assert isinstance(message.loss, AbstractPartialLikelihood)
    return message.loss
