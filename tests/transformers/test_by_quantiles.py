"""Bins, ranks, splines and powers of clients' rows, beside scikit-learn's of the pooled rows."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, PolynomialFeatures, QuantileTransformer, SplineTransformer
from sklearn.utils.estimator_checks import parametrize_with_checks
from tests.sites.secure import worlds

from cofed.estimators import FederatedLasso
from cofed.sites import MemorySites, SiteRows
from cofed.sites.network import NetworkSites
from cofed.transformers import (
    FederatedKBinsDiscretizer,
    FederatedPolynomialFeatures,
    FederatedQuantileTransformer,
    FederatedSplineTransformer,
)
from cofed.transformers.order_statistics import averaged_quantile, columns_of, linear_quantile, values_by_rank

N = 90
CLIENTS = np.repeat(["Rome", "Oslo", "Bern"], (7, 50, 33))


def numbers(seed):
    """Values of many kinds: far from 0, skew, whole, few and frequent, with heavy tails."""
    rng = np.random.default_rng(seed)
    whole, few = rng.integers(-3, 300, N), rng.choice([0.1, 0.5, 0.7], N)
    return np.column_stack([rng.normal(1e4, 3, N), rng.lognormal(size=N), whole, few, rng.standard_cauchy(N)])


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_values_by_rank(seed):
    X = numbers(seed)
    sites = MemorySites(SiteRows.of_sites(("a", "b"), [X[:20], X[20:]], [np.zeros(0)] * 2))
    columns, ranks = columns_of(sites), [1, 2, 45, N - 1, N]
    found, truth = values_by_rank(sites, columns, ranks, 1e-6), np.sort(X, axis=0)[np.array(ranks) - 1]
    off = (found - truth) / X.std(axis=0)
    assert (np.abs(off) <= 1e-6).all()
    assert (off[:-1] <= 0).all()
    assert (off[-1] >= 0).all()
    assert (found[:, 2:4] == truth[:, 2:4]).all()  # whole numbers, and values that several rows have


@given(st.integers(1, 400), st.integers(0, 100))
def test_ranks_of_quantiles_are_numpys(n, percent):
    values = np.sort(np.random.default_rng(n).normal(size=n))
    for rule, method in ((linear_quantile, "linear"), (averaged_quantile, "averaged_inverted_cdf")):
        one = rule(n, percent / 100)
        got = (1 - one.share) * values[one.low - 1] + one.share * values[one.high - 1]
        assert got == pytest.approx(np.percentile(values, percent, method=method), rel=1e-9, abs=1e-12)


def test_bins_ranks_and_splines_are_those_of_the_pooled_rows():
    X = numbers(0)
    spread = X.std(axis=0)
    for strategy in ("quantile", "uniform"):
        how = {"encode": "ordinal", "strategy": strategy}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the fourth column has fewer bins than asked for
            ours, theirs = FederatedKBinsDiscretizer(4, **how), KBinsDiscretizer(4, **how)
            assert (ours.fit(X, clients=CLIENTS).transform(X) == theirs.fit(X).transform(X)).all()
        assert ours.n_bins_.tolist() == theirs.n_bins_.tolist()
    with pytest.warns(UserWarning, match=r"feature 3 has 2 of 4 bins|feature 3 has 3 of 4 bins"):
        FederatedKBinsDiscretizer(4).fit(X, clients=CLIENTS)
    ours = FederatedQuantileTransformer(n_quantiles=30, output_distribution="normal").fit(X, clients=CLIENTS)
    theirs = QuantileTransformer(n_quantiles=30, output_distribution="normal", subsample=None).fit(X)
    assert (np.abs(ours.quantiles_ - theirs.quantiles_) <= 1e-6 * spread).all()
    inside = np.abs(theirs.transform(X)) < 3  # at the ends a rank of 1e-7 is a normal value of its own
    np.testing.assert_allclose(ours.transform(X)[inside], theirs.transform(X)[inside], rtol=0, atol=1e-4)
    for knots in ("quantile", "uniform"):
        ours = FederatedSplineTransformer(4, knots=knots).fit(X[:, :3], clients=CLIENTS)
        theirs = SplineTransformer(4, knots=knots).fit(X[:, :3])
        np.testing.assert_allclose(ours.transform(X[:, :3]), theirs.transform(X[:, :3]), rtol=0, atol=1e-5)
        assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    with pytest.raises(ValueError, match="two knots of feature 3 are the same"):
        FederatedSplineTransformer(5).fit(X, clients=CLIENTS)


def test_rows_of_a_frequent_value_have_its_rank():
    X = np.random.default_rng(0).normal(size=(300, 1))
    X[:90] = 0.123456  # 0.3 and 0.7 parts of it do not add up to it
    ours = FederatedQuantileTransformer(n_quantiles=100).fit(X, clients=np.arange(300) % 3)
    theirs = QuantileTransformer(n_quantiles=100, subsample=None).fit(X)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=0, atol=1e-5)


def test_in_a_pipeline_with_names():
    X = pd.DataFrame(numbers(1)[:, :3], columns=["age", "dose", "visits"])
    y = np.log1p(X.dose) + X.age / 10
    for step, pooled in (
        (FederatedSplineTransformer(4, include_bias=False), SplineTransformer(4, knots="quantile", include_bias=False)),
        (FederatedKBinsDiscretizer(4), KBinsDiscretizer(4, encode="onehot-dense")),
        (FederatedPolynomialFeatures(), PolynomialFeatures(include_bias=False)),
    ):
        name = type(step).__name__.lower()
        given = {f"{name}__clients": CLIENTS, "federatedlasso__clients": CLIENTS}
        ours = make_pipeline(step, FederatedLasso(0.01)).fit(X, y, **given)
        theirs = make_pipeline(pooled, FederatedLasso(0.01)).fit(X, y)
        np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=1e-4)
        assert ours[0].get_feature_names_out().tolist() == theirs[0].get_feature_names_out().tolist()


def test_over_a_network_under_masks():
    X = pd.DataFrame(numbers(2)[:, [1, 2]], columns=["dose", "visits"])
    tables = {name: X[name == CLIENTS].assign(y=0.0) for name in ("Oslo", "Bern")}
    sites = worlds.over(worlds.MaskedLink(tables), target="y")
    assert isinstance(sites, NetworkSites)
    far = FederatedSplineTransformer(3).fit(sites)
    near = FederatedSplineTransformer(3).fit(X[CLIENTS != "Rome"], clients=CLIENTS[CLIENTS != "Rome"])
    np.testing.assert_allclose(far.knots_, near.knots_, rtol=1e-9)
    assert far.get_feature_names_out().tolist() == near.get_feature_names_out().tolist()
    assert FederatedPolynomialFeatures().fit(sites).get_feature_names_out().tolist()[:2] == ["dose", "visits"]


@pytest.mark.slow
@parametrize_with_checks(
    [
        FederatedKBinsDiscretizer(3),
        FederatedQuantileTransformer(n_quantiles=5),
        FederatedSplineTransformer(3),
        FederatedPolynomialFeatures(),
    ]
)
def test_scikit_learns_checks(estimator, check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # bins without a width
        check(estimator)
