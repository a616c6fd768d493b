"""Times to an event in tables: named columns, checked at the site, masked over a network, under the site's policy."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from cofed.estimators import FederatedCox, FederatedLasso
from cofed.losses import Efron, Squared
from cofed.sites import Folds, QuestionRefused, TableMismatch, Target, table_sites
from cofed.sites.link import SitesMissing
from cofed.sites.packing import Malformed
from cofed.sites.policy import Policy, points
from cofed.sites.queries import (
    LifeTableMessage,
    LookMessage,
    MeatMessage,
    Message,
    ProductMessage,
    look,
    sums,
)
from cofed.sites.question_checks import check_loss
from tests.estimators import survival
from tests.sites.policy.worlds import Guarded, federation
from tests.sites.secure.worlds import MaskedLink, over

DAYS = Target(name="days", event="dead")


def frame(n, seed=0, entries=False):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3))
    death, end = rng.exponential(np.exp(-X[:, 0])), rng.exponential(2.0, n)
    days = np.ceil(20 * np.minimum(death, end)) / 20
    table = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "days": days, "dead": death <= end})
    return table.assign(since=np.floor(days * 4) / 8) if entries else table


SIZES = {"oslo": 40, "rome": 25, "bern": 30, "bonn": 30}
TABLES = {name: frame(n, seed) for seed, (name, n) in enumerate(SIZES.items())}


@pytest.mark.parametrize("entries", [pytest.param(False, marks=pytest.mark.slow), True])
def test_masked_sites_find_what_is_found_in_this_process(entries):
    own = {name: frame(len(table), seed, entries) for seed, (name, table) in enumerate(TABLES.items())}
    target = DAYS.model_copy(update={"entry": "since"}) if entries else DAYS
    near = FederatedCox(0.02).fit(table_sites(own, target))
    far = FederatedCox(0.02).fit(over(MaskedLink(own), target=target))
    np.testing.assert_allclose(far.coef_, near.coef_, rtol=1e-10, atol=1e-13)
    assert far.certificate_.converged
    whole = pd.concat(own.values())
    y = whole[["since", "days", "dead"] if entries else ["days", "dead"]].to_numpy(float)
    sites = np.repeat(list(own), [len(table) for table in own.values()])
    rows = FederatedCox(0.02).fit(whole[["a", "b", "c"]].to_numpy(), y, clients=sites)
    np.testing.assert_allclose(near.coef_, rows.coef_, rtol=1e-9, atol=1e-12)


def test_what_is_wrong_with_times_is_said_with_the_site():
    own = TABLES | {"rome": TABLES["rome"].assign(days=-1.0)}
    with pytest.raises(TableMismatch, match=r"site 'rome': of the target 'days', times must be >= 0, but 25 of 25"):
        table_sites(own, DAYS)
    with pytest.raises(TableMismatch, match=r"no site has a column 'died'"):
        table_sites(TABLES, Target(name="days", event="died"))
    with pytest.raises(ValueError, match=r"the target 'dead' is among the features"):
        table_sites(TABLES, DAYS, ["a", "dead"])


def test_each_estimator_takes_targets_of_its_own_kind():
    with pytest.raises(ValueError, match="FederatedLasso: y must be numbers, but is times to an event"):
        FederatedLasso().fit(table_sites(TABLES, DAYS))
    with pytest.raises(ValueError, match=r"FederatedCox: .*times to an event need a time and an event"):
        FederatedCox().fit(table_sites(TABLES, "days", ["a"]))
    far = over(MaskedLink(TABLES), target=DAYS)
    with pytest.raises(QuestionRefused, match="is times to an event"):
        far.of_numbers()
    with pytest.raises(SitesMissing, match="Squared, is not one of times to an event"):
        far.ask(sums, Message(loss=Squared()))
    numbers = over(MaskedLink(TABLES), target="days", features=("a",))
    with pytest.raises(QuestionRefused, match="no times to an event"):
        numbers.of_times()
    with pytest.raises(SitesMissing, match="Efron, is one of times to an event"):
        numbers.ask(sums, Message(loss=Efron()))


def message(models, p, seed=0):
    rng = np.random.default_rng(seed)
    return LookMessage(
        coef=0.3 * rng.normal(size=(models, p, 1)),
        intercept=np.zeros((models, 1)),
        without=rng.integers(-1, 2, models).astype(np.int32),
        closer=np.zeros(1, np.int32),
        where=np.arange(p, dtype=np.int32)[None],
        folds=Folds(2),
        loss=Efron(),
    )


def test_a_gradient_is_the_rows_times_what_the_policy_judges():
    sites = table_sites({"oslo": TABLES["oslo"]}, DAYS)
    rows, asked = sites.rows, message(5, 3)
    found = sites.ask(look, asked)
    weights = points.multipliers(asked, rows.X, rows.y, rows.folds(Folds(2)))
    np.testing.assert_allclose(rows.X.T @ weights[:, :5], found.gradient[..., 0].T, atol=1e-12)
    assert weights.shape == (40, 6)
    direction = np.random.default_rng(1).normal(size=(2, 3, 1))
    bent = ProductMessage(asked.coef[0], np.zeros(1), direction, np.zeros((2, 1)), loss=Efron())
    hessian = len(rows.X) * survival.pooled(asked.coef[0, :, 0], rows.X, rows.y, rows.site, "efron")[2]
    moved = rows.X.T @ points.multipliers(bent, rows.X, rows.y, np.zeros(40))
    np.testing.assert_allclose(moved.T, direction[..., 0] @ hessian, rtol=1e-9)


def test_rows_with_weights_and_offsets_are_judged_by_what_they_are_multiplied_with():
    own = {"oslo": TABLES["oslo"].assign(w=np.linspace(0.5, 2, 40), o=np.sin(np.arange(40)))}
    sites, asked = table_sites(own, DAYS, ["a", "b", "c"]).with_columns(weight="w", offset="o"), message(5, 3)
    rows = sites.rows
    weights = points.multipliers(asked, rows.X, rows.y, rows.folds(Folds(2)), rows.offset, rows.weight)
    np.testing.assert_allclose(rows.X.T @ weights[:, :5], sites.ask(look, asked).gradient[..., 0].T, atol=1e-12)
    scores = MeatMessage(asked.coef[0], np.zeros(1), np.arange(3, dtype=np.int32), np.zeros((0, 0)), loss=Efron())
    alone = points.multipliers(scores, rows.X, rows.y, np.zeros(40), rows.offset, rows.weight)
    whole = LookMessage(asked.coef[:1], np.zeros((1, 1)), np.full(1, -1, np.int32), *no_hessian(), loss=Efron())
    slope = points.multipliers(whole, rows.X, rows.y, np.zeros(40), rows.offset, rows.weight)
    np.testing.assert_allclose(alone, slope**2, rtol=1e-12)


def no_hessian():
    return np.zeros(0, np.int32), np.zeros((0, 0), np.int32)


def test_a_policy_lets_robust_errors_of_weighted_rows_through_and_no_life_table():
    table = frame(400).assign(w=1 + np.arange(400) % 2, o=np.cos(np.arange(400)), ward=np.arange(400) // 8)
    design = table_sites({"all": table}, DAYS, ["a", "b", "c"]).with_columns("w", "o", None, "ward").design
    sites = federation(table, design, 4)
    far, own = Guarded(sites.tables, design, sites.guards), [one.rows(design) for one in sites.tables.values()]
    weight, offset = (np.concatenate([getattr(one, name) for one in own]) for name in ("weight", "offset"))
    pairs = np.concatenate([one.cluster + 100 * m for m, one in enumerate(own)])
    far.rows = dataclasses.replace(far.rows, weight=weight, offset=offset, cluster=pairs)
    model = FederatedCox(0.02).fit(far)
    names = np.repeat(list(sites.tables), [len(one.frame) for one in sites.tables.values()])
    whole = pd.concat([one.frame for one in sites.tables.values()], ignore_index=True)
    X, y, beside = whole[["a", "b", "c"]].to_numpy(), whole[["days", "dead"]].to_numpy(float), {"clients": names}
    beside |= {"sample_weight": whole["w"].to_numpy(float), "offset": whole["o"].to_numpy()}
    near = FederatedCox(0.02).fit(X, y, **beside)
    np.testing.assert_allclose(model.coef_, near.coef_, rtol=1e-8, atol=1e-11)
    for errors, own in (("hc1", "hc1"), ("ward", whole["ward"].to_numpy())):
        found = model.infer(far, errors=errors)
        np.testing.assert_allclose(found["se"], near.infer(X, y, **beside, errors=own)["se"], rtol=1e-7)
    with pytest.raises(Malformed, match="life tables and log-rank tests are of rows that count alike"):
        check_loss(LifeTableMessage(np.zeros(0, np.int32), np.array([1.0]), loss=Efron()), design)


def guarded(table, policy=None):
    design = table_sites({"all": table}, DAYS).design
    sites = federation(table, design, 4, policy)
    return Guarded(sites.tables, design, sites.guards)


def test_the_default_policy_lets_a_fit_through_and_guards_rare_events():
    table = frame(400)
    model = FederatedCox(0.02).fit(guarded(table))
    assert model.certificate_.converged
    rare = table.assign(dead=np.where(np.arange(400) % 4 == 1, np.arange(400) == 1, table["dead"]))
    sites = guarded(rare)
    with pytest.raises(ValueError, match="cells"):
        FederatedCox(0.02).fit(sites)
    few = guarded(frame(60), Policy(rows={"site": 1, "atom": 1, "fold": 1, "cell": 1}))
    with pytest.raises(QuestionRefused, match="points"):
        few.ask(look, message(40, 3))
