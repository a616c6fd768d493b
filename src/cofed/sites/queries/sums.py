"""The first questions of a fit: how many rows there are, their sums, and their squares and products around a centre."""

from functools import partial
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.losses import AbstractLoss
from cofed.sites.host_rows import HostRows, stored
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, by_fold, few_sizes, n_outputs, statistic
from cofed.sites.table import Table, sum_rows
from cofed.solvers.curvature import pack

HUGE = 1e140  # squares of larger numbers, and sums of them, overflow


class SumsAnswer(NamedTuple):
    """Sums over the rows of each of K folds, each times its weight."""

    n: Float[Array, " K"]  # of the weights: rows, where they have none
    X: Float[Array, "K p"]  # of the features
    labels: Float[Array, "K q"]  # of the labels' statistic; none without a loss
    saturated: Float[Array, " K"]  # of the losses of the saturated model


class SumsQuery(AbstractQuery[Message]):
    """Counts and sums of the features and the labels, by fold. The message says the loss and the folds."""

    name: ClassVar[str] = "sums"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = Message

    def answer(self, table: Table, message: Message) -> SumsAnswer:
        loss, count = message.loss, message.n_folds

        def block(rows: Table) -> SumsAnswer:
            own = by_fold(rows, count)
            if loss is None:
                nothing = jnp.zeros((count, 0), own.dtype)
                return SumsAnswer(own.sum(axis=0), rows.X.transposed_times(own).T, nothing, jnp.zeros(0, own.dtype))
            least = jnp.zeros(count, own.dtype)
            if not loss.attains_zero:
                at = jnp.zeros((), own.dtype)
                least = -own.T @ jax.vmap(partial(loss.conjugate, at))(rows.y)
            total = rows.X.transposed_times(own).T
            return SumsAnswer(own.sum(axis=0), total, own.T @ statistic(loss, rows.y), least)

        return sum_rows(block, table, table.X.row_size + count + 2)

    def refuses(self, X: HostRows, y: np.ndarray, message: Message) -> str | None:
        """Numbers whose squares float64 cannot hold would be lost without a word. No value is told."""
        for what, values in (("X", X), ("y", y)):
            top = float(np.abs(stored(values)).max(initial=0)) if values.dtype.kind == "f" else 0.0
            if top > HUGE or 0 < top < 1 / HUGE:
                way = "larger" if top > HUGE else "smaller"
                return (
                    f"{what} must be of a size between {1 / HUGE:g} and {HUGE:g}, but its largest value is {way}; give "
                    "it in other units"
                )
        return None if message.loss is None else strange_labels(message.loss, y)


def strange_labels(loss: AbstractLoss, y: np.ndarray) -> str | None:
    """Why labels are none that a loss is for. No value is told."""
    least = loss.least_label
    if least is None:
        return None
    above, sign = (y > least, ">") if loss.excludes_least_label else (y >= least, ">=")
    return None if above.all() else f"y must be {sign} {least:g}, but {int(np.sum(~above))} values of y are not"


class MomentsMessage(Message):
    """A centre for the features."""

    centre: Numbers


class MomentsQuery(AbstractQuery[MomentsMessage]):
    """The sums of the features' squared distances to a centre."""

    name: ClassVar[str] = "moments"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = MomentsMessage

    def answer(self, table: Table, message: MomentsMessage) -> Float[Array, " p"]:
        centre = jnp.asarray(message.centre)
        return sum_rows(lambda rows: rows.X.less(centre).squares(rows.weight[:, None])[:, 0], table, table.X.row_size)


class GramMessage(Message):
    """Centres for features and labels, and the features whose products are asked for."""

    centre: Numbers  # p
    label_centre: Numbers  # q
    where: Numbers  # positions of features
    constant: Numbers  # q: the prediction of a model without features
    # Whether the rows have weights or offsets, which a certificate must know the reach of.
    uneven: bool = eqx.field(static=True, default=False)


class GramAnswer(NamedTuple):
    """Sums over the rows of each of K folds, each times its weight, of features and labels less their centres."""

    X: Float[Array, "K p"]  # of the features
    labels: Float[Array, "K q"]  # of the labels
    squares: Float[Array, "K p"]  # of the features' squares
    label_squares: Float[Array, "K q"]  # of the labels' squares
    cross: Float[Array, "K p q"]  # of the products of features and labels
    products: Float[Array, "K packed"]  # of the products of the features asked for: an upper triangle
    loss: Float[Array, " K"]  # of the losses of the model without features
    spans: Float[Array, " p"]  # of the features' squares, each row once; none of rows that are even
    offsets: Float[Array, " 1"]  # of the offsets' squares; none of rows that are even


class GramQuery(AbstractQuery[GramMessage]):
    """Squares and products around a centre, by fold: what a squared loss is wholly known from."""

    name: ClassVar[str] = "gram"
    version: ClassVar[int] = 2
    message: ClassVar[type[Message]] = GramMessage

    def answer(self, table: Table, message: GramMessage) -> GramAnswer:
        loss, count, where = message.half_deviance, message.n_folds, jnp.asarray(message.where, jnp.int32)
        size = np.shape(where)[0]

        def block(rows: Table) -> GramAnswer:
            own = by_fold(rows, count)
            X = rows.X.less(jnp.asarray(message.centre))
            labels = statistic(loss, rows.y) - message.label_centre[None, :]
            pairs = own[:, :, None] * labels[:, None, :]
            cross = X.transposed_times(pairs.reshape(labels.shape[0], -1))

            def products(_: None, weight: Array) -> tuple[None, Array]:
                return None, pack(X.gram(weight, where))

            return GramAnswer(
                X=X.transposed_times(own).T,
                labels=own.T @ labels,
                squares=X.squares(own).T,
                label_squares=own.T @ labels**2,
                cross=jnp.moveaxis(cross.reshape(-1, count, labels.shape[1]), 0, 1),
                products=jax.lax.scan(products, None, own.T)[1],
                loss=own.T @ constant_losses(loss, message.constant, rows.y),
                spans=X.squares((rows.weight > 0).astype(own.dtype)[:, None])[:, 0] if message.uneven else own[0, :0],
                offsets=(rows.weight @ rows.offset**2)[None][: int(message.uneven)],
            )

        return sum_rows(block, table, 2 * table.X.row_size + 2 * size + count)


class ColumnsMessage(Message):
    """The features whose products with all features are asked for."""

    where: Numbers  # positions of features


class ColumnsQuery(AbstractQuery[ColumnsMessage]):
    """Products of some features with all of them, in the message's units, by fold: columns of a Gram matrix."""

    name: ClassVar[str] = "columns"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = ColumnsMessage

    def answer(self, table: Table, message: ColumnsMessage) -> Float[Array, "K s p"]:
        where = jnp.asarray(message.where, jnp.int32)

        def block(rows: Table) -> Array:
            some, own = rows.X.columns(where), by_fold(rows, message.n_folds).T
            return jax.lax.map(lambda weight: rows.X.transposed_times(some * weight[:, None]).T, own)

        return sum_rows(block, table, table.X.row_size + 2 * np.shape(where)[0])

    def refuses(self, X: HostRows, y: np.ndarray, message: ColumnsMessage) -> str | None:
        where = np.asarray(message.where)
        if where.min(initial=0) < 0 or where.max(initial=0) >= X.shape[1]:
            return f"products are asked of a feature that is not there: there are {X.shape[1]}"
        return None

    def padded(self, message: ColumnsMessage) -> ColumnsMessage:
        where = np.asarray(message.where, np.int32)
        return eqx.tree_at(lambda m: m.where, message, np.pad(where, (0, few_sizes(len(where)) - len(where))))

    def trimmed(self, answer: np.ndarray, message: ColumnsMessage) -> np.ndarray:
        return answer[:, : len(message.where)]


def constant_losses(loss: AbstractLoss, constant: Numbers, y: Array) -> Array:
    """The loss of every row where all have one prediction; 0 where rows have no loss of their own."""
    if not loss.rowwise:
        return jnp.zeros(y.shape[0])
    prediction = jnp.asarray(constant) if n_outputs(loss) > 1 else jnp.asarray(constant)[0]
    return jax.vmap(loss, in_axes=(None, 0))(prediction, y)


sums = SumsQuery()
moments = MomentsQuery()
gram = GramQuery()
columns = ColumnsQuery()
