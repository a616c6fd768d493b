"""The meat of robust covariances, beside statsmodels and sums that are written out row by row."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import softmax

from cofed.losses import Logistic, Softmax, Squared
from cofed.sites import MemorySites, SiteRows
from cofed.sites.queries import MeatMessage, meat
from tests.estimators import hospitals

N, P = 60, hospitals.P
NOTHING = np.zeros((0, 0))
CODES = np.unique(hospitals.SITES, return_inverse=True)[1].astype(np.int32)


def sites(X, y, cluster=None):
    return MemorySites(SiteRows(("Bern", "Oslo", "Rome"), X, y, CODES, cluster))


def full(packed, size):
    upper = np.zeros((size, size))
    upper[np.triu_indices(size)] = packed
    return upper + np.triu(upper, 1).T


def least_squares():
    X, y = hospitals.linear()
    A = np.column_stack([X, np.ones(N)])
    return X, y, A, sm.OLS(y, A).fit()


def message(theta, *, loss, inverse=NOTHING, clustered=False):
    return MeatMessage(theta[:P, None], theta[P:], np.arange(P + 1, dtype=np.int32), inverse, clustered, loss=loss)


@pytest.mark.parametrize("kind", ["HC0", "HC3"])
def test_the_sandwich_of_least_squares_is_statsmodels(kind):
    X, y, A, fit = least_squares()
    inverse = np.linalg.inv(A.T @ A)
    asked = message(fit.params, loss=Squared(), inverse=inverse if kind == "HC3" else NOTHING)
    answer = sites(X, y).ask(meat, asked)
    found = inverse @ full(answer.products, P + 1) @ inverse
    np.testing.assert_allclose(found, fit.get_robustcov_results(kind).cov_params(), rtol=1e-9)
    assert (answer.terms, answer.lone) == (N, 0)


def test_clusters_are_sites_or_given_groups_of_rows():
    X, y, A, fit = least_squares()
    inverse = np.linalg.inv(A.T @ A)
    people = (CODES * 100 + np.arange(N) // 2 % 7).astype(np.int64)
    people = np.unique(people, return_inverse=True)[1].astype(np.int32)
    for given, groups in ((None, CODES), (people, people)):
        answer = sites(X, y, given).ask(meat, message(fit.params, loss=Squared(), clustered=True))
        found = inverse @ full(answer.products, P + 1) @ inverse
        how = {"groups": groups, "use_correction": False}
        np.testing.assert_allclose(found, fit.get_robustcov_results("cluster", **how).cov_params(), rtol=1e-8)
        assert answer.terms == len(np.unique(groups))


def test_a_row_that_decides_a_coefficient_alone_is_counted_and_left_out():
    X, y, _, _ = least_squares()
    X = X.copy()
    X[:, 1] = 0
    X[5, 1] = 1
    A = np.column_stack([X, np.ones(N)])
    theta = np.linalg.lstsq(A, y)[0]
    answer = sites(X, y).ask(meat, message(theta, loss=Squared(), inverse=np.linalg.inv(A.T @ A)))
    assert answer.lone == 1
    assert np.isfinite(answer.products).all()


def test_leverages_of_a_logistic_model_have_its_weights():
    X, y = hospitals.classes()
    y = (y == "b").astype(np.int32)
    A, theta = np.column_stack([X, np.ones(N)]), np.linspace(-0.3, 0.4, P + 1)
    share = 1 / (1 + np.exp(-A @ theta))
    inverse = np.linalg.inv(A.T @ (A * (share * (1 - share))[:, None]))
    leverage = share * (1 - share) * np.einsum("ij,jk,ik->i", A, inverse, A)
    scores = A * ((share - y) / (1 - leverage))[:, None]
    answer = sites(X, y).ask(meat, message(theta, loss=Logistic(), inverse=inverse))
    np.testing.assert_allclose(full(answer.products, P + 1), scores.T @ scores, rtol=1e-10)


def test_several_classes_have_leverages_of_their_own_on_chosen_parameters():
    X, labels = hospitals.classes(3)
    y = np.searchsorted(["a", "b", "c"], labels).astype(np.int32)
    k, rng = 3, np.random.default_rng(0)
    theta = rng.normal(size=((P + 1), k)) / 4
    where = np.array([j * k + c for j in range(P + 1) for c in (1, 2)], np.int32)
    A = np.column_stack([X, np.ones(N)])
    share = softmax(A @ theta, axis=1)
    rows = [np.kron(a[:, None], np.eye(k)) for a in A]
    bends = [np.diag(q) - np.outer(q, q) for q in share]
    H = sum(x @ w @ x.T for x, w in zip(rows, bends, strict=True))[np.ix_(where, where)]
    inverse, total = np.linalg.inv(H), np.zeros_like(H)
    for x, w, q, label in zip(rows, bends, share, y, strict=True):
        own = x[where]
        slope = np.linalg.solve(np.eye(k) - w @ (own.T @ inverse @ own), q - np.eye(k)[label])
        total += np.outer(own @ slope, own @ slope)
    asked = MeatMessage(theta[:P], theta[P], where, inverse, loss=Softmax(3))
    answer = sites(X, y).ask(meat, asked)
    np.testing.assert_allclose(full(answer.products, len(where)), total, rtol=1e-9)
    shape = meat.shape(asked, P)
    assert (shape.products.shape, shape.terms.shape) == (answer.products.shape, ())
