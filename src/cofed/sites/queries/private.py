"""Questions whose answers are noised at the site, before anybody sees them.

Both are about rows z = (x, 1) or (x, y, 1) in public units. A row counts with the weight min(1, r^2 / ||z||^2), so that
sqrt(weight) z is no longer than the bound r, whatever the row: neither sum can then move far where one row is replaced.
"""

from abc import abstractmethod
from typing import ClassVar, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed.privacy import NoisedSum
from cofed.sites.host_rows import HostRows
from cofed.sites.queries.base import AbstractQuery, Message, Numbers, by_fold, n_outputs
from cofed.sites.table import Table, sum_rows
from cofed.solvers.curvature import pack, unpack


class PrivateMessage(Message):
    """How long a row may be, how much noise the sum gets, and of how many sites' shares."""

    bound: Numbers  # 1: r
    sigma: Numbers  # 1: the standard deviation of the noise on an entry of the sum
    shares: Numbers  # 1: how many sites' shares make up that noise


P = TypeVar("P", bound=PrivateMessage)


class AbstractPrivateQuery(AbstractQuery[P]):
    """A question whose answer is one array, which leaves its site with noise."""

    @abstractmethod
    def sensitivity(self, bound: float) -> float:
        """How far the sum can move, in the l2 norm, where one row is replaced by any other."""

    @abstractmethod
    def entries(self, message: P, n_features: int) -> int:
        """How many entries of the answer one row can change."""

    def noised_sum(self, message: P, n_features: int) -> NoisedSum:
        """How the sum is noised, and so what it costs."""
        bound, sigma, shares = (float(np.asarray(one)[0]) for one in (message.bound, message.sigma, message.shares))
        return NoisedSum(self.sensitivity(bound), sigma, self.entries(message, n_features), int(shares))

    def lacks(self, message: P, sites: int) -> str | None:
        """Why the noise would be too little in a sum over so many sites; None where it is not.

        Whoever asks says how many sites' shares make up the noise. A site counts on all but one of the others: the one
        might tell its own noise. Where its answer is seen alone (one site), its noise must be enough alone.
        """
        wrong, most = self.wrong(message), max(1, sites - 1)
        if wrong is not None or np.asarray(message.shares)[0] <= most:
            return wrong
        return f"the question {self.name} counts on the noise of more than {most} sites, which is the most that may be"

    def wrong(self, message: P) -> str | None:
        """What is wrong with a message, whatever the rows: no units, which data must not choose, or no such noise."""
        if message.scaling is None:
            return f"the question {self.name} must say the units of the rows"
        for name in ("bound", "sigma", "shares"):
            value = np.asarray(getattr(message, name))
            if value.shape != (1,) or not np.isfinite(value).all() or not value[0] > 0:
                return f"the {name} of the question {self.name} must be one finite number > 0"
        try:
            self.noised_sum(message, len(message.scaling.centre))
        except ValueError as error:
            return str(error)
        return None

    def refuses(self, X: HostRows, y: np.ndarray, message: P) -> str | None:
        return self.wrong(message)

    def released(self, answer: np.ndarray, message: P, secret: bytes | None) -> np.ndarray:
        """The answer with this site's share of the noise."""
        if secret is None:
            raise ValueError(f"the question {self.name} is answered with noise, for which a site needs a secret")
        features = 0 if message.scaling is None else len(message.scaling.centre)
        return self.noised_sum(message, features).part(answer, secret)


class PrivateMomentsMessage(PrivateMessage):
    """Whether the label is a part of z."""

    labels: Numbers  # 1: 1 if it is, 0 if not


class PrivateMomentsQuery(AbstractPrivateQuery[PrivateMomentsMessage]):
    """The second moments of the rows z = (x, y, 1), by fold: all of a squared loss.

    They are packed such that the length of the vector is the Frobenius norm of the matrix: || z z' - v v' ||_F is at
    most sqrt(2) r^2. The label is 0 where it is not asked for.
    """

    name: ClassVar[str] = "private_moments"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = PrivateMomentsMessage

    def sensitivity(self, bound: float) -> float:
        return float(np.sqrt(2)) * bound**2

    def entries(self, message: PrivateMomentsMessage, n_features: int) -> int:
        return (n_features + 2) * (n_features + 3) // 2

    def answer(self, table: Table, message: PrivateMomentsMessage) -> Float[Array, "K packed"]:
        table, count, size = alike(table), message.n_folds, table.n_features + 2
        stretched = jnp.where(jnp.eye(size, dtype=bool), 1.0, jnp.sqrt(2.0))

        def block(rows: Table) -> Array:
            label = rows.y.astype(rows.weight.dtype)[:, None] * jnp.asarray(message.labels, rows.weight.dtype)[None, :]
            Z = jnp.concatenate([rows.X.dense(), label, jnp.ones_like(label)], axis=1)
            own = by_fold(rows, count) * row_weights(Z, message)[:, None]

            def products(_: None, weight: Array) -> tuple[None, Array]:
                return None, pack((Z.T @ (Z * weight[:, None])) * stretched)

            return jax.lax.scan(products, None, own.T)[1]

        return sum_rows(block, table, 3 * size + count)


def moments_of(packed: np.ndarray, n_features: int) -> np.ndarray:
    """The matrix of second moments of z = (x, y, 1) that an answer, or a sum of some, is packed from.

    >>> import numpy as np
    >>> from cofed.sites.queries.private import moments_of
    >>> moments_of(np.array([1.0, np.sqrt(2) * 2, 0.0, 4.0, 0.0, 5.0]), 1).round(9).tolist()
    [[1.0, 2.0, 0.0], [2.0, 4.0, 0.0], [0.0, 0.0, 5.0]]
    """
    whole = np.asarray(unpack(np.asarray(packed), n_features + 2))
    return np.where(np.eye(len(whole), dtype=bool), whole, whole / np.sqrt(2))


class PrivateGradientMessage(PrivateMessage):
    """A model with one output."""

    coef: Numbers  # p
    intercept: Numbers  # 1


class PrivateGradientQuery(AbstractPrivateQuery[PrivateGradientMessage]):
    """The gradient of a loss whose slope is at most 1, by coefficients and then the intercept.

    A row's gradient is its weight times a slope of at most 1 times z, and no longer than r: two differ by at most 2 r.
    A steeper slope counts as 1.
    """

    name: ClassVar[str] = "private_gradient"
    version: ClassVar[int] = 1
    message: ClassVar[type[Message]] = PrivateGradientMessage

    def sensitivity(self, bound: float) -> float:
        return 2 * bound

    def entries(self, message: PrivateGradientMessage, n_features: int) -> int:
        return n_features + 1

    def wrong(self, message: PrivateGradientMessage) -> str | None:
        if message.loss is None or n_outputs(message.loss) > 1:
            return f"the question {self.name} is about models with one output, and must say the loss"
        return super().wrong(message)

    def answer(self, table: Table, message: PrivateGradientMessage) -> Float[Array, " d"]:
        table, loss = alike(table), message.half_deviance

        def block(rows: Table) -> Array:
            Z = jnp.concatenate([rows.X.dense(), jnp.ones_like(rows.weight)[:, None]], axis=1)
            w = jnp.concatenate([jnp.asarray(message.coef), jnp.asarray(message.intercept)])
            slope = jnp.clip(jax.vmap(jax.grad(loss))(Z @ w, rows.y), -1.0, 1.0)
            pull = rows.weight * row_weights(Z, message) * slope
            return jnp.where(rows.weight > 0, pull, 0) @ Z

        return sum_rows(block, table, 3 * table.n_features)


def alike(table: Table) -> Table:
    """The rows without weights and offsets of their own: the noise is for rows that count alike."""
    weight = (table.weight > 0).astype(table.weight.dtype)
    return eqx.tree_at(lambda rows: (rows.weight, rows.offset), table, (weight, jnp.zeros_like(table.offset)))


def row_weights(Z: Float[Array, "n d"], message: PrivateMessage) -> Float[Array, " n"]:
    """What brings sqrt(weight) z down to the bound."""
    bound = jnp.asarray(message.bound, Z.dtype)
    return jnp.minimum(1.0, bound**2 / jnp.sum(Z**2, axis=1))


private_moments = PrivateMomentsQuery()
private_gradient = PrivateGradientQuery()
