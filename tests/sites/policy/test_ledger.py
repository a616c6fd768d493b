"""The record of what was answered: it lasts, it errs on the safe side, and its loss is noticed."""

import stat
import threading

import numpy as np
import pandas as pd
import pytest

from cofed.sites import Folds, SiteTable
from cofed.sites.policy import PolicyGuard
from cofed.sites.policy.ledger import FOLDER, LEDGER, SECRET, Ledger, LedgerLost, held_alone, row_marks
from cofed.sites.queries import Message, sums
from tests.sites.policy.worlds import alone, asked, design_of, frame_of, logistic_rows


def question(n: int = 30, folds: Folds | None = None, seed: int = 0):
    X, y = logistic_rows(n, 2, seed)
    return asked(SiteTable(frame_of(X, y), "oslo"), design_of(2), sums, Message(folds=folds))


def test_what_was_answered_is_known_after_a_restart(tmp_path):
    assert PolicyGuard(alone(), tmp_path, "oslo").refuses(question(folds=Folds(5))) is None
    again = PolicyGuard(alone(), tmp_path, "oslo")
    assert again.refuses(question(folds=Folds(5))) is None
    refusal = again.refuses(question(folds=Folds(5, seed=1)))
    assert refusal is not None
    assert refusal.rule == "row sets"
    kept = Ledger.open(tmp_path)
    assert len(kept.ids) == 30
    assert sum(kept.days.values()) == 1  # the same question was free, and the refused one was not answered


def test_the_files_are_private_and_hold_no_values(tmp_path):
    frame = pd.DataFrame({"x0": np.linspace(1234.5, 2345.5, 30), "x1": np.arange(30) % 7, "y": np.arange(30) % 2})
    table = SiteTable(frame, "oslo")
    assert PolicyGuard(alone(), tmp_path, "oslo").refuses(asked(table, design_of(2), sums, Message())) is None
    for name in (LEDGER, SECRET):
        path = tmp_path / FOLDER / name
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = (tmp_path / FOLDER / LEDGER).read_bytes()
    assert frame["x0"].to_numpy().tobytes()[:8] not in content


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def swap(path):
    path.with_name(SECRET).write_bytes(b"another")


@pytest.mark.parametrize(
    "hurt",
    [
        lambda path: path.unlink(),
        damage,
        swap,
        lambda path: path.write_bytes(b""),
        lambda path: path.with_name(SECRET).unlink(),
    ],
)
def test_without_its_record_a_site_answers_nothing(tmp_path, hurt):
    assert PolicyGuard(alone(), tmp_path, "oslo").refuses(question()) is None
    hurt(tmp_path / FOLDER / LEDGER)
    guard = PolicyGuard(alone(), tmp_path, "oslo")
    for _ in range(2):
        refusal = guard.refuses(question())
        assert refusal is not None
        assert refusal.rule == "ledger"
        assert "delete ledger.safetensors and ledger.key" in refusal.sentence
    with pytest.raises(LedgerLost):
        Ledger.open(tmp_path)
    for name in (LEDGER, SECRET):  # the operator confirms
        (tmp_path / FOLDER / name).unlink(missing_ok=True)
    assert guard.refuses(question()) is None


def test_a_key_of_the_record_that_cannot_be_read_is_said(tmp_path):
    Ledger.open(tmp_path)
    (tmp_path / FOLDER / SECRET).unlink()
    (tmp_path / FOLDER / SECRET).mkdir()
    with pytest.raises(LedgerLost, match="IsADirectoryError"):
        Ledger.open(tmp_path)


def test_where_nothing_can_be_written_nothing_is_answered(tmp_path):
    guard = PolicyGuard(alone(), tmp_path, "oslo")
    assert guard.refuses(question()) is None
    before = (tmp_path / FOLDER / LEDGER).read_bytes()
    (tmp_path / FOLDER / LEDGER).unlink()
    (tmp_path / FOLDER / LEDGER).mkdir()  # nothing can be written there any more
    refusal = guard.refuses(question(folds=Folds(5)))
    assert refusal is not None
    assert refusal.rule == "ledger"
    (tmp_path / FOLDER / LEDGER).rmdir()
    (tmp_path / FOLDER / LEDGER).write_bytes(before)
    assert guard.refuses(question(folds=Folds(5))) is None


def test_rows_are_known_by_their_content_wherever_they_stand():
    frame = pd.DataFrame({"age": [61, 52, 61, 40], "sex": ["m", "f", "m", None]})
    marks = row_marks(frame, b"secret")
    moved = row_marks(frame.iloc[[3, 2, 1, 0]].reset_index(drop=True), b"secret")
    as_set = lambda found: {one.tobytes() for one in found}  # noqa: E731
    assert as_set(marks) == as_set(moved)
    assert len(as_set(marks)) == 4
    changed = frame.assign(age=[61, 52, 61, 41])
    assert len(as_set(marks) & as_set(row_marks(changed, b"secret"))) == 3
    assert not as_set(marks) & as_set(row_marks(frame, b"other"))


def test_two_processes_on_one_folder_know_of_each_others_answers(tmp_path):
    policy = alone(questions={"per_day": 2})
    one, two = (PolicyGuard(policy, tmp_path, "oslo", day=lambda: "2026-11-17") for _ in range(2))
    assert one.refuses(question()) is None
    assert two.refuses(question(folds=Folds(5))) is None
    refusal = one.refuses(question(folds=Folds(3)))
    assert refusal is not None
    assert refusal.rule == "exchanges"
    assert Ledger.open(tmp_path).days == {"2026-11-17": 2}
    (tmp_path / FOLDER / LEDGER).unlink()
    refusal = two.refuses(question())
    assert refusal is not None
    assert refusal.rule == "ledger"  # also in a process that has read it before


def test_a_ledger_is_held_by_one_at_a_time(tmp_path):
    began, order = threading.Event(), []

    def other():
        began.set()
        with held_alone(tmp_path):
            order.append("other")

    with held_alone(tmp_path):
        thread = threading.Thread(target=other)
        thread.start()
        began.wait()
        thread.join(0.2)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
