"""Transformers that are fitted to sums over clients, beside scikit-learn's on the pooled rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import cofed
from cofed import transformers
from cofed.estimators import FederatedLasso
from cofed.sites import sites_of_frame
from cofed.transformers import FederatedOneHotEncoder, FederatedPCA, FederatedSimpleImputer

N, SIZES = 40, (3, 25, 12)  # unequal clients, the first with fewer rows than features
CLIENTS = np.repeat(["Rome", "Oslo", "Bern"], SIZES)
seeds = st.integers(0, 2**32 - 1)


def numbers(seed):
    """Correlated features of different size, far from 0, with a share of each that differs from client to client."""
    rng = np.random.default_rng(seed)
    mixed = rng.normal(size=(N, 6)) * [9.0, 6.0, 4.0, 2.0, 1.0, 0.5] @ np.linalg.qr(rng.normal(size=(6, 6)))[0]
    return mixed + 50 + np.repeat(rng.normal(size=(3, 6)), SIZES, axis=0)


def table(seed, gaps=0.2):
    """Texts, whole numbers and truths, some missing; one client alone has some of the levels."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "ward": np.where(CLIENTS == "Bern", rng.choice(["C", "B10"], N), rng.choice(["A", "B9", "C"], N)),
            "grade": rng.integers(1, 5, N).astype(float),
            "ill": rng.random(N) < 0.3,
        }
    ).astype(object)
    return frame.mask(rng.random(frame.shape) < gaps, None)


def of_pooled(frame):
    """As scikit-learn takes it: objects, NaN for what is missing."""
    return frame.astype(object).where(frame.notna(), np.nan)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_means(seed):
    X = numbers(seed)
    X[np.random.default_rng(seed).random(X.shape) < 0.3] = np.nan
    X[0] = 1.0  # no feature is missing altogether
    ours, theirs = FederatedSimpleImputer().fit(X, clients=CLIENTS), SimpleImputer().fit(X)
    np.testing.assert_allclose(ours.statistics_, theirs.statistics_, rtol=1e-13)
    np.testing.assert_allclose(ours.transform(X), theirs.transform(X), rtol=1e-13)
    np.testing.assert_array_equal(ours.n_missing_, np.isnan(X).sum(axis=0))
    by_client = ours.missing_by_client_
    for client in by_client:
        np.testing.assert_array_equal(by_client[client], np.isnan(X[client == CLIENTS]).sum(axis=0))
    assert set(by_client) == set(CLIENTS)


@settings(max_examples=10, deadline=None)
@given(seeds)
def test_the_most_frequent_and_constants(seed):
    frame = table(seed)
    ours = FederatedSimpleImputer(strategy="most_frequent").fit(frame, clients=CLIENTS)
    theirs = SimpleImputer(strategy="most_frequent").fit(of_pooled(frame))
    assert ours.statistics_.tolist() == theirs.statistics_.tolist()
    assert (ours.transform(frame) == theirs.transform(of_pooled(frame))).all()
    wards = frame[["ward"]]
    for fill in (None, "none"):
        ours = FederatedSimpleImputer(strategy="constant", fill_value=fill).fit(wards, clients=CLIENTS)
        theirs = SimpleImputer(strategy="constant", fill_value=fill).fit(of_pooled(wards))
        assert (ours.transform(wards) == theirs.transform(of_pooled(wards))).all()
    grades = frame[["grade"]].astype(float)
    ours = FederatedSimpleImputer(strategy="constant", fill_value=-1).fit(grades, clients=CLIENTS)
    assert (ours.transform(grades) == grades.fillna(-1).to_numpy()).all()


@settings(max_examples=10, deadline=None)
@given(
    seeds,
    st.sampled_from([None, 1, 6, 12, 100, 0.2, 0.6]),
    st.sampled_from([(None, "error"), ("first", "error"), (None, "ignore"), (None, "infrequent_if_exist")]),
)
def test_zeros_and_ones(seed, least, how):
    frame = table(seed, gaps=0).assign(grade=lambda own: own["grade"].astype(int), ill=lambda own: own["ill"] * 1)
    given = {"min_frequency": least, "drop": how[0], "handle_unknown": how[1]}
    ours = FederatedOneHotEncoder(**given).fit(frame, clients=CLIENTS)
    theirs = OneHotEncoder(sparse_output=False, **given).fit(frame)
    assert (ours.transform(frame) == theirs.transform(frame)).all()
    assert ours.get_feature_names_out().tolist() == theirs.get_feature_names_out().tolist()
    for levels, counts, pooled, name in zip(ours.categories_, ours.counts_, theirs.categories_, frame, strict=True):
        assert levels.tolist() == pooled.tolist()
        assert counts.tolist() == [int((frame[name] == level).sum()) for level in pooled]
    if least is not None:
        for mine, pooled in zip(ours.infrequent_categories_, theirs.infrequent_categories_, strict=True):
            assert (mine is None and pooled is None) or mine.tolist() == pooled.tolist()
    if how[1] != "error":
        new = frame.head(2).assign(ward=["Z", "A"])
        np.testing.assert_array_equal(ours.transform(new), theirs.transform(new))


@settings(max_examples=10, deadline=None)
@given(seeds, st.sampled_from([None, 1, 4, 0.5, 0.9]), st.booleans())
def test_components(seed, kept, whiten):
    X = numbers(seed)
    ours = FederatedPCA(kept, whiten=whiten).fit(X, clients=CLIENTS)
    theirs = PCA(kept, whiten=whiten, svd_solver="full").fit(X)
    spread = np.sqrt(theirs.explained_variance_)
    # Components are known as well as variances differ: those that nearly agree turn into each other.
    every = PCA(svd_solver="full").fit(X).explained_variance_
    gap = np.min(-np.diff(every)) / every[0]
    tol = 1e-10 * max(1.0, 1e-3 / gap)
    np.testing.assert_allclose(ours.components_, theirs.components_, rtol=0, atol=tol)
    for name in ("explained_variance_", "explained_variance_ratio_", "singular_values_", "mean_", "noise_variance_"):
        np.testing.assert_allclose(getattr(ours, name), getattr(theirs, name), rtol=1e-10, err_msg=name)
    assert (ours.n_components_, ours.n_samples_, ours.n_rounds_) == (theirs.n_components_, N, 2)
    scores = theirs.transform(X)
    np.testing.assert_allclose(ours.transform(X), scores, rtol=0, atol=tol * (10 * np.abs(X).max() / spread.min()))
    back = theirs.inverse_transform(scores)
    np.testing.assert_allclose(ours.inverse_transform(ours.transform(X)), back, rtol=0, atol=tol * np.abs(X).max())


def test_more_features_than_rows():
    X = np.random.default_rng(3).normal(size=(5, 8))
    ours, theirs = FederatedPCA(3).fit(X, clients=list("aabbb")), PCA(3).fit(X)
    np.testing.assert_allclose(ours.components_, theirs.components_, rtol=0, atol=1e-10)
    whole = FederatedPCA().fit(X, clients=list("aabbb"))
    assert whole.n_components_ == 5
    np.testing.assert_allclose(whole.explained_variance_, PCA().fit(X).explained_variance_, rtol=1e-10, atol=1e-14)


def test_a_pipeline_with_an_estimator():
    X = numbers(1)
    y = X[:, 0] - X[:, 1] + np.random.default_rng(2).normal(size=N)
    holed = X.copy()
    holed[::7, 2] = np.nan
    pipe = make_pipeline(FederatedSimpleImputer(), FederatedPCA(4), FederatedLasso(0.1))
    names = {f"{step}__clients": CLIENTS for step in pipe.named_steps}
    pipe.fit(holed, y, **names)
    filled = SimpleImputer().fit_transform(holed)
    alone = FederatedLasso(0.1).fit(PCA(4, svd_solver="full").fit_transform(filled), y, clients=CLIENTS)
    np.testing.assert_allclose(pipe.predict(holed), alone.predict(PCA(4).fit(filled).transform(filled)), rtol=1e-5)
    assert pipe[:-1].get_feature_names_out().tolist() == [f"federatedpca{j}" for j in range(4)]


def test_sites_with_tables():
    """Sites tell of their columns; the target is none of the features."""
    frame = table(5).assign(cost=np.arange(N), site=CLIENTS)
    sites = sites_of_frame(frame, "cost", "site", missing="drop")
    imputer = FederatedSimpleImputer(strategy="most_frequent").fit(sites)
    here = FederatedSimpleImputer(strategy="most_frequent").fit(frame.drop(columns=["cost"]), clients="site")
    assert imputer.statistics_.tolist() == here.statistics_.tolist()
    assert imputer.n_missing_.tolist() == here.n_missing_.tolist()
    assert imputer.feature_names_in_.tolist() == ["ward", "grade", "ill"]
    assert sites.exchanges[-1].what == "histogram"
    whole = sites_of_frame(table(5, gaps=0).assign(cost=np.arange(N), site=CLIENTS), "cost", "site")
    encoder = FederatedOneHotEncoder(min_frequency=5).fit(whole)
    there = FederatedOneHotEncoder(min_frequency=5).fit(table(5, gaps=0), clients=CLIENTS)
    assert [own.tolist() for own in encoder.counts_] == [own.tolist() for own in there.counts_]
    pca = FederatedPCA(2).fit(whole)
    X = np.concatenate([whole.rows.of_site(m)[0] for m in range(3)])
    np.testing.assert_allclose(pca.components_, PCA(2).fit(X).components_, rtol=0, atol=1e-10)
    federation = cofed.Federation.from_arrays([(X[:9], np.zeros(9)), (X[9:], np.zeros(N - 9))])
    np.testing.assert_allclose(FederatedPCA(2).fit(federation).components_, pca.components_, rtol=0, atol=1e-6)


@pytest.mark.slow
@parametrize_with_checks([FederatedSimpleImputer(), FederatedPCA()])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


def test_the_public_names():
    assert set(transformers.__all__) == {
        *("FederatedOneHotEncoder", "FederatedPCA", "FederatedSimpleImputer", "FederatedKBinsDiscretizer"),
        *("FederatedPolynomialFeatures", "FederatedQuantileTransformer", "FederatedSplineTransformer"),
        "FederatedFormula",
    }
