"""What follows from the sites' cards: their order and weights, and the plan of every stage."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
from jaxtyping import Array, PyTree

from cofed._util import naming
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.job import check_numbers, check_prediction
from cofed.engine.plan import Plan, check_fit, make_plan, pose
from cofed.flower.messages import Card, stand_in
from cofed.flower.settings import Settings
from cofed.problem import Problem


@dataclasses.dataclass(frozen=True)
class Agreement:
    """What server and sites go by."""

    sites: tuple[str, ...]  # a site's id is its place here
    pi: Array  # their weights
    most: int  # samples of the largest one
    outputs: int  # classes, where the loss counts them
    card: Card  # one of them: shapes and types are the same in all
    start: PyTree  # the model to begin with
    stages: list[Any]
    plans: list[Plan]


def agreement(
    problem: Problem,
    algorithm: AbstractAlgorithm,
    settings: Settings,
    weights: Any,
    w0: Any,
    told: Mapping[str, Card],
) -> Agreement:
    """What the cards that were told come to, or a sentence where they do not fit together.

    A site that is named in the settings and has not come yet counts as one of middling size until it tells its own.
    """
    first, *others = told.values()
    for card in others:
        for part in ("features", "targets", "dtype", "label_dtype", "columns"):
            if getattr(card, part) != getattr(first, part):
                raise ValueError(different(part, first, card))
    middling = dataclasses.replace(first, samples=round(np.mean([card.samples for card in told.values()])))
    awaited = {name: dataclasses.replace(middling, site=name) for name in settings.names}
    sites = tuple(sorted({**awaited, **told}, key=naming.natural))
    cards = [(awaited | dict(told))[site] for site in sites]
    federation = stand_in(cards)
    problem.check(federation)
    if isinstance(weights, Mapping):
        missing = [site for site in sites if site not in weights]
        if missing:
            raise ValueError(f"weights lacks the sites {missing}")
        weights = [weights[site] for site in sites]
    start = problem.start(federation, w0, settings.seed)
    check_prediction(problem, federation, start)
    stages = algorithm.stages(problem, settings.rounds, settings.local_steps)
    plans = []
    for stage in stages:
        steps = settings.local_steps if stage.local_steps is None else stage.local_steps
        plan = make_plan(federation, steps, settings.local_epochs, settings.batch_size, settings.asked)
        check_fit(stage.algorithm, pose(problem, plan), plan)
        check_numbers(stage.algorithm)
        plans.append(plan)
    return Agreement(
        sites=sites,
        pi=federation.weights(weights),
        most=max(card.samples for card in cards),
        outputs=max(card.outputs for card in cards),
        card=first,
        start=start,
        stages=list(stages),
        plans=plans,
    )


def different(part: str, first: Card, other: Card) -> str:
    """What differs between two sites."""
    if part == "columns":  # hashes, which say nothing to a reader
        return f"the sites {first.site!r} and {other.site!r} have other columns, or the same in another order"
    return (
        f"the sites {first.site!r} and {other.site!r} have different {part}: "
        f"{getattr(first, part)!r} and {getattr(other, part)!r}"
    )
