"""A run, checked and put in place: everything but its state."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed._util import machine, trees
from cofed._util.programs import keep_programs
from cofed.algorithms.base import AbstractAlgorithm
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
from cofed.engine.mesh import put_task, spread_data
from cofed.engine.on_disk import OnDisk, check_on_disk, example
from cofed.engine.plan import Plan, check_fit, in_cache, make_plan, pose
from cofed.engine.prefetch import rounds_of
from cofed.engine.server_rounds import Centre
from cofed.engine.spec import RunSpec
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

    spec: RunSpec
    place: InMemory | OnDisk  # where the data lie
    exchange: Centre | Peers
    stages: list[ReadyStage]
    watch: Watch


def prepare(spec: RunSpec) -> Job:
    """Check everything that can be checked before compiling, and put it in place: on the devices of a mesh."""
    problem, federation, algorithm, mesh = spec.problem, spec.federation, spec.algorithm, spec.mesh
    keep_programs()
    problem.check(federation)
    plan = make_plan(federation, spec.local_steps, spec.local_epochs, spec.batch_size, spec.clients_per_round)
    check_stream(federation, plan)
    topology = spec.topology
    if topology is not None and topology.nodes == federation.n_clients:
        topology = topology.for_clients(federation.names)
    exchange = make_exchange(spec, topology)
    check_fit(algorithm, pose(problem, plan), plan)
    place, together, most = lay(spec, plan, exchange)
    data = together if mesh is None else spread_data(together, mesh)
    held_out = None
    if spec.evaluation is not None:
        check_evaluation(problem, federation, spec.evaluation)
        owned = owners(federation, spec.evaluation)
        held_out = traced(data_of(spec.evaluation, "samples", owners=owned), data.dtype)
    start = jax.eval_shape(spec.default_start)
    check_parameters(problem, federation, start)
    check_prediction(traced(problem, federation.dtype), federation, start)
    check_gradient(problem, federation, start)
    check_regularizer(problem, start, "finite" in algorithm.needs)
    own = check_metrics(spec.metrics, start)
    entries = plan.participants + spec.per_client * plan.clients
    if spec.keep_models:
        entries += sum(leaf.size for leaf in jax.tree.leaves(start))
    watch = Watch(spec.per_client, spec.keep_models, max(1, min(most, BUFFER // entries)))

    between = exchange  # what the devices do; the job's own is for what happens in one place
    if mesh is not None and topology is not None:
        assert isinstance(exchange, Peers)
        between = Peers(halo_links(topology, federation.dtype, mesh), exchange.failure)
    stages, end = [], 0
    for stage in algorithm.stages(problem, spec.rounds, spec.local_steps):
        steps = spec.local_steps if stage.local_steps is None else stage.local_steps
        plan = make_plan(federation, steps, spec.local_epochs, spec.batch_size, spec.clients_per_round)
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
        check_room(exchange, task, spec, start, bytes_[1], at_hand=isinstance(place, InMemory))
        stages.append(ReadyStage(task if mesh is None else put_task(task, mesh), end, *bytes_))
    return Job(spec, place, exchange, stages, watch)


def lay(spec: RunSpec, plan: Plan, exchange: Centre | Peers) -> tuple[InMemory | OnDisk, Data, int]:
    """Where the data lie, the data (of clients on disk an example: windows come later), the most rounds of a chunk."""
    federation = spec.federation
    if isinstance(federation, DiskFederation):
        check_on_disk(spec.algorithm, exchange, plan, spec.per_client)
        place = OnDisk(federation, spec.weights, plan, spec.seed, spec.rounds)
        return place, example(federation), rounds_of(federation, plan)
    places = jnp.asarray(np.argsort(np.asarray(federation.ids)), jnp.int32)
    return InMemory(), data_of(federation, spec.weights, places=places), CHUNK


def owners(federation: Federation | DiskFederation, evaluation: Federation) -> Array | None:
    """Where the clients of held-out data are in the federation; None where some are not."""
    if isinstance(federation, DiskFederation):
        return None  # what they are for, clients' own models, is not done on disk
    places = {name: m for m, name in enumerate(federation.names)}
    if not set(evaluation.names) <= set(places):
        return None
    return jnp.asarray([places[name] for name in evaluation.names], jnp.int32)


def check_evaluation(problem: Problem, federation: Federation | DiskFederation, evaluation: Federation) -> None:
    """Held-out data must look like the data."""
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


def make_exchange(spec: RunSpec, topology: Topology | None) -> Centre | Peers:
    """A server, or a graph where a topology is given; refused where the algorithm or a setting does not go with it."""
    algorithm, federation, name = spec.algorithm, spec.federation, spec.algorithm.name
    if topology is None:
        if not algorithm.has_server:
            raise ValueError(f"{name} has no server: give a topology, such as topology=cofed.topologies.ring(16)")
        if spec.link_failure:
            raise ValueError("link_failure is for runs with a topology")
        return Centre()
    if not algorithm.has_gossip:
        raise ValueError(f"{name} needs a server and has no form by gossip; leave topology out, or use DFedDA")
    if topology.nodes != federation.n_clients:
        raise ValueError(f"the topology has {topology.nodes} nodes, but there are {federation.n_clients} clients")
    if spec.clients_per_round is not None:
        raise ValueError("clients_per_round is for runs with a server; by gossip every node takes part in every round")
    if not (isinstance(spec.weights, str) and spec.weights == "uniform"):
        raise ValueError("by gossip all nodes count alike: weights must be 'uniform'")
    dtype = federation.dtype
    return Peers(links(topology, dtype), jnp.asarray(spec.link_failure, dtype) if spec.link_failure else None)


def check_metrics(metrics: Mapping[str, Callable], start: PyTree) -> dict[str, Callable]:
    """Own metrics, tried on the shapes of the model: each must be a function of it that gives one number."""
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


def check_room(exchange: Centre | Peers, task: Task, spec: RunSpec, start: PyTree, up: int, at_hand: bool) -> None:
    """Refuse a run that surely does not fit into memory: what all clients keep before a round and after it, one
    update of each that takes part, and the models that are kept."""
    keeps = jax.eval_shape(lambda w0: exchange.keeps(task.algorithm, task.problem, w0), start)
    plan, model = task.plan, tree_bytes(start)
    states = 2 * tree_bytes(keeps) * plan.clients if at_hand else 0
    machine.require(
        states + plan.participants * up + spec.keep_models * spec.rounds * model,
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
