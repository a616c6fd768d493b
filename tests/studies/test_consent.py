"""Sites reached by bytes alone, which answer what they have approved; and what a study's design gives over them."""

import numpy as np
import pandas as pd
import pytest

import cofed
from cofed.estimators import FederatedLasso, FederatedLogisticRegression
from cofed.sites import QuestionRefused, SiteTable, TableSites, table_sites
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.local import LocalSite
from cofed.sites.network import NetworkSites
from cofed.studies import StudyConsent, approve, draft, withdraw
from tests.sites import worlds
from tests.sites.test_network import DirectLink

TABLES = {name: worlds.hospital(60, m, 0.1) for m, name in enumerate(["bern", "oslo", "rome"])}


def open_sites(keep=None, **columns):
    """The sites; with `keep`, their folders are in it."""
    link = DirectLink(TABLES)
    if keep is not None:
        link.sites = {
            name: LocalSite(name, lambda name=name: SiteTable(TABLES[name], name), StudyConsent(keep / name))
            for name in TABLES
        }
    return NetworkSites.open(link, list(TABLES), ChosenColumns(**columns))


def drafted(missing="drop"):
    """A study of some columns, in which an age of 50 stands for a missing one."""
    infos = {site: SiteTable(table, site).info() for site, table in TABLES.items()}
    study = draft(infos, "ill").study
    variables = {name: study.variables[name] for name in ("age", "sex", "smoker", "ill")}
    variables["age"] = variables["age"].model_copy(update={"missing": (50,)})
    one = study.analysis("main").model_copy(update={"missing": missing, "features": ("sex", "age")})
    return study.model_copy(update={"variables": variables, "analyses": (one,)})


@pytest.mark.parametrize("missing", ["drop", "impute"])
def test_a_study_is_fitted_over_sites_that_have_approved_it(tmp_path, missing):
    study = drafted(missing)
    for name in TABLES:
        approve(tmp_path / name, study)
    sites = open_sites(tmp_path, design=study.design("main"))
    assert all(sorted(info.by_name) == ["age", "ill", "sex", "smoker"] for info in sites.infos.values())
    ages = TABLES["oslo"]["age"]
    assert sites.infos["oslo"].by_name["age"].missing == (ages.isna() | (ages == 50)).sum() > ages.isna().sum()
    here = TableSites({site: SiteTable(one, site) for site, one in TABLES.items()}, study.description_design)
    here = here.with_design(study.design("main"))
    assert sites.design == here.design
    assert sites.sizes == here.sizes
    assert sum(sites.sizes) < 180 or missing == "impute"
    fits = [FederatedLogisticRegression(alpha=0.01, penalty="l1").fit(one) for one in (sites, here)]
    np.testing.assert_allclose(fits[0].coef_, fits[1].coef_, rtol=1e-10)
    assert fits[0].classes_.tolist() == ["no", "yes"]
    with pytest.raises(ValueError, match="the target 'ill' is a class by the design, but must be a number"):
        FederatedLasso().fit(sites)


def test_a_site_refuses_what_it_has_not_approved(tmp_path):
    sites = open_sites(tmp_path, target="ill", missing="drop")
    free = FederatedLogisticRegression(alpha=0.1).fit(sites)  # nobody has approved anything yet: all is answered
    assert free.coef_.shape == (1, len(sites.feature_names))
    approve(tmp_path / "oslo", drafted())
    with pytest.raises(ValueError, match="the site oslo does not answer: the question is not part of a study"):
        FederatedLogisticRegression(alpha=0.1).fit(sites)
    assert withdraw(tmp_path / "oslo", drafted())
    with pytest.raises(QuestionRefused, match="this site has approved no study"):
        sites.with_design(drafted().design("main"))


def test_a_description_over_the_network_is_that_of_the_tables(tmp_path):
    there, here = cofed.describe(open_sites(target="ill", missing="drop")), cofed.describe(TABLES)
    numbers = ["rows", "missing", "mean", "sd", "p25", "p50", "p75", "resolution", "count", "share"]
    np.testing.assert_allclose(there.table[numbers], here.table[numbers], rtol=1e-9)
    assert there.sites == here.sites
    for name in TABLES:
        approve(tmp_path / name, drafted())
    with pytest.raises(QuestionRefused):
        open_sites(tmp_path, missing="drop")
    found = cofed.describe(open_sites(tmp_path, design=drafted().description_design))
    assert [one.name for one in found.variables] == ["age", "sex", "smoker", "ill"]


def test_sites_with_matrices_have_no_other_design():
    sites = table_sites(TABLES, "ill", missing="drop")
    labelled, _ = sites.of_classes()
    assert labelled.infos == {}
    with pytest.raises(ValueError, match="have no tables"):
        labelled.with_design(drafted().design("main"))


def test_weights_and_offsets_are_part_of_a_study(tmp_path):
    study = drafted()
    one = study.analysis("main").model_copy(update={"weight": "age", "features": ("sex",), "class_weight": "balanced"})
    study = study.model_copy(update={"analyses": (one,)})
    for name in TABLES:
        approve(tmp_path / name, study)
    sites = open_sites(tmp_path, design=study.design("main"))
    far = FederatedLogisticRegression(0.01, class_weight="balanced").fit(sites)
    whole = pd.concat(TABLES[name].assign(site=name) for name in sorted(TABLES))
    rows = whole.dropna(subset=["age", "sex", "ill"]).query("age != 50")
    here = FederatedLogisticRegression(0.01, class_weight="balanced").fit(
        (rows[["sex"]] == "male").astype(float), rows.ill, rows.site, rows.age
    )
    np.testing.assert_allclose(far.coef_, here.coef_, atol=1e-10)
    assert far.client_sizes_ == here.client_sizes_
    np.testing.assert_allclose(
        far.infer(sites, errors="hc1").se,
        here.infer(
            (rows[["sex"]] == "male").astype(float), rows.ill, rows.site, sample_weight=rows.age, errors="hc1"
        ).se,
        rtol=1e-8,
    )
    plain = study.model_copy(update={"analyses": (one.model_copy(update={"class_weight": None}),)})
    other = sites.with_class_weight((1.0, 2.0)).design
    assert study.contains(other)
    assert not plain.contains(other)
    assert not study.contains(sites.design.model_copy(update={"weight": None}))
