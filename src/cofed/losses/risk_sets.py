"""Who is at risk when: sums over risk sets, within strata, of rows that are in the order of their times.

A row is at risk at a time t if it is followed until t or longer and, where rows are followed from an entry on only,
from before t. Sums are of values times exp(log), with a log of -inf for a row that does not count, wherever it stands.
They come as a pair: the sum divided by exp(top), and top, the largest log so far. So nothing overflows, however much
the logs differ.
"""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Values = Float[Array, "n m"]
Logs = Float[Array, "n k"]  # as many columns as the values, or one for all
Sums = tuple[Values, Logs]  # the sum is the first times exp(the second)
ENTRIES = 1 << 22  # who is at risk when, that many pairs at a time


def running(values: Values, logs: Logs, begins: Bool[Array, " n"], backwards: bool = False) -> Sums:
    """Sums from the row that begins (backwards: ends) a piece up to each row, without the rounding of n additions.

    >>> import jax.numpy as jnp
    >>> from cofed.losses.risk_sets import running
    >>> begins = jnp.array([True, False, True, False])
    >>> running(jnp.ones((4, 1)), jnp.zeros((4, 1)), begins)[0][:, 0].tolist()
    [1.0, 2.0, 1.0, 2.0]
    """

    def step(state: tuple[Array, Array, Array], row: tuple[Array, Array, Array]) -> tuple:
        (total, lost, top), (value, log, begin) = state, row
        top = jnp.where(begin, -jnp.inf, top)
        new_top = jnp.maximum(top, log)
        scale = jnp.where(begin, 0, jnp.where(top == new_top, 1, jnp.exp(top - new_top)))
        total, lost = total * scale, lost * scale
        added = jnp.where(jnp.isneginf(log), 0, value * jnp.exp(log - new_top)) - lost  # Kahan's summation
        new = total + added
        return (new, (new - total) - added, new_top), (new, new_top)

    nothing = jnp.zeros_like(values[0])
    start = (nothing, nothing, jnp.full_like(logs[0], -jnp.inf))
    return jax.lax.scan(step, start, (values, logs, begins), reverse=backwards)[1]


class RiskSets(eqx.Module):
    """Rows in the order of (stratum, time); see `risk_sets`.

    Attributes
    ----------
    stratum, tie : array of shape (n,)
        The stratum of each row, and the group of rows of one stratum with one time, both counted from 0 on.
    first, last : array of shape (n,)
        Where the row's group begins and ends.
    begins, ends : array of shape (n,)
        Whether a stratum begins or ends with the row.
    """

    stratum: Int[Array, " n"]
    tie: Int[Array, " n"]
    first: Int[Array, " n"]
    last: Int[Array, " n"]
    begins: Bool[Array, " n"]
    ends: Bool[Array, " n"]

    def at_risk(self, values: Values, logs: Logs) -> Sums:
        """For each row, the sum over all rows that are at risk at its time."""
        return self.at(self.first, running(values, logs, self.ends, backwards=True))

    def passed(self, values: Values, logs: Logs) -> Sums:
        """For each row, the sum over all rows at whose times it is at risk."""
        return self.at(self.last, running(values, logs, self.begins))

    def tied(self, values: Values, logs: Logs) -> Sums:
        """For each row, the sum over all rows of its stratum with its time."""
        return self.at(self.last, running(values, logs, self.first == jnp.arange(len(self.first))))

    def ranks(self, counted: Values) -> tuple[Values, Values]:
        """For each row, those that are counted (1 or 0) among the rows of its stratum with its time: before it, all."""
        found = running(counted, jnp.zeros_like(counted), self.first == jnp.arange(len(self.first)))[0]
        return found - counted, found[self.last]

    @staticmethod
    def at(rows: Int[Array, " n"], sums: Sums) -> Sums:
        """The sums at other rows."""
        return sums[0][rows], sums[1][rows]


class TruncatedRiskSets(RiskSets):
    """Rows that are at risk from an entry on only.

    Differences of running sums would cancel, so that all pairs of rows are looked at, some at a time.

    Attributes
    ----------
    time, entry : array of shape (n,)
        Of each row.
    """

    time: Float[Array, " n"]
    entry: Float[Array, " n"]

    def at_risk(self, values: Values, logs: Logs) -> Sums:
        def there(some: Array) -> Array:
            at = self.time[some][:, None]
            return (self.entry[None, :] < at) & (at <= self.time[None, :])

        return self.over_pairs(there, values, logs)

    def passed(self, values: Values, logs: Logs) -> Sums:
        def there(some: Array) -> Array:
            at = self.time[None, :]
            return (self.entry[some][:, None] < at) & (at <= self.time[some][:, None])

        return self.over_pairs(there, values, logs)

    def over_pairs(self, there: Callable[[Array], Array], values: Values, logs: Logs) -> Sums:
        """Sums over the pairs of a stratum that are there, so many rows at a time that there is room for the pairs."""
        n = len(self.time)
        top = jax.ops.segment_max(logs, self.stratum, n)[self.stratum]
        scaled = jnp.where(jnp.isneginf(logs), 0, values * jnp.exp(logs - jnp.where(jnp.isneginf(top), 0, top)))

        def block(some: Array) -> Array:
            pairs = there(some) & (self.stratum[some][:, None] == self.stratum[None, :])
            return pairs.astype(values.dtype) @ scaled

        size = n
        while size % 2 == 0 and size * n > ENTRIES:
            size //= 2
        return jax.lax.map(block, jnp.arange(n).reshape(-1, size)).reshape(scaled.shape), top


def risk_sets(
    time: Float[Array, " n"], stratum: Int[Array, " n"], entry: Float[Array, " n"] | None = None
) -> tuple[Int[Array, " n"], RiskSets]:
    """The order of rows by stratum and time, and the risk sets of the rows in that order.

    >>> import jax.numpy as jnp
    >>> from cofed.losses.risk_sets import risk_sets
    >>> order, risk = risk_sets(jnp.array([2.0, 1.0, 2.0]), jnp.zeros(3, int))
    >>> one, zero = jnp.ones((3, 1)), jnp.zeros((3, 1))
    >>> risk.at_risk(one, zero)[0][:, 0].tolist(), risk.passed(one, zero)[0][:, 0].tolist()
    ([3.0, 2.0, 2.0], [1.0, 3.0, 3.0])
    """
    order = jnp.lexsort((time, stratum))
    time, stratum = time[order], stratum[order]
    n = len(time)
    change = stratum[1:] != stratum[:-1]
    true = jnp.ones(1, bool)
    begins, ends = jnp.concatenate([true, change]), jnp.concatenate([change, true])
    new = begins | jnp.concatenate([true, time[1:] != time[:-1]])
    tie, place = jnp.cumsum(new) - 1, jnp.arange(n)
    first, last = jax.ops.segment_min(place, tie, n)[tie], jax.ops.segment_max(place, tie, n)[tie]
    parts = (jnp.cumsum(begins) - 1, tie, first, last, begins, ends)
    return order, RiskSets(*parts) if entry is None else TruncatedRiskSets(*parts, time, entry[order])
