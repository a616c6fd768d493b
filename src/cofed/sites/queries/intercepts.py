"""The intercepts that sites have for themselves, as sums over the sites."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.sites.host_rows import HostRows
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, n_outputs
from cofed.sites.queries.own_class_intercepts import class_loss_of, class_terms_of
from cofed.sites.queries.own_intercepts import loss_of, terms_of
from cofed.sites.table import Table


class InterceptsMessage(Message):
    """M models; of k classes, with coefficients for each."""

    coef: Numbers  # M x p, or M x p x k


class InterceptsAnswer(NamedTuple):
    """Sums over the sites whose intercepts are finite, each times what its rows count."""

    weight: Float[Array, " M"]
    intercept: Float[Array, " M"] | Float[Array, "M k"]


class InterceptsQuery(AbstractQuery[InterceptsMessage]):
    """The sites' intercepts, as a sum in which each counts as its rows do."""

    name: ClassVar[str] = "intercepts"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = InterceptsMessage

    def answer(self, table: Table, message: InterceptsMessage) -> InterceptsAnswer:
        everybody = jnp.full(1, -1, table.fold.dtype)

        def one(coef: Array) -> InterceptsAnswer:
            found = terms_of(table, loss_of(message), coef[None], everybody)
            counts = jnp.where(found.finite, table.weight[:, None], 0)
            return InterceptsAnswer(jnp.sum(counts), jnp.sum(jnp.where(counts > 0, counts * found.intercept, 0)))

        def of_classes(coef: Array) -> InterceptsAnswer:
            found = class_terms_of(table, class_loss_of(message), coef[None], everybody)
            counts = jnp.where(found.finite, table.weight[:, None], 0)
            own = jnp.where(found.finite[..., None], found.intercept, 0)
            return InterceptsAnswer(jnp.sum(counts), jnp.sum(counts[..., None] * own, axis=(0, 1)))

        return jax.lax.map(of_classes if np.ndim(message.coef) == 3 else one, jnp.asarray(message.coef))

    def refuses(self, X: HostRows, y: np.ndarray, message: InterceptsMessage) -> str | None:
        if message.loss is None or not message.loss.site_parameters:
            return "intercepts are asked for of a model whose sites have none of their own"
        k, shape = n_outputs(message.loss), np.shape(message.coef)
        expected = (len(message.coef), X.shape[1], k) if k > 1 else (len(message.coef), X.shape[1])
        if shape != expected:
            return f"models have coefficients of the shape {shape}, and the question is about ones of {expected}"
        return None


intercepts = InterceptsQuery()
