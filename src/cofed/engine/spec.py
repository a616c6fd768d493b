"""The definition of a run: one frozen object, checked when it is made, that every part of the engine takes.

`RunSpec` checks each argument by itself (its kind, its range) and settles the defaults. Whether the parts fit each
other is checked when a run is prepared.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from jax.sharding import Mesh
from jaxtyping import PyTree

from cofed._util import checks
from cofed._util.checks import shown
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.batches import AbstractBatches
from cofed.clocks import Clock
from cofed.federation import AbstractFederation, DiskFederation, Federation
from cofed.gossip.topologies import Topology
from cofed.means import AbstractMean
from cofed.metrics import AbstractDataMetric
from cofed.problem import Problem
from cofed.samplers import AbstractSampler, ByFunction, Uniform


@dataclasses.dataclass(frozen=True, eq=False)
class RunSpec:
    """What a run computes: the same spec gives the same trajectory, to the last bit.

    How a run is watched and kept (progress bar, callbacks, checkpoints) is not part of it.

    Parameters
    ----------
    problem : Problem
        The model, the loss and the regularizer.
    federation : AbstractFederation
        The clients' data.
    algorithm : AbstractAlgorithm
        The method, with its hyperparameters.
    rounds : int
        How often clients and server (or neighbours) communicate.
    local_steps, local_epochs : int, optional
        Local work per round, in steps or in passes over a client's data; one of the two. Without either, one epoch. Of
        a list of steps, one number per client, `local_steps` becomes the largest.
    steps_by_client : tuple of int, optional
        What each client does of `local_steps`, where these were a list.
    batch_size : int or AbstractBatches, optional
        Samples per batch, or what draws the batches; None is the full local gradient.
    clients_per_round : int, AbstractSampler or callable, optional
        How many clients are drawn for each round, or what draws them, which of a function becomes a sampler; None is
        all of them.
    weights : str or array_like
        "uniform", "samples", or one number per client.
    topology : Topology, optional
        The graph of a run without a server.
    link_failure : float
        The probability that a link of the topology fails in a round.
    clock : Clock, optional
        The simulated time of asynchronous rounds.
    mean : AbstractMean, optional
        What the server takes in place of the weighted mean.
    mesh : Mesh, optional
        The devices to spread the clients over.
    w0 : pytree or mapping, optional
        The parameters to begin with; None is the model's own start.
    seed : int
        The seed of every random draw.
    evaluate_every : int, optional
        Rounds between rows of the history. None becomes 1 where measuring is cheap, and `rounds` for clients on disk.
    keep_models : bool
        Whether the model after every round is kept.
    metrics : mapping of str to callable, optional
        The user's own columns of the history.
    evaluation : Federation, optional
        Held-out data.
    per_client : bool
        Whether every client's loss, accuracy and metrics of data are recorded.

    Raises
    ------
    TypeError, ValueError
        Where an argument is not what it should be, in a sentence that names it.

    Examples
    --------
    >>> import cofed
    >>> from cofed.engine.spec import RunSpec
    >>> federation = cofed.Federation.from_arrays([([[1.0]], [1.0])])
    >>> spec = RunSpec(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=3)
    >>> spec.evaluate_every, spec.weights
    (1, 'uniform')
    >>> RunSpec(cofed.Problem(), federation, cofed.FedAvg(0.1), rounds=0)
    Traceback (most recent call last):
    ValueError: rounds must be an integer >= 1, got 0
    """

    problem: Given[Problem]
    federation: Given[AbstractFederation]
    algorithm: Given[AbstractAlgorithm]
    rounds: Given[int]
    local_steps: Given[int | None] = None
    local_epochs: Given[int | None] = None
    batch_size: Given[int | AbstractBatches | None] = None
    clients_per_round: Given[int | AbstractSampler | None] = None
    weights: Given[str | npt.ArrayLike] = "uniform"
    topology: Given[Topology | None] = None
    link_failure: Given[float] = 0.0
    clock: Given[Clock | None] = None
    mean: Given[AbstractMean | None] = None
    mesh: Given[Mesh | None] = None
    w0: PyTree = None
    seed: Given[int] = 0
    evaluate_every: Given[int] = None  # pyright: ignore[reportAssignmentType]  # settled below
    keep_models: Given[bool] = False
    metrics: Given[Mapping[str, Callable]] = None  # pyright: ignore[reportAssignmentType]  # settled below
    evaluation: Given[Federation | None] = None
    per_client: Given[bool] = False
    steps_by_client: tuple[int, ...] | None = None

    def __post_init__(self):
        check_kinds(self.problem, self.federation, on_disk=True)
        check_topology(self.topology)
        check_clock(self)
        check_mean(self)
        check_evaluation(self.evaluation)
        rounds = checks.integer("rounds", self.rounds)
        every = self.evaluate_every
        if every is None:
            every = 1 if self.federation.at_hand else rounds
        settled = {
            "algorithm": as_algorithm(self.algorithm),
            "rounds": rounds,
            **checked_steps(self),
            "local_epochs": checks.optional_integer("local_epochs", self.local_epochs),
            "batch_size": checked_batches(self.batch_size, self.federation),
            "clients_per_round": checked_sampling(self.clients_per_round),
            "link_failure": checked_probability("link_failure", self.link_failure),
            "mesh": checked_mesh(self.mesh, self.federation),
            "seed": checks.seed("seed", self.seed),
            "evaluate_every": checks.integer("evaluate_every", every),
            "keep_models": checks.flag("keep_models", self.keep_models),
            "metrics": checked_metrics(self.metrics),
            "per_client": checks.flag("per_client", self.per_client),
        }
        for name, value in settled.items():
            object.__setattr__(self, name, value)  # the class is frozen from here on

    @property
    def sampler(self) -> AbstractSampler:
        """What draws the clients of a round, by their ids."""
        given = self.clients_per_round
        if given is None or isinstance(given, int):
            return Uniform(given or self.federation.n_clients)
        return given.placed(self.order)

    @property
    def batches(self) -> AbstractBatches | None:
        """What draws the batches of local steps, where that is more than a number."""
        return self.batch_size if isinstance(self.batch_size, AbstractBatches) else None

    @property
    def order(self) -> np.ndarray:
        """The position of the client with each id."""
        if isinstance(self.federation, Federation):
            return np.argsort(np.asarray(self.federation.ids))
        return np.arange(self.federation.n_clients)  # on disk, clients lie in the order of their names

    @property
    def names_by_id(self) -> Sequence[str]:
        """The clients' names, in the order of their ids."""
        names = self.federation.names
        return [names[int(m)] for m in self.order] if isinstance(self.federation, Federation) else names

    @property
    def client_entries(self) -> int:
        """How many numbers of single clients a row records."""
        if not self.per_client:
            return 0
        on_data = sum(isinstance(metric, AbstractDataMetric) for metric in self.metrics.values())
        held_out = 0 if self.evaluation is None else self.evaluation.n_clients
        return (1 + self.problem.loss.has_accuracy + on_data) * (self.federation.n_clients + held_out)

    def start(self) -> PyTree:
        """The parameters that the run begins with."""
        return self.problem.start(self.federation, self.w0, self.seed)

    def default_start(self) -> PyTree:
        """The parameters that the run would begin with if no `w0` were given."""
        return self.problem.start(self.federation, None, self.seed)


def checked_steps(spec: RunSpec) -> dict[str, Any]:
    """The local steps: one number, or the largest of a list and what each client does of it."""
    given = spec.local_steps
    if not isinstance(given, (list, tuple, np.ndarray)):
        most = checks.optional_integer("local_steps", given)
        return {"local_steps": most, "steps_by_client": spec.steps_by_client}
    steps, clients = checks.items("local_steps", given, "numbers"), spec.federation.n_clients
    if len(steps) != clients:
        raise ValueError(f"local_steps must be one number, or one for each of {clients} clients, got {shown(given)}")
    each = tuple(checks.integer("each of local_steps", steps_of_one) for steps_of_one in steps)
    if not isinstance(spec.federation, Federation):
        raise ValueError("clients on disk are too many for a list of local_steps: give one number, or local_epochs")
    return {"local_steps": max(each), "steps_by_client": each if len(set(each)) > 1 else None}


def check_kinds(problem: object, federation: object, on_disk: bool = False) -> None:
    """Refuse arguments in the wrong order or of the wrong kind; clients on disk are refused unless `on_disk`."""
    if not isinstance(problem, Problem):
        raise TypeError(f"problem: the first argument must be a cofed.Problem, got {type(problem).__name__}")
    if isinstance(federation, DiskFederation):
        if on_disk:
            return
        raise TypeError(
            "this needs all clients in memory, and the federation is on disk: use Federation.from_parquet without "
            "on_disk, or federation.select([names]) to read some clients"
        )
    if not isinstance(federation, Federation):
        raise TypeError(
            f"federation: the second argument must be a cofed.Federation, got {type(federation).__name__}; "
            "make one with cofed.Federation.from_arrays([(X_1, y_1), ...])"
        )


def check_topology(topology: object) -> None:
    """Refuse what is no topology."""
    if topology is not None and not isinstance(topology, Topology):
        raise TypeError(f"topology must be made with cofed.topologies, such as ring(16), got {type(topology).__name__}")


def check_clock(spec: RunSpec) -> None:
    """Refuse what is no clock, and what does not go with one."""
    clock = spec.clock
    if clock is None:
        return
    if not isinstance(clock, Clock):
        raise TypeError(
            f"clock must be a cofed.Clock, such as cofed.Clock(seconds=1.0, spread=1.0), got {shown(clock)}"
        )
    if not isinstance(spec.federation, Federation):
        raise ValueError("on a clock every client works all the time, which clients on disk cannot: leave clock= out")
    if spec.topology is not None or spec.mesh is not None:
        raise ValueError("clock= is for rounds through a server in one place: leave topology= and mesh= out")
    if isinstance(spec.clients_per_round, AbstractSampler):
        raise ValueError(
            "on a clock the first clients to finish end a round, so nobody is drawn: give clients_per_round as a number"
        )
    clock.check(spec.federation.n_clients)


def check_mean(spec: RunSpec) -> None:
    """Refuse what is no mean of updates, and what does not go with one."""
    if spec.mean is None:
        return
    if not isinstance(spec.mean, AbstractMean):
        raise TypeError(f"mean must be one of cofed.means, such as cofed.means.Median(), got {shown(spec.mean)}")
    if spec.topology is not None or spec.mesh is not None:
        raise ValueError("mean= is for rounds through a server in one place: leave topology= and mesh= out")


def check_evaluation(evaluation: object) -> None:
    """Refuse held-out data that is no federation in memory."""
    if isinstance(evaluation, DiskFederation):
        raise TypeError("the evaluation federation is on disk; read it into memory, such as evaluation.select([names])")
    if evaluation is not None and not isinstance(evaluation, Federation):
        raise TypeError(
            f"evaluation must be a cofed.Federation of held-out data, got {type(evaluation).__name__}; "
            "federation.split() makes one"
        )


def checked_probability(name: str, value: object) -> float:
    """A probability below 1: a link that always fails is no link."""
    if not checks.is_real(value) or not 0 <= checks.as_float(value) < 1:
        raise ValueError(f"{name} is a probability in [0, 1), got {shown(value)}")
    return checks.as_float(value)


def checked_sampling(given: object) -> int | AbstractSampler | None:
    """How many clients are drawn for a round, or what draws them."""
    if isinstance(given, AbstractSampler):
        return given
    if callable(given) and not isinstance(given, type):
        return ByFunction(given)  # pyright: ignore[reportArgumentType]  # what it gives is checked
    if given is not None and not checks.is_integer(given):
        raise ValueError(
            "clients_per_round must be an integer >= 1, a sampler such as cofed.samplers.Cyclic(10), a function of "
            f"(key, round) that gives ids, or None, got {shown(given)}"
        )
    return checks.optional_integer("clients_per_round", given)


def checked_batches(given: object, federation: AbstractFederation) -> int | AbstractBatches | None:
    """How many samples a batch has, or what draws them."""
    if isinstance(given, AbstractBatches):
        if federation.draw is not None:
            raise ValueError("the clients of this federation draw fresh samples: give batch_size as a number")
        return given
    if given is not None and not checks.is_integer(given):
        raise ValueError(
            "batch_size must be an integer >= 1, a sampler such as cofed.batches.Shuffled(20), or None, got "
            f"{shown(given)}"
        )
    return checks.optional_integer("batch_size", given)


def checked_mesh(mesh: object, federation: AbstractFederation) -> Mesh | None:
    """A mesh of one axis, over which JAX leaves the placing of arrays to us."""
    if mesh is None:
        return None
    if not isinstance(federation, Federation):
        raise ValueError("clients on disk are read window by window, into one place: leave mesh= out")
    if not isinstance(mesh, Mesh):
        raise TypeError(f"mesh must be a mesh such as cofed.mesh(4), got {type(mesh).__name__}")
    if len(mesh.axis_names) != 1:
        raise ValueError(f"clients are spread over one axis of devices, but the mesh has the axes {mesh.axis_names}")
    return Mesh(mesh.devices, mesh.axis_names)


def checked_metrics(metrics: object) -> Mapping[str, Callable]:
    """The user's own metrics: a mapping of names to functions; None is no metrics."""
    if metrics is None:
        return {}
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a mapping of names to functions of the model, got {shown(metrics)}")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name or not callable(metric) or isinstance(metric, type):
            raise TypeError(f"metrics must map names to functions of the model, got {shown(name)}: {shown(metric)}")
    return metrics
