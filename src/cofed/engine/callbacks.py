"""What listens to a run: objects that are told of its start, of each row of its history, and of its end."""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import jax
import numpy as np

from cofed._util import checks
from cofed._util.caller import warn_caller
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.contracts import in_a_line
from cofed.engine.history import Result
from cofed.engine.spec import RunSpec
from cofed.federation import AbstractFederation
from cofed.problem import Problem

Row = dict[str, Any]  # a row of the history: numbers by the names of its columns

METHODS = ("on_start", "on_row", "on_end")
# The numbers of a run, as they are told to experiment trackers and written into a checkpoint.
NUMBERS = (
    *("rounds", "local_steps", "local_epochs", "batch_size", "clients_per_round"),
    *("seed", "evaluate_every", "keep_models", "per_client"),
)
SHOWN = 8  # a parameter with more entries than this is told by its shape


@dataclasses.dataclass(frozen=True)
class RunInfo:
    """What a callback is told at the start of a run.

    Parameters
    ----------
    settings : RunSpec
        The definition of the run.
    rows : tuple of dict
        The rows of the history that a resumed run has already.
    """

    settings: RunSpec
    rows: tuple[Row, ...] = ()

    @property
    def algorithm(self) -> AbstractAlgorithm:
        """The method that runs."""
        return self.settings.algorithm

    @property
    def problem(self) -> Problem:
        """The problem that is solved."""
        return self.settings.problem

    @property
    def federation(self) -> AbstractFederation:
        """The clients' data."""
        return self.settings.federation

    def parameters(self) -> dict[str, bool | int | float | str]:
        """The run's definition by flat names, as experiment trackers want it: parts by their type, then their fields.

        Returns
        -------
        dict of str to bool, int, float or str
            Such as ``{"algorithm": "FedAvg", "algorithm.client_lr": 0.5, "rounds": 100, ...}``; what is not set is
            left out.

        Examples
        --------
        >>> import cofed
        >>> class Show:
        ...     def on_start(self, info):
        ...         print({name: value for name, value in info.parameters().items() if "algorithm" in name})
        >>> fed = cofed.Federation.from_arrays([([[1.0]], [1.0])])
        >>> _ = cofed.run(cofed.Problem(), fed, cofed.FedAvg(0.5), rounds=1, callbacks=[Show()])
        {'algorithm': 'FedAvg', 'algorithm.client_lr': 0.5, 'algorithm.server_lr': 1.0}
        """
        spec = self.settings
        data = {
            "clients": self.federation.n_clients,
            "samples": "a stream" if self.federation.draw is not None else self.federation.n_samples,
            "features": self.federation.n_features,
            "dtype": str(self.federation.dtype),
            "weights": spec.weights,
        }
        network = {} if spec.topology is None else {"topology": spec.topology, "link_failure": spec.link_failure}
        problem = {f"problem.{part}": getattr(self.problem, part) for part in ("model", "loss", "regularizer")}
        numbers = {name: getattr(spec, name) for name in NUMBERS}
        named = {"algorithm": self.algorithm} | problem | numbers | data | network
        return dict(pair for name, value in named.items() for pair in flat(name, value))


class Callback(Protocol):
    """What `cofed.run(..., callbacks=[...])` takes: an object with any of these methods.

    Methods are called between compiled chunks of rounds (about four times a second), never within. An error in on_start
    is raised, before anything is computed; one in on_row or on_end is a warning: the run goes on without this callback
    and nothing of it is lost.
    """

    def on_start(self, info: RunInfo) -> None:
        """Called when the run is checked and about to begin, or to go on.

        Parameters
        ----------
        info : RunInfo
            The definition of the run, and the rows that a resumed run has already.
        """

    def on_row(self, row: Row) -> bool | None:
        """Called with each row of the history, as soon as it is known.

        Parameters
        ----------
        row : dict of str to float
            The columns of the history after `row["round"]` rounds; round 0 is the start.

        Returns
        -------
        bool or None
            False (and nothing else) stops the run as Ctrl-C does: the rounds under way are finished and kept.
        """

    def on_end(self, result: Result) -> None:
        """Called when the run is over: completed, stopped or diverged.

        Parameters
        ----------
        result : Result
            What `cofed.run` returns.
        """


class Listeners:
    """The callbacks of one run, and how many rows they have been told of."""

    def __init__(self, callbacks: object):
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks must be a list of objects, got a single {type(callbacks).__name__}")
        self.callbacks = checks.items("callbacks", callbacks, "objects")
        self.told = 0
        for callback in self.callbacks:
            if isinstance(callback, type):
                raise TypeError(f"callbacks must hold objects, got the class {callback.__name__}; call it to make one")
            if not any(hasattr(callback, method) for method in METHODS):
                raise TypeError(f"callbacks: a {type(callback).__name__} has none of {', '.join(METHODS)}")

    def start(self, info: RunInfo) -> None:
        """Before anything is computed: what fails now is raised."""
        self.told = len(info.rows)
        for callback in self.callbacks:
            if hasattr(callback, "on_start"):
                try:
                    callback.on_start(info)
                except Exception as error:
                    name = type(callback).__name__
                    raise RuntimeError(f"the callback {name} failed in on_start: {in_a_line(error)}") from error

    def rows(self, rows: Sequence[Row]) -> bool:
        """Tell of the rows that are new; whether the run is to go on."""
        go_on = True
        for row in rows[self.told :]:
            for callback in list(self.callbacks):
                answer = self.tell(callback, "on_row", dict(row))
                if isinstance(answer, (bool, np.bool_)) and not answer:
                    go_on = False
        self.told = len(rows)
        return go_on

    def end(self, result: Result) -> Result:
        """When all is over; hands the result on."""
        for callback in list(self.callbacks):
            self.tell(callback, "on_end", result)
        return result

    def tell(self, callback: object, method: str, what: Row | Result) -> object:
        """Call a method, where there is one. One that fails is told of, and never called again."""
        try:
            return getattr(callback, method)(what) if hasattr(callback, method) else None
        except Exception as error:
            self.callbacks = [other for other in self.callbacks if other is not callback]
            warn_caller(
                f"the callback {type(callback).__name__} failed in {method} and is not called again; the run is not "
                f"affected: {in_a_line(error)}"
            )


def flat(name: str, value: object) -> Iterator[tuple[str, bool | int | float | str]]:
    """A value and its parts, by dotted names; what is not set (None) is left out."""
    if value is None:
        return
    if isinstance(value, (bool, int, float, str)):
        yield name, value
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        yield name, type(value).__name__
        for field in dataclasses.fields(value):
            yield from flat(f"{name}.{field.name}", getattr(value, field.name))
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from flat(f"{name}.{key}", item)
    elif isinstance(value, (list, tuple)) and any(dataclasses.is_dataclass(item) for item in value):
        for i, item in enumerate(value):
            yield from flat(f"{name}.{i}", item)
    elif isinstance(value, (jax.Array, np.ndarray, np.generic, list, tuple)):
        yield name, array_shown(np.asarray(value))
    else:
        yield name, getattr(value, "__name__", type(value).__name__)


def array_shown(array: np.ndarray) -> bool | int | float | str:
    """An array as one value: its entries where they are few, else its shape."""
    if array.size > SHOWN:
        return f"an array of shape {array.shape}"
    return array.item() if array.ndim == 0 else str(array.tolist())
