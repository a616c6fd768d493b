"""Survival from counts: Kaplan and Meier's curve, the log-rank test, baseline hazards.

A curve needs no more than how many rows are at risk at each time, and how many of them have an event then; counts of
sites add up. Between the times of a grid, events are taken to be at the later time and entries at the earlier one, so
that the curve is exactly that of times which were rounded so, and that of all rows where the grid has all times.
"""

import dataclasses

import numpy as np
from scipy import stats


@dataclasses.dataclass(frozen=True)
class KaplanMeier:
    """A curve: what survives beyond each time.

    Attributes
    ----------
    time : array of shape (k,)
        The times.
    at_risk, events, censored : array of shape (k,)
        Rows at risk at each time, and how many of them have an event, or leave without one, since the time before.
    survival, se, low, high : array of shape (k,)
        The probability to survive the time, its standard error by Greenwood's formula, and limits that come from
        the logarithm of the cumulative hazard, and so are between 0 and 1.
    """

    time: np.ndarray
    at_risk: np.ndarray
    events: np.ndarray
    censored: np.ndarray
    survival: np.ndarray
    se: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @property
    def rows(self) -> int:
        """Rows that are at risk at some time: those that leave, and those that stay."""
        leave = self.events + self.censored
        return round(float(self.at_risk[-1] - leave[-1] + leave.sum()))

    def quantile(self, share: float = 0.5) -> tuple[float, float, float]:
        """The first time at which so many have had an event, with limits; NaN where it is not reached.

        >>> import numpy as np
        >>> from cofed.statistics.survival import kaplan_meier
        >>> kaplan_meier(np.arange(4.0), np.array([0, 1, 1, 1]), np.zeros(4), np.array([3, 0, 0, 0])).quantile()[0]
        2.0
        """
        first = [np.flatnonzero(curve <= 1 - share + 1e-12) for curve in (self.survival, self.low, self.high)]
        found = [float(self.time[one[0]]) if len(one) else np.nan for one in first]
        return found[0], found[1], found[2]


def kaplan_meier(
    time: np.ndarray, events: np.ndarray, censored: np.ndarray, entered: np.ndarray, level: float = 0.95
) -> KaplanMeier:
    """The curve of counts between times.

    Parameters
    ----------
    time : array of shape (k,)
        The times, ascending.
    events, censored, entered : array of shape (k,)
        Rows that have an event, leave without one, or come to be at risk, at or before each time and after the one
        before.
    level : float
        The coverage of the limits, at each time.

    Returns
    -------
    KaplanMeier
        The curve.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.statistics.survival import kaplan_meier
    >>> kaplan_meier(np.array([1.0, 2.0]), np.array([1, 1]), np.array([0, 0]), np.array([4, 0])).survival.tolist()
    [0.75, 0.5]
    """
    at_risk = np.cumsum(entered) - np.concatenate([[0], np.cumsum(events + censored)[:-1]])
    there = at_risk > 0
    left = np.where(there, 1 - events / np.where(there, at_risk, 1), 1)
    survival = np.cumprod(left)
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = np.sqrt(np.cumsum(np.where(there, events / (at_risk * (at_risk - events)), 0)))
        se = np.where(survival > 0, survival * spread, np.nan)
        width = stats.norm.ppf((1 + level) / 2) * spread / np.abs(np.log(survival))
        low, high = survival ** np.exp(width), survival ** np.exp(-width)
    before = survival == 1  # nothing has happened, and limits have no width
    low, high = np.where(before, 1.0, low), np.where(before, 1.0, high)
    nobody = survival == 0
    return KaplanMeier(
        *(np.asarray(part, np.float64) for part in (time, at_risk, events, censored, survival)),
        se=np.where(nobody, np.nan, se),
        low=np.where(nobody, np.nan, low),
        high=np.where(nobody, np.nan, high),
    )


@dataclasses.dataclass(frozen=True)
class LogRank:
    """The log-rank test: whether groups have the same hazard at all times.

    Attributes
    ----------
    observed, expected : array of shape (G,)
        Events of each group, and how many there would be if the hazards were the same.
    statistic : float
        Chi-squared where they are.
    freedom : int
        Its degrees of freedom.
    p_value : float
        How likely a larger one is.
    """

    observed: np.ndarray
    expected: np.ndarray
    statistic: float
    freedom: int
    p_value: float


def log_rank_test(observed: np.ndarray, expected: np.ndarray, covariance: np.ndarray) -> LogRank:
    """The test, from sums over the event times of all strata.

    Parameters
    ----------
    observed, expected : array of shape (G,)
        Events of each group.
    covariance : array of shape (G, G)
        Of observed less expected.

    Returns
    -------
    LogRank
        The test; of one group, and of groups that are never at risk together, without a statistic (NaN).

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.statistics.survival import log_rank_test
    >>> test = log_rank_test(np.array([6.0, 4.0]), np.array([4.0, 6.0]), np.array([[2.0, -2.0], [-2.0, 2.0]]))
    >>> test.statistic, test.freedom
    (2.0, 1)
    """
    # A group that is never at risk beside another says nothing.
    some = np.flatnonzero(np.diag(covariance) > 1e-12 * max(float(np.max(covariance, initial=0)), 1e-300))
    # The differences of all groups add up to 0, so that one is known from the others.
    kept = some[:-1]
    if not len(kept):
        return LogRank(observed, expected, np.nan, 0, np.nan)
    away = (observed - expected)[kept]
    statistic = float(away @ np.linalg.solve(covariance[np.ix_(kept, kept)], away))
    return LogRank(observed, expected, statistic, len(kept), float(stats.chi2.sf(statistic, len(kept))))


def log_rank_sums(events: np.ndarray, at_risk: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Observed and expected events and their covariance, from rows with events and at risk: G groups by k times.

    >>> import numpy as np
    >>> from cofed.statistics.survival import log_rank_sums
    >>> [part.tolist() for part in log_rank_sums(np.array([[1.0], [0.0]]), np.array([[1.0], [1.0]]))]
    [[1.0, 0.0], [0.5, 0.5], [[0.25, -0.25], [-0.25, 0.25]]]
    """
    d, n = events.sum(axis=0), at_risk.sum(axis=0)
    share = at_risk / np.where(n > 0, n, 1)
    spread = np.where(n > 1, d * (n - d) / np.where(n > 1, n - 1, 1), 0)
    covariance = np.diag(share @ spread) - (share * spread) @ share.T
    return events.sum(axis=1), share @ d, covariance


@dataclasses.dataclass(frozen=True)
class BaselineHazard:
    """The cumulative hazard of a row without any risk of its own, as a step function.

    Attributes
    ----------
    time : array of shape (k,)
        The event times, ascending.
    cumulative : array of shape (k,)
        The cumulative hazard from each of them on.
    last : float
        The last time at which a row was observed.
    """

    time: np.ndarray
    cumulative: np.ndarray
    last: float

    def at(self, times: np.ndarray) -> np.ndarray:
        """The cumulative hazard at any times: 0 before the first event; NaN after the last time, of which rows tell
        nothing.

        >>> import numpy as np
        >>> from cofed.statistics.survival import BaselineHazard
        >>> hazard = BaselineHazard(np.array([1.0, 3.0]), np.array([0.5, 0.75]), 4.0)
        >>> hazard.at(np.array([0.0, 1.0, 4.0, 9.0])).tolist()
        [0.0, 0.5, 0.75, nan]
        """
        found = np.concatenate([[0.0], self.cumulative])[np.searchsorted(self.time, times, side="right")]
        return np.where(times <= self.last, found, np.nan)


def baseline_hazard(
    y: np.ndarray, risk: np.ndarray, efron: bool = True, weight: np.ndarray | None = None
) -> BaselineHazard:
    """The baseline hazard of one stratum, given the rows' log hazards.

    Parameters
    ----------
    y : array of shape (n, 2) or (n, 3)
        Rows of (time, event) or (entry, time, event).
    risk : array of shape (n,)
        The rows' log hazards beside the baseline.
    efron : bool
        Whether tied events leave one after another, as Efron has it; else they are all at risk, as Breslow has it.
    weight : array of shape (n,), optional
        How much the rows count, above 0.

    Returns
    -------
    BaselineHazard
        The hazard.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.statistics.survival import baseline_hazard
    >>> y = np.array([[1.0, 1], [2.0, 0], [3.0, 1]])
    >>> baseline_hazard(y, np.zeros(3)).cumulative.round(3).tolist()
    [0.333, 1.333]
    """
    time, event = y[:, -2], y[:, -1] == 1
    top, counts = float(risk.max(initial=0.0)), np.ones(len(y)) if weight is None else weight
    size = counts * np.exp(risk - top)
    times, place = np.unique(time[event], return_inverse=True)
    # Who is followed until then, less who has yet to enter.
    at_risk = sums_from(time, size, times)
    if y.shape[1] == 3:
        at_risk = at_risk - sums_from(y[:, 0], size, times)
    count = np.bincount(place, minlength=len(times))
    tied, total = (np.bincount(place, one[event], minlength=len(times)) for one in (size, counts))
    # A model without a best fit has hazards that are too large for a number.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        if not efron:
            steps = total / at_risk
        else:
            which = np.repeat(np.arange(len(times)), count)
            before = np.arange(len(which)) - np.repeat(np.cumsum(count) - count, count)
            shares = (total / count)[which] / (at_risk[which] - before / count[which] * tied[which])
            steps = np.bincount(which, shares, minlength=len(times))
    return BaselineHazard(times, np.cumsum(steps) * np.exp(-top), float(time.max()))


def sums_from(at: np.ndarray, size: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The sums of sizes of rows that are at or after each time."""
    order = np.argsort(at, kind="stable")
    after = np.append(np.cumsum(size[order][::-1])[::-1], 0.0)
    return after[np.searchsorted(at[order], times, side="left")]
