"""Compiled programs on disk: where, when, how much, and that no run depends on it."""

import os
import subprocess
import sys
import warnings
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from cofed._util import programs, scalars

RUN = """
import sys, warnings
warnings.simplefilter("error")
import jax, numpy as np, cofed
assert jax.config.jax_compilation_cache_dir is None, "importing cofed changes nothing"
federation = cofed.Federation.from_arrays([(np.eye(3, dtype=np.float32), np.ones(3, np.float32))] * 2)
hits = []
jax.monitoring.register_event_listener(lambda event, **kw: hits.append(event) if "cache_hits" in event else None)
result = cofed.run(cofed.Problem(), federation, cofed.FedAvg(0.5), rounds=2)
print(jax.config.jax_compilation_cache_dir, len(hits), float(result.model.coef.sum()))
"""


COUNTED = """
import jax, numpy as np, cofed
made = []
compiled = lambda event, seconds, **about: made.append(about) if "backend_compile_duration" in event else None
jax.monitoring.register_event_duration_secs_listener(compiled)
federation = cofed.Federation.from_arrays([(np.eye(3, dtype=np.float32), np.ones(3, np.float32))] * 4)
problem = cofed.Problem(cofed.Linear(), cofed.Squared(), cofed.L1(0.1))
cofed.run(problem, federation, cofed.FedAvg(0.1), rounds=2)
print(len(made))
made.clear()
ring = cofed.topologies.ring(4)
cofed.run(problem, federation, cofed.DFedDA(0.1, gradient_tracking=True), rounds=2, topology=ring)
print(len(made))
"""


@pytest.fixture
def untouched(monkeypatch):
    """JAX as a user's process has it at first."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs")
    names += ("jax_persistent_cache_min_entry_size_bytes",)
    before = {name: getattr(jax.config, name) for name in names}
    monkeypatch.delenv("COFED_CACHE")
    jax.config.update("jax_compilation_cache_dir", None)
    programs.keep_programs.cache_clear()
    with warnings.catch_warnings():
        yield monkeypatch
    for name, value in before.items():
        jax.config.update(name, value)
    programs.keep_programs.cache_clear()


def started(cache: Path | str, code: str = RUN, **more: str) -> list[str]:
    """What a process prints; by default of one run: the folder, the programs that came from disk, a number."""
    keys = ("JAX_COMPILATION_CACHE_DIR", "XLA_FLAGS")
    env = {name: value for name, value in os.environ.items() if name not in keys} | more
    done = subprocess.run(
        [sys.executable, "-c", code], env=env | {"COFED_CACHE": str(cache)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_the_second_process_takes_every_program_from_disk(tmp_path):
    place, hits, total = started(tmp_path / "c")
    assert Path(place).parent == tmp_path / "c"
    assert int(hits) == 0
    kept = len([*Path(place).iterdir()])
    assert kept > 0
    again = started(tmp_path / "c")
    assert int(again[1]) >= kept
    assert again[2] == total
    assert len([*Path(place).iterdir()]) == kept, "nothing was compiled anew"
    for entry in Path(place).iterdir():  # as a kill in the middle of a write would leave them
        entry.write_bytes(entry.read_bytes()[:10])
    broken = started(tmp_path / "c")  # warnings are errors there
    assert broken[1:] == ["0", total]


def test_a_run_compiles_few_programs(tmp_path):
    """Every operation outside of one is a program of its own, which takes longer to compile than to write here: the
    seed's key (2), the start of everybody along a graph, the state, the rounds and, by gossip, the nodes and the model.
    """
    with_server, along_a_graph = map(int, started(tmp_path, COUNTED))
    assert with_server <= 4
    assert along_a_graph <= 6


def test_what_becomes_an_array_is_a_copy():
    """JAX may work on the very memory that it is given: changing that later must not change a federation."""
    raw = np.zeros(1000 + 16)
    aligned = raw[(-raw.ctypes.data % 64) // 8 :][:1000]
    made = [scalars.as_array(aligned), scalars.constant(aligned, aligned.dtype)]
    aligned[:] = 1
    for array in made:
        assert not np.asarray(array).any()
    assert scalars.as_array(made[0]) is made[0]


def test_the_switch_and_settings_of_the_users_own_stand(tmp_path):
    assert started("off")[0] == "None"
    assert [*tmp_path.iterdir()] == []
    assert programs.keep_programs() is None, "the tests have set a folder themselves"


def test_the_folder_is_that_of_the_system(untouched, tmp_path):
    untouched.setenv("XDG_CACHE_HOME", str(tmp_path / "x"))
    untouched.setenv("LOCALAPPDATA", str(tmp_path / "l"))
    untouched.setenv("HOME", str(tmp_path / "h"))
    for system, folder in (("linux", "x/cofed"), ("win32", "l/cofed"), ("darwin", "h/Library/Caches/cofed")):
        untouched.setattr(programs.sys, "platform", system)
        assert programs.user_folder() == tmp_path / folder
    untouched.setattr(programs.sys, "platform", "linux")
    untouched.setenv("XDG_CACHE_HOME", "relative")
    assert programs.user_folder() == tmp_path / "h/.cache/cofed"
    place = programs.keep_programs()
    assert place is not None
    assert place.parent == tmp_path / "h/.cache/cofed"
    assert jax.config.jax_compilation_cache_dir == str(place)
    assert programs.keep_programs() == place


def test_a_folder_that_cannot_be_used_is_not_used(untouched, tmp_path):
    (tmp_path / "file").write_text("")
    untouched.setenv("COFED_CACHE", str(tmp_path / "file" / "below"))
    assert programs.keep_programs() is None
    full = programs.shutil.disk_usage(tmp_path)._replace(free=10)
    untouched.setenv("COFED_CACHE", str(tmp_path / "full"))
    untouched.setattr(programs.shutil, "disk_usage", lambda path: full)
    programs.keep_programs.cache_clear()
    assert programs.keep_programs() is None
    untouched.undo()
    assert jax.config.jax_compilation_cache_dir is None
    assert float(jax.jit(lambda x: x + 1)(jnp.ones(()))) == 2.0


def test_a_folder_of_another_user_is_not_trusted(untouched, tmp_path):
    untouched.setattr(programs.os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    assert programs.usable(tmp_path / "theirs") is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722])
def test_a_folder_that_others_may_write_into_is_not_trusted(untouched, tmp_path, mode):
    place = programs.usable(tmp_path / "programs")
    assert place == tmp_path / "programs"
    assert place.stat().st_mode & 0o777 == 0o700
    place.chmod(mode)
    assert programs.usable(place) is None


def test_the_least_recently_used_programs_go_first(tmp_path):
    folder = tmp_path / "jaxlib-1"
    folder.mkdir()
    for i in range(10):
        entry = folder / f"program-{i}"
        entry.write_bytes(bytes(100))
        os.utime(entry, (1000 + i, 1000 + i))
    os.utime(folder / "program-0", (5000, 1000))  # written first, but read last
    (tmp_path / "not-ours").write_bytes(bytes(5000))
    programs.trim(tmp_path, most=1000)
    assert len([*folder.iterdir()]) == 10
    programs.trim(tmp_path, most=800)
    left = sorted(int(entry.name.split("-")[1]) for entry in folder.iterdir())
    assert left == [0, 5, 6, 7, 8, 9]
    assert (tmp_path / "not-ours").exists()


def test_small_work_compiles_sooner_unless_the_user_has_flags(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    programs.compile_sooner()
    assert os.environ["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(programs, "version", {"jaxlib": "0.10.2"}.__getitem__)
    programs.compile_sooner()
    assert "fusion_emitters=false" in os.environ["XLA_FLAGS"]
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setattr(programs, "version", {"jaxlib": "0.99.0"}.__getitem__)
    programs.compile_sooner()
    assert "XLA_FLAGS" not in os.environ
