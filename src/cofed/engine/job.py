"""A run, checked and put in place: everything but its state."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed._util import checks, machine, trees
from cofed._util.checks import shown
from cofed._util.programs import keep_programs
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.disk import DiskFederation
from cofed.engine.chunk_loop import Task, Watch
from cofed.engine.contracts import (
    check_gradient,
    check_parameters,
    check_prediction,
    check_regularizer,
    check_round,
    in_a_line,
)
from cofed.engine.data import Data, data_of
from cofed.engine.gossip_rounds import Peers
from cofed.engine.halo import halo_links
from cofed.engine.history import COLUMNS
from cofed.engine.inmemory import InMemory
from cofed.engine.mesh import check_mesh, put_task, spread_data
from cofed.engine.on_disk import OnDisk, check_on_disk, example
from cofed.engine.plan import Plan, check_fit, in_cache, make_plan, pose
from cofed.engine.prefetch import rounds_of
from cofed.engine.server_rounds import Centre
from cofed.federation import Federation
from cofed.gossip.topologies import Topology, links
from cofed.problem import Problem

RESERVED = {
    *COLUMNS,
    *("participants", "left_out", "bytes_down", "bytes_up", "seconds", "stage", "client_loss", "consensus"),
    *(f"personal_{name}" for name in ("objective", "loss", "accuracy", "test_loss", "test_accuracy")),
} - {"density", "rank", "accuracy"}  # what the loss and regularizer add may be measured in another way
BUFFER = 2**24  # entries that a chunk of rounds may record
CHUNK = 512  # the most rounds of a chunk


@dataclasses.dataclass(frozen=True)
class Settings:
    """The numbers of a run, as they are written into a checkpoint."""

    rounds: int
    local_steps: int | None
    local_epochs: int | None
    batch_size: int | None
    clients_per_round: int | None
    seed: int
    evaluate_every: int
    keep_models: bool
    per_client: bool

    def __post_init__(self):
        checks.flag("keep_models", self.keep_models)
        checks.flag("per_client", self.per_client)


@dataclasses.dataclass
class ReadyStage:
    """A stage, ready to run: its task, the round before which it ends, and the bytes of its messages."""

    task: Task
    end: int
    down: int  # bytes to one client in one round
    up: int  # bytes from one client in one round; along a graph, of one message to a neighbour
    first: int  # bytes of a message in the exchange before the first round


@dataclasses.dataclass
class Job:
    """Everything that a run needs but its state."""

    name: str  # of the algorithm
    problem: Problem
    names: Sequence[str]  # of the clients
    place: InMemory | OnDisk  # where the data lie
    exchange: Centre | Peers
    stages: list[ReadyStage]
    watch: Watch
    settings: Settings
    own_start: Callable[[], PyTree]  # where the problem begins, unless it is told otherwise


def prepare(
    problem: Problem,
    federation: Federation | DiskFederation,
    algorithm: AbstractAlgorithm,
    settings: Settings,
    weights: Any,
    metrics: Mapping[str, Callable] | None,
    evaluation: Any,
    topology: Topology | None = None,
    link_failure: float = 0.0,
    mesh: Any = None,
) -> Job:
    """Check everything that can be checked before compiling, and put it in place: on the devices of a mesh."""
    check_kinds(problem, federation, on_disk=True)
    if mesh is not None:
        mesh = check_mesh(mesh, federation)
    algorithm = as_algorithm(algorithm)
    keep_programs()
    problem.check(federation)
    plan = make_plan(
        federation,
        settings.local_steps,
        settings.local_epochs,
        settings.batch_size,
        settings.clients_per_round,
    )
    check_stream(federation, plan)
    if isinstance(topology, Topology) and topology.nodes == federation.n_clients:
        topology = topology.for_clients(federation.names)
    exchange = make_exchange(algorithm, federation, settings, weights, topology, link_failure)
    check_fit(algorithm, pose(problem, plan), plan)
    place, together, most = lay(federation, plan, settings, weights, exchange, algorithm)
    data = together if mesh is None else spread_data(together, mesh)
    held_out = None
    if evaluation is not None:
        check_evaluation(problem, federation, evaluation)
        held_out = traced(data_of(evaluation, "samples", owners=owners(federation, evaluation)), data.dtype)
    start = jax.eval_shape(lambda: problem.start(federation, None, settings.seed))
    check_parameters(problem, federation, start)
    check_prediction(traced(problem, federation.dtype), federation, start)
    check_gradient(problem, federation, start)
    check_regularizer(problem, start, "finite" in algorithm.needs)
    own = check_metrics({} if metrics is None else metrics, start)
    entries = plan.participants + settings.per_client * plan.clients
    if settings.keep_models:
        entries += sum(leaf.size for leaf in jax.tree.leaves(start))
    watch = Watch(settings.per_client, settings.keep_models, max(1, min(most, BUFFER // entries)))

    between = exchange  # what the devices do; the job's own is for what happens in one place
    if mesh is not None and topology is not None:
        assert isinstance(exchange, Peers)
        between = Peers(halo_links(topology, federation.dtype, mesh), exchange.failure)
    stages, end = [], 0
    for stage in algorithm.stages(problem, settings.rounds, settings.local_steps):
        steps = settings.local_steps if stage.local_steps is None else stage.local_steps
        plan = make_plan(federation, steps, settings.local_epochs, settings.batch_size, settings.clients_per_round)
        size = federation.dtype.itemsize
        plan = in_cache(plan, size * federation.n_features, size * sum(leaf.size for leaf in jax.tree.leaves(start)))
        check_fit(stage.algorithm, pose(problem, plan), plan)
        check_numbers(stage.algorithm)
        check_round(stage.algorithm, pose(problem, plan), start, topology is not None)
        task = Task(
            traced(stage.algorithm, data.dtype),
            traced(pose(problem, plan), data.dtype),
            between,
            data,
            held_out,
            own,
            plan,
            watch,
        )
        end += stage.rounds
        bytes_ = wire(dataclasses.replace(task, exchange=exchange, data=together), start)
        check_room(exchange, task, settings, start, bytes_[1], at_hand=isinstance(place, InMemory))
        stages.append(ReadyStage(task if mesh is None else put_task(task, mesh), end, *bytes_))
    own_start = lambda: problem.start(federation, None, settings.seed)  # noqa: E731
    return Job(algorithm.name, problem, federation.names, place, exchange, stages, watch, settings, own_start)


def lay(
    federation: Federation | DiskFederation,
    plan: Plan,
    settings: Settings,
    weights: Any,
    exchange: Centre | Peers,
    algorithm: AbstractAlgorithm,
) -> tuple[InMemory | OnDisk, Data, int]:
    """Where the data lie, the data (of clients on disk an example: windows come later), the most rounds of a chunk."""
    if isinstance(federation, DiskFederation):
        check_on_disk(algorithm, exchange, plan, settings.per_client)
        place = OnDisk(federation, weights, plan, settings.seed, settings.rounds)
        return place, example(federation), rounds_of(federation, plan)
    places = jnp.asarray(np.argsort(np.asarray(federation.ids)), jnp.int32)
    return InMemory(), data_of(federation, weights, places=places), CHUNK


def owners(federation: Federation | DiskFederation, evaluation: Federation) -> Array | None:
    """Where the clients of held-out data are in the federation; None where some are not."""
    if isinstance(federation, DiskFederation):
        return None  # what they are for, clients' own models, is not done on disk
    places = {name: m for m, name in enumerate(federation.names)}
    if not set(evaluation.names) <= set(places):
        return None
    return jnp.asarray([places[name] for name in evaluation.names], jnp.int32)


def check_kinds(problem: Any, federation: Any, on_disk: bool = False) -> None:
    """Arguments in the wrong order or of the wrong kind get a sentence. `on_disk`: whether clients on disk will do."""
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


def check_evaluation(problem: Problem, federation: Federation | DiskFederation, evaluation: Any) -> None:
    """Held-out data must look like the data."""
    if not isinstance(evaluation, (Federation, DiskFederation)):
        raise TypeError(
            f"evaluation must be a cofed.Federation of held-out data, got {type(evaluation).__name__}; "
            "federation.split() makes one"
        )
    if isinstance(evaluation, DiskFederation):
        raise TypeError("the evaluation federation is on disk; read it into memory, such as evaluation.select([names])")
    if evaluation.feature_shape != federation.feature_shape:
        raise ValueError(
            f"the evaluation federation has samples of shape {evaluation.feature_shape}, "
            f"but the federation's are of shape {federation.feature_shape}"
        )
    if evaluation.feature_names and federation.feature_names and evaluation.feature_names != federation.feature_names:
        raise ValueError(
            f"the evaluation federation has the features {list(evaluation.feature_names)}, "
            f"but the federation's are {list(federation.feature_names)}, in this order"
        )
    problem.check(evaluation)
    known, there = (problem.loss.outputs(f.labels()) or 0 for f in (federation, evaluation))
    if there > known:
        raise ValueError(
            f"the evaluation federation has {there} classes, but the federation only {known}; "
            f"give the loss their number, such as Softmax({there})"
        )


def check_stream(federation: Federation | DiskFederation, plan: Plan) -> None:
    """Samples that are drawn afresh have no full gradient and no epochs, and come from a JAX function."""
    if federation.draw is None:
        return
    if plan.batch is None or plan.epochs is not None:
        raise ValueError(
            "the clients of this federation draw fresh samples at every step: give local_steps and batch_size "
            "(there is no full gradient and no epoch of a stream)"
        )
    draw, size = federation.draw, plan.batch
    try:
        X, y = jax.eval_shape(lambda key, client: draw(key, client, size), jax.random.key(0), jnp.zeros((), jnp.int32))
    except Exception as error:
        raise ValueError(
            f"draw(key, client, {size}) must be a JAX function of a traced key and client that gives (X, y), but "
            f"{in_a_line(error)}"
        ) from error
    expected = [(size, *part.shape) for part in federation.example()]
    if [X.shape, y.shape] != expected:
        raise ValueError(f"draw(key, client, {size}) gave X, y of shapes {X.shape}, {y.shape}, expected {expected}")
    if X.dtype != federation.dtype:
        raise ValueError(
            f"draw(key, client, {size}) gave X of dtype {X.dtype}, but the federation is of {federation.dtype}; "
            "fix the dtype in draw, such as jax.random.normal(key, shape, jnp.float32)"
        )


def make_exchange(
    algorithm: AbstractAlgorithm,
    federation: Federation | DiskFederation,
    settings: Settings,
    weights: Any,
    topology: Topology | None,
    link_failure: float,
) -> Centre | Peers:
    """A server, or a graph where a topology is given; refused where the algorithm or a setting does not go with it."""
    name = algorithm.name
    if topology is None:
        if not algorithm.has_server:
            raise ValueError(f"{name} has no server: give a topology, such as topology=cofed.topologies.ring(16)")
        check_link_failure(link_failure)
        if link_failure:
            raise ValueError("link_failure is for runs with a topology")
        return Centre()
    if not isinstance(topology, Topology):
        raise TypeError(f"topology must be made with cofed.topologies, such as ring(16), got {type(topology).__name__}")
    if not algorithm.has_gossip:
        raise ValueError(f"{name} needs a server and has no form by gossip; leave topology out, or use DFedDA")
    if topology.nodes != federation.n_clients:
        raise ValueError(f"the topology has {topology.nodes} nodes, but there are {federation.n_clients} clients")
    if settings.clients_per_round is not None:
        raise ValueError("clients_per_round is for runs with a server; by gossip every node takes part in every round")
    if not (isinstance(weights, str) and weights == "uniform"):
        raise ValueError("by gossip all nodes count alike: weights must be 'uniform'")
    check_link_failure(link_failure)
    dtype = federation.dtype
    return Peers(links(topology, dtype), jnp.asarray(link_failure, dtype) if link_failure else None)


def check_link_failure(link_failure: Any) -> None:
    """Refuse what is no probability; a link that always fails is none."""
    if not checks.is_real(link_failure) or not 0 <= checks.as_float(link_failure) < 1:
        raise ValueError(f"link_failure is a probability in [0, 1), got {shown(link_failure)}")


def check_metrics(metrics: Mapping[str, Callable], start: PyTree) -> dict[str, Callable]:
    """Own metrics, tried on the shapes of the model: each must be a function of it that gives one number."""
    if not isinstance(metrics, Mapping):
        raise TypeError(f"metrics must be a mapping of names to functions of the model, got {type(metrics).__name__}")
    for name, metric in metrics.items():
        if not isinstance(name, str) or not name or not callable(metric) or isinstance(metric, type):
            raise TypeError(f"metrics must map names to functions of the model, got {shown(name)}: {shown(metric)}")
    by_node = {f"{name}_{part}" for name in ("objective", *metrics) for part in ("min", "mean", "max")}
    taken = sorted(set(metrics) & (RESERVED | by_node))
    if taken:
        raise ValueError(f"the history has columns of its own named {taken}; give these metrics other names")
    for name, metric in metrics.items():
        try:
            shape = jax.eval_shape(lambda w, metric=metric: jnp.asarray(metric(w)), start).shape
        except Exception as error:
            raise ValueError(
                f"the metric {name!r} cannot be computed from the model by JAX ({in_a_line(error)}); use jax.numpy"
            ) from error
        if shape != ():
            raise ValueError(f"the metric {name!r} must give one number, got an array of shape {shape}")
    return {name: traced(metric, trees.dtype(start)) for name, metric in metrics.items()}


def traced(tree: PyTree, dtype: Any) -> PyTree:
    """The tree with every floating number an array of this dtype, so that a change of one never recompiles."""

    def leaf(value):
        inexact = isinstance(value, (jax.Array, np.ndarray)) and jnp.issubdtype(value.dtype, jnp.floating)
        return jnp.asarray(value, dtype) if isinstance(value, float) or inexact else value

    return jax.tree.map(leaf, tree)


def wire(task: Task, w0: PyTree) -> list[int]:
    """Bytes of the messages of one round (one client's down and up; along a graph one link's), and of the exchange
    before the first round, where there is one."""
    down, up = jax.eval_shape(
        lambda w0, data: task.exchange.messages(task.algorithm, task.problem, data, task.plan, w0), w0, task.data
    )
    first = tree_bytes(w0) if task.exchange.talks_first(task.algorithm) else 0
    return [tree_bytes(down), tree_bytes(up), first]


def check_room(exchange: Centre | Peers, task: Task, settings: Settings, start: PyTree, up: int, at_hand: bool) -> None:
    """Refuse a run that surely does not fit into memory: what all clients keep before a round and after it, one
    update of each that takes part, and the models that are kept."""
    keeps = jax.eval_shape(lambda w0: exchange.keeps(task.algorithm, task.problem, w0), start)
    plan, model = task.plan, tree_bytes(start)
    states = 2 * tree_bytes(keeps) * plan.clients if at_hand else 0
    machine.require(
        states + plan.participants * up + settings.keep_models * settings.rounds * model,
        f"{type(task.algorithm).__name__} with {plan.clients:,} clients and a model of {machine.size(model)}",
        "take fewer clients per round, or a method that keeps less",
    )


def tree_bytes(tree: PyTree) -> int:
    """Bytes of a tree's arrays, or of what they will be."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def check_numbers(algorithm: AbstractAlgorithm) -> None:
    """Each hyperparameter of a run is one number; several make a grid, which is `tune`'s."""
    for name, leaf in zip(trees.names(algorithm), jax.tree.leaves(algorithm), strict=True):
        if jnp.ndim(leaf):
            raise ValueError(
                f"{type(algorithm).__name__}: {name} must be one number, got an array of shape {jnp.shape(leaf)}; "
                "for several values give cofed.tune a list of algorithms"
            )
