"""Attacks by a server, or by sites with it, on one site's answer: each succeeds without its rule, and fails with it.

What rules of a site's policy stop (few rows, differences of row sets and of site sets, models that fish for rows) is in
tests/sites/policy/test_attacks.py, and what masks with a seed of 28 bits are worth in tests/flower/test_seed_search.py.
"""

import dataclasses
import itertools
import shutil
from collections.abc import Mapping

import numpy as np
import pandas as pd
import pytest

from cofed.losses import Logistic, Squared
from cofed.privacy import NoisedSum
from cofed.sites import Design, Feature, Scaling, SiteTable
from cofed.sites.addition import MaskedAddition
from cofed.sites.audit import verify
from cofed.sites.local import LocalSite
from cofed.sites.packing import Malformed, pack, unpack
from cofed.sites.queries import LookMessage, Message, look, sums
from cofed.sites.questions import question_bytes, question_hash, read_answer
from cofed.sites.replies import opened
from cofed.sites.secure import site_end
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.keys import SiteKeys
from cofed.sites.secure.masks import KeyStream, mask
from cofed.sites.secure.server_end import sum_request, unmasked
from cofed.sites.secure.site_end import PadUsed, RunKeys, SiteMasks, StaleCard
from cofed.sites.secure.sum_request import SumRequest, read_sum
from cofed.sites.secure.wide import RAW, SCALED, add, negated
from tests.sites.secure.worlds import MaskedLink, over, pin, tables

NAMES = ("bern", "cork", "oslo", "rome")
ROWS = 20


class Sums:
    """Sites that mask numbers of their own, and a server that asks for sums of them."""

    def __init__(self, names=NAMES):
        self.invitation = Invitation.masked()
        self.sites = {name: SiteMasks(name, SiteKeys.new()) for name in names}
        self.cards = {name: site.card("", self.invitation.run, ROWS, b"") for name, site in self.sites.items()}

    def request(self, ticket: int, cards=None) -> SumRequest:
        return sum_request(self.invitation, cards or self.cards, (ticket, 0), SCALED, {})

    def masked(self, name, request, mark, values) -> np.ndarray:
        """What a site sends."""
        site = self.sites[name]
        return site.masked(request, mark, site.run_keys("", self.invitation.run, b""), values)

    def ask(self, ticket: int, values: Mapping[str, np.ndarray | int]) -> np.ndarray:
        """The wide integers of the sum, as a server has them before it decodes them."""
        request = self.request(ticket)
        return total([self.masked(name, request, f"question {ticket}", own) for name, own in values.items()])


def total(parts):
    found = parts[0]
    for one in parts[1:]:
        found = add(found, one)
    return found


def numbers(*values):
    return np.array(values, float)


def integer(planes):
    """A wide integer as Python's."""
    return sum(int(word) << (64 * place) for place, word in enumerate(planes))


# What a server reads of one answer


def one_row_gradient() -> LookMessage:
    """A look at one logistic model of three features."""
    empty = np.zeros(0, np.int32)
    coef = np.array([0.3, -0.2, 0.1]).reshape(1, 3, 1)
    units = Scaling(np.zeros(3), np.ones(3))
    without = np.full(1, -1, np.int32)
    return LookMessage(coef, np.zeros((1, 1)), without, empty, empty.reshape(0, 0), loss=Logistic(), scaling=units)


def test_a_gradient_of_one_row_is_the_row_unless_it_is_masked():
    rng = np.random.default_rng(3)
    own = {name: pd.DataFrame(rng.normal(size=(1 + 3 * i, 3)), columns=list("abc")) for i, name in enumerate(NAMES)}
    own = {name: rows.assign(ill=rng.integers(0, 2, len(rows))) for name, rows in own.items()}
    row, message = own["bern"].iloc[0, :3].to_numpy(float), one_row_gradient()

    plain = LocalSite("bern", lambda: SiteTable(own["bern"], "bern"))
    link = MaskedLink(own)
    sites = over(link, target="ill").of_numbers()
    posed = sites.posed(look, message)
    answer = read_answer(unpack(plain.answer(posed.bytes))[1], posed.shape)
    np.testing.assert_allclose(answer.gradient.ravel() / answer.slope[0], row, rtol=1e-10)

    found = sites.ask(look, message)
    assert np.isfinite(found.gradient).all()
    _, arrays = unpack(link.replies["bern"][-1])
    read = SCALED.decode(arrays["masked"].view(np.uint64))
    assert np.isinf(read).all()  # what is uniform among 2^192 integers is no number of this size


# Sites that are told different things


def reply_of(site: LocalSite, request: bytes):
    return opened(site.name, question_hash(request), site.answer(request))


@pytest.mark.parametrize("swapped", [("bern", "cork", "oslo"), ("bern", "oslo")], ids=["all", "all but one"])
def test_a_server_that_gives_a_site_keys_of_its_own_under_the_others_names(swapped):
    """With the keys of all others it takes the masks off; where one honest key is left, it does not."""
    link = MaskedLink(tables())
    sites = over(link, target="cost", features=("a",)).of_numbers()
    posed = sites.posed(sums, Message(loss=Squared()))
    false = {name: SiteMasks(name, SiteKeys.new()) for name in swapped}
    run = link.invitation.run
    cards = link.cards | {name: one.card("", run, ROWS, b"") for name, one in false.items()}
    addition = MaskedAddition(link.invitation, cards)
    request = addition.request(posed, (1, 0))
    mark, asked = question_hash(request), sum_request(link.invitation, cards, (1, 0), RAW, {})

    planes = addition.read(posed, "rome", mark, reply_of(link.sites["rome"], request))
    zeros = np.zeros(planes.shape[1] - 2)
    keys = {name: one.run_keys("", run, b"") for name, one in false.items()}
    known = total([planes, *(one.masked(asked, mark, keys[name], zeros) for name, one in false.items())])
    read = RAW.decode(known)[:-2]
    rows = link.tables["rome"]
    truth = [len(rows), rows["a"].sum()]
    if len(swapped) == 3:
        np.testing.assert_allclose(read[:2], truth, rtol=1e-12)
    else:
        assert np.isinf(read).all()

    # The same to a site that has approved a study with the others' long-term keys.
    pin(link)
    with pytest.raises(Malformed, match="is signed by another key than the study names"):
        reply_of(link.sites["rome"], request)


def test_a_server_that_asks_one_site_about_another_model(monkeypatch):
    """In other units for one site, the sum changes by what this site alone answers."""
    link = MaskedLink(tables())
    sites = over(link, target="cost", features=("a",)).of_numbers()
    rome = link.tables["rome"]["a"].sum()

    def message(width):
        return Message(loss=Squared(), scaling=Scaling(np.zeros(1), np.full(1, width)))

    def to_rome(site, request):
        return other if site == "rome" else request

    def read(width_of_rome):
        nonlocal other
        posed, cards = sites.posed(sums, message(width_of_rome)), {name: link.cards[name] for name in sites.names}
        other = MaskedAddition(link.invitation, cards).request(posed, (len(sites.exchanges), 0))
        return sites.ask(sums, message(1.0)).X[0, 0]

    other, link.tamper = b"", to_rome
    # The checks of an honest server are none of this one's.
    monkeypatch.setattr("cofed.sites.network.opened", lambda site, mark, reply: unpack(reply))
    monkeypatch.setattr("cofed.sites.secure.server_end.is_signed", lambda *words: True)
    with pytest.raises(RuntimeError, match="masks of the 4 answers to sums do not cancel"):
        read(0.5)

    # Masks that are not bound to the question cancel all the same.
    bare = site_end.mask
    monkeypatch.setattr(site_end, "mask", lambda own, mark, kind, count: bare(own, "any question", kind, count))
    whole = sum(rows["a"].sum() for rows in link.tables.values())
    np.testing.assert_allclose(read(0.5) - whole, 2 * rome - rome, rtol=1e-9)


# One mask, two payloads


def test_two_answers_under_one_mask_tell_their_difference(monkeypatch):
    world, before, after = Sums(), numbers(1.0, 2.0), numbers(1.5, 9.0)
    request = world.request(1)
    sent = world.masked("rome", request, "question", before)
    with pytest.raises(PadUsed, match="answered with other numbers before"):
        world.masked("rome", request, "question", after)
    assert (world.masked("rome", request, "question", before) == sent).all()  # the same may be sent again

    monkeypatch.setattr(RunKeys, "use", lambda own, mark, payload: None)
    again = world.masked("rome", request, "question", after)
    np.testing.assert_array_equal(SCALED.decode(add(again, negated(sent)))[:2], after - before)


def test_a_table_with_a_new_row_has_other_masks():
    """A site with other rows does not answer a request to the old ones: its card is another."""
    link = MaskedLink(tables())
    sites = over(link, target="cost", features=("a",)).of_numbers()
    sites.ask(sums, Message(loss=Squared()))
    keys = link.sites["rome"].masks
    link.tables["rome"] = link.tables["rome"].iloc[1:]
    changed = link.started("rome")
    changed.__dict__["masks"] = keys  # the same process, but for its table
    with pytest.raises(StaleCard):
        reply_of(changed, link.requests[-1])


@pytest.mark.parametrize("restored", [True, False])
def test_the_record_of_what_was_answered_outlives_the_process(tmp_path, restored):
    own = RunKeys(tmp_path / "run")
    own.use("one", b"payload")
    again = RunKeys(tmp_path / "run")
    again.use("two", b"payload")
    again.use("one", b"payload")
    for site in (own, again):  # two processes of one site know of each other
        for mark in ("one", "two"):
            with pytest.raises(PadUsed):
                site.use(mark, b"other")
    if not restored:  # a key without its record is never used again
        (tmp_path / "run" / "pads.jsonl").unlink()
        assert RunKeys(tmp_path / "run").public != own.public
        with pytest.raises(RuntimeError, match="not the one that this process wrote to"):
            own.use("three", b"other")


def test_a_site_that_was_killed_while_it_noted_an_answer_goes_on(tmp_path):
    own, pads = RunKeys(tmp_path / "run"), tmp_path / "run" / "pads.jsonl"
    own.use("one", b"payload")
    pads.write_bytes(pads.read_bytes() + b'["two", "70')
    again = RunKeys(tmp_path / "run")
    again.use("two", b"other")  # the answer whose line was cut off did not leave
    third = RunKeys(tmp_path / "run")
    assert third.public == own.public
    third.use("two", b"other")
    with pytest.raises(PadUsed):
        third.use("one", b"other")


# Answers that are not there


class NoNoise(KeyStream):
    """What a site would send in the place of what it cannot answer, if it sent zeros."""

    def words(self, limbs, count):
        return np.zeros((limbs, count), np.uint64)


class HugeNumber(KeyStream):
    """The same, if it sent a number that everybody knows and that no sum reaches: 2^160."""

    def words(self, limbs, count):
        return np.repeat(np.array([[0], [0], [1 << 32]], np.uint64)[:limbs], count, axis=1)


@pytest.mark.parametrize("bad", [1e300, np.inf, np.nan, "all"])
def test_an_overflow_and_a_repeat_do_not_tell_a_site_s_answer(bad, monkeypatch):
    """One number of rome overflows, and then, in other units, does not: with zeros the difference is rome's answer."""
    small = {name: numbers(1.0 + i, 10.0 * i) for i, name in enumerate(NAMES)}
    large = small | {"rome": 2 if bad == "all" else numbers(bad, small["rome"][1])}

    def read(world):
        first = world.ask(1, small)
        return SCALED.decode(add(first, negated(world.ask(2, large))))[:2]

    assert np.isinf(read(Sums())[0])
    assert np.isinf(read(Sums())[1]) == (bad == "all")
    monkeypatch.setattr(site_end, "KeyStream", NoNoise)
    assert read(Sums())[0] == small["rome"][0]


@pytest.mark.parametrize("how_many", [1, 3])
def test_a_search_for_magnitudes_tells_neither_which_sites_overflow_nor_how_many(how_many, monkeypatch):
    """With a known number in the place of what overflows, the sum has how many do, and beside it what the others sent.

    With noise the sum is infinite, and no more.
    """
    world = Sums()
    values = {name: numbers(1e300 if i < how_many else 1.0, 1.0) for i, name in enumerate(NAMES)}
    request = world.request(1)
    sent = [world.masked(name, request, "question", own) for name, own in values.items()]
    assert len({one.shape for one in sent}) == 1
    found = unmasked(SCALED, sent, "sums")
    assert found.tolist() == [np.inf, 4.0]
    # No multiple of anything known is left beside the sum of the others, which would be less than 2^100.
    left = integer(total(sent)[:, 0])
    assert min(left, (1 << 192) - left) > 1 << 150

    monkeypatch.setattr(site_end, "KeyStream", HugeNumber)
    found = integer(Sums().ask(1, values)[:, 0])
    assert found >> 160 == how_many
    assert found % (1 << 160) == (4 - how_many) * integer(SCALED.encode(numbers(1.0))[:, 0])


def test_who_failed_is_not_seen_in_any_reply():
    own = {name: rows.assign(visits=rows["visits"].astype(float)) for name, rows in tables().items()}
    own["rome"].loc[3, "cost"] = 1e200  # which the query refuses: its square is infinite
    link = MaskedLink(own)
    sites = over(link, target="cost", features=("a",)).of_numbers()
    plain = [site.answer(question_bytes(sums, Message(loss=Squared()), sites.view)) for site in link.sites.values()]
    assert [unpack(reply)[0]["kind"] for reply in plain].count("QuestionRefused") == 1
    with pytest.raises(ValueError, match="one site of 4 could not answer"):
        sites.ask(sums, Message(loss=Squared()))
    heads = {site: unpack(replies[-1])[0] for site, replies in link.replies.items()}
    assert len({tuple(sorted(head)) for head in heads.values()}) == 1
    assert len({len(replies[-1]) for replies in link.replies.values()}) == 1
    assert {head["kind"] for head in heads.values()} == {""}


def asks_for(value) -> Design:
    """A design that a table fits if no row of it has this value."""
    return Design(features=(Feature(name="age", markers=(value,)),))


def test_whether_a_site_has_a_value_is_not_told_by_a_refusal():
    """A design that does not fit a table is a question about its values: plain refusals answer it, site by site."""
    ages = {name: pd.DataFrame({"age": np.arange(30, 50) + i}) for i, name in enumerate(NAMES)}
    link = MaskedLink(ages)
    sites = over(link, features=("age",))
    posed = dataclasses.replace(sites.posed(sums, Message()), view={"design": asks_for(30).model_dump(mode="json")})
    kinds = [unpack(site.answer(posed.bytes))[0]["kind"] for site in link.sites.values()]
    assert kinds == ["QuestionRefused", "", "", ""]  # only bern has somebody of 30

    addition = MaskedAddition(link.invitation, link.cards)
    request = addition.request(posed, (1, 0))
    replies = [
        addition.read(posed, name, question_hash(request), reply_of(link.sites[name], request)) for name in NAMES
    ]
    with pytest.raises(ValueError, match="one site of 4 could not answer"):
        addition.total(posed, replies)


# Replays


def test_a_request_that_is_sent_again_gives_the_same_bytes(tmp_path):
    link = MaskedLink(tables(), tmp_path)
    sites = over(link, target="cost", features=("a",)).of_numbers()
    sites.ask(sums, Message(loss=Squared()))
    before = unpack(link.replies["rome"][-1])[1]["masked"]
    for site in (link.sites["rome"], link.started("rome")):
        np.testing.assert_array_equal(unpack(site.answer(link.requests[-1]))[1]["masked"], before)


def test_a_request_of_another_run_is_not_answered():
    link = MaskedLink(tables())
    sites = over(link, target="cost", features=("a",)).of_numbers()
    sites.ask(sums, Message(loss=Squared()))
    old, run = link.requests[-1], link.invitation.run
    before = link.sites["rome"].answer(old)

    # The same question in a new run, with the other sites' cards of the old one.
    link.invitation = Invitation.masked()
    link.cards, cards = {}, dict(link.cards)
    link.gather(list(link.tables))
    mixed = cards | {"rome": link.cards["rome"]}
    posed = sites.posed(sums, Message(loss=Squared()))
    request = MaskedAddition(link.invitation, mixed).request(posed, (1, 0))
    with pytest.raises(Malformed, match="the card of 'bern' is of another study or fit"):
        reply_of(link.sites["rome"], request)
    # The same question with the new cards has other masks.
    fresh = unpack(link.sites["rome"].answer(MaskedAddition(link.invitation, link.cards).request(posed, (1, 0))))
    assert (fresh[1]["masked"] != unpack(before)[1]["masked"]).all()

    # The old run, once it is over: its keys are gone.
    link.sites["rome"].answer(pack({"kind": "end", "study": "", "run": run}, {}))
    with pytest.raises(StaleCard):
        reply_of(link.sites["rome"], old)


def test_an_old_answer_is_not_taken_for_a_new_one():
    link = MaskedLink(tables())
    sites = over(link, target="cost", features=("a",)).of_numbers()
    sites.ask(sums, Message(loss=Squared()))
    old = link.replies["rome"][-1]
    head, arrays = unpack(old)
    posed = sites.posed(sums, Message(loss=Squared()))
    addition = MaskedAddition(link.invitation, link.cards)
    mark = question_hash(addition.request(posed, (2, 0)))
    with pytest.raises(Malformed, match="the reply answers something else"):
        opened("rome", mark, old)
    with pytest.raises(Malformed, match="the answer is not signed by rome"):
        addition.read(posed, "rome", mark, ({**head, "answers": mark}, arrays))


def test_old_answers_of_the_others_do_not_unmask_a_new_one(monkeypatch):
    """Answers to an old question, from all sites but one, and that one's answer to a new one: less the old sum, the
    difference is what this site answers now and answered then. Masks of another question do not cancel."""
    others = [name for name in NAMES if name != "rome"]
    before = {name: numbers(1.0 + i) for i, name in enumerate(NAMES)}

    def read(world):
        old, new = world.request(1), world.request(2)
        sent = {name: world.masked(name, old, "old", own) for name, own in before.items()}
        mixed = [*(sent[name] for name in others), world.masked("rome", new, "new", numbers(9.0))]
        return SCALED.decode(add(total(mixed), negated(total(list(sent.values())))))[0]

    assert np.isinf(read(Sums()))
    bare = site_end.mask
    monkeypatch.setattr(site_end, "mask", lambda own, mark, kind, count: bare(own, "any question", kind, count))
    assert read(Sums()) == 9.0 - before["rome"][0]


def test_repeats_of_an_answer_with_noise_do_not_average():
    """With new noise each time, the mean of 400 answers has a twentieth of it; noise by the question stays."""
    noised, value = NoisedSum(sensitivity=2.0, sigma=10.0, size=1), numbers(0.25)
    site = SiteKeys(bytes(32), bytes(range(32)))
    tries = [str(i).encode() for i in range(400)]
    fresh = np.mean([noised.part(value, site.mark(b"noise", one)) for one in tries])
    once = noised.part(value, site.mark(b"noise", b"question"))
    again = np.mean([noised.part(value, site.mark(b"noise", b"question")) for _ in tries])
    assert abs(fresh - value) < 2
    assert again == once != value


# Sites that work together with the server


def streams_of(sites, name, others, request) -> dict[str, int]:
    """What a site adds for each of the others, as integers."""
    site = sites.sites[name]
    own = site.run_keys("", sites.invitation.run, b"")
    secrets = site.secrets(request, own)
    return {other: integer(mask({other: secrets[other]}, "question", SCALED, 2)[:, 0]) for other in others}


def test_colluding_sites_learn_the_sum_over_the_honest_ones_only():
    """All 1,013 sets of up to 8 of 10 sites, and all parts of the others: the part's masks stay unknown to them."""
    names = tuple(f"s{i}" for i in range(10))
    world = Sums(names)
    request = world.request(1)
    sent = {n: world.masked(n, request, "question", numbers()) for n in names}
    payload = integer(SCALED.encode(numbers(1.0))[:, 0])
    modulus = 1 << 192
    masks = {n: (integer(planes[:, 0]) - payload) % modulus for n, planes in sent.items()}
    added = {n: streams_of(world, n, [m for m in names if m != n], request) for n in names}
    for count in range(9):
        for colluding in itertools.combinations(names, count):
            honest = [n for n in names if n not in colluding]
            # A colluding site has the same stream as the honest one, with the other sign.
            left = {n: (masks[n] + sum(added[t][n] for t in colluding)) % modulus for n in honest}
            assert sum(left.values()) % modulus == 0
            seen = set()
            for part in itertools.chain.from_iterable(
                itertools.combinations(honest, size) for size in range(1, len(honest))
            ):
                rest = sum(left[n] for n in part) % modulus
                between = sum(added[n][m] for n in part for m in honest if m not in part) % modulus
                assert rest == between  # streams between honest sites alone, whose keys nobody else has
                seen.add(rest)
            assert len(seen) == 2 ** len(honest) - 2
            assert 0 not in seen
    # All but one: then there is nothing left to hide in, as its answer is the honest sum.
    assert (masks["s0"] + sum(added[t]["s0"] for t in names[1:])) % modulus == 0


def test_a_site_cannot_be_listed_under_two_names():
    """A site that is in a sum twice would hide itself, and no other."""
    world = Sums()
    twin = SiteMasks("lyon", world.sites["bern"].keys)
    cards = world.cards | {"lyon": twin.card("", world.invitation.run, ROWS, b"")}
    request = world.request(1, cards)
    with pytest.raises(Malformed, match="two cards have the same key"):
        read_sum(request.model_dump(mode="json"))


@pytest.mark.parametrize("change", [{"rows": 10**6}, {"site": "lyon"}, {"run": "0" * 32}, {"key": "ab" * 32}])
def test_a_card_is_what_its_site_has_signed(change):
    world = Sums()
    request = world.request(1).model_dump(mode="json")
    assert read_sum(request).names == list(NAMES)
    request["cards"][0] |= change
    with pytest.raises(Malformed, match=r"is not signed by the key that it names|each once, by name"):
        read_sum(request)


# A folder that was put back, a log that was cut


def test_a_restored_folder_shows_in_the_others_logs(tmp_path):
    link = MaskedLink(tables(), tmp_path / "keep")
    sites = over(link, target="cost", features=("a",)).of_numbers()
    sites.ask(sums, Message(loss=Squared()))
    shutil.copytree(tmp_path / "keep" / "rome", tmp_path / "copy")
    sites.ask(sums, Message(loss=Squared()))
    sites.ask(sums, Message(loss=Squared()))
    path, key = tmp_path / "keep" / "rome" / "audit.jsonl", link.sites["rome"].masks.keys.public
    others = [tmp_path / "keep" / name / "audit.jsonl" for name in NAMES if name != "rome"]
    assert verify(path, key, others).holds
    shutil.rmtree(path.parent)
    shutil.copytree(tmp_path / "copy", path.parent)
    assert verify(path, key).holds  # by itself it is whole
    found = verify(path, key, others)
    assert not found.holds
    # And what it had answered is answered with the same numbers as before.
    restored = link.started("rome")
    again, before = restored.answer(link.requests[-1]), link.replies["rome"][-1]
    np.testing.assert_array_equal(unpack(again)[1]["masked"], unpack(before)[1]["masked"])
