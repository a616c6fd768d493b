"""Whether sites should share a model, from their sums: the verdict of statsmodels' fits of each site's rows."""

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from tests.sites.secure import worlds
from tests.sites.test_network import DirectLink

import cofed
from cofed.sites import ChosenColumns
from cofed.sites.network import NetworkSites
from cofed.statistics.heterogeneity import heterogeneity_of
from cofed.statistics.local_fits import LocalFits

SIZES = {"oslo": 60, "rome": 45, "bern": 58, "lyon": 51, "tiny": 4}
FAMILIES = {"gaussian": sm.families.Gaussian(), "binomial": sm.families.Binomial(), "poisson": sm.families.Poisson()}


def rows(family, seed=0):
    """Unequal sites, whose slopes differ; columns of different size."""
    rng = np.random.default_rng(seed)
    site = rng.permutation(np.repeat(list(SIZES), list(SIZES.values())))
    X = rng.normal(size=(len(site), 2)) @ [[1.0, 10.0], [0.0, 30.0]] + [0.0, 100.0]
    z = X @ [0.5, 0.02] - 2 + np.where(site == "rome", 0.9, 0.0) * X[:, 0]
    draws = {
        "gaussian": lambda: z + rng.normal(size=len(z)),
        "binomial": lambda: (rng.uniform(size=len(z)) < 1 / (1 + np.exp(-z))).astype(int),
        "poisson": lambda: rng.poisson(np.exp(z / 2)).astype(float),
    }
    return pd.DataFrame(X, columns=["dose", "weight"]), draws[family](), site


def by_statsmodels(family, X, y, site):
    """The same, of fits of uncorrelated features."""
    centred = X - X.mean()
    values, vectors = np.linalg.eigh(np.cov(centred.T, ddof=0))
    free = sm.add_constant(centred.to_numpy() @ vectors / np.sqrt(values))
    names = sorted(name for name in SIZES if name != "tiny")
    found = [sm.GLM(y[site == name], free[site == name], FAMILIES[family]).fit(tol=1e-12) for name in names]
    sizes = np.array([SIZES[name] for name in names])
    return heterogeneity_of(
        LocalFits(
            tuple(names), sizes, np.array([f.params for f in found]), np.array([f.cov_params() for f in found]), {}
        )
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_the_verdict_is_that_of_fits_of_each_sites_rows(family):
    X, y, site = rows(family)
    found, wanted = cofed.advise_sites(family, X, y, clients=site), by_statsmodels(family, X, y, site)
    close = 1e-9 if family == "gaussian" else 1e-4  # the covariance is that before the last of Newton's steps
    assert found.R_squared == pytest.approx(wanted.R_squared, rel=close)
    assert found.threshold == pytest.approx(wanted.threshold, rel=close)
    assert found.interval == pytest.approx(wanted.interval, rel=10 * close)
    assert found.verdict == wanted.verdict
    np.testing.assert_allclose(found.table.ratio, wanted.table.ratio, rtol=10 * close)
    assert found.left_out == {"tiny": "4 rows for 3 parameters, at least 15 are needed"}
    assert "This rests on 4 of 5 clients. Left out: tiny (4 rows" in found.advice


def test_sites_over_a_network_tell_the_same_and_not_under_masks():
    X, y, site = rows("gaussian")
    tables = {name: X[site == name].assign(y=y[site == name]) for name in SIZES if name != "tiny"}
    here = site != "tiny"
    near = cofed.advise_sites("gaussian", X[here], y[here], clients=site[here])
    far = cofed.advise_sites("gaussian", NetworkSites.open(DirectLink(tables), list(tables), ChosenColumns(target="y")))
    assert far.interval == pytest.approx(near.interval, rel=1e-8)
    with pytest.raises(ValueError, match="advise_sites: the sites' answers are masked"):
        cofed.advise_sites("gaussian", worlds.over(worlds.MaskedLink(tables), target="y"))


def test_what_a_site_lacks_is_said():
    X, y, site = rows("binomial")
    X.loc[site == "oslo", "dose"] = 3.0
    y[site == "rome"] = 1
    y[site == "bern"] = X.weight[site == "bern"] > 100
    with pytest.raises(ValueError, match=r"fewer than two sites .*certainty.*a column is constant there"):
        cofed.advise_sites("binomial", X, y, clients=site)
    for given, words in (
        ({"model": "gamma"}, "model must be"),
        ({"model": "multinomial"}, "sums tell of 'gaussian', 'binomial', 'poisson', and not of 'multinomial' yet; for"),
        ({"model": "cox"}, "not of 'cox' yet; cofed.meta_analysis"),
        ({"level": 0}, "level must be"),
        ({"clients": None}, "two sites or more"),
        ({"X": X.assign(twice=2 * X.weight)}, "'twice' depends on those before it"),
    ):
        with pytest.raises(ValueError, match=words):
            cofed.advise_sites(**({"model": "gaussian", "X": X, "y": y, "clients": site} | given))
