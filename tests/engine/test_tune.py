"""Tuning: every configuration as if it ran alone, in one program."""

import os
import signal

import jax
import numpy as np
import optax
import pandas as pd
import pytest
from tests import worlds

import cofed
from cofed.engine import grid_rounds
from cofed.report.runs import read_run

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
    advanced, whole = [], grid_rounds.advance_some
    monkeypatch.setattr(grid_rounds, "WIDTH", 2)
    monkeypatch.setattr(
        grid_rounds, "advance_some", lambda *given: (advanced.append(given[4].places.tolist()), whole(*given))[1]
    )
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
    counts = []
    for scale in (1.0, 1.0, 2.0):
        before = len(traces)
        cofed.tune(problem, FED, [cofed.FedDualAvg(c * scale) for c in (0.01, 0.02)], **SCHEDULE)
        counts.append(len(traces) - before)
    first, shapes_only, other = counts  # what looks at shapes comes again, what compiles does not
    assert other == shapes_only < first
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


@pytest.mark.parametrize("column", ["accuracy", "test_accuracy"])
def test_accuracy_is_maximised_without_being_told(column):
    train, test = worlds.logistic(sizes=(20, 24, 22)).split(test=0.3)
    grid = [cofed.FedAvg(rate) for rate in (1e-6, 0.3)]
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())
    tuning = cofed.tune(problem, train, grid, rounds=20, local_steps=2, score=column, evaluation=test)
    assert tuning.curves[column][0, -1] < tuning.curves[column][1, -1]
    assert tuning.best is grid[1]
    assert tuning.maximise
    down = cofed.tune(problem, train, grid, rounds=20, local_steps=2, score=column, evaluation=test, maximise=False)
    assert down.best is grid[0]


def test_metrics_know_their_direction_and_own_ones_must_say_it():
    truth, grid = np.array([1.0, 0, 0, 1, 0, 0]), [cofed.FedDualAvg(c) for c in (1e-4, 0.02)]
    own = {"size": lambda w: jax.numpy.abs(w.coef).sum()}
    metrics = cofed.metrics.support(truth, threshold=0.05) | {"l2": cofed.metrics.distance(truth)} | own
    for score, up in (("f1", True), ("precision", True), ("recall", True), ("l2", False)):
        tuning = cofed.tune(PROBLEM, FED, grid, metrics=metrics, score=score, **SCHEDULE)
        last = tuning.curves[score][:, -1]
        assert tuning.score == (last.max() if up else last.min())
    with pytest.raises(ValueError, match=r"score='size' is a metric of your own: say whether more of it is better"):
        cofed.tune(PROBLEM, FED, grid, metrics=metrics, score="size", **SCHEDULE)
    for maximise, metric in ((True, own["size"]), (None, cofed.metrics.higher_is_better(own["size"]))):
        tuning = cofed.tune(PROBLEM, FED, grid, metrics={"size": metric}, score="size", maximise=maximise, **SCHEDULE)
        assert tuning.score == tuning.curves["size"][:, -1].max()


GRID = [cofed.FedDualAvg(c) for c in (0.01, 0.02)] + [cofed.FedMiD(0.02), cofed.FedAvg(0.01)]


def stop_after(monkeypatch, calls):
    """Press Ctrl-C in this call of the compiled loop."""
    count, real = [0], grid_rounds.advance_some

    def advance(*given):
        count[0] += 1
        if count[0] == calls:
            os.kill(os.getpid(), signal.SIGINT)
        return real(*given)

    monkeypatch.setattr(grid_rounds, "advance_some", advance)
    monkeypatch.setattr(grid_rounds, "next_pace", lambda *given: 1)  # a round in each call


def test_ctrl_c_returns_what_is_done(monkeypatch):
    whole = cofed.tune(PROBLEM, FED, GRID, evaluate_every=1, **SCHEDULE)
    with monkeypatch.context() as patch:
        stop_after(patch, 14)  # in the second of three programs
        part = cofed.tune(PROBLEM, FED, GRID, evaluate_every=1, **SCHEDULE)
    assert part.outcome is cofed.Outcome.INTERRUPTED
    assert part.table["outcome"].tolist() == ["completed", "completed", "interrupted", "interrupted"]
    assert part.best in GRID[:2]
    np.testing.assert_array_equal(part.curves["objective"][:2], whole.curves["objective"][:2])
    np.testing.assert_array_equal(part.curves["objective"][2, :5], whole.curves["objective"][2, :5])
    assert np.isnan(part.curves["objective"][2, 5:]).all()
    with monkeypatch.context() as patch:
        stop_after(patch, 1)
        nothing = cofed.tune(PROBLEM, FED, GRID, **SCHEDULE)
    assert nothing.best is None
    assert np.isnan(nothing.score)


def test_callbacks_hear_of_the_table_so_far_and_may_end_the_search(monkeypatch):
    monkeypatch.setattr(grid_rounds, "next_pace", lambda *given: 1)
    whole = cofed.tune(PROBLEM, FED, GRID, evaluate_every=1, **SCHEDULE)
    heard = []

    def watch(tuning):
        heard.append(tuning)
        return len(heard) < 9 + 5  # the first of three programs is done, the second is not

    part = cofed.tune(PROBLEM, FED, GRID, evaluate_every=1, callbacks=[watch], **SCHEDULE)
    assert len(heard) == 14
    assert heard[0].best is None
    assert heard[0].table["outcome"].tolist() == ["interrupted"] * 4
    np.testing.assert_array_equal(heard[2].table["score"].loc[[0, 1]], whole.curves["objective"][:2, 2])
    assert heard[8].best in GRID[:2]
    assert part.outcome is cofed.Outcome.INTERRUPTED
    assert part.table["outcome"].tolist() == ["completed", "completed", "interrupted", "interrupted"]
    np.testing.assert_array_equal(part.curves["objective"][:2], whole.curves["objective"][:2])
    assert part.table["score"].loc[2] == whole.curves["objective"][2, 4]
    silent = cofed.tune(PROBLEM, FED, GRID, evaluate_every=1, callbacks=[lambda tuning: None], **SCHEDULE)
    np.testing.assert_array_equal(silent.curves["objective"], whole.curves["objective"])


def test_a_callback_of_a_tuning_that_fails_is_left_out():
    def broken(tuning):
        raise KeyError("no such column")

    with pytest.warns(RuntimeWarning, match="the callback broken failed and is not called again.*no such column"):
        tuning = cofed.tune(PROBLEM, FED, GRID, callbacks=[broken], **SCHEDULE)
    assert tuning.outcome is cofed.Outcome.COMPLETED
    for given in (print, [3], [cofed.callbacks.KeepBest]):
        with pytest.raises(TypeError, match="callbacks"):
            cofed.tune(PROBLEM, FED, GRID, callbacks=given, **SCHEDULE)


def test_a_tuning_may_be_given_a_mesh():
    plain = cofed.tune(PROBLEM, FED, GRID, **SCHEDULE)
    spread = cofed.tune(PROBLEM, FED, GRID, mesh=cofed.mesh(1), **SCHEDULE)
    np.testing.assert_allclose(spread.curves["objective"], plain.curves["objective"], rtol=1e-12)
    with pytest.raises(ValueError, match="give mesh= or cores=, not both"):
        cofed.tune(PROBLEM, FED, GRID, mesh=cofed.mesh(1), cores=2, **SCHEDULE)


def test_a_tuning_is_saved_as_a_report_reads_it(tmp_path):
    tuning = cofed.tune(PROBLEM, FED, GRID, evaluate_every=1, **SCHEDULE)
    tuning.save(tmp_path / "grid", label="the best")
    run = read_run(tmp_path / "grid")
    assert run.notes == []
    assert run.numbers["algorithm"].unique().tolist() == ["the best"]
    best = tuning.table.index[0]
    np.testing.assert_array_equal(run.numbers["objective"], tuning.curves["objective"][best])
    assert run.tuning["configuration"].tolist() == tuning.table.index.tolist()
    curves = pd.read_parquet(tmp_path / "grid" / "curves.parquet")
    for i, each in curves.groupby("configuration"):
        np.testing.assert_array_equal(each["objective"], tuning.curves["objective"][i])
    with pytest.raises(FileExistsError, match="holds a result already"):
        tuning.save(tmp_path / "grid")


@pytest.mark.parametrize("stages", [False, True])
def test_a_kept_tuning_goes_on_with_the_same_bits(tmp_path, monkeypatch, stages):
    grid = [cofed.MCFedDA(0.1, L, strengths=(0.2, 0.1)) for L in (20.0, 40.0)] if stages else GRID
    schedule = {"rounds": 9, "local_steps": 2} if stages else SCHEDULE
    whole = cofed.tune(PROBLEM, FED, grid, evaluate_every=1, **schedule)
    for calls in (4, 3):  # stopped twice, the second time soon after it went on
        with monkeypatch.context() as patch:
            stop_after(patch, calls)
            part = cofed.tune(PROBLEM, FED, grid, evaluate_every=1, checkpoint=tmp_path / "grid", **schedule)
        assert part.outcome is cofed.Outcome.INTERRUPTED
    rest = cofed.tune(PROBLEM, FED, grid, evaluate_every=1, checkpoint=tmp_path / "grid", **schedule)
    for name, curve in whole.curves.items():
        np.testing.assert_array_equal(rest.curves[name], curve)
    with monkeypatch.context() as patch:
        patch.setattr(grid_rounds, "advance_some", None)  # all is done
        again = cofed.tune(PROBLEM, FED, grid, evaluate_every=1, checkpoint=tmp_path / "grid", **schedule)
    np.testing.assert_array_equal(again.curves["objective"], whole.curves["objective"])
    assert again.best is whole.best


def test_a_folder_of_another_tuning_and_damaged_parts_are_refused(tmp_path):
    folder = tmp_path / "grid"
    options = SCHEDULE | {"checkpoint": folder}
    cofed.tune(PROBLEM, FED, GRID[:2], **options)
    for given, sentence in (
        ((worlds.problem(cofed.L1(0.3)), FED, GRID[:2]), "problem.regularizer.strength was 0.1 and is now 0.3"),
        ((PROBLEM, worlds.linear(seed=4), GRID[:2]), "federation was"),
        ((PROBLEM, FED, GRID), "algorithms.2 was nothing and is now FedMiD"),
    ):
        with pytest.raises(ValueError, match=sentence):
            cofed.tune(*given, **options)
    with pytest.raises(ValueError, match=r"settings.seed was 0 and is now 7"):
        cofed.tune(PROBLEM, FED, GRID[:2], seed=7, **options)
    part = folder / "part-0000.safetensors"
    content = part.read_bytes()
    for damaged in (b"", content[:99], content[:-9] + bytes([content[-9] ^ 1]) + content[-8:]):
        part.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"part-0000.safetensors is damaged; delete it to do its part again"):
            cofed.tune(PROBLEM, FED, GRID[:2], **options)
    part.unlink()
    cofed.tune(PROBLEM, FED, GRID[:2], **options)
    for text in ("[]", "{", '{"format": 1}', '{"format": 7, "definition": {}}'):
        (folder / "tuning.json").write_text(text)
        with pytest.raises(ValueError, match=r"tuning.json (is damaged|was not written by this version)"):
            cofed.tune(PROBLEM, FED, GRID[:2], **options)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ValueError, match=r"checkpoint: .*file is a file"):
        cofed.tune(PROBLEM, FED, GRID[:2], **(options | {"checkpoint": tmp_path / "file"}))


def test_configurations_without_a_finite_score_are_named():
    grid = [cofed.FedDualAvg(c) for c in (1e-4, 0.02, 0.03)]
    objective = cofed.tune(PROBLEM, FED, grid, **SCHEDULE)
    assert objective.best is not grid[0]
    limit = 0.5 * np.abs(cofed.run(PROBLEM, FED, grid[1], **SCHEDULE).model.coef).max()
    metrics = {"size": lambda w: jax.numpy.where(abs(w.coef).max() > limit, jax.numpy.nan, abs(w.coef).max())}
    said = (
        r"2 of 3 configurations completed .* since their 'size' is not finite: FedDualAvg\(client_lr=0.02, server_lr=1"
    )
    with pytest.warns(RuntimeWarning, match=said):
        tuning = cofed.tune(PROBLEM, FED, grid, metrics=metrics, score="size", maximise=True, **SCHEDULE)
    assert tuning.best is grid[0]
    assert tuning.table["diverged"].tolist() == [False, True, True]


def test_the_table_has_the_numbers_of_optimizers():
    grid = [cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.adam, {"learning_rate": rate}) for rate in (0.01, 0.1)]
    table = cofed.tune(worlds.problem(), FED, grid, rounds=5).table
    assert table.loc[[0, 1], "options.learning_rate"].tolist() == [0.01, 0.1]
