"""Skellam noise: the numbers, the sums of shares, and the bound on what they tell."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from cofed.privacy import BudgetSpent, NoisedSum, Release, check_budget, epsilon_of, sigma_for, skellam
from cofed.privacy.accounting import ORDERS
from cofed.privacy.skellam import around_mean, log_probability


@pytest.mark.parametrize("mean", [1000, 4321])
def test_poisson_numbers_have_their_probabilities(mean):
    n = 200_000
    drawn = around_mean(b"a seed", mean, n) + mean
    low, high = stats.poisson.ppf([1e-3, 1 - 1e-3], mean).astype(int)
    edges = np.arange(low, high + 1)
    seen = np.array([np.sum(drawn < low), *(np.sum(drawn == k) for k in edges), np.sum(drawn > high)])
    wanted = np.array([stats.poisson.cdf(low - 1, mean), *stats.poisson.pmf(edges, mean), stats.poisson.sf(high, mean)])
    # The seed is fixed, so this never fails by chance; one in a thousand wrong samplers would pass.
    assert stats.chisquare(seen, n * wanted).pvalue > 1e-3


@pytest.mark.parametrize("mean", [1000, 2**20, 2**39])
def test_probabilities_are_right_around_large_means(mean):
    import mpmath

    mpmath.mp.dps = 50
    for away in (np.sqrt(mean) * np.array([-3, -1, 0, 0.5, 2, 8])).astype(int):
        k = mean + int(away)
        exact = k * mpmath.log(mean) - mean - mpmath.loggamma(k + 1)
        assert log_probability(np.array([float(away)]), mean)[0] == pytest.approx(float(exact), rel=1e-9)


def test_skellam_numbers_of_the_real_size_are_as_wide_as_asked_and_independent():
    one, other = (skellam(seed, 2**40, 100_000) / 2**20 for seed in (b"one", b"other"))
    # Standard errors at this size: 0.0032 of a mean and a correlation, 0.0022 of a standard deviation.
    for drawn in (one, other):
        assert abs(drawn.mean()) < 0.015
        assert abs(drawn.std() - 1) < 0.011
        assert stats.kstest(drawn, "norm").pvalue > 1e-3
    assert abs(np.corrcoef(one, other)[0, 1]) < 0.015
    assert abs(np.corrcoef(one[1:], one[:-1])[0, 1]) < 0.015
    assert np.array_equal(one, skellam(b"one", 2**40, 100_000) / 2**20)


@pytest.mark.parametrize("variance", [0, 1998, 2001])
def test_a_variance_that_cannot_be_drawn_is_refused(variance):
    with pytest.raises(ValueError, match="must be even and at least 2000"):
        skellam(b"", variance, 3)


@pytest.mark.parametrize("mu", [10.0, 100.0, 1000.0])
@pytest.mark.parametrize("shift", [1, 3, 10])
def test_the_bound_holds_for_the_exact_divergence_and_is_near_it(mu, shift):
    reach = int(14 * np.sqrt(mu)) + 5 * shift  # the terms of the order 5 are largest at five shifts
    k = np.arange(-reach, reach + 1)
    near, moved = stats.skellam.logpmf(k, mu / 2, mu / 2), stats.skellam.logpmf(k - shift, mu / 2, mu / 2)
    bounds = Release(shift, shift, mu).divergences()
    for place in range(4):
        order = float(ORDERS[place])
        terms = order * moved - (order - 1) * near
        exact = np.logaddexp.reduce(terms) / (order - 1)
        assert exact <= bounds[place] * (1 + 1e-9)
        # A shift of three standard deviations of coarse noise is the worst of these; fits are at 2^20 steps.
        assert bounds[place] <= (2.2 if mu < 100 else 1.06) * exact


def test_the_first_term_is_that_of_gaussian_noise():
    assert Release(3.0, 0.0, 1e12).divergences() == pytest.approx(ORDERS * 9 / 2e12, rel=1e-6)


def test_epsilon_grows_with_rounds_and_falls_with_noise():
    one = NoisedSum(1.0, 5.0, 10).release
    costs = [epsilon_of([one] * rounds, 1e-6) for rounds in (0, 1, 2, 10)]
    assert costs[0] == 0
    assert np.all(np.diff(costs) > 0)
    noises = [epsilon_of([NoisedSum(1.0, sigma, 10).release], 1e-6) for sigma in (1.0, 2.0, 4.0, 100.0)]
    assert np.all(np.diff(noises) < 0)


def test_epsilon_is_that_of_gaussian_noise_where_the_grid_is_fine():
    from dp_accounting import dp_event, rdp

    accountant = rdp.RdpAccountant(orders=ORDERS.tolist())
    accountant.compose(dp_event.GaussianDpEvent(4.0), 3)
    assert epsilon_of([NoisedSum(1.0, 4.0, 10).release] * 3, 1e-5) == pytest.approx(
        accountant.get_epsilon(1e-5), rel=1e-3
    )


@given(st.floats(0.05, 20), st.sampled_from([1e-9, 1e-6, 1e-3]), st.integers(1, 100), st.integers(1, 10**6))
@settings(max_examples=30, deadline=None)
def test_the_noise_of_a_budget_meets_it_and_hardly_more(epsilon, delta, rounds, size):
    sigma = sigma_for(epsilon, delta, rounds, size)
    for sensitivity in (1.0, 0.7, 3e5):
        many = [NoisedSum(sensitivity, sigma * sensitivity, size, shares=7).release] * rounds
        spent = check_budget(many, epsilon, delta)
        assert spent > 0.9 * epsilon
        with pytest.raises(BudgetSpent, match=f"{rounds + max(1, rounds // 5)} noised answers cost epsilon"):
            check_budget(many + many[: max(1, rounds // 5)], epsilon, delta)


def test_a_budget_that_no_noise_meets_is_refused():
    with pytest.raises(ValueError, match="no noise gives epsilon"):
        sigma_for(1e-9, 1e-12)


@given(st.integers(1, 60), st.floats(1e-6, 1e9), st.integers(0, 2**32))
@settings(max_examples=40, deadline=None)
def test_parts_are_on_the_grid_and_add_up_exactly(shares, sigma, seed):
    rng = np.random.default_rng(seed)
    noised = NoisedSum(1.0, sigma, 4, shares)
    values = [sigma * rng.normal(size=4) for _ in range(5)]
    parts = [noised.part(value, bytes([k])) for k, value in enumerate(values)]
    whole = [noised.encoded(part) for part in parts]
    for value, part, steps in zip(values, parts, whole, strict=True):
        assert np.array_equal(noised.decoded(steps), part)
        assert np.abs(noised.encoded(value) * noised.grid - value).max() <= noised.grid / 2
    assert np.array_equal(sum(parts), noised.decoded(sum(whole)))


@pytest.mark.parametrize("shares", [1, 5, 100])
def test_shares_add_up_to_the_noise_of_a_trusted_server(shares):
    noised = NoisedSum(1.0, 3.0, 2000, shares)
    total = sum(noised.part(np.zeros(2000), k.to_bytes(2, "big")) for k in range(shares))
    # Of 2,000 numbers a standard deviation is known to 1.6%.
    assert total.std() == pytest.approx(3.0, rel=0.06)
    assert noised.release.variance * noised.grid**2 == pytest.approx(9.0, rel=1e-6)
    assert noised.release.variance * noised.grid**2 >= 9.0


def test_repeats_have_the_same_noise_and_other_data_have_other_noise():
    noised, values = NoisedSum(1.0, 3.0, 50), np.linspace(-1, 1, 50)
    first = noised.part(values, b"secret")
    assert np.array_equal(first, noised.part(values.copy(), b"secret"))
    changed = values.copy()
    changed[0] += 1
    # With the noise of the first answer, all entries but one would be equal and tell the change.
    assert np.mean(first == noised.part(changed, b"secret")) < 0.1
    assert np.mean(first == noised.part(values, b"another")) < 0.1


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_what_the_grid_cannot_hold_is_refused(value):
    with pytest.raises(ValueError, match="must be finite and at most"):
        NoisedSum(1.0, 1.0, 1).part(np.array([value]), b"")


@pytest.mark.parametrize(
    "given", [{"sigma": 0.0}, {"sigma": np.inf}, {"sensitivity": -1.0}, {"size": 0}, {"shares": 0}, {"shares": 2**21}]
)
def test_a_noised_sum_that_means_nothing_is_refused(given):
    with pytest.raises(ValueError, match="noised sum"):
        NoisedSum(**{"sensitivity": 1.0, "sigma": 1.0, "size": 1, "shares": 1} | given)
