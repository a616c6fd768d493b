"""The loggers, read back with the libraries that they write for."""

import csv
import sys

import numpy as np
import pandas as pd
import pytest
from mlflow import MlflowClient
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import cofed
from cofed import loggers
from tests import worlds

ROUNDS = 40


def go(*callbacks, **options):
    problem = worlds.problem(cofed.L1(0.05))
    options = {"rounds": ROUNDS, "local_steps": 2} | options
    return cofed.run(problem, worlds.linear(), cofed.FedDualAvg(0.02), callbacks=callbacks, **options)


class Killed(BaseException):
    """The end of a process, as far as a test can have it."""


class Killer:
    """Ends the run in the middle of telling its rows, with some of them told beyond the last checkpoint."""

    def __init__(self, round):
        self.round = round

    def on_row(self, row):
        if row["round"] == self.round:
            raise Killed


def test_csv_is_the_history(tmp_path):
    path = tmp_path / "logs" / "rows.csv"
    history = go(loggers.CSV(path), metrics={"biggest": lambda w: abs(w.coef).max()}).history
    pd.testing.assert_frame_equal(pd.read_csv(path), history.to_pandas(), rtol=1e-12)
    go(loggers.CSV(path), rounds=3)
    assert pd.read_csv(path)["round"].tolist() == [0, 1, 2, 3]  # another run takes its place


def test_csv_has_a_row_as_soon_as_it_is_told(tmp_path):
    path, seen = tmp_path / "rows.csv", []

    class Reader:
        def on_row(self, row):
            with open(path, newline="") as file:
                seen.append([int(line["round"]) for line in csv.DictReader(file)])

    go(loggers.CSV(path), Reader(), rounds=4)
    assert seen == [list(range(n + 1)) for n in range(5)]


def test_csv_of_a_run_that_died(tmp_path):
    path = tmp_path / "rows.csv"
    with pytest.raises(Killed):
        go(loggers.CSV(path), Killer(27), checkpoint=tmp_path / "run", checkpoint_every=10)
    assert pd.read_csv(path)["round"].tolist() == list(range(28))
    with open(path, "a") as file:
        file.write("28,0.5")  # half a line
    result = cofed.resume(tmp_path / "run", callbacks=[loggers.CSV(path)])
    pd.testing.assert_frame_equal(pd.read_csv(path), result.history.to_pandas(), rtol=1e-12)


def read_events(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return events


def assert_scalars_are_rows(events, result):
    rows = result.history.rows
    assert set(events.Tags()["scalars"]) == set(rows[0]) - {"round"}
    for name in events.Tags()["scalars"]:
        found = events.Scalars(name)
        assert [event.step for event in found] == [row["round"] for row in rows]
        np.testing.assert_allclose([event.value for event in found], [row[name] for row in rows], rtol=1e-6)
    times = [event.wall_time for event in events.Scalars("loss")]
    np.testing.assert_allclose(np.array(times) - times[0], [row["seconds"] for row in rows], atol=1e-5)


def test_tensorboard_has_the_rows_and_the_parameters(tmp_path):
    result = go(loggers.TensorBoard(tmp_path / "run"))
    events = read_events(tmp_path / "run")
    assert_scalars_are_rows(events, result)
    content = events.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    found = HParamsPluginData.FromString(content).session_start_info.hparams
    assert found["algorithm"].string_value == "FedDualAvg"
    assert found["algorithm.client_lr"].number_value == 0.02
    assert found["problem.regularizer.strength"].number_value == 0.05
    assert found["problem.model.intercept"].bool_value is False
    assert found["rounds"].number_value == ROUNDS
    content = events.SummaryMetadata("_hparams_/experiment").plugin_data.content
    assert HParamsPluginData.FromString(content).experiment.metric_infos[0].name.tag == "objective"


def test_tensorboard_of_a_run_that_died(tmp_path):
    first = loggers.TensorBoard(tmp_path / "events")
    with pytest.raises(Killed):
        go(first, Killer(27), checkpoint=tmp_path / "run", checkpoint_every=10)
    first.writer.close()
    assert [event.step for event in read_events(tmp_path / "events").Scalars("loss")] == list(range(28))
    result = cofed.resume(tmp_path / "run", callbacks=[loggers.TensorBoard(tmp_path / "events")])
    assert_scalars_are_rows(read_events(tmp_path / "events"), result)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One store for all tests: MLflow takes seconds to make one."""
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


def assert_metrics_are_rows(client, run, result):
    rows = result.history.rows
    assert set(client.get_run(run).data.metrics) == set(rows[0]) - {"round"}
    for name in client.get_run(run).data.metrics:
        found = client.get_metric_history(run, name)
        assert [(metric.step, metric.value) for metric in found] == [(row["round"], row[name]) for row in rows]
    times = np.array([metric.timestamp for metric in client.get_metric_history(run, "loss")])
    assert (np.diff(times) >= 0).all()


def test_mlflow_has_the_rows_and_the_parameters(store):
    logger = loggers.MLflow("lasso", tracking_uri=store)
    result = go(logger)
    client = MlflowClient(store)
    run = client.get_run(logger.run)
    assert run.info.run_name == "FedDualAvg"
    assert run.info.status == "FINISHED"
    assert run.data.tags["outcome"] == "completed"
    assert client.get_experiment(run.info.experiment_id).name == "lasso"
    assert_metrics_are_rows(client, logger.run, result)
    assert run.data.params["algorithm.client_lr"] == "0.02"
    assert run.data.params["problem.regularizer"] == "L1"
    assert run.data.params["rounds"] == str(ROUNDS)

    first = logger.run
    go(logger, rounds=2, metrics={"max |w|": lambda w: abs(w.coef).max()})  # another run of the same experiment
    assert logger.run != first
    again = client.get_run(logger.run)
    assert again.info.experiment_id == run.info.experiment_id
    assert again.data.metrics["max _w_"] > 0


def test_mlflow_of_a_run_that_died(store, tmp_path, monkeypatch):
    monkeypatch.setattr(loggers, "PAUSE", 0.0)  # every row at once, so that some are there when the run dies
    first = loggers.MLflow(tracking_uri=store, run_name="mine")
    with pytest.raises(Killed):
        go(first, Killer(27), checkpoint=tmp_path / "run", checkpoint_every=10)
    client = MlflowClient(store)
    assert len(client.get_metric_history(first.run, "objective")) == 28
    result = cofed.resume(tmp_path / "run", callbacks=[loggers.MLflow(tracking_uri=store, run_id=first.run)])
    assert client.get_run(first.run).info.run_name == "mine"
    assert client.get_run(first.run).info.status == "FINISHED"
    assert_metrics_are_rows(client, first.run, result)


def test_mlflow_tells_how_a_run_ended(store):
    class Enough:
        def on_row(self, row):
            return False

    logger = loggers.MLflow(tracking_uri=store)
    go(logger, Enough())
    assert MlflowClient(store).get_run(logger.run).info.status == "KILLED"


def test_a_store_that_is_not_there_is_a_sentence_before_the_run():
    with pytest.raises(RuntimeError, match=r"the callback MLflow failed in on_start: .*Exception"):
        go(loggers.MLflow(tracking_uri="nowhere://at/all"))


@pytest.mark.parametrize(
    ("make", "module", "extra"),
    [(lambda: loggers.TensorBoard("runs"), "tensorboardX", "tensorboard"), (loggers.MLflow, "mlflow", "mlflow")],
)
def test_a_missing_package_is_asked_for(make, module, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"Logging to .* needs the package .*pip install 'cofed\[{extra}\]'"):
        make()


def test_mlflow_knows_every_outcome():
    assert set(loggers.STATUS) == set(cofed.Outcome)
    assert loggers.STATUS[cofed.Outcome.STARVED] == "FAILED"
