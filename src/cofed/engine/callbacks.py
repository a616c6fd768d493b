"""What listens to a run: objects that are told of its start, of rows of its history and their models, of its end."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import jax
import numpy as np

from cofed._util import checks
from cofed._util.caller import warn_caller
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.contracts import in_a_line
from cofed.engine.history import History, Log, Result, names_of
from cofed.engine.spec import RunSpec
from cofed.federation import AbstractFederation
from cofed.problem import Problem

Row = dict[str, Any]  # a row of the history: numbers by the names of its columns

METHODS = ("on_start", "on_row", "on_model", "on_end")
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
        network |= {"clock": spec.clock, "mean": spec.mean}  # what is None is left out
        problem = {f"problem.{part}": getattr(self.problem, part) for part in ("model", "loss", "regularizer")}
        numbers = {name: getattr(spec, name) for name in NUMBERS}
        named = {"algorithm": self.algorithm} | problem | numbers | data | network
        return dict(pair for name, value in named.items() for pair in flat(name, value))


@dataclasses.dataclass(frozen=True)
class Snapshot:
    """A row of the history together with the model that it is about.

    Parameters
    ----------
    row : dict of str to float
        The columns of the history after `row["round"]` rounds; round 0 is the start.
    model : pytree
        The model after these rounds, as `result.model` would be.
    client_losses : dict of str to float, optional
        The loss of this model at each client, by name, with `per_client=True`.
    client_scores : dict of str to dict, optional
        All that `history.clients(column)` has of this row: by column, and by the client's name.
    """

    row: Row
    model: Any
    client_losses: dict[str, float] | None = None
    client_scores: dict[str, dict[str, float]] | None = None


class AbstractCallback:
    """What `cofed.run(..., callbacks=[...])` takes: derive from this class, and give any of its methods.

    Methods are called between compiled chunks of rounds (about four times a second), never within. An error in on_start
    is raised, before anything is computed; one in another method is a warning: the run goes on without this callback
    and nothing of it is lost.

    Examples
    --------
    An evaluation of one's own, of the model after every fifth round:

    >>> import numpy as np, cofed
    >>> class Largest(cofed.callbacks.AbstractCallback):
    ...     def on_model(self, snapshot):
    ...         print(snapshot.row["round"], abs(snapshot.model.coef).max().round(3))
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))])
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> options = {"rounds": 10, "evaluate_every": 5, "callbacks": [Largest()]}
    >>> _ = cofed.run(problem, federation, cofed.FedAvg(1.0), **options)
    0 0.0
    5 2.906
    10 2.997
    """

    @property
    def name(self) -> str:
        """What the callback is called in sentences."""
        return type(self).__name__

    @property
    def sees_models(self) -> bool:
        """Whether it is shown models: where it has a method `on_model` of its own."""
        return type(self).on_model is not AbstractCallback.on_model

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
            False (and nothing else) ends the run after this very round.
        """

    def on_model(self, snapshot: Snapshot) -> bool | None:
        """Called after `on_row`, with the model of that row.

        Parameters
        ----------
        snapshot : Snapshot
            The row, the model and, with `per_client=True`, how it does at each client.

        Returns
        -------
        bool or None
            False (and nothing else) ends the run after this very round.
        """

    def on_end(self, result: Result) -> None:
        """Called when the run is over: completed, stopped or diverged.

        Parameters
        ----------
        result : Result
            What `cofed.run` returns.
        """


class OwnCallback(AbstractCallback):
    """A user's object that has some of a callback's methods without deriving from it."""

    def __init__(self, own: object):
        self.own = own

    @property
    def name(self) -> str:
        return type(self.own).__name__

    @property
    def sees_models(self) -> bool:
        return "on_model" in methods_of(self.own)

    def tell(self, method: str, what: object) -> Any:
        """Call a method, where the object has it."""
        return methods_of(self.own).get(method, lambda _: None)(what)

    def on_start(self, info: RunInfo) -> None:
        self.tell("on_start", info)

    def on_row(self, row: Row) -> Any:
        return self.tell("on_row", row)

    def on_model(self, snapshot: Snapshot) -> Any:
        return self.tell("on_model", snapshot)

    def on_end(self, result: Result) -> None:
        self.tell("on_end", result)


class FunctionCallback(AbstractCallback):
    """A user's function of a row and its model."""

    def __init__(self, function: Callable[[Snapshot], Any]):
        self.function = function

    @property
    def name(self) -> str:
        return checks.called(self.function)

    def on_model(self, snapshot: Snapshot) -> Any:
        return self.function(snapshot)


def methods_of(own: object) -> dict[str, Callable[[Any], Any]]:
    """The methods of a callback that an object has."""
    found = {method: getattr(own, method, None) for method in METHODS}
    return {method: call for method, call in found.items() if callable(call)}


def as_callback(value: object) -> AbstractCallback:
    """The value as a callback; refused where it is none."""
    if isinstance(value, type):
        raise TypeError(f"callbacks must hold objects, got the class {value.__name__}; call it to make one")
    if isinstance(value, AbstractCallback):
        return value
    if methods_of(value):
        return OwnCallback(value)
    if callable(value):
        return FunctionCallback(value)
    raise TypeError(f"callbacks: a {type(value).__name__} has none of {', '.join(METHODS)} and is no function")


class Listeners:
    """The callbacks of one run, and how many rows they have been told of."""

    def __init__(self, callbacks: object):
        if not isinstance(callbacks, Iterable):
            raise TypeError(f"callbacks must be a list of objects, got a single {type(callbacks).__name__}")
        self.callbacks = [as_callback(each) for each in checks.items("callbacks", callbacks, "objects")]
        self.told = 0

    @property
    def see_models(self) -> bool:
        """Whether one of them is shown models."""
        return any(callback.sees_models for callback in self.callbacks)

    def start(self, info: RunInfo) -> None:
        """Before anything is computed: what fails now is raised."""
        self.told = len(info.rows)
        for callback in self.callbacks:
            try:
                callback.on_start(info)
            except Exception as error:
                raise RuntimeError(f"the callback {callback.name} failed in on_start: {in_a_line(error)}") from error

    def rows(self, log: Log) -> int | None:
        """Tell of the rows that are new, up to one that ends the run: its round; None where the run is to go on."""
        history, unseen = log.history, dict(log.unseen)
        log.unseen.clear()
        for place in range(self.told, len(history.rows)):
            row, go_on = history.rows[place], True
            self.told = place + 1
            for callback in list(self.callbacks):
                go_on &= not refused(self.tell(callback, callback.on_row, dict(row)))
                if callback.sees_models:
                    scores = named_scores(history, place)
                    losses = None if scores is None else scores["loss"]
                    snapshot = Snapshot(dict(row), unseen[row["round"]], losses, scores)
                    go_on &= not refused(self.tell(callback, callback.on_model, snapshot))
            if not go_on:
                return row["round"]
        return None

    def end(self, result: Result) -> Result:
        """When all is over; hands the result on."""
        for callback in list(self.callbacks):
            self.tell(callback, callback.on_end, result)
        return result

    def tell(self, callback: AbstractCallback, method: Callable[[Any], object], what: object) -> object:
        """Call a method. A callback that fails is told of, and never called again."""
        if callback not in self.callbacks:  # it failed a moment ago
            return None
        try:
            return method(what)
        except Exception as error:
            self.callbacks = [other for other in self.callbacks if other is not callback]
            warn_caller(
                f"the callback {callback.name} failed in {method.__name__} and is not called again; the run is not "
                f"affected: {in_a_line(error)}"
            )


def refused(answer: object) -> bool:
    """Whether a callback's answer ends the run: False, also as an array, and nothing else that is empty."""
    single = isinstance(answer, (np.ndarray, jax.Array)) and answer.shape == () and answer.dtype == bool
    return (single or isinstance(answer, (bool, np.bool_))) and not answer


def named_scores(history: History, place: int) -> dict[str, dict[str, float]] | None:
    """What a row of the history has of each client, where that is recorded."""
    if not history.client_rows:
        return None
    return {
        column: dict(zip(names_of(history, column), each.tolist(), strict=True))
        for column, each in history.client_rows[place][1].items()
    }


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
        yield name, checks.called(value)


def array_shown(array: np.ndarray) -> bool | int | float | str:
    """An array as one value: its entries where they are few, else its shape."""
    if array.size > SHOWN:
        return f"an array of shape {array.shape}"
    return array.item() if array.ndim == 0 else str(array.tolist())
