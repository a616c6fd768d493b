"""Questions over Flower, on a Grid in this process: the sums of sites in this process, whatever a site does."""

import json

import jax
import numpy as np
import pandas as pd
import pytest
from flwr.app import Array, ArrayRecord, Error, Message, RecordDict

from cofed import estimators
from cofed.flower import link, site_app, sites
from cofed.flower.link import FlowerLink
from cofed.flower.progress import ProgressLog
from cofed.flower.run_folder import RunFolder
from cofed.losses import Squared
from cofed.sites import Folds, QuestionRefused, SiteTable, TableMismatch, table_sites
from cofed.sites import queries as asked
from cofed.sites.link import SitesMissing
from cofed.sites.packing import pack, unpack
from cofed.sites.policy import TRIAL
from cofed.sites.secure.keys import SiteKeys
from cofed.studies import approve, draft, invitation_to
from cofed.studies.schema import StudySite
from tests.flower.loopback import Loopback

RNG = np.random.default_rng(0)
OPTIONS = {"clients": "oslo rome bern", "target": "cost", "patience": 20.0}
QUESTION = asked.Message(loss=Squared(), folds=Folds(2))


def table(n):
    """Rows of one site."""
    X = RNG.normal(size=(n, 3))
    costs = X @ [1.0, -2.0, 0.0] + RNG.normal(size=n)
    return pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "c": X[:, 2], "ward": RNG.choice(["x", "y"], n), "cost": costs})


TABLES = {"oslo": table(40), "rome": table(23), "bern": table(31)}


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Nothing here takes time."""
    monkeypatch.setattr(link, "PAUSE", 0.01)
    monkeypatch.setattr(link, "LOOK_AROUND", 0.0)
    monkeypatch.setattr(link, "AGAIN", 0.05)


def grid_of(tables=TABLES, fault=None):
    """A Grid with a node for each site."""
    grid = Loopback(fault)
    for name, rows in tables.items():
        grid.add(site_app(lambda node, rows=rows: rows, policy=TRIAL), site=name)
    return grid


def is_question(message):
    """Whether a message asks more than who a node is."""
    return unpack(link.payload(message))[0]["kind"] == "question"


def faulty(change, times=10**6):
    """A fault of rome in its first answers."""
    left = [times]

    def fault(site, message, reply):
        if site != "rome" or not is_question(message) or left[0] == 0:
            return reply
        left[0] -= 1
        return change(message, reply)

    return fault


def expected():
    """The answer in this process."""
    return table_sites(TABLES, "cost").of_numbers().ask(asked.sums, QUESTION)


def assert_same(one, two):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


def test_the_sums_are_those_of_sites_in_this_process():
    far = sites(grid_of(), **OPTIONS)
    assert far.names == ("bern", "oslo", "rome")
    assert far.feature_names == ("a", "b", "c", "ward[y]")
    assert_same(far.of_numbers().ask(asked.sums, QUESTION), expected())


@pytest.mark.parametrize(
    "estimator",
    [
        estimators.FederatedLasso(alpha=0.05),
        estimators.FederatedElasticNet(alpha=0.05, l1_ratio=0.5),
        estimators.FederatedLassoCV(cv=3),
        estimators.FederatedStandardScaler(),
    ],
    ids=lambda estimator: type(estimator).__name__,
)
def test_an_estimator_finds_what_it_finds_in_this_process(estimator):
    far = estimator.fit(sites(grid_of(), **OPTIONS))
    found = {name: np.array(value) for name, value in vars(far).items() if name in ("coef_", "mean_", "var_", "alpha_")}
    assert found
    near = estimator.fit(table_sites(TABLES, "cost"))
    for name, value in found.items():
        np.testing.assert_allclose(value, getattr(near, name), rtol=1e-12, atol=1e-14)


def test_rows_may_be_arrays():
    grid = Loopback()
    for name, rows in TABLES.items():
        X, y = rows[["a", "b", "c"]].to_numpy(), rows["cost"].to_numpy()
        grid.add(site_app(lambda node, X=X, y=y: (X, y), policy=TRIAL), site=name)
    far = sites(grid, clients=3)
    assert far.feature_names == ("x0", "x1", "x2")
    total = far.of_numbers().ask(asked.sums, asked.Message(loss=Squared()))
    np.testing.assert_allclose(total.labels[0, 0], sum(rows["cost"].sum() for rows in TABLES.values()), rtol=1e-12)


# Faults


def with_bytes(change):
    """A reply with other bytes."""

    def changed(message, reply):
        reply.content = link.content(change(link.payload(reply)))
        return reply

    return changed


def with_arrays(make):
    """A reply with other numbers."""

    def changed(data):
        head, arrays = unpack(data)
        return pack(head, {name: make(array) for name, array in arrays.items()})

    return with_bytes(changed)


def emptied(message, reply):
    reply.content = RecordDict({})
    return reply


def of_pickles(message, reply):
    array = Array(dtype="uint8", shape=(4,), stype="cloudpickle", data=b"\x80\x04garbage")
    reply.content = RecordDict({link.PART: ArrayRecord({"bytes": array})})
    return reply


FAULTS = {
    "nan": (with_arrays(lambda a: a * np.nan), "rome: the answer is not finite"),
    "shape": (with_arrays(lambda a: a[:0]), "expected float64"),
    "float32": (with_arrays(lambda a: a.astype(np.float32)), "expected float64"),
    "garbage": (with_bytes(lambda data: b"garbage"), "not one of cofed's"),
    "cut": (with_bytes(lambda data: data[:-8]), "cut off"),
    "format": (with_bytes(lambda data: data[:7] + b"\x07" + data[8:]), "format 7, this is cofed's format 1"),
    "empty": (emptied, "not one of cofed's"),
    "pickle": (of_pickles, "cloudpickle"),
}


MASKED_FAULTS = {
    "other numbers": (with_arrays(lambda a: a + 1), "rome: the answer is not signed by rome"),
    "shape": (with_arrays(lambda a: a[:0]), "expected int64[6, 16]"),
    "float": (with_arrays(lambda a: a.astype(np.float64)), "expected int64[6, 16]"),
    "cut": (with_bytes(lambda data: data[:-8]), "cut off"),
}
BAD = [(True, name) for name in FAULTS] + [(False, name) for name in MASKED_FAULTS]


@pytest.mark.parametrize(("plain", "name"), BAD)
def test_a_bad_answer_is_asked_for_again_and_then_named(plain, name, tmp_path):
    change, words = (FAULTS if plain else MASKED_FAULTS)[name]
    good = sites(grid_of(fault=faulty(change, times=2)), plain=plain, **OPTIONS).of_numbers()
    assert_same(good.ask(asked.sums, QUESTION), expected())
    bad = sites(grid_of(fault=faulty(change)), plain=plain, log=tmp_path, **OPTIONS).of_numbers()
    with pytest.raises(SitesMissing, match="ended without rome after") as caught:
        bad.ask(asked.sums, QUESTION)
    assert words in str(caught.value)
    assert list(caught.value.sites) == ["rome"]
    events = [json.loads(line) for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert any(event["kind"] == "trouble" and words.partition("rome: ")[2] in event["words"] for event in events)


def test_a_silent_site_ends_the_fit_and_the_others_can_begin_anew(tmp_path):
    fault = faulty(lambda message, reply: None)
    far = sites(grid_of(fault=fault), log=tmp_path, **(OPTIONS | {"patience": 0.5}))
    with pytest.raises(SitesMissing, match=r"ended without rome after .* \(rome: it did not answer\)") as caught:
        estimators.FederatedLasso(alpha=0.05).fit(far)
    others = far.without(list(caught.value.sites))
    found = estimators.FederatedLasso(alpha=0.05).fit(others)
    near = estimators.FederatedLasso(alpha=0.05).fit(table_sites({n: TABLES[n] for n in ("oslo", "bern")}, "cost"))
    np.testing.assert_allclose(found.coef_, near.coef_, rtol=1e-12)
    assert others.left_out == ("rome",)


def test_a_node_that_failed_is_asked_again():
    def failed(message, reply):
        return Message(Error(0, "the process was killed"), reply_to=message)

    far = sites(grid_of(fault=faulty(failed, times=5)), **OPTIONS).of_numbers()
    assert_same(far.ask(asked.sums, QUESTION), expected())


def test_a_site_that_comes_back_at_another_node_is_asked_there():
    grid = grid_of(fault=faulty(lambda message, reply: None))
    far = sites(grid, **OPTIONS).of_numbers()
    pull, looks = grid.pull_messages, []

    def pulled(numbers):
        looks.append(1)
        if len(looks) == 5:  # a new process of rome, while one waits for the old
            grid.fault = lambda site, message, reply: reply
            grid.add(site_app(lambda node: TABLES["rome"], policy=TRIAL), site="rome")
        return pull(numbers)

    grid.pull_messages = pulled
    assert_same(far.ask(asked.sums, QUESTION), expected())


def test_a_site_with_other_data_is_not_let_in():
    grid = grid_of()
    far = sites(grid, **(OPTIONS | {"patience": 0.5})).of_numbers()
    gone = next(node for node, (_, context) in grid.nodes.items() if context.node_config["site"] == "rome")
    del grid.nodes[gone]
    grid.add(site_app(lambda node: TABLES["rome"].iloc[1:]), site="rome")
    with pytest.raises(SitesMissing, match="without rome"):
        far.ask(asked.sums, QUESTION)


def test_what_a_site_refuses_is_said_at_once():
    tables = TABLES | {"rome": TABLES["rome"].assign(cost=1e200)}
    far = sites(grid_of(tables), plain=True, **OPTIONS).of_numbers()
    with pytest.raises(QuestionRefused, match="the site rome does not answer: y must be of a size"):
        far.ask(asked.sums, QUESTION)


def test_tables_that_do_not_fit_are_named():
    tables = TABLES | {"rome": TABLES["rome"].rename(columns={"b": "bmi"})}
    with pytest.raises(TableMismatch, match="site 'rome' has no column 'b'"):
        sites(grid_of(tables), **OPTIONS)


def test_sites_that_do_not_come_are_named():
    with pytest.raises(SitesMissing, match=r"after 0\.3 s, 3 sites are there \(bern, oslo, rome\); waiting for paris"):
        sites(grid_of(), clients=["oslo", "rome", "bern", "paris"], target="cost", patience=0.3)


def test_who_is_there_is_said_in_words():
    with pytest.raises(SitesMissing, match=r"after 0\.3 s, no site is there; waiting for oslo$"):
        sites(Loopback(), clients=["oslo"], target="cost", patience=0.3)
    with pytest.raises(SitesMissing, match=r"1 site is there \(oslo\); waiting for rome$"):
        sites(grid_of({"oslo": TABLES["oslo"]}), clients=["oslo", "rome"], target="cost", patience=0.3)


def test_a_node_with_another_app_is_no_site():
    grid = grid_of()
    other = Loopback()
    other.add(site_app(lambda node: 1 / 0), site="paris")
    grid.nodes[99] = other.nodes[1]
    assert sites(grid, **OPTIONS).names == ("bern", "oslo", "rome")


@pytest.mark.parametrize("after", [1, 2, 4])
def test_a_killed_server_goes_on_to_the_same_bits(tmp_path, after):
    options, estimator = OPTIONS | {"target": "ward"}, estimators.FederatedLogisticRegression(alpha=0.01)
    whole = estimator.fit(sites(grid_of(), log=tmp_path / "whole", **options)).coef_.tobytes()

    class Killed(BaseException):
        pass

    def kill(kind, **details):
        if kind == "exchange" and len(broken.exchanges) > after:
            raise Killed

    broken = sites(grid_of(), log=tmp_path / "log", **options)
    broken.exchanges.listeners.append(kill)
    with pytest.raises(Killed):
        estimator.fit(broken)
    broken.network.log.close()
    again = sites(grid_of(), log=tmp_path / "log", **options)
    known = len(again.network.log.entries)
    assert known >= after - 1
    assert estimator.fit(again).coef_.tobytes() == whole
    assert len(again.network.log.entries) > known


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"grid": None}, "grid must be the flwr.serverapp.Grid"),
        ({"clients": 0}, "clients must be"),
        ({"clients": ["oslo", "oslo"]}, "different names"),
        ({"target": 3}, "target must be"),
        ({"features": 3}, "features must be"),
        ({"missing": "forget"}, "missing must be"),
        ({"patience": -1.0}, "patience must be"),
        ({"log": 3}, "log must be"),
        ({"study": "study.toml"}, "study must be a cofed.studies.Study"),
        ({"plain": "no"}, "plain must be"),
    ],
)
def test_bad_arguments_are_refused_in_words(change, sentence):
    given = {"grid": grid_of(), **OPTIONS, **change}
    with pytest.raises((TypeError, ValueError), match=sentence):
        sites(given.pop("grid"), **given)


def test_an_app_needs_functions():
    with pytest.raises(TypeError, match="load must be a function"):
        site_app(3)
    with pytest.raises(TypeError, match="keep must be a function"):
        site_app(lambda node: None, keep="folder")
    with pytest.raises(TypeError, match=r"policy must be a cofed.sites.policy.Policy, got str"):
        site_app(lambda node: None, policy="policy.toml")


def test_a_site_without_a_policy_goes_by_strict_rules():
    grid = Loopback()
    for name, rows in TABLES.items():
        grid.add(site_app(lambda node, rows=rows: rows), site=name)
    with pytest.raises(SitesMissing, match="the site rome does not answer: its rule 'masked' forbids it"):
        sites(grid, **(OPTIONS | {"patience": 0.5}))


def strict_grid(tmp_path):
    """Sites by strict rules, each with a folder, and a study that names the keys of all."""
    infos = {name: SiteTable(rows, name).info() for name, rows in TABLES.items()}
    keys = {name: SiteKeys.of_folder(tmp_path / name).public for name in TABLES}
    named = tuple(StudySite(name=name, key=key) for name, key in keys.items())
    study = draft(infos, target="cost").study.model_copy(update={"sites": named})
    grid = Loopback()
    for name, rows in TABLES.items():
        keep = tmp_path / name
        grid.add(site_app(lambda node, rows=rows: rows, keep=lambda node, keep=keep: keep), site=name)
    return grid, study


def test_a_site_that_approves_while_it_is_awaited_is_asked_again(tmp_path, monkeypatch):
    """Its process need not be started again; until then it is said what it can do."""
    monkeypatch.setattr(link, "REFUSED", 0.02)
    grid, study = strict_grid(tmp_path)
    for name in ("oslo", "bern"):
        approve(tmp_path / name, study)
    told = []

    class Approving(FlowerLink):
        def tell(self, kind, words, site=None):
            told.append(words)
            if kind == "refused":
                approve(tmp_path / "rome", study)

    log = ProgressLog(RunFolder(tmp_path / "log"))
    infos = Approving(grid, 20.0, log, invitation_to(study)).gather(list(TABLES))
    assert sorted(infos) == sorted(TABLES)
    [refused] = [words for words in told if "does not answer" in words]
    assert "its rule 'masked' forbids it. What can be done: it answers under masks only, for a study" in refused


def test_a_site_that_nobody_can_change_ends_the_waiting_at_once(tmp_path):
    """As on one machine, where nobody would approve anything while a fit waits for ten minutes."""
    grid, study = strict_grid(tmp_path)
    log = ProgressLog(RunFolder(tmp_path / "log"))
    with pytest.raises(QuestionRefused, match="does not answer: its rule 'masked' forbids it"):
        FlowerLink(grid, 1e6, log, invitation_to(study), is_final=True).gather(list(TABLES))


def test_a_site_answers_only_what_it_has_approved(tmp_path):
    infos = {name: SiteTable(rows, name).info() for name, rows in TABLES.items()}
    approve(tmp_path / "rome", draft(infos, target="cost").study)
    grid = grid_of({name: rows for name, rows in TABLES.items() if name != "rome"})
    rows = TABLES["rome"].assign(secret=1.0)
    grid.add(site_app(lambda node: rows, keep=lambda node: tmp_path / node["site"], policy=TRIAL), site="rome")
    far = sites(grid, **OPTIONS)
    assert "secret" not in far.infos["rome"].by_name
    assert_same(far.of_numbers().ask(asked.sums, QUESTION), expected())
    with pytest.raises(QuestionRefused, match="the site rome does not answer: the question is not part of a study"):
        sites(grid, **(OPTIONS | {"features": ["b"], "target": "a"})).of_numbers().ask(asked.sums, QUESTION)
