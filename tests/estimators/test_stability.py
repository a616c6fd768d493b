"""Stability selection, beside fits of the same halves one by one."""

import numpy as np
import pytest
from tests.estimators import hospitals

from cofed.estimators import (
    FederatedConstrained,
    FederatedElasticNet,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    stability_selection,
)
from cofed.sites import Folds

X, Y = hospitals.linear()
SITES = hospitals.SITES
CLASSES = (np.median(Y) < Y).astype(int)


def halves(y, seed, by_class):
    fold = np.empty(len(y), int)
    for site in np.unique(SITES):
        fold[site == SITES] = Folds(2, seed, by_class).of_rows(str(site), y[site == SITES], None)
    return [fold != 0, fold != 1]


@pytest.mark.parametrize(
    ("estimator", "y", "pairs"),
    [
        (FederatedLasso(), Y, 3),
        pytest.param(FederatedLogisticRegression(), CLASSES, 2, marks=pytest.mark.slow),
    ],
)
def test_probabilities_are_those_of_fits_of_the_halves(estimator, y, pairs):
    found = stability_selection(estimator, X, y, SITES, pairs=pairs, n_alphas=4, random_state=5)
    used = []
    for seed in range(5, 5 + pairs):
        for half in halves(y, seed, isinstance(estimator, FederatedLogisticRegression)):
            fits = [
                type(estimator)(alpha).fit(X[half], y[half], clients=SITES[half]).support_ for alpha in found.alphas
            ]
            used.append(fits)
    np.testing.assert_array_equal(found.probabilities, np.mean(used, axis=0))
    assert found.n_subsamples == 2 * pairs
    assert found.alphas[0] == pytest.approx(estimator.path(X, y, SITES, n_alphas=2).alphas[0])
    assert found.mean_used == pytest.approx(np.mean([np.any(one, axis=0).sum() for one in used]))
    assert 0 < found.probabilities.max() <= 1


def test_what_is_selected_and_the_bound_and_the_figure(tmp_path):
    found = stability_selection(FederatedLasso(), X, Y, SITES, pairs=3, alphas=[0.5, 0.1])
    table = found.table
    assert table["probability"].is_monotonic_decreasing
    assert found.selected(0.9) == [name for name in found.feature_names if table.loc[name, "probability"] >= 0.9]
    assert found.false_selections(0.75) == found.mean_used**2 / (0.5 * X.shape[1])
    assert found.n_rounds == 6  # sums and products, for each pair
    found.plot(tmp_path / "stability.png")
    assert (tmp_path / "stability.png").stat().st_size > 0


def test_bad_input_is_refused_in_a_sentence():
    for wrong in (FederatedLassoCV(), FederatedConstrained(), "lasso"):
        with pytest.raises(ValueError, match="has no strength alpha"):
            stability_selection(wrong, X, Y, SITES)
    for given, said in (
        ({"pairs": 0}, "pairs must be"),
        ({"eps": 0.0}, "eps must be"),
        ({"alphas": [0.1, 0.0]}, "alphas must be above 0"),
        ({"random_state": -1}, "random_state must be"),
    ):
        with pytest.raises(ValueError, match=f"stability_selection: {said}"):
            stability_selection(FederatedLasso(), X, Y, SITES, **given)
    found = stability_selection(FederatedLasso(), X, Y, SITES, pairs=1, alphas=[0.5])
    for wrong in (0.5, 0.2, 1.5, "a"):
        with pytest.raises(ValueError, match="stability_selection: threshold must be"):
            found.selected(wrong)


def test_a_ridge_leaves_no_feature_out_and_is_refused():
    with pytest.raises(ValueError, match="FederatedElasticNet has no l1 norm here"):
        stability_selection(FederatedElasticNet(l1_ratio=0.0), X, Y, SITES, pairs=1)
