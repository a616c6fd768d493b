"""Standard errors by clusters that a column of the sites' tables names: masked, in studies, under a site's policy."""

import numpy as np
import pandas as pd
import pytest

from cofed.estimators import FederatedLasso, FederatedLassoCV, FederatedPoisson
from cofed.losses import Logistic
from cofed.sites import SiteTable, table_sites
from cofed.sites.policy import Policy, PolicyGuard
from cofed.sites.queries import MeatMessage, meat
from cofed.studies import Analysis, Study, StudyConsent, Variable, approve, check
from tests.sites.policy.worlds import asked, design_of, frame_of
from tests.sites.policy.worlds import over as over_sites
from tests.sites.secure.worlds import MaskedLink, over, tables

FEATURES = ("a", "b", "ward")


def with_persons(seed=0):
    """Tables in which a person has three rows; the same names are there at every site, for other persons."""
    found = tables(seed)
    return {site: frame.assign(person=[f"p{i // 3}" for i in range(len(frame))]) for site, frame in found.items()}


def together(own):
    """All rows as one frame of features, the labels, and each row's site."""
    whole = pd.concat([frame.assign(site=site) for site, frame in own.items()], ignore_index=True)
    return whole[[*FEATURES, "person"]], whole, whole["site"]


@pytest.fixture(scope="module")
def far():
    return over(MaskedLink(with_persons()), target="cost", features=FEATURES)


def test_masked_sites_have_the_errors_by_clusters_of_rows_in_this_process(far):
    X, whole, site = together(with_persons())
    here = FederatedLasso(0.05).fit(X.drop(columns="person"), whole["cost"], clients=site)
    wanted = here.infer(X, whole["cost"], site, errors="person")
    model = FederatedLasso(0.05).fit(far)
    np.testing.assert_allclose(model.infer(far, errors="person"), wanted, rtol=1e-12, atol=1e-12)
    assert "by 52 clusters" in model.inference_note_  # 14 + 8 + 11 + 19, though there are 19 names
    assert f"by {sum(-(-len(one) // 3) for one in with_persons().values())} clusters" in model.inference_note_


def test_clusters_that_a_design_names_cost_no_further_exchange(far):
    sites = far.with_columns(cluster="person")
    model = FederatedLasso(0.05).fit(sites)
    before = len(sites.exchanges)
    by_person = model.infer(sites, errors="person")
    assert [one.what for one in sites.exchanges[before:]] == ["meat"]
    with pytest.warns(UserWarning, match="standard errors by sites rest on many"):
        by_site = model.infer(sites, errors="site")
    with pytest.warns(UserWarning, match="standard errors by sites rest on many"):
        wanted = FederatedLasso(0.05).fit(far).infer(far, errors="site")
    np.testing.assert_allclose(by_site, wanted, rtol=1e-12, atol=1e-12)
    assert np.abs(by_site["se"] / by_person["se"] - 1).max() > 0.01


def test_intercepts_of_sites_are_of_sites_whatever_the_clusters():
    sites = table_sites(with_persons(), "cost", FEATURES)
    given = {"site_effects": "fixed", "tol": 1e-14}
    model = FederatedLasso(0.05, **given).fit(sites.with_columns(cluster="person"))
    np.testing.assert_allclose(model.coef_, FederatedLasso(0.05, **given).fit(sites).coef_, rtol=1e-12)


def test_one_column_may_be_groups_of_folds_and_clusters(far):
    model = FederatedLassoCV(alphas=[0.1, 0.05], cv=("person", 3)).fit(far)
    X, whole, site = together(with_persons())
    here = FederatedLassoCV(alphas=[0.1, 0.05], cv=("person", 3)).fit(X, whole["cost"], clients=site)
    np.testing.assert_allclose(model.cv_mean_, here.cv_mean_, rtol=1e-10)
    wanted = FederatedLasso(here.alpha_).fit(X.drop(columns="person"), whole["cost"], clients=site)
    wanted = wanted.infer(X, whole["cost"], site, errors="person")
    np.testing.assert_allclose(model.infer(far, errors="person")["se"], wanted["se"], rtol=1e-10)


def test_rows_without_a_cluster_are_left_out_or_refused():
    own = with_persons()
    own["rome"].loc[[0, 5, 11], "person"] = None
    with pytest.raises(ValueError, match=r"site 'rome', column 'person' has no value in 3 of 23 rows"):
        table_sites(own, "visits", FEATURES).with_columns(cluster="person")
    sites = table_sites(own, "visits", FEATURES, missing="drop").with_columns(cluster="person")
    kept = {site: frame.dropna().reset_index(drop=True) for site, frame in own.items()}
    X, whole, site = together(kept)
    wanted = FederatedPoisson(0.01).fit(X.drop(columns="person"), whole["visits"], clients=site)
    wanted = wanted.infer(X, whole["visits"], site, errors="person")
    found = FederatedPoisson(0.01).fit(sites).infer(sites, errors="person")
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(
    ("roles", "sentence"),
    [
        ({"cluster": "cost"}, "the target 'cost' can be neither"),
        ({"weight": "visits", "cluster": "visits"}, "the column 'visits' cannot be two of"),
        ({"cluster": "patient"}, "has no column 'patient'"),
    ],
)
def test_what_cannot_be_a_cluster(roles, sentence):
    with pytest.raises(ValueError, match=sentence):
        table_sites(with_persons(), "cost", FEATURES).with_columns(**roles)


def test_a_site_s_policy_wants_as_many_clusters_as_rows():
    rng = np.random.default_rng(0)
    frame = frame_of(rng.normal(size=(60, 2)), np.arange(60) % 2)
    sites, where = {"s0": 60, "s1": 60, "s2": 60, "s3": 60}, np.arange(3, dtype=np.int32)
    message = MeatMessage(np.zeros((2, 1)), np.zeros(1), where, np.zeros((0, 0)), True, loss=Logistic())
    for persons, rule in ((9, "clusters"), (10, None)):
        table = SiteTable(frame.assign(person=np.arange(60) % persons), "s0")
        case = asked(table, design_of(2).with_columns(cluster="person"), meat, message, over_sites(sites))
        found = PolicyGuard(Policy(), None, "s0").refuses(case)
        assert (None if found is None else found.rule) == rule


def test_a_study_says_clusters_and_groups_which_need_not_be_variables(tmp_path):
    own = with_persons()
    number, factor = Variable(kind="number"), Variable(kind="factor", levels=["x", "y"])
    main = {"name": "main", "family": "gaussian", "target": "cost", "alpha": 0.05, "intervals": True}
    plain = Study(
        study={"name": "demo"},
        variables={"a": number, "b": number, "ward": factor, "cost": number},
        analyses=[Analysis(**main)],
    )
    study = plain.model_copy(update={"analyses": (Analysis(**main, errors="person"),)})
    assert not list(study.mistakes())
    assert study.digest != plain.digest
    assert study.design("main").cluster.name == "person"
    for site, frame in own.items():
        assert check(study, SiteTable(frame, site)).fits
        approve(tmp_path / site, study)
    link = MaskedLink(own, consent=lambda site: StudyConsent(tmp_path / site))
    far = over(link, target="cost", design=study.design("main"))
    table = FederatedLasso(0.05).fit(far).infer(far, errors="person")
    here = table_sites(own, "cost", FEATURES)
    np.testing.assert_allclose(table, FederatedLasso(0.05).fit(here).infer(here, errors="person"), rtol=1e-12)
    with pytest.raises(ValueError, match="does not answer"):  # the study has no standard errors by sites
        FederatedLasso(0.05).fit(far).infer(far, errors="site")
