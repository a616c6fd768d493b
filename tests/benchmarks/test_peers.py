"""The benchmark against the peers, without the peers: its NumPy twins against cofed, its measuring, its page."""

import dataclasses
import json
import math
import sys

import jax
import numpy as np
import pytest
from benchmarks.peers import chart, data, limits, page, processes, records
from benchmarks.peers.contenders import CONTENDERS, with_cofed, with_numpy
from benchmarks.peers.environments import CannotInstall, Environment
from benchmarks.peers.in_numpy import gradient_of, objective
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.measure import Ran, measure
from benchmarks.peers.models import L1, Network
from matplotlib.image import imread

from tests.benchmarks.worlds import numbers, tiny


@pytest.mark.parametrize("key", JOBS)
def test_the_numpy_loop_is_cofeds_algorithm(key):
    job = tiny(key)
    X, y, w0 = numbers(job)
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        ours = with_cofed.prepare(job, X, y, w0)(4).model
    twin = with_numpy.prepare(job, X, y, w0)(4).model
    assert set(ours) == set(twin)
    for name, leaf in twin.items():
        assert np.abs(leaf - w0[name]).max() > 1e-3  # it has moved
        np.testing.assert_allclose(ours[name], leaf, rtol=2e-4, atol=2e-5, err_msg=name)
    here, there = (objective(job, w, X, y) for w in (ours, twin))
    assert here == pytest.approx(there, rel=1e-5)
    assert here < objective(job, w0, X, y)


@pytest.mark.parametrize("key", ["lasso", "multinomial", "cnn"])
def test_numpy_gradients_are_those_of_the_objective(key):
    job = dataclasses.replace(tiny(key), regularizer=L1(0.0))
    X, y, w0 = (numbers(job)[0].astype(np.float64), *numbers(job)[1:])
    w0 = {name: leaf.astype(np.float64) for name, leaf in w0.items()}
    flat = (X.reshape(-1, *X.shape[2:]), y.ravel())
    found = gradient_of(job)(w0, *flat)
    rng = np.random.default_rng(0)
    way = {name: rng.normal(size=leaf.shape) for name, leaf in w0.items()}
    at = lambda t: objective(job, {name: leaf + t * way[name] for name, leaf in w0.items()}, X, y)  # noqa: E731
    slope = (at(1e-6) - at(-1e-6)) / 2e-6
    assert slope == pytest.approx(sum(float((found[name] * way[name]).sum()) for name in w0), rel=1e-5)


def test_jobs_are_as_the_page_says():
    assert sum(math.prod(leaf.shape) for leaf in JOBS["cnn"].model.start().values()) == 112_394
    assert [JOBS[key].steps for key in ("lasso", "multinomial", "cnn", "nuclear-256")] == [13, 6, 10, 2]
    assert JOBS["lasso"].samples_per_round == 1280
    assert JOBS["cnn"].samples_per_round == 1000


def test_a_data_file_gives_back_what_was_made(tmp_path):
    job = dataclasses.replace(JOBS["nuclear-32"], clients=3, samples=4)
    path = data.file_of(job, tmp_path)
    X, y, w0 = data.read(path)
    assert X.shape == (3, 4, 32, 32)
    assert X.dtype == y.dtype == np.float32
    assert list(w0) == ["coef"]
    assert not w0["coef"].any()
    made = path.stat().st_mtime_ns
    assert data.file_of(job, tmp_path).stat().st_mtime_ns == made
    assert [p.name for p in tmp_path.iterdir()] == ["nuclear-32-3x4.npz"]


def test_measuring_runs_long_enough_and_keeps_the_compared_model():
    calls = []

    def run(rounds):
        calls.append(rounds)
        return Ran({"coef": np.full(1, rounds)}, seconds=(9.0 if len(calls) == 1 else 0.5) + rounds / 1000)

    figures, model = measure(run, JOBS["lasso"], seconds=1.0)
    assert calls[:3] == [1, 1, JOBS["lasso"].check_rounds]
    assert model["coef"][0] == JOBS["lasso"].check_rounds
    assert figures["first_call_seconds"] > 9
    assert figures["rounds_per_second"] == pytest.approx(1000)  # without what is before and after the rounds
    assert 0.5 + 0.7 <= figures["seconds"] <= 0.5 + 1.6


def test_the_limits_count_what_a_round_reads(monkeypatch):
    monkeypatch.setattr(limits, "timed", lambda work: 0.001)  # seconds, on any machine
    job = tiny("lasso")
    X = numbers(job)[0]
    more = dataclasses.replace(job, per_round=job.per_round * 1000)
    assert limits.memory_limit(job, X) == pytest.approx(1000 * limits.memory_limit(more, X))
    assert limits.arithmetic_limit(job) == pytest.approx(1000 * limits.arithmetic_limit(more))
    read = job.samples_per_round * X[0, 0].nbytes
    assert limits.memory_limit(job, X) == pytest.approx(X.nbytes / 0.001 / read)
    assert Network((28, 28), 10).flops() == 2 * (
        2 * 784 * 9 * 32 + 3 * (196 * 9 * 32 * 32 + 1568 * 64 + 64 * 32 + 32 * 10)
    )


def found():
    """A run with every kind of record."""

    def ran(contender, rate, job="lasso"):
        figures = {"rounds_per_second": rate, "first_call_seconds": 1.5, "objective": 2.25, "peak_memory_mb": 321.0}
        return {"job": job, "contender": contender, "error": None, "cannot": False, "versions": {"x": "1"}} | figures

    return {
        "machine": {"processor": "a processor", "cores": 2, "system": "Linux", "date": "2026-11-18", "load": 0.3},
        "seconds": 5.0,
        "limits": {"lasso": {"memory": 5000.0, "arithmetic": 9000.0}, "gossip": {"memory": 800.0, "arithmetic": 900.0}},
        "records": [
            ran("fedjax", 40.0),
            ran("cofed", 2000.0),
            ran("numpy", 400.0),
            records.failed("lasso", "pfl", "its environment could not be made: no | such package"),
            ran("cofed", 100.0, "gossip"),
            records.failed("gossip", "flower", "a server in every round, no gossip", cannot=True),
        ],
    }


def test_the_page_says_all_that_was_found():
    text = page.text(found())
    assert "| lasso | 2,000 | FedJAX 40.0 | 50.0 | 5,000 | 9,000 |" in text
    assert "| gossip | 100 | none can |  | 800 | 900 |" in text
    assert "| FedJAX | 40.0 | 50.0 | 1.50 | 321 | 2.25 |" in text
    assert "| NumPy loop | 400 | 5.00 |" in text
    assert "failed: its environment could not be made: no \\| such package" in text
    assert "cannot: a server in every round" in text
    assert text.index("| cofed | 2,000") < text.index("| FedJAX | 40.0")  # in the contenders' order
    assert "2 cores of a processor" in text
    assert page.NOTES.read_text() in text


def test_the_chart_and_the_records_are_written(tmp_path):
    chart.draw(found(), tmp_path / "rounds.png")
    image = imread(tmp_path / "rounds.png")
    assert image[..., :3].std() > 0.05
    records.write(tmp_path / "results.json", found())
    assert json.loads((tmp_path / "results.json").read_text()) == found()
    assert {path.name for path in tmp_path.iterdir()} == {"rounds.png", "results.json"}


def test_a_contender_that_fails_leaves_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(type(CONTENDERS["cofed"]), "module", "no_such_module")
    with pytest.raises(processes.Failed, match=r"ended with code 1: .*No module named no_such_module"):
        processes.compete(CONTENDERS["cofed"], JOBS["lasso"], tmp_path / "x.npz", 1.0, 60.0)


def test_settings_of_our_jax_do_not_reach_another_version(monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a_flag_that_an_older_compiler_dies_of")
    monkeypatch.setenv("JAX_ENABLE_X64", "true")
    monkeypatch.setenv("PYTHONPATH", "/ours")
    ours, theirs = (processes.variables(CONTENDERS[name]) for name in ("cofed", "fedjax"))
    assert ours["XLA_FLAGS"].startswith("--a_flag")
    assert "/ours" in ours["PYTHONPATH"]
    assert not {name for name in theirs if name.startswith(("XLA_", "JAX_"))}
    assert "/ours" not in theirs["PYTHONPATH"]


def test_a_contender_that_never_ends_is_stopped():
    process = processes.subprocess.Popen([sys.executable, "-c", "import time; time.sleep(900)"])
    peak, ended = processes.watch(process, most=0.6)
    assert not ended
    assert peak is None or peak > 1
    assert process.returncode == -9


def test_an_environment_that_cannot_be_made_says_why(monkeypatch, tmp_path):
    monkeypatch.setattr("benchmarks.peers.environments.checked", lambda *_: None)
    monkeypatch.setattr("benchmarks.peers.environments.FOLDER", tmp_path)
    monkeypatch.setattr("benchmarks.peers.environments.ROOT", tmp_path)
    (tmp_path / "one").mkdir()
    one = Environment("one", (("a",), ("b",)))
    assert one.python() == tmp_path / "one" / "bin" / "python"
    assert json.loads((tmp_path / "one" / "installed.json").read_text()) == [["a"], ["b"]]
    monkeypatch.undo()
    from benchmarks.peers.environments import checked

    with pytest.raises(CannotInstall, match="could not be made: no such thing"):
        checked("x", [sys.executable, "-c", "import sys; sys.exit('no such thing')"])
