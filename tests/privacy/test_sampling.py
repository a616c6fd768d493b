"""What noised sums cost where clients are drawn at random, for those who do not know who was."""

import numpy as np
import pytest
from dp_accounting import dp_event, privacy_accountant, rdp
from scipy.special import logsumexp

from cofed.privacy.accounting import CONTIGUOUS, ORDERS, Release, epsilon_at, of_sampled

SIGMA = 2.0  # of the noise, in units of how far a sum can move
KNOWN = ORDERS / (2 * SIGMA**2)  # the divergences of Gaussian noise
SHARES = (0.01, 0.1, 0.5)


def exact(order, share):
    """The divergence of a mixture by integration: one client's data are 1 or -1 half the distance, those of others 0.

    Replacing its data moves the sum by 1, if it is drawn: (1 - q) N(0) + q N(1/2) beside (1 - q) N(0) + q N(-1/2).
    """
    x = np.linspace(-60, 60, 400_001)

    def log_density(centre):
        return -((x - centre) ** 2) / (2 * SIGMA**2) - np.log(SIGMA * np.sqrt(2 * np.pi))

    both = [
        np.logaddexp(np.log1p(-share) + log_density(0.0), np.log(share) + log_density(centre)) for centre in (0.5, -0.5)
    ]
    whole = logsumexp(order * both[0] - (order - 1) * both[1]) + np.log(x[1] - x[0])
    return whole / (order - 1)


@pytest.mark.parametrize("share", SHARES)
def test_the_bound_is_above_the_divergence_of_a_mixture(share):
    bound = of_sampled(KNOWN, share)
    for order in (2, 3, 8, 32):
        assert exact(order, share) <= bound[order - 2] <= KNOWN[order - 2]
    assert bound[0] < KNOWN[0]


@pytest.mark.parametrize("share", SHARES)
def test_it_is_beside_that_of_dp_accounting(share):
    """Theirs is for Gaussian noise alone, and sharper for it (their Theorem 27); both are for replaced clients."""
    accountant = rdp.RdpAccountant(ORDERS[:CONTIGUOUS].tolist(), privacy_accountant.NeighboringRelation.REPLACE_ONE)
    event = dp_event.SampledWithoutReplacementDpEvent(1000, round(1000 * share), dp_event.GaussianDpEvent(SIGMA))
    accountant.compose(event, 100)
    theirs = accountant.get_epsilon(1e-6)
    ours = epsilon_at(100 * of_sampled(KNOWN, share), 1e-6)
    assert theirs * (1 - 1e-9) <= ours < 1.6 * theirs + 1e-9
    assert ours < epsilon_at(100 * KNOWN, 1e-6)


def test_everybody_is_no_sampling_and_large_orders_gain_nothing():
    one = Release(1000.0, 2000.0, 2.0**24).divergences()
    np.testing.assert_array_equal(of_sampled(one, 1.0), one)
    found = of_sampled(one, 0.1)
    np.testing.assert_array_equal(found[CONTIGUOUS:], one[CONTIGUOUS:])
    assert (found <= one).all()
    assert (found <= of_sampled(one, 0.2)).all()


def test_the_largest_noise_does_not_overflow_nor_does_the_smallest():
    for variance in (1e-3, 1e30):
        one = Release(1.0, 1.0, variance).divergences()
        found = of_sampled(one, 0.1)
        assert np.isfinite(found).all()
        assert (found >= 0).all()


@pytest.mark.parametrize("share", [0.0, -0.1, 1.1, float("nan")])
def test_a_share_is_between_0_and_1(share):
    with pytest.raises(ValueError, match="the share of clients that are drawn must be above 0 and at most 1, got"):
        of_sampled(KNOWN, share)
