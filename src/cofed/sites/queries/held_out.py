"""How well models do on the rows that they have not learnt from: sums of errors, and counts of predictions by class."""

from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.losses import AbstractLoss
from cofed.sites.host_rows import HostRows
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, few_sizes, n_outputs, statistic
from cofed.sites.table import Table, sum_rows

MANY = 128  # models in one go


class HeldOutMessage(Message):
    """M models with k outputs, each with the edges between b + 1 bins of its predictions."""

    coef: Numbers  # M x p x k
    intercept: Numbers  # M x k
    without: Numbers  # M: the fold whose rows are asked about, which the model has not learnt from; -1 is all rows
    edges: Numbers  # M x b, ascending; of predictions before the link


class HeldOutAnswer(NamedTuple):
    """Sums over the rows held out, each times its weight."""

    n: Float[Array, " M"]  # rows, or their weights
    loss: Float[Array, " M"]  # half the deviance
    squares: Float[Array, " M"]  # of the labels less what is expected of them; of classes, over all classes
    absolute: Float[Array, " M"]  # of the same, without its sign
    wrong: Float[Array, " M"]  # wrong predictions; 0 where the loss knows no right and wrong
    total: Float[Array, " M"]  # of the (first) prediction
    total_squares: Float[Array, " M"]  # of its square
    rows: Float[Array, "M bins"]  # in (edge, next edge]; of two classes only
    ones: Float[Array, "M bins"]  # those of the second class
    expected: Float[Array, "M bins"]  # of the probability of the second class


class HeldOutQuery(AbstractQuery[HeldOutMessage]):
    """Errors of models on rows held out, and how their predictions spread, by class."""

    name: ClassVar[str] = "held_out"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = HeldOutMessage

    def answer(self, table: Table, message: HeldOutMessage) -> HeldOutAnswer:
        models, p, k = np.shape(message.coef)
        coef, intercept, without = (jnp.asarray(a) for a in (message.coef, message.intercept, message.without))
        columns = jnp.moveaxis(coef, 1, 0).reshape(p, models * k)

        def block(rows: Table) -> HeldOutAnswer:
            z = (rows.X @ columns).reshape(-1, models, k) + intercept[None] + rows.offset[:, None, None]
            held = (rows.fold[:, None] == without[None, :]) | (without < 0)[None, :]
            return errors_of(message, message.edges, rows, z, held)

        return sum_rows(block, table, 8 * models * k + table.X.row_size)

    def refuses(self, X: HostRows, y: np.ndarray, message: HeldOutMessage) -> str | None:
        return strange_errors(message.loss, np.asarray(message.edges))

    def parts(self, message: HeldOutMessage) -> list[HeldOutMessage]:
        models = np.shape(message.coef)[0]
        return [some(message, slice(first, first + MANY)) for first in range(0, models, MANY)] or [message]

    def joined(self, answers: list[HeldOutAnswer], message: HeldOutMessage) -> HeldOutAnswer:
        return jax.tree.map(lambda *parts: np.concatenate(parts), *answers)

    def padded(self, message: HeldOutMessage) -> HeldOutMessage:
        models = np.shape(message.coef)[0]
        more = min(few_sizes(models), MANY) - models if models <= MANY else 0
        spread = [(0, more)]
        return eqx.tree_at(
            lambda m: (m.coef, m.intercept, m.without, m.edges),
            message,
            (
                np.pad(np.asarray(message.coef), [*spread, (0, 0), (0, 0)]),
                np.pad(np.asarray(message.intercept), [*spread, (0, 0)]),
                np.pad(np.asarray(message.without, np.int32), spread, constant_values=-1),
                np.pad(np.asarray(message.edges), [*spread, (0, 0)]),
            ),
        )

    def trimmed(self, answer: HeldOutAnswer, message: HeldOutMessage) -> HeldOutAnswer:
        return jax.tree.map(lambda values: values[: np.shape(message.coef)[0]], answer)


def errors_of(message: Message, edges: Numbers, rows: Table, z: Float[Array, "n M k"], held: Array) -> HeldOutAnswer:
    """The sums over those rows that are held, an n x M array of truths, of predictions of M models before the link."""
    loss, judge = message.half_deviance, message.loss
    assert judge is not None
    single = n_outputs(loss) == 1
    weight = jnp.where(held & (rows.weight > 0)[:, None], rows.weight[:, None], 0)
    flat = z[..., 0] if single else z
    value = jax.vmap(jax.vmap(loss, in_axes=(0, None)))(flat, rows.y)
    right = jnp.ones_like(weight)
    if judge.has_accuracy:
        right = jax.vmap(jax.vmap(judge.correct, in_axes=(0, None)))(flat, rows.y)
    mean = judge.inverse_link(flat)
    off = statistic(judge, rows.y)[:, None, :] - (mean[..., None] if single else mean)

    def total(values: Array) -> Array:  # a row that is not held out may have an infinite loss
        return jnp.sum(jnp.where(weight > 0, weight * values, 0), axis=0)

    counts = binned(edges, rows, weight, z[..., 0], mean if single else mean[..., 0])
    return HeldOutAnswer(
        weight.sum(axis=0),
        total(value),
        total(jnp.sum(off**2, axis=-1)),
        total(jnp.sum(jnp.abs(off), axis=-1)),
        total(1 - right),
        total(z[..., 0]),
        total(z[..., 0] ** 2),
        *counts,
    )


def strange_errors(loss: AbstractLoss | None, edges: np.ndarray) -> str | None:
    """Why errors with such a loss, and counts of predictions between such edges, cannot be asked for."""
    if loss is None or not loss.rowwise:
        return "errors of held-out rows are asked for with a loss that is no sum over rows"
    if edges.shape[1] and not (loss.has_accuracy and n_outputs(loss) == 1):
        return "predictions are counted of two classes only"
    if not np.isfinite(edges).all() or not (np.diff(edges, axis=1) >= 0).all():
        return "the edges between bins must be finite numbers that ascend"
    return None


def binned(between: Numbers, rows: Table, weight: Array, z: Array, mean: Array) -> tuple[Array, Array, Array]:
    """How many rows have predictions between two edges, how many of them are of the second class, and how many of
    them are expected to be."""
    edges = jnp.asarray(between)
    models, bins = edges.shape[0], edges.shape[1] + 1
    if bins == 1:
        nothing = jnp.zeros((models, 0), weight.dtype)
        return nothing, nothing, nothing
    ones = (rows.y > 0).astype(weight.dtype)

    def one(asked: tuple[Array, Array, Array, Array]) -> Array:
        own, values, counts, chance = asked
        place = jnp.searchsorted(own, values, side="left", method="scan_unrolled")
        numbers = jnp.stack([counts, counts * ones, counts * chance], axis=1)
        return jnp.zeros((bins, 3), counts.dtype).at[place].add(numbers)

    found = jax.lax.map(one, (edges, z.T, weight.T, mean.T))
    return found[..., 0], found[..., 1], found[..., 2]


def some(message: HeldOutMessage, which: slice) -> HeldOutMessage:
    """The same question about some of the models."""
    return eqx.tree_at(
        lambda m: (m.coef, m.intercept, m.without, m.edges),
        message,
        tuple(np.asarray(a)[which] for a in (message.coef, message.intercept, message.without, message.edges)),
    )


held_out = HeldOutQuery()
