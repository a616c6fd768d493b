"""Tuning: every configuration as if it ran alone, in one program."""

import jax
import numpy as np
import pytest
from tests import worlds

import cofed
from cofed.engine import tune

SCHEDULE = {"rounds": 9, "local_epochs": 1, "batch_size": 3, "clients_per_round": 3}
FED = worlds.linear()
PROBLEM = worlds.problem(cofed.L1(0.1))


def test_each_configuration_is_what_it_is_alone():
    grid = [cofed.FedDualAvg(c, s) for c in (0.005, 0.02) for s in (0.5, 1.5)]
    grid += [cofed.FedMiD(0.02), cofed.FedDualAvg(0.01, client_prox=False), cofed.FedDR(0.02, 0.5)]
    tuning = cofed.tune(PROBLEM, FED, grid, evaluate_every=2, seed=3, w0=worlds.start(), **SCHEDULE)
    assert tuning.rounds.tolist() == [2, 4, 6, 8, 9]
    for i, algorithm in enumerate(grid):
        alone = cofed.run(PROBLEM, FED, algorithm, evaluate_every=2, seed=3, w0=worlds.start(), **SCHEDULE)
        for column in ("objective", "density", "prox_gradient"):
            np.testing.assert_allclose(tuning.curves[column][i], alone.history[column][1:], rtol=1e-9)
    best = np.argmin(tuning.curves["objective"][:, -1])
    assert tuning.best is grid[best]
    assert tuning.table["score"].is_monotonic_increasing
    assert tuning.score == tuning.table["score"].iloc[0]
    assert tuning.table["algorithm"].iloc[0] == type(grid[best]).__name__


def test_stages_are_tuned_too():
    grid = [cofed.MCFedDA(0.1, L, strengths=(0.2, 0.1)) for L in (20.0, 40.0)]
    schedule = {"rounds": 6, "local_steps": 2}
    tuning = cofed.tune(PROBLEM, FED, grid, evaluate_every=1, **schedule)
    for i, algorithm in enumerate(grid):
        alone = cofed.run(PROBLEM, FED, algorithm, **schedule)
        np.testing.assert_allclose(tuning.curves["objective"][i], alone.history["objective"][1:], rtol=1e-9)


def test_slices_that_fit_memory_change_nothing():
    grid = [cofed.FedDualAvg(c) for c in (0.001, 0.005, 0.01, 0.02, 0.03)]
    whole = cofed.tune(PROBLEM, FED, grid, **SCHEDULE)
    parts = cofed.tune(PROBLEM, FED, grid, memory=2000, **SCHEDULE)
    np.testing.assert_allclose(whole.curves["objective"], parts.curves["objective"], rtol=1e-12)


def test_diverged_configurations_are_marked_and_last():
    grid = [cofed.FedDualAvg(c) for c in (1e4, 0.01, 1e5)]
    tuning = cofed.tune(PROBLEM, FED, grid, rounds=200, local_steps=5)
    assert tuning.best is grid[1]
    assert tuning.table["diverged"].tolist() == [False, True, True]
    assert tuning.table["client_lr"].iloc[0] == 0.01
    with pytest.raises(ValueError, match="every configuration of the grid diverged"):
        cofed.tune(PROBLEM, FED, [grid[0]], rounds=200, local_steps=5)


def test_a_grid_goes_on_without_what_has_diverged(monkeypatch):
    advanced, whole = [], tune.advance_some
    monkeypatch.setattr(tune, "WIDTH", 2)
    monkeypatch.setattr(tune, "advance_some", lambda *given: (advanced.append(given[4].tolist()), whole(*given))[1])
    grid = [cofed.FedDualAvg(c) for c in (0.01, 1e4, 0.02, 1e5, 1e6)]
    schedule = {"rounds": 80, "local_steps": 5, "evaluate_every": 8}
    tuning = cofed.tune(PROBLEM, FED, grid, **schedule)
    assert advanced[0] == [0, 1, 2, 3, 4]
    assert advanced[-1] == [0, 2]
    assert tuning.table["diverged"].tolist() == [False, False, True, True, True]
    for i in (0, 2):
        alone = cofed.run(PROBLEM, FED, grid[i], **schedule)
        np.testing.assert_allclose(tuning.curves["objective"][i], alone.history["objective"][1:], rtol=1e-9)
    assert np.isnan(tuning.curves["objective"][[1, 3, 4], -1]).all()


def test_scores_can_be_maximised_and_averaged():
    truth = np.array([1.0, 0, 0, 1, 0, 0])
    metrics = cofed.metrics.support(truth, threshold=0.05)
    grid = [cofed.FedDualAvg(c) for c in (1e-4, 0.02)]
    tuning = cofed.tune(
        PROBLEM, FED, grid, metrics=metrics, score="f1", maximise=True, last=2, evaluate_every=1, **SCHEDULE
    )
    scores = tuning.curves["f1"][:, -2:].mean(axis=1)
    assert tuning.best is grid[int(np.argmax(scores))]
    np.testing.assert_allclose(tuning.score, scores.max())


def test_other_numbers_compile_nothing():
    traces = []

    def loss(prediction, y):
        traces.append(1)
        return (prediction - y) ** 2 / 2

    problem = worlds.problem(cofed.L1(0.1), cofed.losses.FunctionLoss(loss))
    for scale in (1.0, 2.0):
        before = len(traces)
        cofed.tune(problem, FED, [cofed.FedDualAvg(c * scale) for c in (0.01, 0.02)], **SCHEDULE)
    assert len(traces) - before < before / 2  # shapes are looked at, nothing is traced for compilation
    jax.clear_caches()


@pytest.mark.parametrize(
    ("grid", "options", "sentence"),
    [
        ([], {}, "grid is empty"),
        ([cofed.FedAvg(0.1), cofed.Scaffold(0.1)], {}, "Scaffold does not fit"),
        ([cofed.FedAvg(0.01)], {"score": "f1"}, "score='f1' is not a column"),
        ([cofed.FedAvg(0.01)], {"last": 0}, "last must be an integer >= 1"),
        ([cofed.FedAvg(0.01)], {"rounds": 0}, "rounds must be an integer"),
    ],
)
def test_bad_input_gets_a_sentence(grid, options, sentence):
    with pytest.raises(ValueError, match=sentence):
        cofed.tune(PROBLEM, FED, grid, **(SCHEDULE | options))
