"""Who takes part and whom to ask next, as pure functions: no network, no clock."""

import dataclasses

import pytest
from flwr.app import ConfigRecord, RecordDict

import cofed
from cofed.flower.collection import ABSENT, LATE, NOT_FINITE, Collection
from cofed.flower.membership import SETTLE, Membership
from cofed.flower.messages import Identity, SiteInfo
from cofed.flower.settings import NetworkSpec, ServeOptions
from cofed.flower.transport import Reply, Request, Trouble
from tests import worlds

PROBLEM, METHOD = worlds.problem(), cofed.FedAvg(0.1)
INFO = SiteInfo.of("a", PROBLEM, worlds.linear(sizes=(5,), names=["a"]))


def membership(**options):
    spec = NetworkSpec.checked(PROBLEM, METHOD, ServeOptions(rounds=2, plain=True, **options))
    return Membership.begin(spec, {})


def said(node, **changes):
    """What a node answers who is asked who it is."""
    info = dataclasses.replace(INFO, **changes)
    head = Identity.of(PROBLEM, METHOD).entries() | info.entries()
    return Reply(Request(node), RecordDict({"cofed": ConfigRecord(head)}))


def joined(one, *replies):
    for reply in replies:
        one, events = one.introduce(reply)
        assert [event.kind for event in events] == ["joined"]
    return one


def test_new_nodes_are_asked_once_and_failed_ones_again():
    one, new = membership(clients=2).look_around(frozenset({1, 2}))
    assert new == {1, 2}
    one, new = one.look_around(frozenset({1, 2, 3}))
    assert new == {3}
    assert one.node_failed(2).look_around(frozenset({1, 2, 3}))[1] == {2}
    one, _ = one.look_around(frozenset({1}))
    assert one.look_around(frozenset({1, 2}))[1] == {2}  # it was away


def test_a_site_is_present_while_its_node_is_online_and_the_newer_of_two_nodes_is_asked():
    one, _ = membership(clients=1).look_around(frozenset({1, 2}))
    one = joined(one, said(1))
    assert one.present == {"a"}
    two, events = one.introduce(said(2))
    assert [event.kind for event in events] == ["replaced", "joined"]
    assert (one.nodes, two.nodes) == ({"a": 1}, {"a": 2})
    assert two.look_around(frozenset({1}))[0].present == set()


def test_strangers_and_changed_data_are_refused_with_an_event():
    one = joined(membership(clients=["a", "b"], quorum=1), said(1)).settle()
    for reply, words in (
        (said(2, site="c"), "c was refused: it is not one of the run's sites"),
        (said(2, samples=6), "a was refused: its data are not those of before"),
        (said(2, site="b", features=[7]), "b was refused: the sites 'a' and 'b' have different features: [6] and [7]"),
        (Reply(Request(2), trouble=Trouble("", "no")), "a node could not say who it is: no"),
    ):
        same, [event] = one.introduce(reply)
        assert same is one
        assert (event.kind, event.words) == ("refused", words)
    late = joined(one, said(2, site="b", samples=9))
    assert (one.agreement.most, late.agreement.most) == (5, 9)


@pytest.mark.parametrize(
    ("options", "seconds", "quiet", "complete"),
    [
        ({"clients": 1}, 0.0, 0.0, True),
        ({"clients": 2}, 999.0, 999.0, False),
        ({"clients": ["a", "b"], "quorum": 1}, 1.0, 1.0, False),
        ({"clients": ["a", "b"], "quorum": 1}, 121.0, 1.0, True),
        ({"clients": ["a", "b"]}, 121.0, 1.0, False),
        ({"quorum": 1}, 999.0, SETTLE - 1, False),
        ({"quorum": 1}, 11.0, SETTLE + 1, True),
        ({"quorum": 2}, 999.0, 999.0, False),
    ],
)
def test_when_a_run_can_begin_with_one_site_there(options, seconds, quiet, complete):
    one, _ = membership(**options).look_around(frozenset({1}))
    assert joined(one, said(1)).complete(seconds, quiet) is complete


def test_a_silent_site_is_asked_at_growing_intervals_and_one_that_came_back_at_once():
    one, _ = joined(membership(clients=1), said(1)).look_around(frozenset({1}))
    found = Collection(("a",))
    assert found.due(one, 0.0) == ["a"]
    found = found.asked("a", 1, 0.0, deadline=10.0)
    assert [found.due(one, clock) for clock in (9.0, 11.0)] == [[], ["a"]]
    found = found.asked("a", 1, 11.0, deadline=10.0)
    assert [found.due(one, clock) for clock in (30.0, 32.0)] == [[], ["a"]]
    moved, _ = joined(one.look_around(frozenset())[0], said(2)).look_around(frozenset({2}))
    assert found.due(moved, 12.0) == ["a"]
    assert found.heard("a", (), {}).due(moved, 99.0) == []


def test_a_round_is_hopeless_only_if_nobodys_update_is_finite_and_every_missing_site_has_a_reason():
    found = Collection(("a", "b", "c")).asked("a", 1, 0.0, 1.0).troubled("b", NOT_FINITE, 0.0)
    assert not found.hopeless
    assert found.closed().troubles == {"a": LATE, "b": NOT_FINITE, "c": ABSENT}
    everybody = found.troubled("a", NOT_FINITE, 0.0).troubled("c", NOT_FINITE, 0.0)
    assert everybody.hopeless
    assert not everybody.heard("a", (), {}).hopeless
