"""The contract of a query: a pure function of a site's own table and a message, whose answers are summed."""

import math
from abc import ABC, abstractmethod
from typing import ClassVar, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed.losses import AbstractLoss
from cofed.sites.folds import Folds
from cofed.sites.host_rows import HostRows
from cofed.sites.matrix import DenseMatrix
from cofed.sites.scaling import Scaling
from cofed.sites.table import Table


class Message(eqx.Module):
    """What a question says: arrays, and fields that are fixed when it is compiled.

    Attributes
    ----------
    scaling : Scaling or None
        The units of the rows; None is as they are.
    folds : Folds or None
        How the rows are dealt to folds; None is one fold.
    loss : AbstractLoss or None
        The loss that the question is about.
    """

    scaling: Scaling | None = eqx.field(default=None, kw_only=True)
    folds: Folds | None = eqx.field(default=None, kw_only=True)
    loss: AbstractLoss | None = eqx.field(default=None, kw_only=True)

    @property
    def n_folds(self) -> int:
        """How many folds there are."""
        return 1 if self.folds is None else self.folds.n

    @property
    def half_deviance(self) -> AbstractLoss:
        """The loss above that of the saturated model, of a question that must have one."""
        assert self.loss is not None
        return self.loss.as_deviance()


M = TypeVar("M", bound=Message)
Numbers = np.ndarray | Array  # of a message; JAX's while it is compiled


class AbstractQuery(ABC, Generic[M]):
    """One of the fixed list of questions that a site answers.

    Attributes
    ----------
    name : str
        Its name on the wire and in logs.
    version : int
        Grows when the meaning of the message or of the answer changes.
    message : type
        The class of its messages.
    by_cluster : bool
        Whether the table's clusters are those of the design, and not the sites.
    """

    name: ClassVar[str]
    version: ClassVar[int]
    message: ClassVar[type[Message]]
    by_cluster: ClassVar[bool] = False

    @abstractmethod
    def answer(self, table: Table, message: M) -> PyTree:
        """The answer from a table that is in the message's units and folds: sums over its rows, in pure JAX."""

    def refuses(self, X: HostRows, y: np.ndarray, message: M) -> str | None:
        """Why these rows, in their own units, cannot be asked about, in a sentence; None where they can."""
        return None

    def parts(self, message: M) -> list[M]:
        """The message as several, where those are answered by fewer compiled programs."""
        return [message]

    def joined(self, answers: list[PyTree], message: M) -> PyTree:
        """The answer to the message, from those to its parts, of which there are several."""
        raise NotImplementedError(f"{type(self).__name__} has no parts to be joined")

    def padded(self, message: M) -> M:
        """The message with room, so that messages of similar size share a compiled program."""
        return message

    def trimmed(self, answer: PyTree, message: M) -> PyTree:
        """The answer to the message itself, from that to the padded one."""
        return answer

    def released(self, answer: PyTree, message: M, secret: bytes | None) -> PyTree:
        """What leaves the site: the answer, of some questions with noise that is drawn from a secret of the site's."""
        return answer

    def shape(self, message: M, n_features: int) -> PyTree:
        """The shapes of the answer, known before anybody is asked."""
        label = jnp.int32 if is_classes(message.loss) else float

        def of_one_row(message: M) -> PyTree:
            whole = jnp.zeros(1, jnp.int32)
            columns = 2 if is_of_times(message.loss) else n_responses(message.loss)
            labels = jnp.zeros(1, label) if columns == 1 else jnp.zeros((1, columns))
            X, nothing = DenseMatrix(jnp.zeros((1, n_features))), jnp.zeros(1)
            table = Table(X, labels, weight=nothing, fold=whole, cluster=whole, offset=nothing, site=whole)
            return self.answer(table, message)

        return eqx.filter_eval_shape(of_one_row, message)


def is_classes(loss: AbstractLoss | None) -> bool:
    """Whether the labels are positions of more than two classes."""
    return loss is not None and n_outputs(loss) > 1 and not loss.elementwise


def n_responses(loss: AbstractLoss | None) -> int:
    """How many numbers a row's label is; 1 where it is a class."""
    return n_outputs(loss) if loss is not None and loss.elementwise else 1


def is_of_times(loss: AbstractLoss | None) -> bool:
    """Whether a label is of the time to an event."""
    return loss is not None and loss.of_times


def n_outputs(loss: AbstractLoss) -> int:
    """How many numbers a model predicts for a row."""
    return loss.outputs(np.zeros(1, np.int32)) or 1


def statistic(loss: AbstractLoss, y: jax.Array) -> jax.Array:
    """What of the labels the loss is linear in, a column each: the labels, the indicators of the classes, or events."""
    if loss.of_times:
        return y[:, -1:].astype(float)
    if is_classes(loss):
        return jax.nn.one_hot(y.astype(jnp.int32), n_outputs(loss), dtype=float)
    return y.astype(float).reshape(y.shape[0], -1)


def by_fold(table: Table, count: int) -> jax.Array:
    """The rows' weights, in the column of their fold."""
    folds = jnp.arange(count, dtype=table.fold.dtype)
    return jnp.where(table.fold[:, None] == folds[None, :], table.weight[:, None], 0)


def few_sizes(size: int) -> int:
    """The next of a few sizes, since each is compiled apart: 1, 4, 16, 64, 256, then multiples of 320.

    >>> from cofed.sites.queries.base import few_sizes
    >>> [few_sizes(n) for n in (0, 1, 5, 90, 257, 601)]
    [0, 1, 16, 256, 320, 640]
    """
    return next((few for few in (0, 1, 4, 16, 64, 256) if size <= few), -(-size // 320) * 320)


def room(size: int) -> int:
    """Up to a third more: 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, ...

    >>> from cofed.sites.queries.base import room
    >>> [room(n) for n in (0, 1, 5, 7, 9, 100, 129)]
    [0, 1, 6, 8, 12, 128, 192]
    """
    if size <= 2:
        return size
    power = 1 << math.ceil(math.log2(size))
    return power * 3 // 4 if size <= power * 3 // 4 else power
