"""Callbacks for `cofed.run` that log a run while it is running: to CSV, TensorBoard or MLflow."""

import csv
import io
import re
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from cofed._util import checks
from cofed._util.extras import imported
from cofed._util.files import atomically
from cofed._util.spreadsheets import cell
from cofed._util.types import Given
from cofed.engine.callbacks import RunInfo
from cofed.engine.history import COLUMNS, Outcome, Result

__all__ = ["CSV", "MLflow", "TensorBoard"]


class CSV:
    """Log every row of the history to a CSV file as soon as it is known, so that a killed run leaves its rows behind.

    An existing file is replaced when a run starts; that of a resumed run begins with the rows it has so far.

    Parameters
    ----------
    path : str or Path
        The file.

    Raises
    ------
    TypeError, ValueError
        Where `path` is not the name of a file.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile, cofed
    >>> import cofed
    >>> fed = cofed.Federation.from_arrays([([[1.0]], [1.0])])
    >>> path = Path(tempfile.mkdtemp(), "rows.csv")
    >>> _ = cofed.run(cofed.Problem(), fed, cofed.FedAvg(0.5), rounds=3, callbacks=[cofed.loggers.CSV(path)])
    >>> [line.split(",")[0] for line in path.read_text().splitlines()]
    ['round', '0', '1', '2', '3']
    """

    def __init__(self, path: Given[str | Path]):
        self.path = checks.path("CSV: path", path)
        self.columns: list[str] = []

    def on_start(self, info: RunInfo) -> None:
        """Begin the file with the rows so far, if any.

        Parameters
        ----------
        info : RunInfo
            The run.
        """
        self.columns = []
        atomically(self.path, lambda f: self.write(f, info.rows), shown=True)

    def on_row(self, row: Mapping[str, float | int]) -> None:
        """Append a row.

        Parameters
        ----------
        row : mapping of str to float
            The columns of the history, by name.
        """
        self.write(self.path, [row])

    def write(self, path: str | Path, rows: Iterable[Mapping[str, float | int]]) -> None:
        """Append rows to a file, after a header where there is none yet, and close it, so that its lines are whole.

        Parameters
        ----------
        path : str or Path
            The file.
        rows : iterable of mappings
            The rows.
        """
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
                while text:  # a disk that is filling up may take only a part
                    text = text[file.write(text) or 0 :]
            except OSError:
                file.truncate(before)
                raise


class TensorBoard:
    """Log rows as TensorBoard scalars, and the run's parameters for its table of hyperparameters.

    Use one folder per run; `tensorboard --logdir` on the folder above shows them together. A run in a folder that holds
    one already, such as a resumed run, replaces it. Needs the extra `tensorboard`.

    Parameters
    ----------
    folder : str or Path
        Where the file of events is written.

    Raises
    ------
    TypeError, ValueError, NotADirectoryError
        Where `folder` is not the name of a folder.
    ImportError
        Where tensorboardX is not installed.

    Examples
    --------
    >>> from pathlib import Path
    >>> import tempfile, cofed
    >>> import cofed
    >>> fed = cofed.Federation.from_arrays([([[1.0]], [1.0])])
    >>> folder = Path(tempfile.mkdtemp(), "fedavg")
    >>> _ = cofed.run(cofed.Problem(), fed, cofed.FedAvg(0.5), rounds=3, callbacks=[cofed.loggers.TensorBoard(folder)])
    >>> len(list(folder.glob("events.out.tfevents.*")))
    1
    """

    def __init__(self, folder: Given[str | Path]):
        self.folder = checks.path("TensorBoard: folder", folder)
        if self.folder.exists() and not self.folder.is_dir():
            raise NotADirectoryError(f"TensorBoard: folder must be a folder, and {self.folder} is a file")
        self.library = imported("tensorboardX", "Logging to TensorBoard", "tensorboardX", "tensorboard")

    def on_start(self, info: RunInfo) -> None:
        """Begin a file of events that supersedes older ones in the folder, with the rows so far.

        Parameters
        ----------
        info : RunInfo
            The run.
        """
        self.began = time.time() - (info.rows[-1]["seconds"] if info.rows else 0.0)
        # TensorBoard reads files in the order of their names, in which tensorboardX writes the time to the second only.
        order = f".{time.time_ns()}"
        self.writer = self.library.SummaryWriter(str(self.folder), purge_step=0, flush_secs=1, filename_suffix=order)
        experiment, start, self.last = self.library.summary.hparams(info.parameters(), {"objective": 0.0})
        for summary in (experiment, start):
            self.writer.file_writer.add_summary(summary)
        for row in info.rows:
            self.on_row(row)

    def on_row(self, row: Mapping[str, float | int]) -> None:
        """Log each column under its name, at the row's round and time.

        Parameters
        ----------
        row : mapping of str to float
            The columns of the history, by name.
        """
        for name, value in row.items():
            if name != "round":
                self.writer.add_scalar(name, value, row["round"], walltime=self.began + row["seconds"])

    def on_end(self, result: Result) -> None:
        """Close the file.

        Parameters
        ----------
        result : Result
            The run's result.
        """
        self.writer.file_writer.add_summary(self.last)
        self.writer.close()


STATUS = {  # MLflow's word for every outcome
    Outcome.COMPLETED: "FINISHED",
    Outcome.INTERRUPTED: "KILLED",
    Outcome.DIVERGED: "FAILED",
    Outcome.STARVED: "FAILED",
}
METRICS, PARAMETERS = 1000, 100  # MLflow takes at most so many at once
PAUSE = 1.0  # seconds between requests to MLflow, which are slow


class MLflow:
    """Log rows as metrics, and the run's definition as parameters, of an MLflow run.

    The attribute `run` is the id of the run that was logged. Needs the extra `mlflow`.

    Parameters
    ----------
    experiment : str
        The name of MLflow's experiment, which is created if it does not exist.
    run_name : str, optional
        The name of the run; None is the algorithm's name.
    tracking_uri : str, optional
        A server, or a file as in "sqlite:///mlflow.db"; None is what MLflow is configured with.
    run_id : str, optional
        Continue this run, as `cofed.resume` does; None begins a new one.

    Raises
    ------
    TypeError
        Where an argument is not text.
    ImportError
        Where MLflow is not installed.

    Examples
    --------
    >>> import cofed
    >>> # Given to a run: cofed.run(..., callbacks=[logger])
    >>> logger = cofed.loggers.MLflow("lasso", tracking_uri="sqlite:///mlflow.db")
    >>> logger.experiment, logger.run
    ('lasso', None)
    """

    def __init__(
        self,
        experiment: Given[str] = "cofed",
        run_name: Given[str | None] = None,
        tracking_uri: Given[str | None] = None,
        run_id: Given[str | None] = None,
    ):
        checks.text("MLflow: experiment", experiment)
        for name, value in (("run_name", run_name), ("tracking_uri", tracking_uri), ("run_id", run_id)):
            checks.optional_text(f"MLflow: {name}", value)
        self.experiment, self.run_name, self.tracking_uri, self.run_id = experiment, run_name, tracking_uri, run_id
        self.library = imported("mlflow", "Logging to MLflow", "mlflow-skinny", "mlflow")
        self.run: str | None = None

    def on_start(self, info: RunInfo) -> None:
        """Begin a run or continue one, and log its parameters.

        Parameters
        ----------
        info : RunInfo
            The run.
        """
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

    def on_row(self, row: Mapping[str, float | int]) -> None:
        """Log each column as a metric at the row's round and time, unless the run has it already.

        Parameters
        ----------
        row : mapping of str to float
            The columns of the history, by name.
        """
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
        """Send what is left, and set how the run ended.

        Parameters
        ----------
        result : Result
            The run's result.
        """
        self.send()
        self.client.set_tag(self.run, "outcome", result.outcome.name.lower())
        self.client.set_terminated(self.run, STATUS[result.outcome])

    def send(self) -> None:
        """Send the metrics that have accumulated since the last request."""
        for i in range(0, len(self.waiting), METRICS):
            self.client.log_batch(self.run, metrics=self.waiting[i : i + METRICS])
        self.waiting, self.sent = [], time.monotonic()


def key(name: str) -> str:
    """A name with the characters that MLflow does not allow replaced.

    >>> from cofed.loggers import key
    >>> key("f1 (of w*)")
    'f1 _of w__'
    """
    return re.sub(r"[^\w\-. :/]", "_", name)
