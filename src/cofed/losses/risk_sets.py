"""Who is at risk when: sums over risk sets, within strata, of rows that are in the order of their times.

A row is at risk at a time t if it is followed until t or longer and, where rows are followed from an entry on only,
from before t. A row whose weight is 0 must come with values of 0, wherever it is sorted to; then it changes nothing.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Values = Float[Array, "n m"]
ENTRIES = 1 << 22  # who is at risk when, that many pairs at a time


def running(values: Values, begins: Bool[Array, " n"], backwards: bool = False) -> Values:
    """Sums from the row that begins (backwards: ends) a piece up to each row, without the rounding of n additions.

    >>> running(jnp.ones((4, 1)), jnp.array([True, False, True, False]))[:, 0].tolist()
    [1.0, 2.0, 1.0, 2.0]
    """

    def step(state: tuple[Array, Array], row: tuple[Array, Array]) -> tuple[tuple[Array, Array], Array]:
        (total, lost), (value, begin) = state, row
        total, lost = jnp.where(begin, 0, total), jnp.where(begin, 0, lost)
        added = value - lost  # Kahan's summation
        new = total + added
        return (new, (new - total) - added), new

    nothing = jnp.zeros_like(values[0])
    return jax.lax.scan(step, (nothing, nothing), (values, begins), reverse=backwards)[1]


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

    def at_risk(self, values: Values) -> Values:
        """For each row, the sum over all rows that are at risk at its time."""
        return running(values, self.ends, backwards=True)[self.first]

    def passed(self, values: Values) -> Values:
        """For each row, the sum over all rows at whose times it is at risk."""
        return running(values, self.begins)[self.last]

    def tied(self, values: Values) -> Values:
        """For each row, the sum over all rows of its stratum with its time."""
        return self.within_ties(values)[self.last]

    def within_ties(self, values: Values) -> Values:
        """For each row, the sum over the rows of its stratum with its time, up to itself."""
        return running(values, self.first == jnp.arange(len(self.first)))

    def largest(self, values: Values) -> Values:
        """For each row, the largest value in its stratum."""
        return jax.ops.segment_max(values, self.stratum, len(self.stratum))[self.stratum]


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

    def at_risk(self, values: Values) -> Values:
        def block(some: Array) -> Array:
            at = self.time[some][:, None]
            there = (self.entry[None, :] < at) & (at <= self.time[None, :])
            return self.pairs(some, there).astype(values.dtype) @ values

        return self.in_blocks(block, values)

    def passed(self, values: Values) -> Values:
        def block(some: Array) -> Array:
            at = self.time[None, :]
            there = (self.entry[some][:, None] < at) & (at <= self.time[some][:, None])
            return self.pairs(some, there).astype(values.dtype) @ values

        return self.in_blocks(block, values)

    def pairs(self, some: Int[Array, " b"], there: Bool[Array, "b n"]) -> Bool[Array, "b n"]:
        """Those of the pairs that are of one stratum."""
        return there & (self.stratum[some][:, None] == self.stratum[None, :])

    def in_blocks(self, block: eqx.Partial, values: Values) -> Values:
        """The rows of an answer, so many at a time that there is room for their pairs."""
        n = len(self.time)
        size = n
        while size % 2 == 0 and size * n > ENTRIES:
            size //= 2
        return jax.lax.map(block, jnp.arange(n).reshape(-1, size)).reshape(values.shape)


def risk_sets(
    time: Float[Array, " n"], stratum: Int[Array, " n"], entry: Float[Array, " n"] | None = None
) -> tuple[Int[Array, " n"], RiskSets]:
    """The order of rows by stratum and time, and the risk sets of the rows in that order.

    >>> order, risk = risk_sets(jnp.array([2.0, 1.0, 2.0]), jnp.zeros(3, int))
    >>> risk.at_risk(jnp.ones((3, 1)))[:, 0].tolist(), risk.passed(jnp.ones((3, 1)))[:, 0].tolist()
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
