"""Callbacks and numbers of single clients in experiment files: as a script has them, and refused with their place."""

import json

import numpy as np
import pandas as pd
import pytest
from tests.experiments.test_files import SMALL, invoke
from tests.experiments.test_named_algorithms import HEAD, written

import cofed
from cofed.experiments import build, schema

MINE = """
import cofed


class Watch(cofed.callbacks.AbstractCallback):
    def __init__(self, after: int, told="row"):
        self.after, self.told = after, told

    def on_row(self, row):
        return row["round"] < self.after


class Silent(cofed.callbacks.AbstractCallback):
    pass


class Stranger:
    def on_row(self, row):
        pass
"""
METHOD = '[[algorithms]]\nname = "FedDualAvg"\nclient_lr = [0.001, 0.01]\n'


@pytest.fixture
def module(tmp_path, request):
    """The module of one's own, beside the file, by a name that no other test has."""
    name = f"own_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(MINE)
    return name


def with_run(lines):
    return HEAD.replace("local_steps = 2", f"local_steps = 2\n{lines}") + METHOD


def outcome(tmp_path):
    folder = tmp_path / "out" / "file"
    (entry,) = json.loads((folder / "config.json").read_text())["algorithms"]
    return pd.read_parquet(folder / "numbers.parquet"), entry


def script(**options):
    data = cofed.datasets.yuan_lasso(clients=4, samples=8, d=6, nonzeros=2, test_clients=0, seed=0)
    problem = cofed.Problem(regularizer=cofed.On(cofed.L1(0.1), "coef"))
    return cofed.run(problem, data.federation, cofed.FedDualAvg(0.01), rounds=4, local_steps=2, **options)


def test_they_are_made_with_their_numbers(tmp_path, module):
    watch = f'"{module}:Silent", {{ name = "{module}:Watch", after = 3 }}'
    stop = '"KeepBest", { name = "EarlyStopping", column = "loss", patience = 2 }'
    given = f"callbacks = [{watch}, {stop}]"
    path = written(tmp_path, SMALL.replace("[run]\n", f"[run]\n{given}\n"))
    file = schema.load(path)
    made = build.callbacks_of(file.run)
    assert [type(one).__name__ for one in made] == ["Silent", "Watch", "KeepBest", "EarlyStopping"]
    assert (made[1].after, made[1].told) == (3, "row")
    assert (made[3].column, made[3].patience, made[3].min_delta) == ("loss", 2, 0.0)
    assert build.callbacks_of(file.run)[3] is not made[3]  # each run has its own
    assert set(build.code_of(file, tmp_path)) == {f"{module}:Silent", f"{module}:Watch"}


def test_a_run_that_a_callback_ends_is_no_failure(tmp_path, module):
    text = with_run(f'evaluate_every = 1\ncallbacks = [{{ name = "{module}:Watch", after = 2 }}, "KeepBest"]')
    path = written(tmp_path, text)
    done = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert "stopped" in done.output
    numbers, entry = outcome(tmp_path)
    best = cofed.callbacks.KeepBest()
    result = script(callbacks=[lambda seen: seen.row["round"] < 2, best])
    assert list(numbers["round"]) == [0, 1, 2]
    np.testing.assert_allclose(numbers["objective"], result.history["objective"], rtol=1e-12)
    assert entry["outcomes"] == {"0": "stopped"}
    assert entry["best"]["0"]["objective"]["round"] == best.row["round"]
    assert entry["best"]["0"]["objective"]["objective"] == pytest.approx(best.row["objective"], rel=1e-12)
    assert "old-1" not in invoke("run", str(path), "--out", str(tmp_path / "out")).output


def test_numbers_of_single_clients_are_columns(tmp_path):
    path = written(tmp_path, with_run("evaluate_every = 2\nper_client = true"))
    done = invoke("run", str(path), "--out", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    numbers, _ = outcome(tmp_path)
    losses = script(per_client=True, evaluate_every=2).history.clients("loss")
    found = numbers[[f"loss of {name}" for name in losses]]
    np.testing.assert_allclose(found.to_numpy(), losses.to_numpy(), rtol=1e-12)
    np.testing.assert_allclose(found.mean(axis=1), numbers["loss"], rtol=1e-6)  # of float32
    assert invoke("plan", str(path), "--seconds", "0.01").exit_code == 0


def test_a_file_without_them_is_what_it_was(tmp_path):
    file = schema.load(written(tmp_path, SMALL))
    assert {"callbacks", "per_client"}.isdisjoint(file.run.model_dump(exclude_none=True))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ('callbacks = ["KeepBst"]', ["run.callbacks[1] is 'KeepBst' (did you mean 'KeepBest'?)"]),
        ('callbacks = [{ name = "KeepBest", colum = "loss" }]', ["run.callbacks[1].colum", "did you mean 'column'?"]),
        ('callbacks = ["NAME:Stranger"]', ["Stranger is no class that derives from AbstractCallback of cofed"]),
        ('callbacks = ["NAME:Wach"]', ["did you mean 'Watch'?"]),
        ('callbacks = ["NAME:Watch"]', ["run.callbacks[1].after is missing"]),
        ('callbacks = [{ name = "EarlyStopping", patience = 0 }]', ["run.callbacks[1]: EarlyStopping: patience"]),
        ("per_client = 1", ["run.per_client is 1"]),
    ],
)
def test_mistakes_are_said_with_their_line(tmp_path, module, given, words):
    path = written(tmp_path, SMALL.replace("[run]\n", f"[run]\n{given.replace('NAME', module)}\n"))
    with pytest.raises(schema.FileError, match=r"line \d+") as error:
        build.as_experiment(path, schema.load(path))
    for word in words:
        assert word in str(error.value)
