"""How likely counts are at several dispersions of a negative binomial model, its means being known."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.losses import NegativeBinomial
from cofed.losses.negative_binomial import surprise
from cofed.sites.host_rows import HostRows
from cofed.sites.queries.base import AbstractQuery, Message, Numbers
from cofed.sites.queries.look import predictions
from cofed.sites.queries.own_intercepts import loss_of, terms_of
from cofed.sites.table import Table, sum_rows


class DispersionMessage(Message):
    """A model of counts that are given in some unit, and T dispersions of the counts themselves."""

    coef: Numbers  # p x 1
    intercept: Numbers  # 1
    unit: Numbers  # 1: what a label of 1 counts
    log_theta: Numbers  # T


class DispersionAnswer(NamedTuple):
    """Sums over the rows of what the likelihood of counts loses."""

    value: Float[Array, " T"]
    slope: Float[Array, " T"]  # its derivatives by log theta
    bend: Float[Array, " T"]  # the second ones


class DispersionQuery(AbstractQuery[DispersionMessage]):
    """Minus the log-likelihood of negative binomial counts, as a function of theta."""

    name: ClassVar[str] = "dispersion"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = DispersionMessage

    def answer(self, table: Table, message: DispersionMessage) -> DispersionAnswer:
        coef, intercept = jnp.asarray(message.coef), jnp.asarray(message.intercept)
        unit, log_theta = jnp.asarray(message.unit)[0], jnp.asarray(message.log_theta)
        derivatives = (surprise, jax.grad(surprise), jax.grad(jax.grad(surprise)))

        def told(rows: Table, z: Float[Array, " n"], weight: Float[Array, " n"]) -> DispersionAnswer:
            of_rows = [jax.vmap(jax.vmap(one, in_axes=(0, None, None)), in_axes=(None, 0, 0)) for one in derivatives]
            return DispersionAnswer(*(weight @ one(log_theta, z + jnp.log(unit), unit * rows.y) for one in of_rows))

        def block(rows: Table) -> DispersionAnswer:
            return told(rows, predictions(rows, coef, intercept)[:, 0], rows.weight)

        assert message.loss is not None
        if not message.loss.rowwise:  # the sites' own intercepts depend on all rows of a site
            own = terms_of(table, loss_of(message), coef.T, jnp.full(1, -1, table.fold.dtype))
            finite = own.finite[:, 0]  # counts that are all 0 at a site are as likely whatever theta is
            z = predictions(table, coef, intercept)[:, 0] + jnp.where(finite, own.intercept[:, 0], 0)
            return told(table, z, jnp.where(finite, table.weight, 0))
        return sum_rows(block, table, 12 * log_theta.shape[0] + table.X.row_size)

    def refuses(self, X: HostRows, y: np.ndarray, message: DispersionMessage) -> str | None:
        if message.loss is None or not isinstance(message.loss.of_rows, NegativeBinomial):
            return "dispersions are asked for of negative binomial models only"
        return None


dispersion = DispersionQuery()
