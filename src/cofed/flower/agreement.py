"""What follows from what the sites say of themselves: their order, their weights, and the plan of every stage."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt
from jaxtyping import Array, PyTree

from cofed._util import intake
from cofed.algorithms.base import Stage
from cofed.engine.job import check_numbers, check_prediction
from cofed.engine.plan import Plan, check_fit, make_plan, pose
from cofed.federation import Federation
from cofed.flower.messages import SiteInfo, StageOutline, stand_in
from cofed.flower.settings import NetworkSpec, ServerSettings


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What the server and the sites go by."""

    settings: ServerSettings  # with the number of clients known
    federation: Federation  # the sites' names, sizes, shapes and types, without their samples
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
        return StageOutline(stage, settings.rounds, settings.local_steps, plan, everyone)

    def end_of(self, stage: int) -> int:
        """The round before which a stage ends."""
        return sum(one.rounds for one in self.stages[: stage + 1])


def agreement(spec: NetworkSpec, infos: Mapping[str, SiteInfo]) -> Agreement:
    """What the sites with these infos agree on, or an error where they do not fit together.

    A site that is named in the settings and has not come yet counts as one of average size until it does.
    """
    problem, settings = spec.problem, spec.settings.settled(spec.settings.clients or len(infos))
    first, *others = infos.values()
    for info in others:
        check_alike(first, info)
    average = dataclasses.replace(first, samples=round(np.mean([info.samples for info in infos.values()])))
    known = {name: dataclasses.replace(average, site=name) for name in settings.names} | dict(infos)
    sites = tuple(sorted(known, key=intake.natural))
    federation = stand_in([known[site] for site in sites])
    problem.check(federation)
    start = problem.start(federation, spec.w0, settings.seed)
    check_prediction(problem, federation, start)
    stages, plans = spec.algorithm.stages(problem, settings.rounds, settings.local_steps), []
    for stage in stages:
        steps = settings.local_steps if stage.local_steps is None else stage.local_steps
        plan = make_plan(federation, steps, settings.local_epochs, settings.batch_size, settings.asked)
        check_fit(stage.algorithm, pose(problem, plan), plan)
        check_numbers(stage.algorithm)
        plans.append(plan)
    return Agreement(
        settings=settings,
        federation=federation,
        sites=sites,
        weights=federation.weights(weights_of(spec, sites)),
        most=max(known[site].samples for site in sites),
        outputs=max(known[site].outputs for site in sites),
        example=first,
        start=start,
        stages=tuple(stages),
        plans=tuple(plans),
    )


def weights_of(spec: NetworkSpec, sites: tuple[str, ...]) -> str | npt.ArrayLike:
    """The weights as the engine takes them: those that were given by the sites' names in the sites' order."""
    if not isinstance(spec.weights, Mapping):
        return spec.weights
    missing = [site for site in sites if site not in spec.weights]
    if missing:
        raise ValueError(f"weights lacks the sites {missing}")
    return [spec.weights[site] for site in sites]


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
