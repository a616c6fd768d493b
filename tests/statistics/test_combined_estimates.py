"""Meta-analysis as statsmodels has it, and its likelihood by brute force."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from statsmodels.stats.meta_analysis import combine_effects

from cofed.statistics.meta_analysis import between_sites, combined


def estimates(seed, k):
    rng = np.random.default_rng(seed)
    se = rng.uniform(0.1, 1.0, k)
    return rng.normal(2.0, rng.choice([0.0, 0.2, 2.0]), k) + se * rng.normal(size=k), se


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), k=st.integers(2, 12))
def test_effects_and_heterogeneity_are_those_of_statsmodels(seed, k):
    b, se = estimates(seed, k)
    found = combined(b, se)
    with (
        np.errstate(all="ignore"),
        warnings.catch_warnings(action="ignore"),
    ):
        other = combine_effects(b, se**2, method_re="dl")
    with warnings.catch_warnings(action="ignore"):
        frame = other.summary_frame()
    assert found.fixed == pytest.approx(other.mean_effect_fe, rel=1e-10)
    assert found.fixed_se == pytest.approx(frame.loc["fixed effect", "sd_eff"], rel=1e-10)
    above = found.q > found.freedom
    assert found.random == pytest.approx(other.mean_effect_re if above else found.fixed, rel=1e-10)
    random_se = frame.loc["random effect", "sd_eff"] if above else found.fixed_se
    assert found.random_se == pytest.approx(random_se, rel=1e-10)
    assert found.tau2 == pytest.approx(max(other.tau2, 0), rel=1e-9, abs=1e-12)
    assert found.q == pytest.approx(other.q, rel=1e-10)
    assert found.i2 == pytest.approx(max(other.i2, 0), rel=1e-9, abs=1e-12)
    assert found.p_value == pytest.approx(other.test_homogeneity().pvalue, rel=1e-9)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), k=st.integers(2, 12))
def test_no_variance_between_sites_is_more_likely_than_that_of_reml(seed, k):
    b, se = estimates(seed, k)
    v = se**2

    def deviance(tau2):
        w = 1 / (v + tau2)
        return np.log(v + tau2).sum() + np.log(w.sum()) + w @ (b - w @ b / w.sum()) ** 2

    best = between_sites(b, v)
    assert best >= 0
    others = np.concatenate([[0.0], np.geomspace(1e-8, 1e3, 3000), best * (1 + np.array([-1e-4, 1e-4]))])
    assert deviance(best) <= min(map(deviance, others)) + 1e-10


def test_sites_without_an_estimate_are_left_out():
    b, se = estimates(0, 4)
    assert combined(np.append(b, np.nan), np.append(se, 1.0)) == combined(b, se)
    alone = combined(b[:1], se[:1])
    assert (alone.sites, alone.fixed, alone.random_se) == (1, b[0], se[0])
    assert np.isnan(alone.p_value)
    assert np.isnan(combined(b[:0], se[:0]).fixed)
