"""A look at models: loss, gradient and held-out loss of many, the Hessian of some, on a part of the parameters.

The parameters of a model are laid out as one vector: coefficients by feature and output, then the intercepts.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.losses import AbstractLoss
from cofed.sites.queries.at_risk import partial_hessians, partial_look, partial_products
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, few_sizes, n_outputs
from cofed.sites.queries.own_class_intercepts import class_hessians, class_look, class_products
from cofed.sites.queries.own_intercepts import within_hessians, within_look, within_products
from cofed.sites.table import Table, sum_rows
from cofed.solvers.curvature import pack

FEW, MANY = 64, 128  # models that are looked at in one go where they are few, and where they are many
CLOSER = 16  # Hessians in one go


class LookMessage(Message):
    """M models with k outputs, of which A are looked at more closely, on s parameters each."""

    coef: Numbers  # M x p x k
    intercept: Numbers  # M x k
    without: Numbers  # M: the fold that the model does not learn from, or -1
    closer: Numbers  # A: positions of models
    where: Numbers  # A x s: positions of parameters


class LookAnswer(NamedTuple):
    """Sums over rows: those that the model learns from, and for `held` the others."""

    loss: Float[Array, " M"]
    gradient: Float[Array, "M p k"]  # by the coefficients
    slope: Float[Array, "M k"]  # by the intercepts
    held: Float[Array, " M"]  # the loss of held-out rows
    hessian: Float[Array, "A packed"]  # an upper triangle


class LookQuery(AbstractQuery[LookMessage]):
    """Loss, gradient, held-out loss and curvature of models."""

    name: ClassVar[str] = "look"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = LookMessage

    def answer(self, table: Table, message: LookMessage) -> LookAnswer:
        loss = message.half_deviance
        models, p, k = np.shape(message.coef)
        if not loss.rowwise:
            together, curved, _ = of_whole_sites(loss)
            seen, nothing = together(table, message), jnp.zeros((models, k), table.weight.dtype)
            hessian = curved(table, message)
            # A constant changes nothing: the slope by an intercept is 0.
            return LookAnswer(seen.loss, seen.gradient.reshape(models, p, k), nothing, seen.held, hessian)
        coef, intercept, without = (jnp.asarray(a) for a in (message.coef, message.intercept, message.without))
        columns = jnp.moveaxis(coef, 1, 0).reshape(p, models * k)

        def block(rows: Table) -> LookAnswer:
            z = (rows.X @ columns).reshape(-1, models, k) + intercept[None] + rows.offset[:, None, None]
            learns = rows.fold[:, None] != without[None, :]
            value, slope = by_prediction(loss, z, rows.y)
            # A row that a model does not learn from may have an infinite loss: 0 * inf must not arise.
            own = jnp.where(learns & (rows.weight > 0)[:, None], rows.weight[:, None], 0)
            held = jnp.where(~learns & (rows.weight > 0)[:, None], rows.weight[:, None], 0)
            pull = jnp.where(own[..., None] > 0, own[..., None] * slope, 0)
            gradient = rows.X.transposed_times(pull.reshape(-1, models * k)).reshape(p, models, k)
            return LookAnswer(
                loss=jnp.sum(jnp.where(own > 0, own * value, 0), axis=0),
                gradient=jnp.moveaxis(gradient, 0, 1),
                slope=jnp.sum(pull, axis=0),
                held=jnp.sum(jnp.where(held > 0, held * value, 0), axis=0),
                hessian=jnp.zeros((0, 0), z.dtype),
            )

        found = sum_rows(block, table, 4 * models * k + table.X.row_size)
        return found._replace(hessian=hessians(table, message))

    def parts(self, message: LookMessage) -> list[LookMessage]:
        models, closer = np.shape(message.coef)[0], np.asarray(message.closer)
        if models <= CLOSER or (models <= FEW and not len(closer)):
            return [message]
        nobody, nothing = closer[:0], np.zeros((0, 0), np.int32)
        places = np.arange(models)
        shown = [some_models(message, places[i : i + MANY], nobody, nothing) for i in range(0, models, MANY)]
        for first in range(0, len(closer), CLOSER):
            which = closer[first : first + CLOSER]
            where = np.asarray(message.where)[first : first + CLOSER]
            shown.append(some_models(message, which, np.arange(len(which), dtype=closer.dtype), where))
        return shown

    def joined(self, answers: list[LookAnswer], message: LookMessage) -> LookAnswer:
        size = np.shape(message.where)[1]
        nothing = np.zeros((0, size * (size + 1) // 2))
        looks = [one._replace(hessian=nothing) for one in answers if not len(one.hessian)]
        found = jax.tree.map(lambda *some: np.concatenate(some), *looks)
        return found._replace(hessian=np.concatenate([nothing, *(one.hessian for one in answers if len(one.hessian))]))

    def padded(self, message: LookMessage) -> LookMessage:
        models, size = np.shape(message.coef)[0], np.shape(message.where)
        # Without Hessians a model costs little beside a program: one for a few models, and one for many, are enough.
        many = FEW < models <= MANY or (CLOSER < models <= MANY and not size[0])
        few = CLOSER if 1 < models <= CLOSER else few_sizes(models)
        more = (MANY if many else few) - models
        closer, wide = (CLOSER if 1 < size[0] <= CLOSER else few_sizes(size[0])) - size[0], 0
        if size[1] > 32:
            wide = -size[1] % 16
        return eqx.tree_at(
            lambda m: (m.coef, m.intercept, m.without, m.closer, m.where),
            message,
            (
                np.pad(np.asarray(message.coef), ((0, more), (0, 0), (0, 0))),
                np.pad(np.asarray(message.intercept), ((0, more), (0, 0))),
                np.pad(np.asarray(message.without, np.int32), (0, more), constant_values=-1),
                np.pad(np.asarray(message.closer, np.int32), (0, closer), constant_values=-1),
                np.pad(np.asarray(message.where, np.int32), ((0, closer), (0, wide))),
            ),
        )

    def trimmed(self, answer: LookAnswer, message: LookMessage) -> LookAnswer:
        models, (closer, size) = np.shape(message.coef)[0], np.shape(message.where)
        whole = room_of(answer.hessian.shape[1])
        keep = np.flatnonzero(np.max(np.triu_indices(whole), axis=0) < size)
        return LookAnswer(
            answer.loss[:models],
            answer.gradient[:models],
            answer.slope[:models],
            answer.held[:models],
            answer.hessian[:closer][:, keep],
        )


def of_whole_sites(loss: AbstractLoss) -> tuple[Callable, Callable, Callable]:
    """How looks, Hessians and products are computed of a loss that is no sum over rows."""
    if loss.of_times:
        return partial_look, partial_hessians, partial_products
    if n_outputs(loss) > 1:
        return class_look, class_hessians, class_products
    return within_look, within_hessians, within_products


def some_models(message: LookMessage, which: np.ndarray, closer: np.ndarray, where: np.ndarray) -> LookMessage:
    """The same question about some of the models."""
    return eqx.tree_at(
        lambda m: (m.coef, m.intercept, m.without, m.closer, m.where),
        message,
        (*(np.asarray(a)[which] for a in (message.coef, message.intercept, message.without)), closer, where),
    )


def room_of(packed: int) -> int:
    """The size of a matrix whose triangle has so many entries."""
    return round((np.sqrt(8 * packed + 1) - 1) / 2)


def by_prediction(loss: AbstractLoss, z: Float[Array, "n M k"], y: Array) -> tuple[Array, Array]:
    """The loss of every row under every model, and its derivative by the prediction."""
    if n_outputs(loss) > 1:
        return jax.vmap(jax.vmap(jax.value_and_grad(loss), in_axes=(0, None)))(z, y)
    value, slope = jax.vmap(jax.vmap(jax.value_and_grad(loss), in_axes=(0, None)))(z[..., 0], y)
    return value, slope[..., None]


def predictions(rows: Table, coef: Float[Array, "p k"], intercept: Float[Array, " k"]) -> Float[Array, "n k"]:
    """What one model predicts for every row."""
    return rows.X @ coef + intercept[None, :] + rows.offset[:, None]


def hessians(table: Table, message: LookMessage) -> Float[Array, "A packed"]:
    """The Hessians of the losses of the models that are looked at more closely, as upper triangles."""
    loss, where = message.half_deviance, message.where
    count, size = np.shape(where)
    if count == 0:
        return jnp.zeros((0, size * (size + 1) // 2), table.weight.dtype)
    k = np.shape(message.coef)[2]

    def one(chosen: tuple[Array, Array]) -> Array:
        model, own = chosen
        coef, intercept = jnp.asarray(message.coef)[model], jnp.asarray(message.intercept)[model]
        without = jnp.asarray(message.without)[model]
        feature, output = own // k, own % k

        def block(rows: Table) -> Array:
            z = predictions(rows, coef, intercept)
            weight = jnp.where(rows.fold != without, rows.weight, 0)
            if n_outputs(loss) == 1:
                second = jax.vmap(jax.grad(jax.grad(loss)))(z[:, 0], rows.y)
                scaled = jnp.where(weight > 0, weight * second, 0)
                return pack(rows.X.gram(scaled, feature))
            A = rows.X.design(feature)
            second = jax.vmap(jax.hessian(loss))(z, rows.y)

            def columns_of(total: Array, c: Array) -> tuple[Array, None]:
                scaled = A * second[:, :, c][:, output] * weight[:, None]
                return jnp.where((output == c)[None, :], scaled.T @ A, total), None

            start = jnp.zeros((size, size), A.dtype)
            return pack(jax.lax.scan(columns_of, start, jnp.arange(k, dtype=own.dtype))[0])

        return sum_rows(block, table, k * k + (table.X.gram_size(size) if n_outputs(loss) == 1 else 3 * size))

    def one_or_none(chosen: tuple[Array, Array]) -> Array:
        nothing = jnp.zeros(size * (size + 1) // 2, table.weight.dtype)
        return jax.lax.cond(chosen[0] >= 0, one, lambda _: nothing, chosen)  # what pads the message costs nothing

    return jax.lax.map(one_or_none, (jnp.asarray(message.closer, jnp.int32), jnp.asarray(where, jnp.int32)))


class ProductMessage(Message):
    """A model with k outputs, and V directions to multiply its Hessian with."""

    coef: Numbers  # p x k
    intercept: Numbers  # k
    direction: Numbers  # V x p x k
    direction_intercept: Numbers  # V x k


class ProductAnswer(NamedTuple):
    """The Hessian of the summed loss times the directions."""

    coef: Float[Array, "V p k"]
    intercept: Float[Array, "V k"]


class ProductQuery(AbstractQuery[ProductMessage]):
    """Hessian-vector products at a model."""

    name: ClassVar[str] = "product"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = ProductMessage

    def answer(self, table: Table, message: ProductMessage) -> ProductAnswer:
        loss = message.half_deviance
        coef, intercept = jnp.asarray(message.coef), jnp.asarray(message.intercept)
        if not loss.rowwise:
            bent = of_whole_sites(loss)[2](table, message)
            return ProductAnswer(bent, jnp.zeros_like(bent[:, 0]))
        single = n_outputs(loss) == 1

        def block(rows: Table) -> ProductAnswer:
            z = predictions(rows, coef, intercept)

            def slope(z: Array) -> Array:
                if single:
                    return jax.vmap(jax.grad(loss))(z[:, 0], rows.y)[:, None]
                return jax.vmap(jax.grad(loss))(z, rows.y)

            def one(direction: tuple[Array, Array]) -> ProductAnswer:
                moved = rows.X @ direction[0] + direction[1][None, :]
                bent = jax.jvp(slope, (z,), (moved,))[1] * rows.weight[:, None]
                return ProductAnswer(rows.X.transposed_times(bent), bent.sum(axis=0))

            return jax.lax.map(one, (jnp.asarray(message.direction), jnp.asarray(message.direction_intercept)))

        return sum_rows(block, table, 4 * np.shape(message.intercept)[0] + table.X.row_size)


look = LookQuery()
product = ProductQuery()
