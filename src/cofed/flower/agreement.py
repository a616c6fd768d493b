"""What follows from what the sites say of themselves: their order, their weights, and the plan of every stage."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from jaxtyping import Array, PyTree

from cofed._util import naming
from cofed.algorithms.base import Stage
from cofed.engine.compatibility import check_fit, check_numbers
from cofed.engine.contracts import check_prediction
from cofed.engine.plan import Plan, make_plan, pose
from cofed.engine.spec import RunSpec
from cofed.flower.messages import SiteInfo, StageOutline, stand_in
from cofed.flower.settings import NetworkSpec, ServerSettings


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What the server and the sites go by."""

    spec: RunSpec  # with a federation of the sites' names, sizes, shapes and types, without their samples
    settings: ServerSettings  # with the number of clients known
    sites: tuple[str, ...]  # a site's id is its place here
    weights: Array  # pi
    most: int  # samples of the largest site
    outputs: int  # classes, where the loss counts them
    example: SiteInfo  # one of them: shapes and types are the same in all
    start: PyTree  # the model to begin with
    stages: tuple[Stage, ...]
    plans: tuple[Plan, ...]

    def outline(self, stage: int) -> StageOutline:
        """The outline of a stage, as it is told to the sites."""
        plan, settings = self.plans[stage], self.settings
        # Where failures are expected, a method must not rely on everybody.
        everyone = plan.everyone and settings.quorum == plan.clients
        return StageOutline(stage, self.spec.rounds, self.spec.local_steps, plan, everyone)

    def end_of(self, stage: int) -> int:
        """The round before which a stage ends."""
        return sum(one.rounds for one in self.stages[: stage + 1])


def agreement(network: NetworkSpec, infos: Mapping[str, SiteInfo]) -> Agreement:
    """What the sites with these infos agree on, or an error where they do not fit together.

    A site that is named in the settings and has not come yet counts as one of average size until it does.
    """
    settings = network.settings.settled(network.settings.clients or len(infos))
    first, *others = infos.values()
    for info in others:
        check_alike(first, info)
    average = dataclasses.replace(first, samples=round(np.mean([info.samples for info in infos.values()])))
    known = {name: dataclasses.replace(average, site=name) for name in settings.names} | dict(infos)
    sites = tuple(sorted(known, key=naming.natural))
    federation = stand_in([known[site] for site in sites])
    network.problem.check(federation)
    spec = RunSpec(
        problem=network.problem,
        federation=federation,
        algorithm=network.algorithm,
        rounds=settings.rounds,
        local_steps=settings.local_steps,
        local_epochs=settings.local_epochs,
        batch_size=settings.batch_size,
        clients_per_round=settings.clients_per_round,
        weights=weights_of(network, sites),
        w0=network.w0,
        seed=settings.seed,
    )
    start = spec.start()
    check_prediction(spec.problem, federation, start)
    stages = tuple(spec.algorithm.stages(spec.problem, spec.rounds, spec.local_steps))
    return Agreement(
        spec=spec,
        settings=settings,
        sites=sites,
        weights=federation.weights(spec.weights),
        most=max(info.samples for info in known.values()),
        outputs=max(info.outputs for info in known.values()),
        example=first,
        start=start,
        stages=stages,
        plans=tuple(plan_of(spec, stage) for stage in stages),
    )


def plan_of(spec: RunSpec, stage: Stage) -> Plan:
    """The shape of a stage's rounds; a stage that does not fit the problem is refused."""
    steps = spec.local_steps if stage.local_steps is None else stage.local_steps
    plan = make_plan(spec.federation, steps, spec.local_epochs, spec.batch_size, spec.clients_per_round)
    check_fit(stage.algorithm, pose(spec.problem, plan), plan)
    check_numbers(stage.algorithm)
    return plan


def weights_of(network: NetworkSpec, sites: tuple[str, ...]) -> str | npt.ArrayLike:
    """The weights as the engine takes them: those that were given by the sites' names in the sites' order."""
    if not isinstance(network.weights, Mapping):
        return network.weights
    missing = [site for site in sites if site not in network.weights]
    if missing:
        raise ValueError(f"weights lacks the sites {missing}")
    return [network.weights[site] for site in sites]


def check_alike(first: SiteInfo, other: SiteInfo) -> None:
    """Refuse two sites whose data cannot belong to one problem."""
    for part, one, two in (
        ("features", first.features, other.features),
        ("targets", first.targets, other.targets),
        ("dtype", first.dtype, other.dtype),
        ("label_dtype", first.label_dtype, other.label_dtype),
    ):
        if one != two:
            raise ValueError(f"the sites {first.site!r} and {other.site!r} have different {part}: {one!r} and {two!r}")
    if first.columns != other.columns:  # hashes, which say nothing to a reader
        raise ValueError(
            f"the sites {first.site!r} and {other.site!r} have other columns, or the same in another order"
        )
