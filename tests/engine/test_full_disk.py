"""A full disk takes nothing from a run: in a process that may write files only up to a size, and on a real one."""

import contextlib
import os
import subprocess
import sys

import numpy as np
import pytest
from tests import worlds

import cofed

SCRIPT = """
import resource, sys, warnings
import numpy as np
import cofed
from tests import worlds

folder, limit = sys.argv[1], int(sys.argv[2])
problem, options = worlds.problem(cofed.L1(0.05)), {"rounds": 40, "local_steps": 2, "evaluate_every": 1}
room = resource.RLIM_INFINITY

class Fill:
    def on_row(self, row):  # the disk is full from the first rounds on, and for a while has room again
        resource.setrlimit(resource.RLIMIT_FSIZE, (room if 20 <= row["round"] < limit else 500, room))

with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    result = cofed.run(problem, worlds.linear(), cofed.FedDualAvg(0.02), checkpoint=folder, checkpoint_every=1,
                       callbacks=[Fill()], **options)
resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
print(result.outcome.name, np.asarray(result.model.coef).tolist())
for warning in said:
    print(warning.message)
"""


def whole():
    """The same run without a checkpoint."""
    options = {"rounds": 40, "local_steps": 2, "evaluate_every": 1}
    return cofed.run(worlds.problem(cofed.L1(0.05)), worlds.linear(), cofed.FedDualAvg(0.02), **options)


@pytest.mark.parametrize("room_until", [30, 99])
def test_a_run_goes_on_says_so_and_writes_again_when_there_is_room(tmp_path, room_until):
    folder = tmp_path / "run"
    env = os.environ | {"COFED_CACHE": "off"}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, folder, str(room_until)], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    first, *said = done.stdout.splitlines()
    assert first == f"COMPLETED {np.asarray(whole().model.coef).tolist()}"
    warnings = [line for line in said if "checkpoint" in line]
    assert "a checkpoint was not written" in warnings[0]
    assert "File too large. The run goes on" in warnings[0]
    rounds = sorted(int(path.stem[6:]) for path in folder.glob("round-*.json"))
    assert not list(folder.glob(".*"))
    assert len(list(folder.glob("round-*.safetensors"))) == len(rounds)
    if room_until == 99:
        assert rounds[-1] == 40
        assert len(warnings) == 1
    else:
        assert 20 <= rounds[-1] < 40
        assert f"its last checkpoint is of round {rounds[-1]}" in warnings[-1]
    np.testing.assert_array_equal(cofed.resume(folder).model.coef, whole().model.coef)


@pytest.fixture
def small(tmp_path):
    """A real file system of 64 kB; where none may be mounted, the test above stands for it."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", place], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("no file system may be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", place], check=True)


def test_on_a_real_small_disk(small):
    filler = small / "filler"
    options = {"rounds": 6, "local_steps": 2, "checkpoint_every": 1}
    problem, algorithm = worlds.problem(cofed.L1(0.05)), cofed.FedDualAvg(0.02)

    class Fill:
        def on_row(self, row):
            if row["round"] == 2:
                with open(filler, "wb", buffering=0) as file, contextlib.suppress(OSError):
                    while file.write(b"0" * 4096):
                        pass

    with pytest.warns(RuntimeWarning, match="No space left on device|over, but its last checkpoint is of round"):
        result = cofed.run(problem, worlds.linear(), algorithm, checkpoint=small / "run", callbacks=[Fill()], **options)
    assert result.outcome is cofed.Outcome.COMPLETED
    reached = max(int(path.stem[6:]) for path in (small / "run").glob("round-*.json"))
    assert reached < 6
    assert not list((small / "run").glob(".*"))
    filler.unlink()
    resumed = cofed.resume(small / "run")
    np.testing.assert_array_equal(resumed.model.coef, result.model.coef)
    assert (small / "run" / "round-000000006.json").exists()


def test_a_full_disk_at_the_start_is_refused_and_leaves_nothing(small):
    big = worlds.linear(sizes=(2000,))
    with pytest.raises(OSError, match=r"federation.safetensors cannot be written: No space left on device"):
        cofed.run(worlds.problem(), big, cofed.FedAvg(0.01), rounds=1, checkpoint=small / "run")
    assert list((small / "run").iterdir()) == []
    result = cofed.run(worlds.problem(), big, cofed.FedAvg(1e-3), rounds=2000)
    with pytest.raises(OSError, match=r"rows.csv cannot be written: No space left on device"):
        result.history.to_csv(small / "rows.csv")
    assert sorted(path.name for path in small.iterdir()) == ["run"]


def test_a_log_of_rows_never_ends_in_half_a_line(small):
    path = small / "rows.csv"
    with pytest.warns(RuntimeWarning, match="CSV failed in on_row.*No space left"):
        cofed.run(
            worlds.problem(), worlds.linear(), cofed.FedAvg(1e-3), rounds=2000, callbacks=[cofed.loggers.CSV(path)]
        )
    lines = path.read_text().splitlines()
    assert len(lines) > 10
    assert {line.count(",") for line in lines} == {lines[0].count(",")}
    assert path.read_text().endswith("\n")
