"""A site's policy in rounds of algorithms: what it forbids is not answered, whatever the server asks for."""

import functools

import numpy as np
import pytest

import cofed
from cofed.flower import client_app, serve
from cofed.sites.audit import verify
from cofed.sites.policy import TRIAL, Policy, PolicyGuard
from cofed.sites.policy.ledger import Ledger
from cofed.sites.secure.keys import SiteKeys
from tests import worlds
from tests.flower.loopback import Loopback
from tests.flower.test_faults import is_round

# Patience is for hangs only; where a run is to end without an answer, it is short.
OPTIONS = {"rounds": 2, "local_steps": 2, "deadline": 0.2, "patience": 60.0, "batch_size": 3}
WORLD = worlds.linear(sizes=(12, 15, 11, 14), names=list("abcd"))
PROBLEM, METHOD = worlds.problem(), cofed.FedDualAvg(0.02, 1.2)
STEPS = OPTIONS["rounds"] + 1  # messages to a site: one in each round, one at the end


class Sites:
    """The sites of a test, each with a folder, and a grid of those of them that take part."""

    def __init__(self, folder, **options):
        self.folder, self.options = folder, options

    def roster(self, names="abc"):
        return {name: SiteKeys.of_folder(self.folder / name).public for name in names}

    def grid(self, names="abc"):
        grid = Loopback()
        given = {"keep": lambda node: self.folder / node["site"], "load": lambda node: WORLD.client(node["site"])}
        app = client_app(PROBLEM, METHOD, **given | self.options)
        for name in names:
            grid.add(app, site=name)
        return grid

    def run(self, names="abc", **options):
        """The run, and what was said and sent in it."""
        grid = self.grid(names)
        return serve(grid, PROBLEM, METHOD, clients=len(names), **OPTIONS | options), grid

    def refused(self, rule, names="abc", **options):
        """A run in which nothing leaves the sites, for a rule of theirs."""
        result, grid = self.run(names, patience=0.5, **options)
        assert result.outcome is cofed.Outcome.STARVED
        assert {event.why for event in result.history.left_out} == {f"its rule {rule!r} forbids it"}
        assert not any(reply.content.array_records or reply.content.metric_records for _, _, reply in grid.seen)


def test_the_strict_policy_allows_rounds_with_a_roster_and_they_give_the_same_model(tmp_path):
    sites = Sites(tmp_path, policy=TRIAL)
    whole, _ = sites.run()
    assert not (tmp_path / "a" / "policy").exists()  # without rules there is nothing to remember
    strict, grid = Sites(tmp_path, roster=lambda node: sites.roster(), policy=lambda node: Policy()).run()
    assert strict.outcome is cofed.Outcome.COMPLETED
    np.testing.assert_array_equal(strict.model.coef, whole.model.coef)
    assert len(grid.seen) == 3 * (1 + STEPS)


@pytest.mark.parametrize(
    ("rule", "policy", "words"),
    [
        ("algorithms", {"questions": {"algorithms": ["FedAvg"]}}, "FedDualAvg is not among the algorithms of"),
        ("sites", {"sums": {"sites": 4}}, "the sum would be over 3 sites, with this one"),
        ("sites", {"sums": {"colluding": 2}}, "4 at least (sums.sites)"),
        ("rows", {"rows": {"site": 16}}, "this site has 15 rows; 16 must take part in a round (rows.site)"),
    ],
)
def test_a_rule_is_told_by_its_name_and_explained_in_the_sites_own_log(rule, policy, words, tmp_path, caplog):
    roster = Sites(tmp_path).roster()
    Sites(tmp_path, policy=Policy.model_validate(policy), roster=roster).refused(rule)
    assert words in caplog.text
    found = verify(tmp_path / "b" / "audit.jsonl", SiteKeys.of_folder(tmp_path / "b").public)
    assert found.holds, found.problems
    refusals = [line for line in found.lines if line.event != "hello"]
    assert refusals
    assert {(line.event, line.decision, line.query, line.rule) for line in refusals} == {
        ("refusal", "refused", "update", rule)
    }
    assert all(words in line.note for line in refusals)
    assert {line.run for line in refusals} == {line.run for line in found.lines if line.event == "hello"}


def test_a_refusal_that_is_no_rules_is_in_the_log_with_its_sentence(tmp_path):
    roster = Sites(tmp_path).roster("abcd")  # the run is over three of them
    result, _ = Sites(tmp_path, roster=roster).run(patience=0.5)
    assert result.outcome is cofed.Outcome.STARVED
    refusals = [line for line in verify(tmp_path / "b" / "audit.jsonl").lines if line.event == "refusal"]
    assert refusals
    assert all("which are not the sites of its roster" in line.note for line in refusals)


def test_an_algorithm_that_is_named_is_allowed(tmp_path):
    policy = Policy(questions={"algorithms": ["FedDualAvg"]})
    result, _ = Sites(tmp_path, policy=policy, roster=Sites(tmp_path).roster()).run()
    assert result.outcome is cofed.Outcome.COMPLETED


@pytest.mark.parametrize(
    ("masked", "roster", "plain", "is_allowed"),
    [
        ("pinned", True, False, True),
        ("required", False, False, True),
        ("required", False, True, False),
        ("optional", False, True, True),
    ],
)
def test_updates_are_masked_and_pinned_as_the_policy_asks(masked, roster, plain, is_allowed, tmp_path):
    keys = Sites(tmp_path).roster() if roster else None
    # The app would send plain updates; it is the policy that forbids it.
    sites = Sites(tmp_path, policy=Policy(sums={"masked": masked}), roster=keys, plain=True)
    if is_allowed:
        assert sites.run(plain=plain)[0].outcome is cofed.Outcome.COMPLETED
    else:
        sites.refused("masked", plain=plain)


def test_without_a_policy_the_strict_rules_hold(tmp_path, caplog):
    """An app that says nothing of rules has them all: few rows, other sites, plain updates, keys from the server."""
    roster = Sites(tmp_path).roster()
    with pytest.raises(ValueError, match=r"wants sums with sites whose keys it knows, but there is no roster: give"):
        Sites(tmp_path).grid()
    Sites(tmp_path, roster=roster, plain=True).refused("masked", plain=True)
    few = WORLD.client("a")[0][:9], WORLD.client("a")[1][:9]
    Sites(tmp_path, roster=roster, load=lambda node: few).refused("rows")
    assert "this site has 9 rows; 10 must take part in a round (rows.site)" in caplog.text
    two = {name: roster[name] for name in "ab"}
    Sites(tmp_path, roster=two).refused("sites", "ab")
    result, _ = Sites(tmp_path, roster=roster).run()
    assert result.outcome is cofed.Outcome.COMPLETED
    assert sum(Ledger.open(tmp_path / "a").days.values()) == STEPS


def test_a_site_without_a_roster_tells_a_server_nothing_of_its_data(tmp_path, caplog):
    """Where the rules are known only when the node is, the first message is refused."""
    sites = Sites(tmp_path, policy=lambda node: Policy())
    with pytest.raises(RuntimeError, match="only 0 of 3 sites"):
        sites.run(patience=0.5, checkpoint=tmp_path / "run")
    assert "its rule 'masked' forbids it" in (tmp_path / "run" / "progress.jsonl").read_text()
    assert "does not say who it is" in caplog.text


@pytest.mark.parametrize("key", ["per_day", "in_all"])
@pytest.mark.parametrize("is_kept", [True, False], ids=["on disk", "in memory"])
def test_rounds_are_counted_over_runs(key, is_kept, tmp_path, monkeypatch):
    """A run and a round of the next are allowed: also where a new process answers, if the count is on disk."""
    days = ["2026-01-01"]
    monkeypatch.setattr("cofed.flower.site.PolicyGuard", functools.partial(PolicyGuard, day=lambda: days[-1]))
    options = {"policy": Policy(sums={"masked": "required"}, questions={key: STEPS + 1})}
    sites = Sites(tmp_path, **options if is_kept else options | {"keep": None})
    grid = sites.grid()
    assert serve(grid, PROBLEM, METHOD, clients=3, **OPTIONS).outcome is cofed.Outcome.COMPLETED
    grid = sites.grid() if is_kept else grid
    before = len(grid.seen)
    result = serve(grid, PROBLEM, METHOD, clients=3, **OPTIONS | {"patience": 0.5})
    assert result.outcome is cofed.Outcome.STARVED
    assert int(result.history["round"][-1]) == 1
    assert {event.why for event in result.history.left_out} == {"its rule 'exchanges' forbids it"}
    sent = [message for _, message, reply in grid.seen[before:] if reply.content.array_records]
    assert len(sent) == 3
    assert all(is_round(message, 0) for message in sent)
    days.append("2026-01-02")
    patience = {"patience": OPTIONS["patience"] if key == "per_day" else 0.5}
    result = serve(grid, PROBLEM, METHOD, clients=3, **OPTIONS | patience)
    assert result.outcome is (cofed.Outcome.COMPLETED if key == "per_day" else cofed.Outcome.STARVED)


def test_a_message_that_is_asked_again_counts_once_under_masks_and_twice_where_it_is_seen(tmp_path):
    for plain, counted in ((False, STEPS), (True, STEPS + 1)):
        folder, lost = tmp_path / str(plain), []
        sites = Sites(folder, policy=Policy(sums={"masked": "optional"}), plain=True)
        grid = sites.grid()

        def fault(site, message, reply, lost=lost):
            if site == "c" and is_round(message, 1) and not lost:
                lost.append(reply)
                return None
            return reply

        grid.fault = fault
        result = serve(grid, PROBLEM, METHOD, clients=3, plain=plain, **OPTIONS)
        assert (result.outcome, len(lost)) == (cofed.Outcome.COMPLETED, 1)
        assert sum(Ledger.open(folder / "c").days.values()) == counted
        assert sum(Ledger.open(folder / "a").days.values()) == STEPS


def test_runs_with_and_without_a_site_are_refused_as_they_differ_by_its_update(tmp_path):
    sites = Sites(tmp_path, policy=Policy(sums={"masked": "required"}))
    assert sites.run("abcd")[0].outcome is cofed.Outcome.COMPLETED
    sites.refused("site sets")


def test_a_lost_ledger_ends_all_answers(tmp_path):
    sites = Sites(tmp_path, policy=Policy(sums={"masked": "required"}))
    assert sites.run()[0].outcome is cofed.Outcome.COMPLETED
    for name in "abc":
        (tmp_path / name / "policy" / "ledger.safetensors").unlink()
    sites.refused("ledger")


class Renamed(cofed.FedAvg):
    """A method of one's own."""


@pytest.mark.parametrize(("allowed", "is_allowed"), [("FedAvg", False), (f"{__name__}.Renamed", True)])
def test_an_algorithm_of_one_s_own_goes_by_its_module(allowed, is_allowed, caplog):
    policy = Policy(questions={"algorithms": [allowed]}, sums={"masked": "required"})
    client_app(PROBLEM, Renamed(0.1), lambda node: WORLD.client("a"), policy=policy)
    assert ("lets this site take part in no round" in caplog.text) is not is_allowed


# Norms


def poisoned(node):
    """The sites' data, of which one has its labels in other units: a mistake, or not."""
    X, y = WORLD.client(node["site"])
    return X, y * (1e6 if node["site"] == "b" else 1)


@pytest.mark.parametrize("plain", [False, True])
def test_an_update_that_is_too_long_is_cut_at_the_site(plain, tmp_path, caplog):
    """Without a bound one site decides the model. With one, it moves each round by no more than the bound."""
    options = {"policy": TRIAL, "plain": True}
    honest, _ = Sites(tmp_path / "honest", **options).run(plain=plain)
    wrong, _ = Sites(tmp_path / "wrong", **options, load=poisoned).run(plain=plain)
    assert np.abs(wrong.model.coef).max() > 1e3
    assert "is cut to" not in caplog.text
    bound, world = 0.05, TRIAL.model_copy(update={"updates": Policy(updates={"norm": 0.05}).updates})
    bounded, _ = Sites(tmp_path / "bounded", **options | {"policy": world}, load=poisoned).run(plain=plain)
    assert "the norm" in caplog.text
    assert "is cut to 0.05 (updates.norm of its policy)" in caplog.text
    # FedDualAvg adds 1.2 times the mean update to z, and soft thresholds, which do not enlarge, make w of z.
    assert np.linalg.norm(bounded.model.coef) <= OPTIONS["rounds"] * 1.2 * bound * (1 + 1e-9)
    wide = TRIAL.model_copy(update={"updates": Policy(updates={"norm": 1e9}).updates})
    same, _ = Sites(tmp_path / "wide", **options | {"policy": wide}).run(plain=plain)
    np.testing.assert_array_equal(same.model.coef, honest.model.coef)  # what is short is sent as it is


def test_compressed_updates_have_no_norm_to_be_bounded(tmp_path):
    small = cofed.Compressed(METHOD, cofed.TopK(0.5))
    policy = Policy(sums={"masked": "optional"}, updates={"norm": 1.0})
    app = client_app(PROBLEM, small, lambda node: WORLD.client(node["site"]), plain=True, policy=policy)
    grid = Loopback()
    for name in "abc":
        grid.add(app, site=name)
    result = serve(grid, PROBLEM, small, clients=3, plain=True, **OPTIONS | {"patience": 0.5})
    assert result.outcome is cofed.Outcome.STARVED
    assert all("bounds the norm of its updates" in event.why for event in result.history.left_out)


def test_a_policy_that_is_none_is_refused(tmp_path):
    with pytest.raises(TypeError, match=r"policy must be a cofed\.sites\.policy\.Policy, got dict"):
        Sites(tmp_path, policy={"rows": {"site": 3}}).grid()
