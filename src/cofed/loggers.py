"""Callbacks of `cofed.run` that write a run elsewhere while it goes on: CSV, TensorBoard, MLflow."""

import csv
import io
import re
import time
from pathlib import Path
from typing import Any

from cofed._util import checks
from cofed._util.extras import imported
from cofed._util.files import atomically
from cofed._util.spreadsheets import cell
from cofed.engine.callbacks import RunInfo
from cofed.engine.history import COLUMNS, Outcome, Result

__all__ = ["CSV", "MLflow", "TensorBoard"]


class CSV:
    """Rows into a CSV file, each as soon as it is known: what a run that dies has done is in the file.

    A file of this name is replaced when a run starts; one that is resumed begins with the rows that it has.

    >>> import tempfile, cofed
    >>> fed = cofed.Federation.from_arrays([([[1.0]], [1.0])])
    >>> path = Path(tempfile.mkdtemp(), "rows.csv")
    >>> _ = cofed.run(cofed.Problem(), fed, cofed.FedAvg(0.5), rounds=3, callbacks=[CSV(path)])
    >>> [line.split(",")[0] for line in path.read_text().splitlines()]
    ['round', '0', '1', '2', '3']
    """

    def __init__(self, path: str | Path):
        self.path = checks.path("CSV: path", path)
        self.columns: list[str] = []

    def on_start(self, info: RunInfo) -> None:
        """An empty file, or one with the rows so far."""
        self.columns = []
        atomically(self.path, lambda f: self.write(f, info.rows), shown=True)

    def on_row(self, row: dict[str, Any]) -> None:
        """One more line."""
        self.write(self.path, [row])

    def write(self, path: str | Path, rows: Any) -> None:
        """Add lines, after a header where there is none yet. The file is closed again: its lines are whole."""
        lines = io.StringIO(newline="")
        for row in rows:
            if not self.columns:
                first = [name for name in COLUMNS if name in row]
                self.columns = first + [name for name in row if name not in first]
                csv.writer(lines).writerow(map(cell, self.columns))
            csv.DictWriter(lines, self.columns).writerow({name: cell(value) for name, value in row.items()})
        with open(path, "ab", buffering=0) as file:
            before, text = file.tell(), lines.getvalue().encode()
            try:
                while text:  # a disk that fills up takes a part
                    text = text[file.write(text) or 0 :]
            except OSError:
                file.truncate(before)
                raise


class TensorBoard:
    """Rows as TensorBoard's scalars, and the run's parameters for its table of hyperparameters.

    One folder per run; `tensorboard --logdir` on the folder above shows them together. A run in a folder that has one
    already, such as a resumed one, takes its place. Needs `pip install 'cofed[tensorboard]'`.

    >>> import tempfile, cofed
    >>> fed = cofed.Federation.from_arrays([([[1.0]], [1.0])])
    >>> folder = Path(tempfile.mkdtemp(), "fedavg")
    >>> _ = cofed.run(cofed.Problem(), fed, cofed.FedAvg(0.5), rounds=3, callbacks=[TensorBoard(folder)])
    >>> len(list(folder.glob("events.out.tfevents.*")))
    1
    """

    def __init__(self, folder: str | Path):
        self.folder = checks.path("TensorBoard: folder", folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"TensorBoard: folder must be a folder, and {self.folder} is a file")
        self.library = imported("tensorboardX", "Logging to TensorBoard", "tensorboardX", "tensorboard")

    def on_start(self, info: RunInfo) -> None:
        """Begin a file of events, which withdraws older ones in the folder, and repeats the rows so far."""
        self.began = time.time() - (info.rows[-1]["seconds"] if info.rows else 0.0)
        # Files are read in the order of their names, in which tensorboardX has the second only.
        order = f".{time.time_ns()}"
        self.writer = self.library.SummaryWriter(str(self.folder), purge_step=0, flush_secs=1, filename_suffix=order)
        experiment, start, self.last = self.library.summary.hparams(info.parameters(), {"objective": 0.0})
        for summary in (experiment, start):
            self.writer.file_writer.add_summary(summary)
        for row in info.rows:
            self.on_row(row)

    def on_row(self, row: dict[str, Any]) -> None:
        """Each column under its name, at the row's round and time."""
        for name, value in row.items():
            if name != "round":
                self.writer.add_scalar(name, value, row["round"], walltime=self.began + row["seconds"])

    def on_end(self, result: Result) -> None:
        """Close the file."""
        self.writer.file_writer.add_summary(self.last)
        self.writer.close()


STATUS = {Outcome.COMPLETED: "FINISHED", Outcome.INTERRUPTED: "KILLED", Outcome.DIVERGED: "FAILED"}
METRICS, PARAMETERS = 1000, 100  # the most that MLflow takes at once
PAUSE = 1.0  # seconds between messages to MLflow, each of which takes its time


class MLflow:
    """Rows as metrics and the run's definition as parameters of an MLflow run.

    experiment: the name of MLflow's experiment, which is made where it is not there.
    run_name: the algorithm's name, unless given.
    tracking_uri: a server, or a file as in "sqlite:///mlflow.db"; None is what MLflow is set to.
    run_id: go on with this run, as for `cofed.resume`; None begins a new one.

    The attribute `run` is the id of the run that was logged. Needs `pip install 'cofed[mlflow]'`.

    >>> logger = MLflow("lasso", tracking_uri="sqlite:///mlflow.db")  # then cofed.run(..., callbacks=[logger])
    >>> logger.experiment, logger.run
    ('lasso', None)
    """

    def __init__(
        self,
        experiment: str = "cofed",
        run_name: str | None = None,
        tracking_uri: str | None = None,
        run_id: str | None = None,
    ):
        checks.text("MLflow: experiment", experiment)
        for name, value in (("run_name", run_name), ("tracking_uri", tracking_uri), ("run_id", run_id)):
            checks.optional_text(f"MLflow: {name}", value)
        self.experiment, self.run_name, self.tracking_uri, self.run_id = experiment, run_name, tracking_uri, run_id
        self.library = imported("mlflow", "Logging to MLflow", "mlflow-skinny", "mlflow")
        self.run: str | None = None

    def on_start(self, info: RunInfo) -> None:
        """Begin a run, or go on with one; tell its parameters."""
        self.client = self.library.MlflowClient(self.tracking_uri)
        self.run, self.logged = self.run_id, -1
        if self.run is None:
            found = self.client.get_experiment_by_name(self.experiment)
            experiment = self.client.create_experiment(self.experiment) if found is None else found.experiment_id
            name = self.run_name or type(info.algorithm).__name__
            self.run = str(self.client.create_run(experiment, run_name=name).info.run_id)
        else:
            self.client.update_run(self.run, status="RUNNING")
            before = self.client.get_metric_history(self.run, "objective")
            self.logged = max((metric.step for metric in before), default=-1)
        parameters = [self.library.entities.Param(key(k), str(v)) for k, v in info.parameters().items()]
        for i in range(0, len(parameters), PARAMETERS):
            self.client.log_batch(self.run, params=parameters[i : i + PARAMETERS])
        self.waiting: list[Any] = []
        self.sent = time.monotonic()
        self.began = time.time() - (info.rows[-1]["seconds"] if info.rows else 0.0)
        for row in info.rows:
            self.on_row(row)

    def on_row(self, row: dict[str, Any]) -> None:
        """Each column as a metric at the row's round and time, unless the run has it already."""
        if row["round"] <= self.logged:
            return
        moment = int(1000 * (self.began + row["seconds"]))
        self.waiting += [
            self.library.entities.Metric(key(name), float(value), moment, row["round"])
            for name, value in row.items()
            if name != "round"
        ]
        if len(self.waiting) >= METRICS or time.monotonic() - self.sent >= PAUSE:
            self.send()

    def on_end(self, result: Result) -> None:
        """Send the rest, and say how it ended."""
        self.send()
        self.client.set_tag(self.run, "outcome", result.outcome.name.lower())
        self.client.set_terminated(self.run, STATUS[result.outcome])

    def send(self) -> None:
        """What has come together since the last time."""
        for i in range(0, len(self.waiting), METRICS):
            self.client.log_batch(self.run, metrics=self.waiting[i : i + METRICS])
        self.waiting, self.sent = [], time.monotonic()


def key(name: str) -> str:
    """A name with only the characters that MLflow allows.

    >>> key("f1 (of w*)")
    'f1 _of w__'
    """
    return re.sub(r"[^\w\-. :/]", "_", name)
