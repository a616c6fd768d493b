"""The log of exchanges."""

import dataclasses

import numpy as np
import pytest

from cofed.sites.exchange_log import Entry, ExchangeLog, read_log

ENTRY = Entry(0, "look", 1, "hash", 10, 20, 0.5, ("oslo", "rome"), {"a": 1})
SUM = {"loss": np.array([1.0, np.inf]), "none": np.zeros((0, 3))}


def log_in(folder, *entries):
    """A log with these entries, closed."""
    log = ExchangeLog(folder)
    log.begin({"sites": ["oslo", "rome"]})
    for entry in entries:
        log.add(entry, SUM)
    log.close()


def test_a_log_gives_back_what_it_was_told(tmp_path):
    log_in(tmp_path, ENTRY, dataclasses.replace(ENTRY, question="other"))
    log = ExchangeLog(tmp_path)
    log.begin({"sites": ("oslo", "rome")})
    entry, arrays = log.recall("look", "hash")
    assert dataclasses.replace(entry, answer="") == ENTRY
    assert {name: array.tobytes() for name, array in arrays.items()} == {n: a.tobytes() for n, a in SUM.items()}
    assert arrays["none"].shape == (0, 3)
    assert log.recall("look", "other")[0].number == 1
    assert log.recall("look", "third") is None
    assert [line.get("what") for line in read_log(tmp_path)] == [None, "look", "look"]


def test_another_question_is_refused(tmp_path):
    log_in(tmp_path, ENTRY)
    with pytest.raises(ValueError, match=r"exchange 0 .* asked another question \(look\) than this fit asks \(gram\)"):
        ExchangeLog(tmp_path).recall("gram", "different")


def test_another_fit_is_refused(tmp_path):
    log_in(tmp_path)
    with pytest.raises(ValueError, match="is of a fit with other sites"):
        ExchangeLog(tmp_path).begin({"sites": ["oslo"]})


def test_half_a_line_is_as_good_as_none(tmp_path):
    log_in(tmp_path, ENTRY)
    path = tmp_path / "exchanges.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"number": 1, "what": "lo')  # killed while it was written
    log = ExchangeLog(tmp_path)
    assert log.recall("look", "hash") is not None
    assert log.recall("look", "next") is None
    log.add(dataclasses.replace(ENTRY, question="next"), SUM)
    log.close()
    assert ExchangeLog(tmp_path).entries[1].question == "next"
    assert path.read_bytes().startswith(whole)


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(b"garbage")])
def test_a_damaged_sum_is_refused(tmp_path, damage):
    log_in(tmp_path, ENTRY)
    damage(tmp_path / "exchange-000000.safetensors")
    with pytest.raises(ValueError, match="missing or damaged"):
        ExchangeLog(tmp_path).recall("look", "hash")


def test_a_damaged_log_is_refused(tmp_path):
    (tmp_path / "exchanges.jsonl").write_text('{"sites": []}\n{"garbage": 1}\n')
    with pytest.raises(ValueError, match="is damaged"):
        ExchangeLog(tmp_path)


def test_one_fit_at_a_time(tmp_path):
    log = ExchangeLog(tmp_path)
    with pytest.raises(ValueError, match="in use by another fit"):
        ExchangeLog(tmp_path)
    log.close()
    ExchangeLog(tmp_path)


def test_files_are_private(tmp_path):
    log_in(tmp_path / "new", ENTRY)
    assert {oct(path.stat().st_mode & 0o777) for path in (tmp_path / "new").iterdir()} == {"0o600"}
