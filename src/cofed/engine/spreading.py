"""On how many cores a run is spread where nobody says: as many as pay, by a model of the costs.

Nothing is timed: the same run takes the same cores on the same machine, and so has the same bits every time. The model
counts too little work rather than too much (the products of the gradients, at the speed of a core that does nothing
else), so that it errs on the side of one core.
"""

import dataclasses
import math
import threading
from collections.abc import Sequence

import jax
import numpy as np
from jax.sharding import Mesh

from cofed._util import cores, machine, trees
from cofed._util.caller import warn_caller
from cofed.engine.job import plan_of
from cofed.engine.plan import Plan
from cofed.engine.spec import RunSpec
from cofed.federation import Federation

SPEED = 2e10  # operations of a core in a second
MESSAGE = 2e-4  # seconds until all devices have heard of one another
BANDWIDTH = 2e9  # bytes in a second between devices
PAYS = 0.7  # a round on several cores must take less than this part of one on one core,
SECONDS = 1.0  # and all rounds so much less in all: a program for several devices and copies of the data come before
MEMORY = 0.25  # the part of the memory that is left which copies of the data may take


@dataclasses.dataclass(frozen=True)
class Work:
    """What one run computes, at the least."""

    local: float  # seconds of a round's gradients, on one core
    evaluation: float  # seconds of a round's part of the evaluations
    shares: np.ndarray  # (clients,), the clients' parts of the local work
    participants: int
    message: int  # bytes of the model
    data: int  # bytes
    rounds: int

    @property
    def round(self) -> float:
        """Seconds of a round on one core."""
        return self.local + self.evaluation

    def busiest(self, devices: int) -> float:
        """The part of a round's work that the device with most of it has, where clients are dealt out in blocks.

        >>> import numpy as np
        >>> from cofed.engine.spreading import Work
        >>> Work(1.0, 0.0, np.full(8, 1 / 8), 8, 0, 0, 1).busiest(4)
        0.25
        """
        clients = len(self.shares)
        each = np.pad(self.shares, (0, -clients % devices)).reshape(devices, -1).sum(axis=1).max()
        if self.participants == clients:
            return float(each)
        # Of those who are drawn, about one standard deviation more than its part lives on the busiest.
        return min(1.0, float(each) + math.sqrt((1 - 1 / devices) / devices / self.participants))

    def seconds(self, devices: int) -> float:
        """Seconds of a round with the clients on so many devices."""
        work = self.busiest(devices) * self.local + self.evaluation / devices
        return work + MESSAGE + 2 * self.message / BANDWIDTH


def work_of(spec: RunSpec) -> Work:
    """What a run computes, from its shapes alone."""
    federation, plan = spec.federation, plan_of(spec, spec.local_steps)
    start = jax.eval_shape(spec.default_start)
    # A product with the parameters for the prediction and two for its derivatives: two operations for each entry.
    sample = 6 * sum(leaf.size for leaf in jax.tree.leaves(start)) / SPEED
    samples = samples_of(spec, plan)
    return Work(
        local=sample * float(samples.mean()) * plan.participants,
        evaluation=sample * float(np.sum(np.asarray(federation.sizes, float))) / spec.evaluate_every,
        shares=samples / samples.sum(),
        participants=plan.participants,
        message=trees.nbytes(start),
        data=trees.nbytes(federation),
        rounds=spec.rounds,
    )


def samples_of(spec: RunSpec, plan: Plan) -> np.ndarray:
    """How many samples each client would read in a round."""
    sizes = np.asarray(spec.federation.sizes, float)
    if plan.epochs is not None:
        return plan.epochs * sizes
    steps = plan.steps if spec.steps_by_client is None else np.asarray(spec.steps_by_client, float)
    return steps * (sizes if plan.batch is None else np.full_like(sizes, plan.batch))


def spread(spec: RunSpec, most: int | None) -> RunSpec:
    """The run on as many devices as pay, at most `most` of them; None is as many as there are cores.

    As it is where it has a mesh, or is of a kind that is not spread or does not gain: along a graph there is a message
    for every link, a clock and a robust mean need all clients in one place, and clients on disk are read into one.
    """
    if spec.mesh is not None or not isinstance(spec.federation, Federation):
        return spec
    if spec.topology is not None or spec.clock is not None or spec.mean is not None:
        return spec
    count = usable(most)
    if count < 2 or spec.algorithm.candidates(spec.problem) is not None:
        return spec
    work = work_of(spec)
    best = min(range(1, min(count, work.participants) + 1), key=lambda n: work.seconds(n) if n > 1 else work.round)
    saved = work.rounds * (work.round - work.seconds(best))
    if work.seconds(best) > PAYS * work.round or saved < SECONDS or not fits(work.data):
        return spec
    devices = devices_for(best, waits=True)
    if len(devices) < 2:
        say(f"this run would take about {work.seconds(best) / work.round:.0%} of its time on {best} cores")
        return spec
    return dataclasses.replace(spec, mesh=Mesh(np.array(devices), ("clients",)))


def for_grid(spec: RunSpec, configurations: int, most: int | None, mesh: Mesh | None = None) -> Mesh | None:
    """The devices over which the configurations of a grid are spread, as many as are asked for; None for one place.

    Those of a mesh, where one is given.

    Never unasked: XLA spreads the wide arrays of a grid over the cores by itself, and two devices were no faster.
    """
    given = [] if mesh is None else list(mesh.devices.flat)
    count = 1 if most is None else usable(most)
    count = min(len(given) or count, configurations)
    if count < 2 and not given:
        return None
    data = trees.nbytes(spec.federation)
    machine.require(count * data, f"the clients' data on each of {count} devices", "give fewer cores")
    if given:
        return Mesh(np.array(given[:count]), ("configurations",))
    devices = devices_for(count)
    if len(devices) < 2:
        say(f"the grid was to be spread over {count} cores")
        return None
    return Mesh(np.array(devices), ("configurations",))


def usable(most: int | None) -> int:
    """How many cores may be used here, on a processor and by one process: in a thread of its own a run shares them."""
    aside = jax.default_backend() != "cpu" or jax.process_count() > 1 or jax.config.jax_default_device is not None  # pyright: ignore[reportAttributeAccessIssue]
    if aside or threading.current_thread() is not threading.main_thread():
        return 1
    return min(most or cores.allowed(), 2**10)


def devices_for(count: int, waits: bool = False) -> Sequence[object]:
    """At most so many devices; the first alone where devices that wait for each other could end the process."""
    return jax.local_devices()[: 1 if waits and not cores.split_processor() else count]


def fits(copies: int) -> bool:
    """Whether there is room for copies of the data."""
    there = machine.available()
    return there is None or copies < MEMORY * there


def say(gain: str) -> None:
    """Say what a user could gain."""
    warn_caller(
        f"{gain}, but JAX had started before cofed could split the processor: use cofed before JAX, or set "
        f"JAX_NUM_CPU_DEVICES; {cores.VARIABLE}=1 says that one core is enough"
    )
