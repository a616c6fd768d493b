"""What real sites log of a real fit."""

import hashlib

import numpy as np
import pytest

from cofed import estimators
from cofed.sites.audit import AuditLog, verify
from cofed.sites.audit.summary import in_words
from cofed.sites.guard import AbstractGuard, OpenGuard, Refusal
from cofed.sites.link import SitesMissing
from cofed.sites.packing import pack, unpack
from cofed.sites.secure.invitation import PLAIN
from cofed.sites.secure.keys import SiteKeys
from tests.sites.secure.worlds import MaskedLink, over, tables

TABLES = {name: rows.drop(columns=["ill", "visits"]) for name, rows in tables(sizes=(40, 23, 31)).items()}


class Rule(AbstractGuard):
    """Refuses every question but the first."""

    def __init__(self, is_silent, counts_rows=False):
        self.refusal, self.asked = Refusal("points", "That was enough.", is_silent, counts_rows), 0

    def refuses(self, asked):
        self.asked += 1
        return self.refusal if self.asked > 1 else None


def fitted(link):
    """A fit over a link."""
    return estimators.FederatedLasso(alpha=0.05).fit(over(link, target="cost"))


def logs(folder):
    """The verdict on the log of each site, by its own key and beside the others'."""
    paths = {name: folder / name / "audit.jsonl" for name in TABLES}
    found = {}
    for name, path in paths.items():
        others = [other for other in paths.values() if other != path]
        found[name] = verify(path, SiteKeys.of_folder(folder / name).public, others)
    return found


def test_the_logs_of_a_fit_hold_and_witness_each_other(tmp_path):
    link = MaskedLink(TABLES, tmp_path)
    fitted(link)
    for name, found in logs(tmp_path).items():
        assert found.holds, found.problems
        assert "all masked" in in_words(found)[0]
        answers = [line for line in found.lines if line.event == "answer"]
        received = [unpack(reply)[1]["masked"] for reply in link.replies[name] if unpack(reply)[1]]
        # The hash of what left is the hash of what the server has got.
        assert [line.content for line in answers] == [hashlib.sha256(part.tobytes()).hexdigest() for part in received]
        assert [line.size for line in answers] == [part.nbytes for part in received]
        assert {line.sites for line in answers} == {tuple(sorted(TABLES))}
        assert {line.run for line in answers} == {link.invitation.run}
        assert any("of its heads are in the logs of" in note for note in found.notes)
        assert found.lines[0].event == "hello"
        assert found.lines[0].size > 100


def test_no_value_of_a_row_is_in_a_log(tmp_path):
    fitted(MaskedLink(TABLES, tmp_path))
    for name, rows in TABLES.items():
        text = (tmp_path / name / "audit.jsonl").read_text()
        for value in rows.select_dtypes(float).to_numpy().ravel():
            assert repr(float(value)) not in text
        keys = SiteKeys.of_folder(tmp_path / name)
        assert keys.signing.hex() not in text
        assert keys.secret.hex() not in text


def test_a_plain_answer_is_logged_as_such_and_its_hash_can_be_made_by_nobody_else(tmp_path):
    link = MaskedLink(TABLES, tmp_path, PLAIN)
    fitted(link)
    found = logs(tmp_path)["oslo"]
    assert found.holds
    assert "plain: not masked" in in_words(found)[0]
    sent = [unpack(reply)[1] for reply in link.replies["oslo"]]
    plain = {hashlib.sha256(b"".join(a[k].tobytes() for k in sorted(a))).hexdigest() for a in sent if a}
    assert plain
    assert not plain & {line.content for line in found.lines}


@pytest.mark.parametrize(
    ("is_silent", "counts_rows", "note"),
    [(False, False, "That was enough."), (False, True, "its rule 'points' forbids it"), (True, False, "")],
)
def test_a_refusal_is_logged_with_its_rule(tmp_path, is_silent, counts_rows, note):
    """And with its sentence, which is for the site, unless it tells how many rows have a value."""
    rule = Rule(is_silent, counts_rows)
    link = MaskedLink(TABLES, tmp_path, guard=lambda site: rule if site == "oslo" else OpenGuard())
    with pytest.raises(Exception, match=r"points|could not answer"):
        fitted(link)
    lines = verify(tmp_path / "oslo" / "audit.jsonl").lines
    refused = [line for line in lines if line.decision == "refused"]
    assert {line.rule for line in refused} == {"points"}
    assert {line.event for line in refused} == {"answer" if is_silent else "refusal"}
    assert {line.note for line in refused} == {note}


def test_nothing_leaves_where_the_line_cannot_be_written(tmp_path, monkeypatch):
    link = MaskedLink(TABLES, tmp_path)
    sites = over(link, target="cost")
    before = {name: len(replies) for name, replies in link.replies.items()}

    def full(self, event):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(AuditLog, "add", full)
    with pytest.raises(SitesMissing, match="OSError"):
        estimators.FederatedLasso(alpha=0.05).fit(sites)
    for name, replies in link.replies.items():
        for reply in replies[before[name] :]:
            assert unpack(reply)[1] == {}


def test_a_request_that_is_no_request_is_logged_as_a_failure(tmp_path):
    link = MaskedLink(TABLES, tmp_path)
    link.sites["oslo"].answer(b"garbage")
    link.sites["oslo"].answer(pack({"kind": "odd"}, {"x": np.zeros(3)}))
    assert [line.event for line in verify(tmp_path / "oslo" / "audit.jsonl").lines] == ["failure", "failure"]
