"""Attacks that masks alone do not stop, since each sum is an honest one: a site's rules do."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from cofed.losses import Logistic, Squared
from cofed.sites import Design, Feature, QuestionRefused, Scaling, SiteTable
from cofed.sites.guard import OpenGuard
from cofed.sites.local import LocalSite
from cofed.sites.packing import pack, unpack
from cofed.sites.policy import Policy, PolicyGuard
from cofed.sites.queries import GramMessage, Message, gram, sums
from cofed.sites.secure.cards import release_words
from cofed.sites.secure.invitation import Invitation
from tests.sites.policy.worlds import asked, design_of, frame_of, logistic_rows
from tests.sites.policy.worlds import over as sum_over
from tests.sites.secure.worlds import MaskedLink, over, pin, tables

MASKED = Policy.model_validate({"sums": {"masked": "required"}})  # strict, but for a study that is approved


def strict(site: str) -> PolicyGuard:
    return PolicyGuard(MASKED, None, site)


def in_units(width: float) -> Message:
    return Message(loss=Squared(), scaling=Scaling(np.zeros(1), np.full(1, width)))


@pytest.mark.parametrize("width", [1.0, 1 + 1e-9], ids=["same question", "nearly the same"])
def test_a_server_that_says_that_a_site_is_gone(width):
    """The sum over all sites less the sum without rome is rome's answer, whatever the masks."""

    def both(link):
        sites = over(link, target="cost", features=("a",)).of_numbers()
        whole = sites.ask(sums, in_units(1.0)).X[0, 0]
        return whole - sites.without(["rome"]).of_numbers().ask(sums, in_units(width)).X[0, 0]

    rome = tables()["rome"]["a"].sum()
    assert both(MaskedLink(tables())) == pytest.approx(rome, rel=1e-6)
    with pytest.raises(QuestionRefused, match="its rule 'site sets' forbids it"):
        both(MaskedLink(tables(), guard=strict))

    # Unless rome itself has agreed to that, by the key that the study names.
    for signer in ("rome", "oslo"):
        link = pin(MaskedLink(tables(), guard=strict))
        words = link.sites[signer].masks.keys.sign(release_words("", "rome"))
        link.invitation = dataclasses.replace(link.invitation, releases={"rome": words})
        if signer == "rome":
            assert both(link) == pytest.approx(rome, rel=1e-6)
            continue
        with pytest.raises(QuestionRefused, match="its rule 'site sets' forbids it"):
            both(link)


def test_two_approved_studies_that_differ_by_a_site(tmp_path):
    """Each is honest, but the difference of their sums is rome's answer. New processes, with only keys in common."""

    def answered(folder, study, names, guard):
        own = {name: tables()[name] for name in names}
        link = pin(MaskedLink(own, folder, Invitation.masked(study * 64), lambda site: guard(folder / site, site)))
        return over(link, target="cost", features=("a",)).of_numbers().ask(sums, in_units(1.0)).X[0, 0]

    def both(folder, guard):
        whole = answered(folder, "1", ("oslo", "rome", "bern", "cork"), guard)
        return whole - answered(folder, "2", ("oslo", "bern", "cork"), guard)

    rome = tables()["rome"]["a"].sum()
    assert both(tmp_path / "open", lambda keep, site: OpenGuard()) == pytest.approx(rome, rel=1e-9)
    with pytest.raises(QuestionRefused, match="its rule 'site sets' forbids it"):
        both(tmp_path / "strict", lambda keep, site: PolicyGuard(Policy(), keep, site))


def test_a_server_that_asks_for_a_plain_answer_in_a_masked_fit():
    own = {name: guard(name) for name, guard in (("open", lambda site: OpenGuard()), ("strict", strict))}
    for rule, guard in own.items():
        link = MaskedLink(tables(), guard=lambda site, guard=guard: guard)
        sites = over(link, target="cost", features=("a",)).of_numbers()
        head, arrays = unpack(link.sites["rome"].answer(sites.posed(sums, Message(loss=Squared())).bytes))
        assert (head["trouble"], bool(arrays)) == (("", True) if rule == "open" else (FORBIDDEN, False))


FORBIDDEN = "its rule 'masked' forbids it"


@pytest.mark.parametrize("policy", [Policy(), MASKED], ids=["strict", "masked"])
def test_a_server_that_counts_rows_by_calling_values_missing(policy):
    """With 35 as what marks a missing value, one row fewer is left where somebody is 35."""
    table = pd.DataFrame({"age": np.arange(30, 50)})
    design = Design(features=(Feature(name="age", markers=(35,)),), missing="drop")
    request = pack({"kind": "rows", "study": "", "view": {"design": design.model_dump(mode="json")}}, {})

    def reply(guard):
        return unpack(LocalSite("oslo", lambda: SiteTable(table, "oslo"), guard=guard).answer(request))[0]

    assert reply(OpenGuard())["rows"] == 19
    refused = reply(PolicyGuard(policy, None, "oslo"))
    assert refused["trouble"] == FORBIDDEN
    assert "rows" not in refused


def test_a_site_that_lies_about_its_size():
    """A million rows of somebody else make room for any question, where nobody may be working with the server."""
    X, y = logistic_rows(12, 9)
    table, design = SiteTable(frame_of(X, y), "s0"), design_of(9)
    message = GramMessage(np.zeros(9), np.zeros(1), np.arange(9, dtype=np.int32), np.zeros(1), loss=Logistic())
    rows = {"s0": 12, "s1": 12, "s2": 10**6}

    def rule(colluding):
        policy = Policy.model_validate({"sums": {"colluding": colluding}})
        refusal = PolicyGuard(policy, None, "s0").refuses(asked(table, design, gram, message, sum_over(rows)))
        return None if refusal is None else refusal.rule

    assert rule(0) is None
    assert rule(1) == "parameters"


def test_a_fit_that_is_not_of_an_approved_study_gets_nothing_from_a_strict_site():
    link = MaskedLink(tables(), guard=lambda site: PolicyGuard(Policy(), None, site), invitation=Invitation.masked())
    with pytest.raises(QuestionRefused, match=FORBIDDEN):
        over(link, target="cost", features=("a",)).of_numbers().ask(sums, Message(loss=Squared()))
