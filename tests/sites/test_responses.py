"""Several responses in tables: named columns, masked over a network, under the site's policy."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from cofed.estimators import FederatedCox, FederatedLasso, FederatedMultiTaskLasso, FederatedMultiTaskLassoCV
from cofed.losses import Squared
from cofed.sites import QuestionRefused, Scaling, SiteTable, TableMismatch, Target, table_sites
from cofed.sites.link import SitesMissing
from cofed.sites.queries import Message, sums
from cofed.sites.questions import question_bytes, read_question
from tests.sites.policy.worlds import Guarded, alone, federation
from tests.sites.secure.worlds import MaskedLink, over

PRESSURES = Target(name="systolic", responses=("diastolic",))


def frame(n, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) + seed
    Y = X[:, [0]] * [8.0, 5.0] + rng.normal(size=(n, 2)) + [130.0, 80.0]
    return pd.DataFrame({"systolic": Y[:, 0], **dict(zip("abc", X.T, strict=True)), "diastolic": Y[:, 1]})


TABLES = {name: frame(n, seed) for seed, (name, n) in enumerate({"oslo": 60, "rome": 45, "bern": 50}.items())}


def test_masked_sites_find_what_is_found_in_this_process():
    near = FederatedMultiTaskLassoCV(n_alphas=6, cv=3).fit(table_sites(TABLES, PRESSURES))
    sites = over(MaskedLink(TABLES), target=PRESSURES)
    far = FederatedMultiTaskLassoCV(n_alphas=6, cv=3).fit(sites)
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-10, atol=1e-12)
    assert far.responses_.tolist() == ["systolic", "diastolic"]
    assert far.alpha_ == pytest.approx(near.alpha_, rel=1e-10)
    whole = pd.concat(TABLES.values())
    names = np.repeat(list(TABLES), [len(table) for table in TABLES.values()])
    X, Y = whole[["a", "b", "c"]], whole[["systolic", "diastolic"]]
    rows = FederatedMultiTaskLasso(far.alpha_).fit(X, Y, clients=names)
    np.testing.assert_allclose(far.coef_, rows.coef_, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(far.score(sites), rows.score(X, Y), rtol=1e-9)
    np.testing.assert_allclose(far.infer(sites)["se"], rows.infer(X, Y, names)["se"], rtol=1e-8)
    single = FederatedMultiTaskLasso(0.5).fit(over(MaskedLink(TABLES), target="systolic", features=("a", "b")))
    assert single.coef_.shape == (1, 2)


def test_what_is_wrong_with_responses_is_said_with_the_site():
    with pytest.raises(TableMismatch, match="no site has a column 'pulse'"):
        table_sites(TABLES, Target(name="systolic", responses=("pulse",)))
    text = TABLES | {"rome": TABLES["rome"].assign(diastolic="high")}
    with pytest.raises(TableMismatch, match="column 'diastolic' holds numbers at 'bern', 'oslo', but text at 'rome'"):
        table_sites(text, PRESSURES)
    with pytest.raises(ValueError, match="the columns of the target must differ"):
        table_sites(TABLES, Target(name="systolic", responses=("systolic",)))
    with pytest.raises(ValidationError, match="neither classes nor times"):
        Target(name="days", event="dead", responses=("cost",))
    gap = TABLES | {"bern": TABLES["bern"].assign(diastolic=lambda t: t["diastolic"].mask(t.index < 4))}
    assert table_sites(gap, PRESSURES, missing="drop").sizes == (46, 60, 45)


def test_each_estimator_takes_targets_of_its_own_kind():
    sites = table_sites(TABLES, PRESSURES)
    with pytest.raises(ValueError, match="FederatedLasso: y must be numbers, but is several responses"):
        FederatedLasso().fit(sites)
    with pytest.raises(ValueError, match=r"FederatedCox: .*times to an event need a time and an event"):
        FederatedCox().fit(sites)
    oslo = TABLES["oslo"]
    model = FederatedMultiTaskLasso().fit(oslo[["a", "b", "c"]], oslo[["systolic", "diastolic"]])
    with pytest.raises(ValueError, match="was fitted to 2 responses, but the sites have 1"):
        model.score(table_sites(TABLES, "systolic", ["a", "b", "c"]))
    far = over(MaskedLink(TABLES), target=PRESSURES)
    with pytest.raises(QuestionRefused, match="the target is several responses, 'systolic', 'diastolic'"):
        far.of_numbers()


@pytest.mark.parametrize(
    ("loss", "scaling"),
    [
        (Squared(), None),
        (Squared(responses=3), None),
        (Squared(responses=2), Scaling(np.zeros(3), np.ones(3), (1.0, 2.0, 3.0), 1.0)),
    ],
)
def test_a_site_refuses_questions_about_other_responses(loss, scaling):
    far = over(MaskedLink(TABLES), target=PRESSURES)
    with pytest.raises(SitesMissing, match=r"the question is about \d responses, and the target has 2 here"):
        far.ask(sums, Message(loss=loss, scaling=scaling))


def test_centres_of_responses_travel_as_they_are():
    asked = Message(loss=Squared(responses=2), scaling=Scaling(np.zeros(1), np.ones(1), (130.25, 1 / 3), 2.0))
    found = read_question(question_bytes(sums, asked)).message.scaling
    assert (found.label_centre, found.label_size) == ((130.25, 1 / 3), 2.0)


def test_the_policy_counts_responses_as_columns_whose_products_are_told():
    table = frame(60, 0)
    design = table_sites({"all": table}, PRESSURES).design

    def guarded(per_row):
        few = {"site": 1, "atom": 1, "fold": 1, "cell": 1}
        policy = alone(parameters={"per_row": per_row}, rows=few)
        sites = federation(table, design, 3, policy)
        return Guarded({name: SiteTable(one.frame, name) for name, one in sites.tables.items()}, design, sites.guards)

    model = FederatedMultiTaskLasso(0.5).fit(guarded(4.01 / 60))
    assert model.certificate_.converged
    with pytest.raises(
        ValueError, match="does not answer: parameters"
    ):  # three features, and a response beside the first
        FederatedMultiTaskLasso(0.5).fit(guarded(3.99 / 60))
