"""Cut a grid of configurations into parts that can run as one program each."""

import dataclasses
from collections.abc import Hashable, Sequence

import jax
from jaxtyping import PyTree

from cofed._util import trees
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.compatibility import check_refusal
from cofed.engine.job import Job, traced
from cofed.engine.spec import RunSpec
from cofed.engine.state import State

MEMORY = 2**31  # bytes that the configurations of one slice may take together


@dataclasses.dataclass
class Group:
    """Configurations that differ in numbers only, and so can run as one program."""

    members: list[int]  # their places in the grid
    stages: list[list[AbstractAlgorithm]]  # for each its algorithms, stage by stage, with numbers as arrays


def group_by_program(algorithms: Sequence[AbstractAlgorithm], spec: RunSpec) -> list[Group]:
    """The configurations of a grid in groups that share a program, after a check that each fits the problem."""
    groups: dict[Hashable, Group] = {}
    for i, algorithm in enumerate(algorithms):
        check_refusal(algorithm, spec.problem)
        stages = algorithm.stages(spec.problem, spec.rounds, spec.local_steps)
        methods = [traced(stage.algorithm, spec.federation.dtype) for stage in stages]
        shapes = tuple(leaf.shape for leaf in jax.tree.leaves(methods))
        ends = tuple((stage.rounds, stage.local_steps) for stage in stages)
        group = groups.setdefault((jax.tree.structure(methods), shapes, ends), Group([], []))
        group.members.append(i)
        group.stages.append(methods)
    return list(groups.values())


def slices(count: int, job: Job, start: PyTree, memory: int) -> list[range]:
    """Slices of a group of `count` configurations whose states, and what a round makes of them, fit into memory."""
    state = state_shapes(job, start)
    states = trees.nbytes((state.server, state.clients))
    one = 3 * states + 6 * job.stages[0].task.plan.participants * trees.nbytes(start)
    width = max(1, int(memory // one))
    return [range(i, min(i + width, count)) for i in range(0, count, width)]


def state_shapes(job: Job, start: PyTree) -> State:
    """The shapes of a configuration's state before the first round."""
    task = job.stages[0].task
    return jax.eval_shape(lambda: task.begin(task.spread_start(start), jax.random.key(0), 0))
