"""How a fit over sites elsewhere ends where one of them refuses or is missing: with a sentence that says what to do."""

import contextlib
import json
import math
import re

import pytest

from cofed.cli.fit import perform
from cofed.cli.messages import BadEnd
from cofed.fitting import FitPlan, FitTables, PreparedFit
from cofed.sites import ChosenColumns, SiteRefused
from cofed.sites.link import SitesMissing
from cofed.sites.local import Consent
from cofed.sites.network import NetworkSites
from cofed.sites.policy import Policy, PolicyGuard, advice
from cofed.sites.policy.advice import ADVICE
from cofed.sites.secure.invitation import Invitation
from tests.pages import ROOT
from tests.sites.secure.worlds import MaskedLink, tables

COLUMNS = ChosenColumns("cost", ("a", "b"))
FEW_FOLDS = Policy.model_validate({"sums": {"masked": "required"}, "rows": {"fold": 20}})


class LossyLink(MaskedLink):
    """Some sites never come, and others fall silent after so many questions."""

    def __init__(self, tables):
        super().__init__(tables)
        self.away: frozenset[str] = frozenset()
        self.silent_after: dict[str, int] = {}

    def gather(self, wanted):
        gone = {name: "it did not come" for name in wanted if name in self.away}
        if gone:
            raise SitesMissing(f"after 1 s, waiting for {', '.join(gone)}", gone)
        return super().gather(wanted)

    def ask_all(self, request, sites, read):
        gone = {name: "it did not answer" for name in sites if self.silent_after.get(name, 99) <= len(self.requests)}
        if gone:
            raise SitesMissing(f"exchange ended without {', '.join(gone)}", gone)
        return super().ask_all(request, sites, read)


def fitted(link, out, plan, drop=False, columns=COLUMNS):
    """A fit over these sites, as a command does it."""

    @contextlib.contextmanager
    def begun(events):
        sites = NetworkSites.open(link, list(link.tables), columns, None, drop)
        yield PreparedFit(plan, FitTables(out, "cost"), {}, sites.infos).job(sites, out, "cofed serve", drop)

    perform(begun, out, watch=False, resumable=True)


def test_a_refusal_by_a_rule_is_an_end_and_says_what_to_do(tmp_path):
    link = MaskedLink(tables(), guard=lambda site: PolicyGuard(FEW_FOLDS, None, site))
    with pytest.raises(BadEnd) as caught:
        fitted(link, tmp_path, FitPlan("gaussian"))
    said = str(caught.value)
    assert re.match(
        r"the site \w+ does not answer: its rule 'folds' forbids it\. What can be done: ask for fewer", said
    )
    assert "own log" in said


def test_what_fails_silently_is_an_end_without_a_name(tmp_path):
    frames = tables()
    frames["rome"] = frames["rome"].assign(cost=1e200)
    with pytest.raises(BadEnd, match=r"one site of 4 could not answer the question .* Let each site look") as caught:
        fitted(MaskedLink(frames), tmp_path, FitPlan("gaussian", alpha=0.1))
    assert "rome" not in str(caught.value)


RELEASES = {"by a file": ({"rome": "..."}, ()), "by the study": ({}, ["rome"]), "not at all": ({}, ["oslo"])}


def lossy(when, agreed):
    """Sites of a study with keys of which rome is lost, and has agreed to that or not."""
    link = LossyLink(tables())
    keys = {name: site.masks.keys.public for name, site in link.sites.items()}
    releases, releasable = RELEASES[agreed]
    link.invitation = Invitation.masked("5f0c", keys, releases, frozenset(releasable))
    link.away = frozenset({"rome"} if when == "never came" else ())
    link.silent_after["rome"] = 1
    return link


@pytest.mark.parametrize(("when", "agreed"), [("never came", "by a file"), ("fell silent", "by the study")])
def test_a_site_that_is_missing_and_has_agreed_is_left_out_and_named(tmp_path, when, agreed):
    fitted(lossy(when, agreed), tmp_path, FitPlan("gaussian", alpha=0.1), drop=True)
    assert (tmp_path / "summary.txt").read_text().startswith("WITHOUT rome: the model is of the other sites' rows.")
    assert "WITHOUT rome" in (tmp_path / "report.html").read_text()


@pytest.mark.parametrize("when", ["never came", "fell silent"])
def test_a_site_of_a_study_with_keys_must_agree(tmp_path, when):
    with pytest.raises(BadEnd, match=r"rome must agree to that first, .* cofed study release .* --release"):
        fitted(lossy(when, "not at all"), tmp_path, FitPlan("gaussian", alpha=0.1), drop=True)


def test_a_fit_does_not_go_on_with_one_masked_site(tmp_path):
    link = LossyLink(tables(sizes=(40, 23)))
    link.silent_after["rome"] = 1
    with pytest.raises(BadEnd, match="oslo would be left, and the answers of a single site cannot be masked"):
        fitted(link, tmp_path, FitPlan("gaussian", alpha=0.1), drop=True)


class Agreeing(Consent):
    """What a site agrees to that has approved a study by whose words rome agrees to sums with and without it."""

    def releasable(self, study):
        return frozenset({"rome"})


def strict(agreed, rule="rows", masked="required"):
    """Sites of a study with keys of which rome's own policy forbids it to answer."""
    sums = {"masked": masked, "sites": 99 if rule == "sites" else 3}
    others = Policy.model_validate({"sums": {"masked": masked}})
    policies = {"rome": Policy.model_validate({"sums": sums, "rows": {"site": 1000 if rule == "rows" else 10}})}
    link = MaskedLink(
        tables(),
        guard=lambda site: PolicyGuard(policies.get(site, others), None, site),
        consent=lambda site: Agreeing() if agreed == "by the study" else Consent(),
    )
    keys = {name: site.masks.keys.public for name, site in link.sites.items()}
    releases, releasable = RELEASES[agreed]
    link.invitation = Invitation.masked("5f0c", keys, releases, frozenset(releasable))
    return link


def test_a_site_whose_rule_forbids_an_answer_is_left_out_where_it_has_agreed(tmp_path):
    fitted(strict("by the study"), tmp_path, FitPlan("gaussian", alpha=0.1), drop=True)
    summary = (tmp_path / "summary.txt").read_text()
    assert summary.startswith("WITHOUT rome: the model is of the other sites' rows.")
    assert "its rule 'rows' forbids it" in (tmp_path / "report.html").read_text()


def test_a_site_may_refuse_already_what_stands_for_missing_values(tmp_path):
    link = strict("by the study", masked="optional")  # how many rows a site has is told by itself
    for frame in link.tables.values():
        frame.loc[:5, "a"] = math.nan
    columns = ChosenColumns("cost", ("a", "b"), missing="impute")
    fitted(link, tmp_path, FitPlan("gaussian", alpha=0.1), drop=True, columns=columns)
    assert (tmp_path / "summary.txt").read_text().startswith("WITHOUT rome: the model is of the other sites' rows.")
    kinds = [json.loads(line)["kind"] for line in (tmp_path / "progress.jsonl").read_text().splitlines()]
    assert kinds.count("begin") == 1


@pytest.mark.parametrize(
    ("link", "drop", "sentence"),
    [
        (strict("by the study"), False, "rome does not answer: its rule 'rows' forbids it. What can be done"),
        (strict("not at all"), True, "its rule 'rows' forbids it. It cannot go on without rome: rome must agree"),
        (strict("by the study", "sites"), True, "rome does not answer: its rule 'sites' forbids it. What can be done"),
    ],
    ids=["not told to", "not released", "a rule about all sites"],
)
def test_else_a_rule_that_forbids_an_answer_ends_the_fit(tmp_path, link, drop, sentence):
    with pytest.raises(BadEnd) as caught:
        fitted(link, tmp_path, FitPlan("gaussian", alpha=0.1), drop=drop)
    assert sentence in str(caught.value)


def test_there_is_advice_for_every_rule_that_a_server_hears_of():
    rows = re.findall(r"^\| `([a-z ]+)` \| ", (ROOT / "docs" / "policy.md").read_text(), re.MULTILINE)
    silent = {"dominance", "leverage", "steps", "weights"}
    assert set(rows) - silent <= set(ADVICE)
    assert "for rome to say" in advice(SiteRefused("no", "rome"))
