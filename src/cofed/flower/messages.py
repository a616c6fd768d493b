"""What server and sites agree on: a site's card before round one, and the terms of every round's message."""

import dataclasses
import hashlib
import json
from typing import Any

import jax
import numpy as np

from cofed._util import naming
from cofed.engine.job import traced
from cofed.engine.plan import Plan, pose
from cofed.federation import Federation
from cofed.federation.rows import Rows
from cofed.flower.wire import WireError, clipped
from cofed.problem import Problem

TEXT = 200  # the longest name


@dataclasses.dataclass(frozen=True)
class Card:
    """What a site says of itself before round one. No sample is in it: counts, shapes and types only."""

    site: str
    samples: int
    features: list[int]  # the shape of one x
    targets: list[int]  # the shape of one label
    dtype: str
    label_dtype: str
    columns: str  # a hash of the feature names in their order; empty without names
    outputs: int  # classes, where the loss counts them; else 0
    lowest: int  # the smallest class label (0 or -1 for two classes); 0 where the loss knows no classes

    @classmethod
    def of(cls, site: str, problem: Problem, federation: Federation) -> "Card":
        """The card of a site's own data."""
        y = federation.labels()
        classes = problem.loss.has_accuracy
        columns = federation.feature_names
        return cls(
            site=site,
            samples=federation.n_samples,
            features=list(federation.feature_shape),
            targets=list(federation.target_shape),
            dtype=str(federation.dtype),
            label_dtype=str(y.dtype),
            columns="" if columns is None else hashlib.sha256(json.dumps(columns).encode()).hexdigest(),
            outputs=problem.loss.outputs(y) or 0,
            lowest=int(y.min()) if classes else 0,
        )

    @classmethod
    def read(cls, head: dict[str, Any]) -> "Card":
        """The card in a reply's head, or a sentence."""
        values = fields(cls, head)
        card = cls(**values)
        sizes = [*card.features, *card.targets]
        if not card.site or len(card.site) > TEXT or not card.site.isprintable():
            raise WireError(f"the site's name is {clipped(card.site)}")
        if not 0 < card.samples < 2**31 or any(not 0 < size < 2**31 for size in sizes):
            raise WireError(f"the site's data have {card.samples} samples of shape {clipped(sizes)}")
        if card.dtype not in ("float32", "float64") or card.label_dtype not in ("float32", "float64", "int32"):
            raise WireError(f"the site's data are of dtype {clipped(card.dtype)}, {clipped(card.label_dtype)}")
        return card

    def entries(self) -> dict[str, Any]:
        """The card as entries of a head."""
        return dataclasses.asdict(self)


@dataclasses.dataclass(frozen=True)
class Terms:
    """What a client must know in a round beside the arrays: the same for every client but for `id` and `counted`."""

    seed: int
    rounds: int
    round: int  # over all stages
    begun: int  # the round in which the stage began
    stage: int
    local_steps: int  # as asked for; 0: none
    steps: int
    equal: bool
    epochs: int  # 0: none
    batch: int  # 0: the full local gradient
    participants: int
    clients: int
    everyone: bool  # whether every client is in every round, without fail
    most: int  # the samples of the largest client, which shuffles know
    outputs: int
    id: int  # the rank of the client's name
    counted: int  # the last round of this stage in which the client's update counted; -1: none yet
    evaluate: bool  # whether the loss of the model that came along is asked for
    last: bool  # whether this is the piece of work after the last round
    clip: float  # 0: no differential privacy
    noise: float

    @classmethod
    def read(cls, head: dict[str, Any]) -> "Terms":
        """The terms in a message's head, or a sentence."""
        return cls(**fields(cls, head))

    def entries(self) -> dict[str, Any]:
        """The terms as entries of a head."""
        return dataclasses.asdict(self)

    @property
    def plan(self) -> Plan:
        """The shape of a round."""
        return Plan(self.steps, self.equal, self.epochs or None, self.batch or None, self.participants, self.clients)


def fields(kind: type, head: dict[str, Any]) -> dict[str, Any]:
    """The entries of a head that make up this record, each of its type."""
    found = {}
    types = {"int": int, "str": str, "bool": bool, "float": float}
    for field in dataclasses.fields(kind):
        value, name = head.get(field.name), getattr(field.type, "__name__", str(field.type))
        fits = (
            isinstance(value, list) and all(type(entry) is int for entry in value)
            if name.startswith("list")
            else type(value) is types[name]
        )
        if not fits:
            raise WireError(f"the head's entry {field.name} is {clipped(value)}, expected {name}")
        found[field.name] = value
    return found


def posed(problem: Problem, algorithm: Any, terms: Terms, dtype: Any) -> tuple[Problem, Any]:
    """The problem and the stage's algorithm, as both ends compute with them."""
    stages = algorithm.stages(problem, terms.rounds, terms.local_steps or None)
    if not 0 <= terms.stage < len(stages):
        raise WireError(f"the message is of stage {terms.stage}, but there are {len(stages)}")
    problem = dataclasses.replace(pose(problem, terms.plan), everyone=terms.everyone)
    return traced(problem, dtype), traced(stages[terms.stage].algorithm, dtype)


def stand_in(cards: list[Card]) -> Federation:
    """A federation with the sites' names, sizes, shapes and types, but none of their samples: what the engine's checks
    and the model's start look at."""
    first = cards[0]
    labels = np.zeros((len(cards), 1, *first.targets), first.label_dtype)
    for place, card in enumerate(cards):
        labels[place] = card.outputs - 1 if card.outputs else card.lowest
    if first.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    site_names = tuple(card.site for card in cards)
    return Federation(
        rows=Rows(np.zeros((len(cards), 1, *first.features), first.dtype), labels),
        sizes=np.array([card.samples for card in cards], np.int32),
        ids=naming.ranks(site_names),
        names=site_names,
    )
