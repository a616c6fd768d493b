"""A log that was tampered with does not hold, and the sentence says where."""

import pytest

from cofed.sites.audit import AuditEvent, AuditLog, verify
from cofed.sites.audit.lines import line_hash, read_line
from tests.sites.audit.worlds import Signer, answer, fit


@pytest.fixture
def logs(tmp_path):
    return fit(tmp_path)


def lines_of(path):
    return path.read_bytes().splitlines(keepends=True)


def rewritten(path, change, sign=None):
    """The log with changed lines and a chain that is right again: what a site can do that wants to hide something."""
    lines = [read_line(line) for line in lines_of(path)]
    out, head = b"", lines[0].prev
    for place, line in enumerate(change(lines)):
        line = line.model_copy(update={"seq": place + 1, "prev": head})
        if sign is not None:
            line = line.model_copy(update={"signature": sign(line.to_sign())})
        out, head = out + line.encoded(), line_hash(line.encoded())
    path.write_bytes(out)


def others(logs, site):
    return [path for name, path in logs.items() if name != site]


def test_whole_logs_hold(logs):
    for site, path in logs.items():
        found = verify(path, Signer(site).public, others(logs, site))
        assert found.holds, found.problems
        assert found.site == site
        assert found.head == line_hash(lines_of(path)[-1])
        names = ", ".join(sorted(set(logs) - {site}))
        # The last line's head has travelled to nobody.
        assert found.notes == ("every line is signed with the site's key", f"6 of its heads are in the logs of {names}")


@pytest.mark.parametrize("line", range(7))
def test_every_changed_byte_is_noticed(logs, line):
    path = logs["oslo"]
    lines = lines_of(path)
    data = bytearray(lines[line])
    for place in range(0, len(data) - 1, 41):
        changed = bytearray(data)
        changed[place] ^= 1
        path.write_bytes(b"".join([*lines[:line], bytes(changed), *lines[line + 1 :]]))
        found = verify(path, Signer("oslo").public)
        assert not found.holds
        # A changed line cannot be read, is not signed, or the next one does not follow on it.
        assert found.bad_line is not None
        assert line + 1 <= found.bad_line <= line + 2


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda lines: lines[1:], "the first line is number 2: the lines before it are missing"),
        (lambda lines: lines[:2] + lines[3:], "line 3 does not follow on line 2"),
        (lambda lines: [*lines[:2], lines[3], lines[2], *lines[4:]], "line 3 does not follow on line 2"),
        (lambda lines: [*lines, lines[-1]], "line 8 does not follow on line 7"),
        (lambda lines: [*lines[:3], b"\n", *lines[3:]], "line 4 cannot be read: it is not JSON"),
    ],
    ids=["first gone", "one gone", "swapped", "doubled", "empty"],
)
def test_lines_that_are_gone_moved_or_put_in_are_noticed(logs, change, sentence):
    path = logs["oslo"]
    path.write_bytes(b"".join(change(lines_of(path))))
    found = verify(path, Signer("oslo").public)
    assert found.problems[0].startswith(sentence)
    assert found.bad_line == len(found.lines) + 1


def test_a_log_that_was_written_anew_is_noticed_by_its_signatures(logs):
    path = logs["oslo"]
    rewritten(path, lambda lines: [line.model_copy(update={"size": 1}) for line in lines])
    assert verify(path).holds  # the chain alone is right
    found = verify(path, Signer("oslo").public)
    assert found.problems == ("line 1 is not signed with the site's key",)
    rewritten(path, lambda lines: lines, Signer("rome").sign)
    assert verify(path, Signer("oslo").public).problems == ("line 1 is not signed with the site's key",)
    rewritten(path, lambda lines: [line.model_copy(update={"signature": ""}) for line in lines])
    assert verify(path, Signer("oslo").public).problems == ("line 1 is not signed",)


@pytest.mark.parametrize("kept", [1, 3, 6])
def test_a_log_that_was_cut_is_noticed_by_the_others(logs, kept):
    path = logs["oslo"]
    path.write_bytes(b"".join(lines_of(path)[:kept]))
    assert verify(path, Signer("oslo").public).holds
    found = verify(path, Signer("oslo").public, others(logs, "oslo"))
    # The others' logs hold the heads of lines 1 to 6.
    if kept == 6:
        assert found.holds
        return
    assert len(found.problems) == 2
    assert found.problems[0].startswith(f"line {kept + 2} of the log of 'bern'")
    assert "lines were cut off" in found.problems[0]


def test_a_site_that_rewrites_its_own_log_with_its_own_key_is_noticed_by_the_others(logs):
    path = logs["oslo"]
    rewritten(path, lambda lines: [*lines[:2], *lines[3:]], Signer("oslo").sign)
    assert verify(path, Signer("oslo").public).holds
    found = verify(path, Signer("oslo").public, others(logs, "oslo"))
    assert "line 4 of the log of 'bern'" in found.problems[0]


def test_a_log_that_was_put_back_and_continued_is_noticed_by_the_others(logs):
    path = logs["oslo"]
    path.write_bytes(b"".join(lines_of(path)[:4]))
    own = AuditLog(path, "oslo", Signer("oslo").sign)
    for number in range(10, 15):
        own.add(answer(number))
    assert verify(path, Signer("oslo").public).holds
    assert not verify(path, Signer("oslo").public, others(logs, "oslo")).holds


def test_two_logs_of_one_site_must_be_one_log(logs, tmp_path):
    path, copy = logs["oslo"], tmp_path / "copy.jsonl"
    copy.write_bytes(b"".join(lines_of(path)[:4]))
    copy.chmod(0o600)
    assert verify(path, None, [copy]).holds  # it was longer later
    AuditLog(copy, "oslo", Signer("oslo").sign).add(answer(10))
    assert verify(path, None, [copy]).problems == (f"from line 5 on it differs from {copy}, another log of 'oslo'",)


def test_two_answers_under_one_mask_are_noticed(tmp_path):
    own = AuditLog(tmp_path / "audit.jsonl", "oslo")
    own.add(answer(0))
    own.add(answer(1))
    own.add(answer(0))  # the same once more: no harm
    assert verify(own.path).holds
    own.add(answer(1, content="ab" * 32))
    found = verify(own.path)
    assert found.bad_line == 4
    assert found.problems[0].startswith("line 4 is another answer than line 2 to the same request")


def test_what_could_not_be_checked_is_said(tmp_path):
    signed, plain = (AuditLog(tmp_path / name, name, sign) for name, sign in (("a", Signer("a").sign), ("b", None)))
    signed.add(answer(0))
    plain.add(answer(0))
    assert verify(signed.path).notes[0] == "the signatures were not checked, for no key was given"
    assert verify(plain.path).notes[0] == "the lines are not signed"
    assert verify(plain.path).notes[1].startswith("lines cut off at the end would not show")
    assert verify(plain.path, None, [signed.path]).notes[1] == "no other site's log that was given holds a head of it"


def test_a_log_of_two_sites_does_not_hold(tmp_path):
    own = AuditLog(tmp_path / "audit.jsonl", "oslo")
    own.add(AuditEvent(event="hello"))
    own.site = "rome"
    line = own.following(verify(own.path).lines[-1], AuditEvent(event="hello"))
    own.path.write_bytes(own.path.read_bytes() + line.encoded())
    assert verify(own.path).problems == ("line 2 is of the site 'rome', the line before it of 'oslo'",)


def test_lines_that_may_have_been_changed_are_not_counted(logs):
    path = logs["oslo"]
    lines = lines_of(path)
    path.write_bytes(b"".join([*lines[:3], lines[3].replace(b'"size":1440', b'"size":9999'), *lines[4:]]))
    assert [line.seq for line in verify(path).sound] == [1, 2, 3]
    assert [line.seq for line in verify(path, Signer("oslo").public).sound] == [1, 2, 3]
    path.write_bytes(b"".join([*lines[:3], *lines[4:]]))  # one is gone: all that are left are signed
    assert [line.seq for line in verify(path, Signer("oslo").public).sound] == [1, 2, 3]
    assert [line.seq for line in verify(path).sound] == [1, 2]
    path.write_bytes(b"".join(lines))
    assert verify(path).sound == verify(path).lines
    assert "nor a changed last line without the site's key" in verify(path).notes[1]
