"""The log of what left: what is on the disk, and when."""

import errno
import json
import os
import signal
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from cofed._util.files import NotWritten
from cofed.sites.audit import AuditBroken, AuditEvent, AuditLog, verify
from cofed.sites.audit.lines import NOTHING, BadLine, line_hash, read_line
from tests.sites.audit.worlds import Signer, answer, fit, request


@pytest.fixture
def path(tmp_path):
    return tmp_path / "keep" / "audit.jsonl"


def test_lines_are_chained_private_and_say_what_left(path):
    own = AuditLog(path, "oslo")
    heads = [own.add(AuditEvent(event="hello")), own.add(answer(0)), own.add(answer(1))]
    lines = path.read_bytes().splitlines(keepends=True)
    read = [json.loads(line) for line in lines]
    assert [line["prev"] for line in read] == [NOTHING, *heads[:2]]
    assert [line_hash(line) for line in lines] == heads
    assert [line["seq"] for line in read] == [1, 2, 3]
    assert {line["site"] for line in read} == {"oslo"}
    assert read[1]["size"] == 1440
    assert read[1]["shapes"] == {"masked": [3, 60]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_same_event_has_another_head_every_time(tmp_path):
    # Heads travel: who can guess a line must not be able to tell whether it was written.
    heads = {AuditLog(tmp_path / str(copy), "oslo").add(answer(0)) for copy in range(3)}
    assert len(heads) == 3


def test_several_writers_make_one_chain(path):
    logs = [AuditLog(path, "oslo") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda number: logs[number % 4].add(answer(number)), range(40)))
    found = verify(path)
    assert found.holds
    assert len(found.lines) == 40
    assert {line.ticket for line in found.lines} == {f"{number}.0" for number in range(40)}


def test_a_line_that_was_cut_off_is_mended_and_said(path, caplog):
    own = AuditLog(path, "oslo")
    own.add(answer(0))
    with open(path, "ab") as file:
        file.write(b'{"bytes":12')
    before = verify(path)
    assert before.holds
    assert "11 bytes of one that was being written" in before.notes[0]
    AuditLog(path, "oslo").add(answer(1))
    assert "cut off after 11 bytes" in caplog.text
    found = verify(path)
    assert found.holds
    assert [line.event for line in found.lines] == ["answer", "mended", "answer"]
    assert "its answer did not leave" in found.lines[1].note


def test_a_first_line_that_was_cut_off_is_mended(path):
    AuditLog(path, "oslo")
    path.write_bytes(b"{")
    AuditLog(path, "oslo")
    assert [line.event for line in verify(path).lines] == ["mended"]


@pytest.mark.parametrize("damage", [b"odd\n", b"{}\n", b'{"format":2}\n', b"\0\n", b"[" * 100_000 + b"\n"])
def test_a_log_with_a_damaged_end_is_not_continued(path, damage):
    AuditLog(path, "oslo").add(answer(0))
    with open(path, "ab") as file:
        file.write(damage)
    with pytest.raises(AuditBroken, match=r"the last line of .* is damaged"):
        AuditLog(path, "oslo")
    assert path.read_bytes().endswith(damage)


def test_a_log_of_another_site_is_not_continued(path):
    AuditLog(path, "oslo").add(answer(0))
    with pytest.raises(AuditBroken, match="is the log of the site 'oslo', not of 'rome'"):
        AuditLog(path, "rome")


def test_a_log_that_others_can_read_is_not_continued(path):
    AuditLog(path, "oslo").add(answer(0))
    path.chmod(0o640)
    with pytest.raises(AuditBroken, match="can be read or changed by others than its owner"):
        AuditLog(path, "oslo")


@pytest.mark.parametrize("change", ["gone", "emptied", "cut", "rewritten"])
def test_a_log_that_changes_while_it_is_in_use_is_not_continued(path, change):
    own = AuditLog(path, "oslo")
    own.add(answer(0))
    first = path.read_bytes()
    own.add(answer(1))
    if change == "gone":
        path.unlink()
    elif change == "emptied":
        path.write_bytes(b"")
    elif change == "cut":
        path.write_bytes(first)
    else:
        path.unlink()
        for number in (0, 1, 2):
            AuditLog(path, "oslo").add(answer(number))
    with pytest.raises(AuditBroken, match=r"gone|has been changed"):
        own.add(answer(2))


def test_nothing_of_a_line_stays_where_the_disk_is_full(path, monkeypatch):
    own = AuditLog(path, "oslo")
    own.add(answer(0))
    before, real = path.read_bytes(), os.write

    def full(file, data):
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[:100])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(NotWritten, match=r"audit.jsonl cannot be written: No space left"):
        own.add(answer(1))
    assert path.read_bytes() == before
    monkeypatch.undo()
    own.add(answer(1))
    assert verify(path).holds


WRITER = """
import sys
from pathlib import Path
from cofed.sites.audit import AuditEvent, AuditLog
own = AuditLog(Path(sys.argv[1]), "oslo")
print("ready", flush=True)
number = 0
while True:
    print(own.add(AuditEvent(event="answer", query="look", size=number)), flush=True)
    number += 1
"""


def test_whatever_was_sent_before_a_kill_is_in_the_log(path):
    process = subprocess.Popen([sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    said = [process.stdout.readline().strip() for _ in range(20)]
    process.send_signal(signal.SIGKILL)
    said += process.stdout.read().split("\n")[:-1]  # a line of output that is whole was "sent"
    process.wait()
    process.stdout.close()
    AuditLog(path, "oslo").add(answer(0))
    found = verify(path)
    assert found.holds
    hashes = {line_hash(line.encoded()) for line in found.lines}
    assert set(said[1:]) <= hashes
    assert len(said) >= 20


@pytest.mark.parametrize(
    "fields",
    [
        {"event": "odd"},
        {"event": "answer", "size": -1},
        {"event": "answer", "request": "not a hash"},
        {"event": "answer", "heads": {"rome": "x"}},
        {"event": "answer", "epsilon": float("nan")},
        {"event": "answer", "run": "r" * 300},
        {"event": "answer", "data": [1.0]},
        {"event": "answer", "query": "\ud800"},
    ],
)
def test_what_is_no_event_is_refused(fields):
    with pytest.raises(ValidationError):
        AuditEvent(**fields)


def test_a_long_note_is_cut():
    assert AuditEvent(event="refusal", note="n" * 5000).note.endswith("n...")


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)


@given(words, words, st.lists(words, max_size=3), st.floats(0, 1e300), st.integers(0, 2**60))
def test_any_line_is_read_as_it_was_written(note, run, sites, epsilon, size):
    event = AuditEvent(event="refusal", note=note, run=run, sites=tuple(sites), epsilon=epsilon, size=size)
    own = AuditLog.__new__(AuditLog)
    own.head, own.site, own.sign = NOTHING, "oslo", Signer("oslo").sign
    line = own.following(None, event)
    data = line.encoded()
    assert data.count(b"\n") == 1
    assert read_line(data) == line
    with pytest.raises(BadLine):
        read_line(data.replace(b'{"', b'{ "', 1))


def test_a_fit_leaves_the_same_requests_at_every_site(tmp_path):
    for path in fit(tmp_path).values():
        asked = [line.request for line in verify(path).lines if line.event == "answer"]
        assert asked == [request(number) for number in range(6)]
