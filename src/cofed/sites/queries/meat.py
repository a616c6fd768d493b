"""The meat of a robust ("sandwich") covariance: products of the rows' scores, or of the sums of scores by cluster.

A row's score is the gradient of its loss by the parameters, x_i times e_i, with e_i the loss's slope by the prediction
times the row's weight. Of times to an event it is that of Lin and Wei: see `losses/cox.py`.
"""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.losses import AbstractLoss
from cofed.sites.host_rows import HostRows
from cofed.sites.queries.at_risk import partial_scores
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, n_outputs
from cofed.sites.queries.look import predictions
from cofed.sites.table import Table, sum_rows
from cofed.solvers.curvature import pack

LEAST = 1e-8  # where less than this is left of 1 - leverage, the row decides a coefficient alone, and fits exactly


class MeatMessage(Message):
    """A model with k outputs, the s parameters whose scores are multiplied, and how."""

    coef: Numbers  # p x k
    intercept: Numbers  # k
    where: Numbers  # s: positions of parameters, laid out as in `look`
    inverse: Numbers  # s x s, of the Hessian of the summed loss: for leverages; 0 x 0 without them
    clustered: bool = eqx.field(static=True, default=False)  # sum the scores by cluster first


class MeatAnswer(NamedTuple):
    """Sums over rows, or over clusters."""

    products: Float[Array, " packed"]  # of the scores: an upper triangle
    terms: Float[Array, ""]  # how many rows or clusters were summed over
    lone: Float[Array, ""]  # rows that were left out, since their leverage is 1


class MeatQuery(AbstractQuery[MeatMessage]):
    """Products of the scores at a model, of rows or of clusters.

    With `inverse`, slopes are divided by 1 - leverage first (HC3); for k outputs that is a k x k system.
    """

    name: ClassVar[str] = "meat"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = MeatMessage
    by_cluster: ClassVar[bool] = True

    def answer(self, table: Table, message: MeatMessage) -> MeatAnswer:
        size, k = np.shape(message.where)[0], np.shape(message.intercept)[0]
        if message.clustered:
            return of_clusters(table, message)

        def block(rows: Table) -> MeatAnswer:
            scores, lone = scores_of(rows, message)
            return MeatAnswer(pack(scores.T @ scores), jnp.sum(rows.weight > 0).astype(scores.dtype), lone)

        if not message.half_deviance.rowwise:  # who is at risk depends on all rows
            return block(table)
        return sum_rows(block, table, (4 + k) * size + k * k)

    def refuses(self, X: HostRows, y: np.ndarray, message: MeatMessage) -> str | None:
        loss = message.half_deviance
        if loss.rowwise:
            return None
        if not loss.of_times:
            return "rows have no scores of their own beside intercepts that the sites find"
        return "times to an event have no leverages" if np.shape(message.inverse)[0] else None


def of_clusters(table: Table, message: MeatMessage) -> MeatAnswer:
    """Products of the clusters' sums. There are no more clusters than rows, so that many sums have room."""
    scores, lone = scores_of(table, message)
    count = table.weight.shape[0]
    sums = jax.ops.segment_sum(scores, table.cluster, count)
    rows = jax.ops.segment_sum(table.weight, table.cluster, count)
    return MeatAnswer(pack(sums.T @ sums), (rows > 0).sum().astype(scores.dtype), lone)


def scores_of(rows: Table, message: MeatMessage) -> tuple[Float[Array, "n s"], Float[Array, ""]]:
    """The rows' scores, and how many rows have none since their leverage is 1."""
    loss, k = message.half_deviance, np.shape(message.intercept)[0]
    if loss.of_times:
        return partial_scores(rows, message), jnp.zeros((), rows.weight.dtype)
    where = jnp.asarray(message.where, jnp.int32)
    z = predictions(rows, jnp.asarray(message.coef), jnp.asarray(message.intercept))
    slope, bend = slopes(loss, z, rows.y)
    A, output = rows.X.design(where // k), where % k
    alone = jnp.zeros(z.shape[0], bool)
    if np.shape(message.inverse)[0]:
        one = jnp.eye(k, dtype=z.dtype)[None]
        left = one - rows.weight[:, None, None] * bend @ influence(A, output, jnp.asarray(message.inverse), k)
        alone = (left[:, 0, 0] if k == 1 else jnp.linalg.det(left)) < LEAST
        left = jnp.where(alone[:, None, None], one, left)
        slope = slope / left[:, 0] if k == 1 else jnp.linalg.solve(left, slope[..., None])[..., 0]
    kept = jnp.where(alone, 0, rows.weight)
    scores = jnp.where(kept[:, None] > 0, kept[:, None] * A * slope[:, output], 0)
    return scores, jnp.sum(alone & (rows.weight > 0)).astype(scores.dtype)


def slopes(loss: AbstractLoss, z: Float[Array, "n k"], y: Array) -> tuple[Array, Array]:
    """The first and second derivatives of the rows' losses by their k predictions."""
    if n_outputs(loss) > 1:
        return jax.vmap(jax.grad(loss))(z, y), jax.vmap(jax.hessian(loss))(z, y)
    slope = jax.vmap(jax.grad(loss))(z[:, 0], y)
    bend = jax.vmap(jax.grad(jax.grad(loss)))(z[:, 0], y)
    return slope[:, None], bend[:, None, None]


def influence(A: Float[Array, "n s"], output: Array, inverse: Float[Array, "s s"], k: int) -> Float[Array, "n k k"]:
    """How far a row's slopes move its own predictions: x_i' inverse x_i, for each pair of outputs."""
    own = (output[:, None] == jnp.arange(k, dtype=output.dtype)[None, :]).astype(A.dtype)

    def column(chosen: Array) -> Array:
        return (((A * chosen[None, :]) @ inverse) * A) @ own

    return jnp.moveaxis(jax.lax.map(column, own.T), 0, 2)


meat = MeatQuery()
