"""How well one model does: its loss, and how many of its predictions are right."""

from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from cofed.sites.queries.base import AbstractQuery, Message, Numbers, n_outputs
from cofed.sites.queries.look import predictions
from cofed.sites.queries.sums import constant_losses
from cofed.sites.table import Table, sum_rows


class ScoreMessage(Message):
    """A model with k outputs, and a constant prediction to compare it with."""

    coef: Numbers  # p x k
    intercept: Numbers  # k
    constant: Numbers  # k


class ScoreAnswer(NamedTuple):
    """Sums over the rows."""

    n: Float[Array, ""]  # rows, or their weights
    loss: Float[Array, ""]  # half the model's deviance
    constant_loss: Float[Array, ""]  # half the constant's
    correct: Float[Array, ""]  # right predictions; 0 where the loss knows no right and wrong


class ScoreQuery(AbstractQuery[ScoreMessage]):
    """The deviance of a model, and its right predictions."""

    name: ClassVar[str] = "score"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = ScoreMessage

    def answer(self, table: Table, message: ScoreMessage) -> ScoreAnswer:
        loss, judge = message.half_deviance, message.loss
        assert judge is not None
        coef, intercept = jnp.asarray(message.coef), jnp.asarray(message.intercept)

        def block(rows: Table) -> ScoreAnswer:
            z = predictions(rows, coef, intercept)
            z = z if n_outputs(loss) > 1 else z[:, 0]
            right = jax.vmap(judge.correct)(z, rows.y) if judge.has_accuracy else jnp.zeros_like(rows.weight)
            least = constant_losses(loss, message.constant, rows.y)
            value = jax.vmap(loss)(z, rows.y)
            return ScoreAnswer(rows.weight.sum(), rows.weight @ value, rows.weight @ least, rows.weight @ right)

        return sum_rows(block, table, 3 * coef.shape[1] + table.X.row_size)


score = ScoreQuery()
