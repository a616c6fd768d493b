"""A run, checked and put in place: everything but its state."""

import contextlib
import dataclasses
from collections.abc import Hashable
from typing import TypeVar, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, PyTree

from cofed._util import trees
from cofed._util.programs import keep_programs
from cofed._util.scalars import constant
from cofed._util.threads import one_thread
from cofed.algorithms.base import AbstractGossipAlgorithm, AbstractServerAlgorithm, Stage
from cofed.engine import compatibility, contracts
from cofed.engine.buffered_rounds import BufferedTask
from cofed.engine.data import Data, data_of
from cofed.engine.gossip_rounds import GossipTask
from cofed.engine.halo import halo_links
from cofed.engine.inmemory import AbstractStorage, InMemory
from cofed.engine.mesh import put_task, spread_data
from cofed.engine.on_disk import OnDisk, example
from cofed.engine.plan import Plan, in_cache, make_plan, pose
from cofed.engine.prefetch import rounds_of
from cofed.engine.server_rounds import ServerTask
from cofed.engine.spec import RunSpec
from cofed.engine.task import AbstractTask, Recording
from cofed.federation import AbstractFederation, DiskFederation, Federation
from cofed.gossip.topologies import links

T = TypeVar("T")

BUFFER = 2**24  # entries that a chunk of rounds may record
CHUNK = 512  # the most rounds of a chunk


@dataclasses.dataclass
class ReadyStage:
    """A stage, ready to run."""

    task: AbstractTask  # on the devices of a mesh, where there is one
    here: AbstractTask  # in one place: what states that were gathered are read with
    end: int  # the round before which it ends
    down: int  # bytes to one client in one round
    up: int  # bytes from one client in one round; along a graph, of one message to a neighbour
    first: int  # bytes of a message in the exchange before the first round


@dataclasses.dataclass
class Job:
    """Everything that a run needs but its state."""

    spec: RunSpec
    storage: AbstractStorage  # where the data lie
    stages: list[ReadyStage]
    watched: bool = False  # whether callbacks see the models of the rows


def prepare(spec: RunSpec, watched: bool = False) -> Job:
    """Check everything that can be checked before compiling, and put it in place: on the devices of a mesh.

    Models are recorded where they are kept, or `watched` by callbacks.
    """
    keep_programs()
    topology = spec.topology
    if topology is not None and topology.nodes == spec.federation.n_clients:
        spec = dataclasses.replace(spec, topology=topology.for_clients(spec.federation.names))
    plan = plan_of(spec, spec.local_steps)
    start = check(spec, plan)
    storage, data, most = lay(spec, plan)
    spread = data if spec.mesh is None else spread_data(data, spec.mesh)
    measuring = {
        "held_out": held_out(spec, data),
        "metrics": {name: traced(metric, trees.dtype(start)) for name, metric in spec.metrics.items()},
        "recording": recording(spec, watched, plan, start, most),
        "batches": traced(spec.batches, data.dtype),
    }
    stages, end, sizes = [], 0, {}
    for stage in spec.algorithm.stages(spec.problem, spec.rounds, spec.local_steps):
        here = dataclasses.replace(make_task(spec, stage, start, data), **measuring)
        compatibility.check_batches(here)
        kind = program_of(here)
        if kind not in sizes:
            sizes[kind] = here.message_bytes(start)
        down, up, first = sizes[kind]
        compatibility.check_memory(here, spec, start, up)
        end += stage.rounds
        stages.append(ReadyStage(on_mesh(here, spec, spread), here, end, down, up, first))
    return Job(spec, storage, stages, watched)


def program_of(task: AbstractTask) -> Hashable:
    """What tells the programs of a run's stages apart: those that agree in this run the same one."""
    return task.plan, jax.tree.structure(task.algorithm)


def linear_algebra(spec: RunSpec) -> contextlib.AbstractContextManager:
    """How LAPACK works while a run is under way: on one thread where every local step takes an SVD.

    Its threads would wait for one another between small pieces of work: 20 times the processor time for 256 x 256 on a
    busy machine, with the same bits.
    """
    return one_thread() if spec.problem.regularizer.structure == "rank" else contextlib.nullcontext()


def check(spec: RunSpec, plan: Plan) -> PyTree:
    """Refuse a run whose parts do not fit each other, or cannot be computed; else the shapes of its parameters."""
    problem, federation = spec.problem, spec.federation
    problem.check(federation)
    compatibility.check_stream(federation, plan)
    compatibility.check_communication(spec)
    compatibility.check_fit(spec.algorithm, pose(problem, plan), plan)
    compatibility.check_stages(spec)
    compatibility.check_draws(spec)
    if isinstance(federation, DiskFederation):
        compatibility.check_on_disk(spec, plan)
    if spec.evaluation is not None:
        compatibility.check_evaluation(problem, federation, spec.evaluation)
    start = jax.eval_shape(spec.default_start)
    contracts.check_parameters(problem, federation, start)
    contracts.check_prediction(traced(problem, federation.dtype), federation, start)
    contracts.check_gradient(problem, federation, start)
    contracts.check_regularizer(problem, start, "finite" in spec.algorithm.needs)
    compatibility.check_metrics(spec, start)
    return start


def plan_of(spec: RunSpec, local_steps: int | None) -> Plan:
    """The plan of a run, or of a stage with its own local steps."""
    plan = make_plan(spec.federation, local_steps, spec.local_epochs, spec.batch_size, spec.clients_per_round)
    return plan if spec.steps_by_client is None else dataclasses.replace(plan, equal=False)


def lay(spec: RunSpec, plan: Plan) -> tuple[AbstractStorage, Data, int]:
    """Where the data lie, the data (of clients on disk an example: windows come later), the most rounds of a chunk."""
    federation = spec.federation
    if isinstance(federation, DiskFederation):
        return OnDisk(spec, federation, plan), example(federation), rounds_of(federation, plan)
    assert isinstance(federation, Federation)
    places = constant(spec.order, jnp.int32)
    data = data_of(federation, spec.weights, places=places)
    if spec.steps_by_client is not None:
        data = dataclasses.replace(data, steps=constant(spec.steps_by_client, jnp.int32))
    return InMemory(), data, CHUNK


def recording(spec: RunSpec, watched: bool, plan: Plan, start: PyTree, most: int) -> Recording:
    """What a chunk records, and the most rounds of one whose records stay small."""
    entries, models = plan.participants + spec.client_entries, spec.keep_models or watched
    if models:
        entries += sum(leaf.size for leaf in jax.tree.leaves(start))
    return Recording(spec.per_client, models, max(1, min(most, BUFFER // entries)))


def held_out(spec: RunSpec, data: Data) -> Data | None:
    """The held-out data, where there is any."""
    if spec.evaluation is None:
        return None
    owned = owners(spec.federation, spec.evaluation)
    return traced(data_of(spec.evaluation, "samples", owners=owned), data.dtype)


def owners(federation: AbstractFederation, evaluation: Federation) -> Array | None:
    """Where the clients of held-out data are in the federation; None where some are not."""
    if isinstance(federation, DiskFederation):
        return None  # what they are for, clients' own models, is not done on disk
    places = {name: m for m, name in enumerate(federation.names)}
    if not set(evaluation.names) <= set(places):
        return None
    return constant([places[name] for name in evaluation.names], jnp.int32)


def make_task(spec: RunSpec, stage: Stage, start: PyTree, data: Data) -> AbstractTask:
    """What the rounds of a stage work with, in one place, but for what is recorded."""
    problem, dtype = spec.problem, spec.federation.dtype
    plan = plan_of(spec, spec.local_steps if stage.local_steps is None else stage.local_steps)
    plan = in_cache(plan, dtype.itemsize * spec.federation.n_features, trees.nbytes(start))
    posed = pose(problem, plan)
    compatibility.check_fit(stage.algorithm, posed, plan)
    compatibility.check_numbers(stage.algorithm)
    contracts.check_round(stage.algorithm, posed, start, spec.topology is not None)
    algorithm, posed = traced(stage.algorithm, data.dtype), traced(posed, data.dtype)
    if spec.topology is None:
        mean = traced(spec.mean, data.dtype)
        through_server = cast(AbstractServerAlgorithm, algorithm), posed, data, plan
        if spec.clock is not None:
            task = BufferedTask(*through_server, mean=mean, clock=traced(spec.clock, data.dtype))
            compatibility.check_late(task, spec.clock, start)
        else:
            task = ServerTask(*through_server, mean=mean, sampler=traced(spec.sampler, data.dtype))
        compatibility.check_sampler(task, start)
        return compatibility.with_mean(task, start)
    failure = constant(spec.link_failure, dtype) if spec.link_failure else None
    method = cast(AbstractGossipAlgorithm, algorithm)
    return GossipTask(method, posed, data, plan, links=links(spec.topology, dtype), failure=failure)


def on_mesh(task: AbstractTask, spec: RunSpec, data: Data) -> AbstractTask:
    """The task on the devices of the run's mesh, over which its data are spread; as it is where there is none."""
    if spec.mesh is None:
        return task
    if spec.topology is not None:
        task = dataclasses.replace(task, links=halo_links(spec.topology, spec.federation.dtype, spec.mesh))
    return put_task(task, spec.mesh, data)


def traced(tree: T, dtype: npt.DTypeLike) -> T:
    """The tree with every floating number an array of this dtype, so that a change of one never recompiles."""

    def leaf(value):
        inexact = isinstance(value, (jax.Array, np.ndarray)) and jnp.issubdtype(value.dtype, jnp.floating)
        if isinstance(value, float):
            return constant(value, dtype)
        return jnp.asarray(value, np.dtype(dtype)) if inexact else value

    return jax.tree.map(leaf, tree)
