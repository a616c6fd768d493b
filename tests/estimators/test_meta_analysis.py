"""Meta-analysis of the sites' own estimates: each is that of statsmodels on the site's rows alone."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from statsmodels.stats.meta_analysis import combine_effects
from tests.sites.secure import worlds
from tests.sites.test_network import DirectLink

import cofed
from cofed.estimators import FederatedLasso, FederatedLogisticRegression
from cofed.sites import ChosenColumns
from cofed.sites.network import NetworkSites

SIZES = {"oslo": 60, "rome": 45, "bern": 90}
# Of estimates and standard errors: the last of Newton's steps, up to 1e-3 standard errors, is made and not looked at.
CLOSE = {"gaussian": (1e-9, 1e-9), "binomial": (1e-5, 2e-4), "poisson": (1e-5, 2e-4)}
FAMILIES = {"gaussian": sm.families.Gaussian(), "binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}


def rows(family="gaussian", seed=0):
    """Unequal sites with slopes of their own; the columns differ in size, and the rows are not sorted."""
    rng = np.random.default_rng(seed)
    site = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    X = rng.normal(size=(len(site), 2)) * [1.0, 30.0] + [0.0, 100.0]
    z = X @ [0.5, 0.02] - 2 + np.where(site == "rome", 0.9, 0.0) * X[:, 0]
    draws = {
        "gaussian": lambda: z + rng.normal(size=len(z)),
        "binomial": lambda: (rng.uniform(size=len(z)) < 1 / (1 + np.exp(-z))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(z / 2)).astype(float),
    }
    return pd.DataFrame(X, columns=["dose", "weight"]), draws[family](), site


def alone(family, X, y):
    """What statsmodels finds."""
    design = sm.add_constant(X)
    fit = sm.OLS(y, design).fit() if family == "gaussian" else sm.GLM(y, design, FAMILIES[family]).fit(tol=1e-12)
    return fit.params.to_numpy()[1:], fit.bse.to_numpy()[1:]


@pytest.mark.parametrize("family", FAMILIES)
def test_sites_and_pooled_estimates_are_those_of_statsmodels(family):
    X, y, site = rows(family)
    found = cofed.meta_analysis(family, X, y, clients=site, method="dl")
    wide, (value, error) = {}, CLOSE[family]
    for name in SIZES:
        own = found.sites[found.sites.site == name]
        wide[name] = alone(family, X[site == name], y[site == name])
        np.testing.assert_allclose(own.estimate, wide[name][0], rtol=value)
        np.testing.assert_allclose(own.se, wide[name][1], rtol=error)
        assert (own.rows == SIZES[name]).all()
        assert own.coefficient.tolist() == ["dose", "weight"]
    together = alone(family, X, y)
    np.testing.assert_allclose(found.table.pooled, together[0], rtol=value)
    np.testing.assert_allclose(found.table.pooled_se, together[1], rtol=error)
    for j, name in enumerate(["dose", "weight"]):
        b, se = (np.array([wide[one][part][j] for one in SIZES]) for part in (0, 1))
        other, row = combine_effects(b, se**2, method_re="dl"), found.table.loc[name]
        assert row.fixed == pytest.approx(other.mean_effect_fe, rel=10 * error)
        assert row["Q"] == pytest.approx(other.q, rel=10 * error)
        assert row.p_value == pytest.approx(other.test_homogeneity().pvalue, rel=10 * error)
        assert row.tau2 == pytest.approx(max(other.tau2, 0), rel=10 * error, abs=10 * error * se.mean() ** 2)
        assert row.high - row.low == pytest.approx(2 * 1.959964 * row.se, rel=1e-6)


def test_an_intercept_for_each_site_and_features_that_are_left_out():
    X, y, site = rows()
    wider = X.assign(noise=np.arange(len(X)) % 7)
    model = FederatedLasso(0.3, site_effects="fixed", exclude=["noise"])
    found = cofed.meta_analysis(model, wider, y, clients=site)
    plain = cofed.meta_analysis("gaussian", X, y, clients=site)
    pd.testing.assert_frame_equal(found.sites, plain.sites, rtol=1e-8)
    dummies = pd.get_dummies(site).astype(float).set_index(X.index)
    fit = sm.OLS(y, pd.concat([X, dummies], axis=1)).fit()
    np.testing.assert_allclose(found.table.pooled, fit.params.to_numpy()[:2], rtol=1e-8)
    np.testing.assert_allclose(found.table.pooled_se, fit.bse.to_numpy()[:2], rtol=1e-8)
    assert "coef_" not in vars(model)


def test_sites_over_a_network_tell_the_same_and_not_under_masks():
    X, y, site = rows()
    near = cofed.meta_analysis("gaussian", X, y, clients=site)
    tables = {name: X[site == name].assign(y=y[site == name]) for name in SIZES}
    sites = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y"))
    far = cofed.meta_analysis("gaussian", sites)
    pd.testing.assert_frame_equal(far.table, near.table, rtol=1e-9)
    pd.testing.assert_frame_equal(far.sites.sort_values("site", ignore_index=True), near.sites, rtol=1e-9)
    assert {one.what for one in far.exchanges} == {"sums", "gram"}
    with pytest.raises(ValueError, match="meta_analysis: the sites' answers are masked"):
        cofed.meta_analysis("gaussian", worlds.over(worlds.MaskedLink(tables), target="y"))


def test_a_log_takes_no_site_for_another(tmp_path):
    X, y, site = rows()
    tables = {name: X[site == name].assign(y=y[site == name]) for name in SIZES}
    for _ in range(2):  # the second time from the log
        sites = NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y"), tmp_path)
        found = cofed.meta_analysis("gaussian", sites)
        sites.network.log.close()
        near = cofed.meta_analysis("gaussian", X, y, clients=site)
        pd.testing.assert_frame_equal(found.table, near.table, rtol=1e-9)


def test_small_sites_and_columns_that_a_site_does_not_vary():
    X, y, site = rows()
    site = site.astype(object)
    site[:3] = "tiny"
    with pytest.raises(ValueError, match=r"the site 'tiny' has no estimates of its own: there are 3 rows for 2"):
        cofed.meta_analysis("gaussian", X, y, clients=site)
    found = cofed.meta_analysis("gaussian", X, y, clients=site, small_sites="drop")
    assert list(found.left_out) == ["tiny"]
    assert found.sites[found.sites.site == "tiny"].estimate.isna().all()
    assert found.table.sites.tolist() == [3, 3]
    assert "Without the site tiny: there are 3 rows" in found.summary()
    flat = X.assign(dose=np.where(site == "rome", 1.0, X.dose))
    found = cofed.meta_analysis("gaussian", flat, y, clients=site, small_sites="drop")
    assert found.table.sites.tolist() == [2, 3]
    figure = found.plot()
    assert [panel.get_title() for panel in figure.axes] == ["dose", "weight"]
    ticks = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert ticks == ["bern", "oslo", "rome", "tiny", "fixed effect", "random effects", "pooled"]
    assert [text.get_text() for text in figure.axes[0].texts] == ["no estimate"] * 2


def test_a_site_with_one_class_or_whose_labels_are_certain():
    X, y, site = rows("binomial")
    with pytest.raises(ValueError, match="the site 'rome' has no estimates of its own"):
        cofed.meta_analysis("binomial", X, np.where(site == "rome", 1, y), clients=site)
    certain = np.where(site == "rome", X.dose > 0, y)
    with pytest.raises(ValueError, match="most of all that of 'dose', as where features tell"):
        cofed.meta_analysis("binomial", X, certain, clients=site)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"clients": None}, "two sites or more, and there is 1"),
        ({"model": "gamma"}, "model must be one of .*got 'gamma'"),
        ({"model": FederatedLasso(0.1, low=0.0)}, "limits"),
        ({"model": FederatedLogisticRegression(class_weight="balanced")}, "class_weight"),
        ({"method": "best"}, "method must be"),
        ({"level": 1.0}, "level must be"),
        ({"small_sites": "keep"}, "small_sites must be"),
        ({"model": "binomial", "y": np.arange(195) % 3}, "'binomial' is for two classes, and y has 3"),
    ],
)
def test_bad_input_gets_a_sentence(given, words):
    X, y, site = rows("binomial")
    arguments = {"model": "gaussian", "X": X, "y": y, "clients": site} | given
    with pytest.raises(ValueError, match=words):
        cofed.meta_analysis(**arguments)


@pytest.mark.parametrize("own", [lambda X: np.full(len(X), 5.0), lambda X: 1.1 * X[:, 0]])
def test_a_site_whose_rows_are_told_wholly_has_no_standard_errors(own):
    rng = np.random.default_rng(0)
    X, site = rng.normal(size=(90, 2)), np.repeat(["a", "b", "c"], 30)
    y = X[:, 0] + rng.normal(size=90)
    y[:30] = own(X[:30])
    with pytest.raises(ValueError, match="the site 'a' has no estimates of its own: the features tell y wholly"):
        cofed.meta_analysis("gaussian", X, y, site)
    found = cofed.meta_analysis("gaussian", X, y, site, small_sites="drop")
    assert list(found.left_out) == ["a"]
    assert found.table["sites"].tolist() == [2, 2]
