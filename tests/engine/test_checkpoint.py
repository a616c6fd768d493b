"""Checkpoints: whole or absent, killed at any moment, never anything but data."""

import json
import os
import signal
import subprocess
import sys
import time

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds

import cofed
from cofed.engine import execution as engine
from cofed.engine.serialization import NotOurs, decode, encode

SCHEDULE = {"rounds": 12, "local_steps": 2, "batch_size": 3, "clients_per_round": 3}


def go(folder=None, federation=None, problem=None, **options):
    return cofed.run(
        problem or worlds.problem(cofed.L1(0.05)),
        federation or worlds.linear(),
        cofed.FedDecouple(0.02, 1.3),
        checkpoint=folder,
        **(SCHEDULE | options),
    )


def stop_at(monkeypatch, round):
    """Let the engine end abruptly once it has done so many rounds."""

    def record(job, log, chunk, real=engine.record):
        if chunk.first >= round:
            raise SystemExit
        real(job, log, chunk)

    monkeypatch.setattr(engine, "record", record)


@pytest.fixture
def half(tmp_path, monkeypatch):
    """A folder of a run that was stopped after round 8 of 12."""
    with monkeypatch.context() as patch:
        stop_at(patch, 8)
        with pytest.raises(SystemExit):
            go(tmp_path / "run", checkpoint_every=4)
    return tmp_path / "run"


def test_the_newest_are_kept_and_nothing_else_is_left(half):
    names = sorted(path.name for path in half.iterdir())
    rounds = [f"round-{r:09d}.{kind}" for r in (0, 4, 8) for kind in ("json", "safetensors")]
    assert names == sorted(["federation.safetensors", *rounds, "run.json"])
    result = cofed.resume(half)
    np.testing.assert_array_equal(result.model.coef, go().model.coef)
    assert sorted(path.stem for path in half.glob("round-*.json")) == [f"round-{r:09d}" for r in (4, 8, 12)]


def test_resuming_a_finished_run_gives_its_result(tmp_path):
    first = go(tmp_path / "run", keep_models=True, per_client=True)
    again = cofed.resume(tmp_path / "run")
    np.testing.assert_array_equal(worlds.coefs(first), worlds.coefs(again))
    np.testing.assert_array_equal(first.history.clients(), again.history.clients())
    assert again.outcome is cofed.Outcome.COMPLETED
    assert again.history.rows == first.history.rows


def test_everything_of_the_definition_comes_back(tmp_path, monkeypatch):
    train, test = worlds.linear(sizes=(8, 9, 10), names=["x", "y", "z"]).split(test=0.3)
    psi = cofed.On(cofed.L1(0.05, weights=np.arange(1.0, 7.0)), "coef")
    problem = cofed.Problem(cofed.Linear(), cofed.Huber(0.7), psi)
    options = SCHEDULE | {"weights": [1.0, 2.0, 3.0], "evaluation": test, "clients_per_round": 2, "seed": 9}
    algorithm = cofed.FedDualAvg(0.02, 1.2, client_prox=False)
    whole = cofed.run(problem, train, algorithm, **options)
    with monkeypatch.context() as patch:
        stop_at(patch, 5)
        with pytest.raises(SystemExit):
            cofed.run(problem, train, algorithm, checkpoint=tmp_path / "run", checkpoint_every=5, **options)
    resumed = cofed.resume(tmp_path / "run")
    np.testing.assert_array_equal(whole.model.coef, resumed.model.coef)
    np.testing.assert_array_equal(whole.history["test_loss"], resumed.history["test_loss"])


def test_own_code_must_be_given_again(tmp_path, monkeypatch):
    problem = worlds.problem(cofed.L1(0.05), lambda p, y: jnp.abs(p - y))
    metrics = {"first": lambda w: w.coef[0], "l2": cofed.metrics.distance(np.ones(6))}
    with monkeypatch.context() as patch:
        stop_at(patch, 6)
        with pytest.raises(SystemExit):
            go(tmp_path / "run", problem=problem, metrics=metrics, checkpoint_every=3)
    with pytest.raises(ValueError, match=r"problem with code of its own.*pass problem="):
        cofed.resume(tmp_path / "run")
    with pytest.raises(ValueError, match=r"has the metrics \['first', 'l2'\], some with code of their own"):
        cofed.resume(tmp_path / "run", problem=problem)
    resumed = cofed.resume(tmp_path / "run", problem=problem, metrics={"first": metrics["first"]})
    whole = go(problem=problem, metrics=metrics)
    for name in metrics:
        np.testing.assert_array_equal(resumed.history[name], whole.history[name])


SCRIPT = """
import sys, numpy as np
from tests import worlds
import cofed
cofed.run(worlds.problem(cofed.L1(0.05)), worlds.linear(), cofed.FedDecouple(0.02, 1.3), rounds=3000, local_steps=2,
          batch_size=3, clients_per_round=3, checkpoint=sys.argv[1], checkpoint_every=7, evaluate_every=50)
"""


@pytest.mark.parametrize("pause", [0.05, *(pytest.param(p, marks=pytest.mark.slow) for p in (0.0, 0.2, 0.5))])
def test_killed_at_any_moment_and_resumed_it_ends_with_the_same_bits(tmp_path, pause):
    folder = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(folder)], cwd=os.getcwd())
    try:
        while not list(folder.glob("round-*.json")) and process.poll() is None:
            time.sleep(0.05)
        time.sleep(pause)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    reached = max(int(path.stem.split("-")[1]) for path in folder.glob("round-*.json"))
    resumed = cofed.resume(folder)
    options = SCHEDULE | {"rounds": 3000, "evaluate_every": 50}
    whole = go(**options)
    assert reached <= 3000
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)
    np.testing.assert_array_equal(resumed.history["objective"], whole.history["objective"])
    assert not list(folder.glob(".*"))


def test_a_folder_in_use_is_refused(half):
    with pytest.raises(ValueError, match=r"holds a run already; go on with it by cofed.resume"):
        go(half)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        cofed.resume(tmp_path)
    (tmp_path / "run.json").write_text("{not json")
    with pytest.raises(ValueError, match="holds no run"):
        cofed.resume(tmp_path)
    (tmp_path / "run.json").write_text('{"format": 99}')
    with pytest.raises(ValueError, match="not written by this version"):
        cofed.resume(tmp_path)


def test_a_definition_without_a_checkpoint_is_refused(half):
    for path in half.glob("round-*"):
        path.unlink()
    with pytest.raises(ValueError, match="no whole checkpoint yet"):
        cofed.resume(half)


@pytest.mark.parametrize("damage", ["cut", "flip", "gone", "json"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_can_be_used(half, damage):
    newest = half / "round-000000008.safetensors"
    content = newest.read_bytes()
    if damage == "cut":
        newest.write_bytes(content[: len(content) // 2])
    elif damage == "flip":
        newest.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif damage == "gone":
        newest.unlink()
    else:
        newest.with_suffix(".json").write_text('{"round": 8, "rows"')
    with pytest.raises(ValueError, match=r"round-000000008.safetensors is damaged; delete round-000000008.\*"):
        cofed.resume(half)
    for path in half.glob("round-000000008.*"):
        path.unlink()
    np.testing.assert_array_equal(cofed.resume(half).model.coef, go().model.coef)


def test_a_foreign_checkpoint_is_refused(half, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        stop_at(patch, 8)
        with pytest.raises(SystemExit):
            go(tmp_path / "other", worlds.linear(d=9), checkpoint_every=4)
    for kind in ("json", "safetensors"):
        name = f"round-000000008.{kind}"
        (half / name).write_bytes((tmp_path / "other" / name).read_bytes())
    with pytest.raises(ValueError, match=r"does not fit this run: server.x.coef is float64\[9\], not float64\[6\]"):
        cofed.resume(half)


def test_foreign_data_and_algorithms_are_refused(half):
    with pytest.raises(ValueError, match="their data differ"):
        cofed.resume(half, federation=worlds.linear(seed=1))
    with pytest.raises(ValueError, match="one of FedDecouple, not of FedAvg"):
        cofed.resume(half, algorithm=cofed.FedAvg(0.1))
    (half / "federation.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="damaged or missing"):
        cofed.resume(half)
    np.testing.assert_array_equal(cofed.resume(half, federation=worlds.linear()).model.coef, go().model.coef)


def test_no_file_can_name_code_to_run(half):
    definition = json.loads((half / "run.json").read_text())
    definition["algorithm"] = {"type": "os.system", "fields": {}}
    (half / "run.json").write_text(json.dumps(definition))
    with pytest.raises(ValueError, match=r"not a part of cofed: 'os\.system'"):
        cofed.resume(half)


def test_encoding_is_exact_and_takes_only_our_own():
    for value in (
        cofed.GroupL1(0.3, groups=[0, 0, 1]),
        cofed.Box(-np.inf, 1.0),
        cofed.MCFedDA(0.1, 3.0, strengths=(0.1 + 0.2, 1e-17)),
        cofed.FedDualAvg(0.1, mirror=cofed.PNorm(3.0)),
        cofed.Problem(cofed.MLP((3, 4)), cofed.Softmax(4), cofed.Sum(cofed.On(cofed.L1(0.1), "kernel"))),
    ):
        again = decode(json.loads(json.dumps(encode(value))))
        assert type(again) is type(value)
        assert eqx.tree_equal(again, value)
    with pytest.raises(NotOurs):
        encode(worlds.problem(None, lambda p, y: p))


def test_a_failed_write_leaves_the_old_file(tmp_path):
    from cofed._util.files import atomically

    target = tmp_path / "a.txt"
    target.write_text("old")

    def fail(name):
        with open(name, "w") as file:
            file.write("half of the n")
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        atomically(target, fail)
    assert target.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["a.txt"]


def test_other_files_in_the_folder_are_left_alone(half):
    (half / ".gitignore").write_text("*")
    (half / ".git").mkdir()
    (half / ".run.json.abc.json").write_text("half of a write")
    (half / "round-abc.json").write_text("{}")
    cofed.resume(half)
    assert (half / ".gitignore").exists()
    assert (half / ".git").exists()
    assert not (half / ".run.json.abc.json").exists()


def test_a_refused_run_leaves_the_folder_free(tmp_path):
    with pytest.raises(ValueError, match="w0"):
        go(tmp_path / "run", w0={"coef": np.zeros(2)})
    with pytest.raises(ValueError, match="keep_checkpoints must be an integer"):
        go(tmp_path / "run", keep_checkpoints=0)
    go(tmp_path / "run")
    assert cofed.resume(tmp_path / "run").outcome is cofed.Outcome.COMPLETED


def test_a_diverged_run_stays_so(tmp_path):
    method = cofed.MCFedDA(0.1, 10.0, stage_rounds=(1, 5, 6))
    problem = worlds.problem(cofed.L1(0.05), lambda p, y: jnp.nan * p)
    with pytest.warns(RuntimeWarning, match="MCFedDA diverged in round 3.*no client has sent a finite update"):
        first = cofed.run(problem, worlds.linear(), method, rounds=12, local_steps=2, checkpoint=tmp_path / "run")
    with pytest.warns(RuntimeWarning, match="MCFedDA diverged in round 3"):
        again = cofed.resume(tmp_path / "run", problem=problem)
    assert first.outcome is again.outcome is cofed.Outcome.DIVERGED
    np.testing.assert_array_equal(first.model.coef, again.model.coef)


def test_an_interrupted_run_goes_on_as_if_it_was_not(tmp_path, monkeypatch):
    options = {"rounds": 20, "evaluate_every": 8, "checkpoint_every": 100}

    def record(job, log, chunk, real=engine.record):
        if chunk.first == 1:
            os.kill(os.getpid(), signal.SIGINT)
        real(job, log, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "record", record)
        part = go(tmp_path / "run", **options)
    assert part.outcome is cofed.Outcome.INTERRUPTED
    assert part.history["round"][-1] < 20
    whole, resumed = go(**(options | {"checkpoint_every": None})), cofed.resume(tmp_path / "run")
    assert resumed.history["round"].tolist() == [0, 8, 16, 20]
    np.testing.assert_array_equal(whole.history["objective"], resumed.history["objective"])
    np.testing.assert_array_equal(whole.model.coef, resumed.model.coef)


@pytest.mark.parametrize("every", [1, 5])
def test_a_finished_run_that_gets_more_rounds_is_one_that_had_them_from_the_start(every, tmp_path):
    options = SCHEDULE | {"evaluate_every": every, "keep_models": True, "per_client": True, "w0": worlds.start()}
    go = lambda rounds, **more: cofed.run(  # noqa: E731
        worlds.problem(), worlds.linear(), cofed.Scaffold(0.02), **options | {"rounds": rounds} | more
    )
    folder = tmp_path / "run"
    go(12, checkpoint=folder)
    longer, whole = cofed.resume(folder, rounds=17), go(17)
    again = cofed.resume(folder)  # the folder knows its rounds
    for found in (longer, again):
        tables = [r.history.to_pandas().drop(columns="seconds") for r in (found, whole)]
        assert tables[0].equals(tables[1])
        assert found.history.clients().equals(whole.history.clients())
        assert found.history.participants().equals(whole.history.participants())
        assert found.communication == whole.communication
        assert len(found.models) == 18
        np.testing.assert_array_equal(found.model.coef, whole.model.coef)
    with pytest.raises(ValueError, match=r"rounds: the run in .* has 17 rounds already, got 16"):
        cofed.resume(folder, rounds=16)
    (folder / "rounds.json").write_text("{}")
    with pytest.raises(ValueError, match=r"rounds.json is damaged; delete it to go on"):
        cofed.resume(folder)


def test_stages_that_more_rounds_would_move_are_refused_and_the_folder_is_as_it_was(tmp_path):
    method, problem = cofed.MCFedDA(mu=0.1, L=600.0, strengths=(0.125, 0.0625)), worlds.problem(cofed.L1(0.0625))
    cofed.run(problem, worlds.linear(), method, rounds=4, local_steps=2, checkpoint=tmp_path / "run")
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    with pytest.raises(ValueError, match="MCFedDA divides its rounds into stages, which 9 rounds would move"):
        cofed.resume(tmp_path / "run", rounds=9)
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == before
