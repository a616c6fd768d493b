"""What noised sums cost together: Rényi differential privacy of Skellam noise, then epsilon at a delta.

A release adds integers with Skellam noise of the variance mu to integers that change by at most l2 (and l1) where the
data of what is protected are replaced. Its Rényi divergence of the order a, a whole number above 1, is at most

    a l2^2 / (2 mu) + min(((2 a - 1) l2^2 + 6 l1) / (4 mu^2), 3 l1 / (2 mu))

by Agarwal, Kairouz, Liu 2021, "The Skellam Mechanism for Differentially Private Federated Learning", Theorem 3.5 and
Corollary 3.6. The first term is that of Gaussian noise. Divergences of releases add up, also where later questions
depend on earlier answers; the package dp-accounting makes an epsilon of them.

Where a fixed number of all clients is drawn for each sum, without replacement, and nobody is told who was drawn, a sum
costs less. With q the share that is drawn and e(a) the divergence of a sum over given clients, for the replacement of
one client's data, that of the order a is at most

    log(1 + q^2 (a over 2) min(4 (exp e(2) - 1), 2 exp e(2)) + sum_{j=3}^a 2 q^j (a over j) exp((j - 1) e(j))) / (a - 1)

by Wang, Balle, Kasiviswanathan 2019, "Subsampled Rényi Differential Privacy and Analytical Moments Accountant", Theorem
9. It holds for any noise, and not against those who know who was drawn: for them all sums count that a client was in.
"""

import dataclasses
import functools
import math
from collections.abc import Iterable

import numpy as np
from scipy.special import gammaln, logsumexp

from cofed._util.extras import imported

# Whole numbers, as the bound is for those: every one up to 64, then some 40 more, for a small epsilon.
ORDERS = np.unique(np.concatenate([np.arange(2, 65), np.geomspace(64, 2**16, 80).astype(np.int64)]))


CONTIGUOUS = 63  # so many of them have all smaller ones before them


class BudgetSpent(ValueError):
    """A release would cost more than is left."""


@dataclasses.dataclass(frozen=True)
class Release:
    """One sum with Skellam noise, in whole numbers.

    Attributes
    ----------
    l2, l1 : float
        How far the sum can move, in these norms, where what is protected is replaced.
    variance : float
        Of the noise on every entry.
    """

    l2: float | int
    l1: float | int
    variance: float | int

    def divergences(self) -> np.ndarray:
        """Bounds on the Rényi divergences of `ORDERS`."""
        order, mu, square = ORDERS.astype(float), self.variance, self.l2**2
        sharp = ((2 * order - 1) * square + 6 * self.l1) / (4 * mu**2)
        return order * square / (2 * mu) + np.minimum(sharp, 3 * self.l1 / (2 * mu))


def epsilon_of(releases: Iterable[Release], delta: float) -> float:
    """The epsilon of all releases together.

    Parameters
    ----------
    releases : iterable of Release
        What was, or will be, released.
    delta : float
        Between 0 and 1.

    Returns
    -------
    float
        Epsilon at that delta; 0 of no release.

    Examples
    --------
    >>> from cofed.privacy import Release, epsilon_of
    >>> one = Release(l2=1000.0, l1=2000.0, variance=2.0**30)
    >>> epsilon_of([], 1e-6), epsilon_of([one], 1e-6) < epsilon_of([one, one], 1e-6)
    (0.0, True)
    """
    return epsilon_at(sum((one.divergences() for one in releases), np.zeros(len(ORDERS))), delta)


def epsilon_at(divergences: np.ndarray, delta: float) -> float:
    """The epsilon of Rényi divergences of `ORDERS`."""
    if not divergences.any():
        return 0.0
    rdp = imported("dp_accounting.rdp", "Differential privacy", "dp-accounting", "privacy")
    return float(rdp.compute_epsilon(ORDERS.tolist(), divergences.tolist(), delta)[0])


def of_sampled(divergences: np.ndarray, share: float) -> np.ndarray:
    """The divergences of a sum over clients that are drawn at random, for those who do not know who was.

    Parameters
    ----------
    divergences : array
        Those of `ORDERS` where it is known that the client whose data are replaced was drawn.
    share : float
        How many of the clients are drawn, of all: above 0, and at most 1.

    Returns
    -------
    array
        Never more than `divergences`; the same at large orders.

    Examples
    --------
    >>> from cofed.privacy import Release
    >>> from cofed.privacy.accounting import of_sampled
    >>> known = Release(l2=1000.0, l1=2000.0, variance=2.0**24).divergences()
    >>> bool(of_sampled(known, 0.1)[0] < 0.1 * known[0]), bool((of_sampled(known, 1.0) == known).all())
    (True, True)
    """
    if not 0 < share <= 1:
        raise ValueError(f"the share of clients that are drawn must be above 0 and at most 1, got {share!r}")
    found = divergences.astype(float)
    if share == 1:
        return found
    for place, order in enumerate(ORDERS[:CONTIGUOUS].tolist()):
        j = np.arange(2, order + 1)
        known = divergences[: place + 1]
        terms = math.log(2) + (j - 1) * known
        terms[0] = min(math.log(4) + log_expm1(known[0]), terms[0])
        terms += j * math.log(share) + gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)
        found[place] = min(found[place], float(np.logaddexp(0.0, np.asarray(logsumexp(terms)))) / (order - 1))
    return found


def log_expm1(x: float) -> float:
    """log(exp(x) - 1) of a number that may be large."""
    return x + math.log(-math.expm1(-x))


def check_budget(releases: Iterable[Release], epsilon: float | int, delta: float) -> float:
    """Refuse releases that cost more than is allowed.

    Parameters
    ----------
    releases : iterable of Release
        Those before, and the next.
    epsilon, delta : float
        What is allowed.

    Returns
    -------
    float
        What they cost together.

    Raises
    ------
    BudgetSpent
        Where that is more than `epsilon`.

    Examples
    --------
    >>> from cofed.privacy import Release, check_budget
    >>> check_budget([Release(1000.0, 2000.0, 2.0**30)], epsilon=1.0, delta=1e-6) < 1
    True
    """
    many = list(releases)
    spent = epsilon_of(many, delta)
    if spent > epsilon:
        raise BudgetSpent(
            f"{len(many)} noised answers cost epsilon = {spent:.4g} at delta = {delta:g}, but {epsilon:g} is allowed"
        )
    return spent


@functools.cache
def sigma_for(epsilon: float | int, delta: float, rounds: float | int = 1, size: int = 1) -> float:
    """The noise that a budget asks for, as a multiple of the sensitivity.

    Parameters
    ----------
    epsilon, delta : float
        The budget.
    rounds : float, default=1
        How many sums are released with this noise; of a sum that gets a part of the budget, one over that part.
    size : int, default=1
        How many entries what is protected can change; it matters a little, since they are rounded.

    Returns
    -------
    float
        The standard deviation of each sum's noise (`NoisedSum.sigma`), in units of its `sensitivity`.

    Examples
    --------
    >>> from cofed.privacy import sigma_for
    >>> round(sigma_for(1.0, 1e-6), 1), round(sigma_for(1.0, 1e-6, rounds=4), 1)
    (4.5, 9.1)
    """

    def cost(sigma: float) -> float:
        step = 2.0**20  # the coarsest grid that a noised sum has, by comparison with its noise
        l2 = step / sigma + math.sqrt(size)
        one = Release(l2, l2 * math.sqrt(size), step**2)
        return epsilon_at(rounds * one.divergences(), delta)

    low, high = 1e-3, 1e9
    if cost(high) > epsilon:
        raise ValueError(
            f"no noise gives epsilon = {epsilon:g} at delta = {delta:g} for {rounds:g} sums of {size} entries; ask for "
            "a larger epsilon or fewer sums"
        )
    while high / low > 1 + 1e-6:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if cost(middle) <= epsilon else (middle, high)
    return 1.001 * high  # sums of several sizes meet the budget together, too
