"""Whether the parts of a run fit each other: checked before anything is compiled, each refusal in a sentence.

What an argument is by itself is checked in `spec.py`, and whether the parts can be computed at all in `contracts.py`.
"""

import dataclasses
from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from cofed._util import checks, machine, trees
from cofed.algorithms import base
from cofed.algorithms.base import AbstractAlgorithm
from cofed.algorithms.probe import Probe
from cofed.batches import Batch
from cofed.clocks import Clock
from cofed.engine.contracts import in_a_line, metric_arguments
from cofed.engine.data import Data
from cofed.engine.drawn_clients import BLOCK, DrawnClients
from cofed.engine.evaluate import of_data
from cofed.engine.history import COLUMNS
from cofed.engine.plan import Plan
from cofed.engine.server_rounds import ServerTask
from cofed.engine.spec import RunSpec
from cofed.engine.steps import client_round
from cofed.engine.task import AbstractTask
from cofed.federation import AbstractFederation, DiskFederation, Federation
from cofed.problem import Problem
from cofed.samplers import AbstractSampler, ByFunction

TServer = TypeVar("TServer", bound=ServerTask)

RESERVED = {
    *COLUMNS,
    *("participants", "left_out", "bytes_down", "bytes_up", "seconds", "stage", "client_loss", "consensus"),
    "simulated_seconds",
    *(f"personal_{name}" for name in ("objective", "loss", "accuracy", "test_loss", "test_accuracy")),
} - {"density", "rank", "accuracy"}  # what the loss and regularizer add may be measured in another way


def check_communication(spec: RunSpec) -> None:
    """Refuse a method, or settings, that do not go with a server or, where a topology is given, with a graph."""
    algorithm, topology = spec.algorithm, spec.topology
    if topology is None:
        if not algorithm.has_server:
            raise ValueError(
                f"{algorithm.name} has no server: give a topology, such as topology=cofed.topologies.ring(16)"
            )
        if spec.link_failure:
            raise ValueError("link_failure is for runs with a topology")
        return
    if not algorithm.has_gossip:
        raise ValueError(
            f"{algorithm.name} needs a server and has no form by gossip; leave topology out, or use DFedDA"
        )
    clients = spec.federation.n_clients
    if topology.nodes != clients:
        raise ValueError(f"the topology has {topology.nodes} nodes, but there are {clients} clients")
    if spec.clients_per_round is not None:
        raise ValueError("clients_per_round is for runs with a server; by gossip every node takes part in every round")
    if not (isinstance(spec.weights, str) and spec.weights == "uniform"):
        raise ValueError("by gossip all nodes count alike: weights must be 'uniform'")


def check_stages(spec: RunSpec) -> None:
    """Clients that are always at work, as on a clock, or work by lists of their own, cannot begin a stage together."""
    if spec.clock is None and spec.steps_by_client is None:
        return
    if len(spec.algorithm.stages(spec.problem, spec.rounds, spec.local_steps)) > 1:
        what = "clock= out" if spec.steps_by_client is None else "a list of local_steps out: give one number"
        raise ValueError(f"{spec.algorithm.name} works in stages, which all clients go through together: leave {what}")


def check_sampler(task: ServerTask, start: PyTree) -> None:
    """Refuse a sampler whose unbiased mean a method cannot use: what its clients keep follows the plain one."""
    sampler, clients = task.sampler, task.plan.clients
    if task.plan.plain or sampler is None:
        return
    draw = jax.eval_shape(lambda key: sampler.draw(key, jnp.zeros((), jnp.int32), clients), jax.random.key(0))
    if draw.chance is not None and jax.tree.leaves(jax.eval_shape(task.client_state, start)):
        raise ValueError(
            f"{type(sampler).__name__} counts clients by their chances, which is for methods whose clients keep "
            f"nothing between rounds, such as FedAvg or FedDualAvg; clients of {task.algorithm.name} keep something "
            "that the server counts by the weights"
        )


def check_draws(spec: RunSpec) -> None:
    """Refuse a sampler of one's own that draws, in some round of the run, clients that there are not, or one twice."""
    sampler, clients = spec.clients_per_round, spec.federation.n_clients
    if not isinstance(sampler, AbstractSampler):
        return
    if type(sampler).__module__.startswith("cofed.") and not isinstance(sampler, ByFunction):
        return
    drawn = DrawnClients.of(spec)
    for first in range(0, spec.rounds, BLOCK):
        found = np.asarray(drawn.rounds(first, BLOCK).clients)[: spec.rounds - first]
        ids = np.sort(found, axis=1)
        wrong = (ids[:, 0] < 0) | (ids[:, -1] >= clients) | (np.diff(ids, axis=1) == 0).any(axis=1)
        if wrong.any():
            round = int(np.argmax(wrong))
            raise ValueError(
                f"{type(sampler).__name__}.draw must give {ids.shape[1]} distinct ids from 0 to {clients - 1}, got "
                f"{found[round].tolist()} in round {first + round}"
            )


def with_mean(task: TServer, start: PyTree) -> TServer:
    """The task with its mean fitted to what the method's clients send.

    Refused are a mean for a method whose clients keep what follows the plain one, and one of another shape.
    """
    mean = task.mean
    if mean is None:
        return task
    name = type(mean).__name__
    if jax.tree.leaves(jax.eval_shape(task.client_state, start)):
        raise ValueError(
            f"mean={name} is for methods whose clients keep nothing between rounds, such as FedAvg or FedDualAvg; what "
            f"clients of {task.algorithm.name} keep follows the mean by the weights"
        )
    if not task.plan.plain and task.sampler is not None:
        raise ValueError(f"mean={name} takes updates by their weights: give clients_per_round as a number")
    up = jax.eval_shape(lambda w0, data: dataclasses.replace(task, data=data).messages(w0), start, task.data).up
    sent = jax.eval_shape(lambda up: base.expanded(task.algorithm, jax.tree.map(lambda leaf: leaf[None], up)), up)
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), sent)
    many = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct((task.plan.participants, *leaf.shape), leaf.dtype), one)
    weights = jax.ShapeDtypeStruct((task.plan.participants,), task.data.dtype)
    fitted = mean.fitted(task.algorithm.name, *tried(task, start))
    try:
        found = jax.eval_shape(fitted.drawn, many, weights, jax.random.key(0))
    except Exception as error:
        raise ValueError(f"{name}.of(updates, weights) must be computed by JAX, but {in_a_line(error)}") from error
    if jax.tree.structure(found) != jax.tree.structure(one) or found != one:
        raise ValueError(f"{name}.of(updates, weights) must give one update, {one}, but gave {found}")
    return dataclasses.replace(task, mean=fitted)


def tried(task: ServerTask, start: PyTree) -> tuple[PyTree, Callable[[float], PyTree]]:
    """A model of ones, and what a client sends from it whose gradients have a value in every entry."""
    method, zero = task.algorithm, jnp.zeros((), task.data.dtype)
    problem = dataclasses.replace(task.problem, regularizer=Problem().regularizer)  # none
    w0 = jax.tree.map(lambda leaf: jnp.ones(leaf.shape, leaf.dtype), start)

    def sent(value: float) -> PyTree:
        down = method.broadcast(method.init(problem, w0))
        return method.local(problem, down, method.init_client(problem, w0), Probe(zero, zero + 2, value, 2))[0]

    return w0, sent


def check_late(task: ServerTask, clock: Clock, start: PyTree) -> None:
    """Refuse late updates for a method that numbers its steps over all rounds, and ones that count less for a method
    whose clients keep what follows the mean by the weights."""
    staleness, method = float(clock.staleness), task.algorithm
    if task.plan.everyone:
        return
    if method.counts_rounds and method.equal_steps:
        raise ValueError(
            f"{method.name} numbers its steps over all rounds, and a late update is one of an earlier number, which "
            "undoes what has come since: on a clock leave clients_per_round out, or take FedDualAvg"
        )
    if staleness > 0 and jax.tree.leaves(jax.eval_shape(task.client_state, start)):
        raise ValueError(
            f"a clock with staleness={staleness:g} counts late updates less, which is for methods whose clients keep "
            f"nothing between rounds, such as FedAvg or FedDualAvg; what clients of {task.algorithm.name} keep follows "
            "the mean by the weights: give the clock staleness=0"
        )


def check_batches(task: AbstractTask) -> None:
    """Refuse a batch sampler whose batches are none, tried on the shapes of the first client."""
    batches, plan = task.batches, task.plan
    if batches is None:
        return
    name, shape = type(batches).__name__, (plan.steps, plan.batch)

    def draw(data: Data) -> PyTree:
        return batches.draw(client_round(data, plan, *task.first_client()))

    try:
        drawn = jax.eval_shape(draw, task.data)
    except Exception as error:
        raise ValueError(f"{name}.draw(round) must be computed by JAX, but {in_a_line(error)}") from error
    if not isinstance(drawn, Batch) or drawn.rows.shape != shape or drawn.rows.dtype != jnp.int32:
        raise ValueError(
            f"{name}.draw(round) must give a cofed.batches.Batch with rows of shape {shape} as int32, got "
            f"{checks.shown(drawn)}"
        )
    share = drawn.share
    if share is not None and (share.shape != shape or share.dtype != task.data.dtype):
        raise ValueError(
            f"{name}.draw(round) must give a share of shape {shape} as {task.data.dtype}, got {checks.shown(share)}"
        )


def check_on_disk(spec: RunSpec, plan: Plan) -> None:
    """Of clients on disk, refuse what needs everybody's data at once, and say what to do instead."""
    memory = "read the clients into memory (Federation.from_parquet without on_disk, or federation.select) for that"
    if spec.topology is not None:
        raise ValueError(f"by gossip every node works in every round, which clients on disk cannot: {memory}")
    if plan.everyone:
        raise ValueError(
            f"clients on disk take part by turns: give clients_per_round, fewer than the {plan.clients} clients; for "
            f"everybody in every round, {memory}"
        )
    if spec.algorithm.is_personal:
        raise ValueError(
            f"{type(spec.algorithm).__name__} keeps a model for each client and measures each on its own data: {memory}"
        )
    if spec.per_client:
        raise ValueError(f"per_client=True records a number per client in every row: {memory}")


def check_evaluation(problem: Problem, federation: AbstractFederation, evaluation: Federation) -> None:
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


def check_stream(federation: AbstractFederation, plan: Plan) -> None:
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


def check_metrics(spec: RunSpec, start: PyTree) -> None:
    """The user's metrics, tried on shapes: each must be a function of the model, or of data, that gives one number."""
    metrics, on_data = spec.metrics, of_data(dict(spec.metrics))
    if on_data and not spec.federation.at_hand and spec.evaluation is None:
        raise ValueError(
            f"the metrics {sorted(on_data)} see every client's data, which clients on disk and streams do not have at "
            "hand: give an evaluation federation to measure on"
        )
    derived = {f"{kind}{name}" for name in on_data for kind in ("test_", "personal_", "personal_test_")}
    by_node = {f"{name}_{part}" for name in ("objective", *metrics) for part in ("min", "mean", "max")}
    taken = sorted(set(metrics) & (RESERVED | by_node | derived) | {name for name in on_data if "test_" in name})
    if taken:
        raise ValueError(f"the history has columns of its own named {taken}; give these metrics other names")
    for name, metric in metrics.items():
        try:
            given = metric_arguments(spec.problem, spec.federation, metric, start)
            shape = jax.eval_shape(lambda *given, metric=metric: jnp.asarray(metric(*given)), *given).shape
        except Exception as error:
            of = "predictions and labels" if name in on_data else "the model"
            raise ValueError(
                f"the metric {name!r} cannot be computed from {of} by JAX ({in_a_line(error)}); use jax.numpy"
            ) from error
        if shape != ():
            raise ValueError(f"the metric {name!r} must give one number, got an array of shape {shape}")


def check_refusal(algorithm: AbstractAlgorithm, problem: Problem) -> None:
    """Refuse a problem that lacks what the algorithm needs."""
    reason = base.refusal(algorithm, problem)
    if reason:
        raise ValueError(reason)


def check_fit(algorithm: AbstractAlgorithm, problem: Problem, plan: Plan) -> None:
    """Refuse a pair of algorithm and problem that does not fit."""
    check_refusal(algorithm, problem)
    if algorithm.equal_steps and not plan.equal:
        if plan.epochs is None:
            raise ValueError(f"{algorithm.name} needs the same number of local_steps on all clients: give one number")
        raise ValueError(
            f"{algorithm.name} needs the same number of local steps on all clients, but local_epochs="
            f"{plan.epochs} with batch_size={plan.batch} gives clients of different sizes different numbers; "
            "give local_steps instead"
        )

    if algorithm.is_row_private and not plan.one_pass:
        raise ValueError(
            f"{algorithm.name} counts on each row being in one local step of a round; give local_epochs=1 and a "
            "batch_size"
        )


def check_numbers(algorithm: AbstractAlgorithm) -> None:
    """Each hyperparameter of a run is one number; several make a grid, which is `tune`'s."""
    for name, leaf in zip(trees.names(algorithm), jax.tree.leaves(algorithm), strict=True):
        if jnp.ndim(leaf):
            raise ValueError(
                f"{type(algorithm).__name__}: {name} must be one number, got an array of shape {jnp.shape(leaf)}; "
                "for several values give cofed.tune a list of algorithms"
            )


def check_memory(task: AbstractTask, spec: RunSpec, start: PyTree, up: int) -> None:
    """Refuse a run that surely does not fit into memory.

    What is counted: what all clients keep before a round and after it, one update of `up` bytes of each that takes
    part, and the models that are kept.
    """
    plan, model = task.plan, trees.nbytes(start)
    states = 0
    if not isinstance(spec.federation, DiskFederation):
        states = 2 * trees.nbytes(jax.eval_shape(task.client_state, start)) * plan.clients
    machine.require(
        states + plan.participants * up + spec.keep_models * spec.rounds * model,
        f"{type(task.algorithm).__name__} with {plan.clients:,} clients and a model of {machine.size(model)}",
        "take fewer clients per round, or a method that keeps less",
    )
