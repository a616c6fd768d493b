"""What the heads of messages say: who a site is, and what it is to do in a round. Each is checked when it is read."""

import dataclasses
import functools
import hashlib
import json
from typing import NamedTuple, TypeVar, cast

import jax
import numpy as np
import numpy.typing as npt

from cofed._util import naming
from cofed.algorithms.base import AbstractAlgorithm, AbstractServerAlgorithm
from cofed.engine.job import traced
from cofed.engine.plan import Plan, pose
from cofed.federation import Federation
from cofed.federation.rows import Rows
from cofed.flower.wire import FORMAT, Head, WireError, clipped, definition
from cofed.problem import Problem
from cofed.sites.packing import Malformed
from cofed.sites.secure.sum_request import SumRequest, read_sum

LONGEST_NAME = 200  # characters
SCORES = ("loss", "accuracy")  # what a site says of a model, in the order in which masked sums have them
SCALARS = {"int": int, "str": str, "bool": bool, "float": float}
R = TypeVar("R", bound="HeadRecord")


@dataclasses.dataclass(frozen=True)
class HeadRecord:
    """A record whose fields are entries of a message's head."""

    @classmethod
    def read(cls: type[R], head: Head) -> R:
        """The record in a head; an entry that is missing or of another type is refused."""
        found = {}
        for field in dataclasses.fields(cls):
            value, name = head.get(field.name), type_name(field)
            if name.startswith("list"):
                fits = isinstance(value, list) and all(type(entry) is int for entry in value)
            else:
                fits = type(value) is SCALARS[name]
            if not fits:
                raise WireError(f"the head's entry {field.name} is {clipped(value)}, expected {name}")
            found[field.name] = value
        return cls(**found)

    def entries(self) -> Head:
        """The record as entries of a head."""
        return dataclasses.asdict(self)


def type_name(field: dataclasses.Field) -> str:
    """The name of a field's type."""
    return field.type.__name__ if isinstance(field.type, type) else str(field.type)


@dataclasses.dataclass(frozen=True)
class Identity(HeadRecord):
    """What both ends must have in common."""

    format: int
    algorithm: str
    definition: str  # a hash of problem and algorithm

    @classmethod
    def of(cls, problem: Problem, algorithm: AbstractAlgorithm) -> "Identity":
        """The identity of a run of this algorithm on this problem."""
        return cls(FORMAT, type(algorithm).__name__, definition(problem, algorithm))


@dataclasses.dataclass(frozen=True)
class SiteInfo(HeadRecord):
    """What a site says of itself before round one: counts, shapes and types, and no sample."""

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
    def of(cls, site: str, problem: Problem, federation: Federation) -> "SiteInfo":
        """The info of a site whose data are this federation's."""
        y = federation.labels()
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
            lowest=int(y.min()) if problem.loss.has_accuracy else 0,
        )

    @classmethod
    def read(cls, head: Head) -> "SiteInfo":
        """The info in a reply's head; one that makes no sense is refused."""
        info = super().read(head)
        sizes = [*info.features, *info.targets]
        if not info.site or len(info.site) > LONGEST_NAME or not info.site.isprintable():
            raise WireError(f"the site's name is {clipped(info.site)}")
        if not 0 < info.samples < 2**31 or any(not 0 < size < 2**31 for size in sizes):
            raise WireError(f"the site's data have {info.samples} samples of shape {clipped(sizes)}")
        if info.dtype not in ("float32", "float64") or info.label_dtype not in ("float32", "float64", "int32"):
            raise WireError(f"the site's data are of dtype {clipped(info.dtype)}, {clipped(info.label_dtype)}")
        return info


class StageOutline(NamedTuple):
    """Which stage of an algorithm it is, and the shape of its rounds."""

    number: int
    rounds: int  # of the whole run
    local_steps: int | None  # as the user gave them
    plan: Plan
    everyone: bool  # whether every client is in every round, without fail


@dataclasses.dataclass(frozen=True)
class RoundInstructions(HeadRecord):
    """What a site must know in a round beside the arrays: the same for all sites but for `id` and `counted`."""

    seed: int
    rounds: int
    round: int  # over all stages
    begun: int  # the round in which the stage began
    stage: int
    local_steps: int  # as the user gave them; 0: not given
    steps: int
    equal: bool
    epochs: int  # 0: none
    batch: int  # 0: the full local gradient
    participants: int
    clients: int
    everyone: bool  # whether every client is in every round, without fail
    most: int  # the samples of the largest client, which decides how batches are shuffled
    outputs: int
    id: int  # the rank of the client's name
    counted: int  # the last round of this stage in which the client's update counted; -1: none yet
    evaluate: bool  # whether the loss of the model in the message is asked for
    last: bool  # whether this is the piece of work after the last round
    clip: float  # 0: no differential privacy
    noise: float

    @property
    def plan(self) -> Plan:
        """The shape of a round."""
        return Plan(self.steps, self.equal, self.epochs or None, self.batch or None, self.participants, self.clients)

    @property
    def outline(self) -> StageOutline:
        """The stage that the round is of."""
        return StageOutline(self.stage, self.rounds, self.local_steps or None, self.plan, self.everyone)


@dataclasses.dataclass(frozen=True)
class SumTerms(HeadRecord):
    """What a message says of a masked sum, the same to all sites of a cohort, so that one hash stands for all of it.

    The lists are in the order of the sum's sites.
    """

    sum: str  # a SumRequest, as JSON
    ids: list[int]  # as `RoundInstructions.id`
    counts: list[int]  # as `RoundInstructions.counted`
    weighting: str  # "uniform" or "samples": a site takes its weight from the cards, and from nobody's word
    ends: bool  # whether the run ends with this message, so that its keys are of no more use

    @classmethod
    def read(cls, head: Head) -> "SumTerms":
        """The terms in a head; those that make no sense are refused."""
        terms = super().read(head)
        if terms.weighting not in ("uniform", "samples"):
            raise WireError(f"the head's entry weighting is {clipped(terms.weighting)}, expected uniform or samples")
        try:
            names = terms.total.names
        except (Malformed, ValueError, RecursionError) as error:
            raise WireError(str(error) if isinstance(error, Malformed) else "the head's sum is not JSON") from None
        if not len(names) == len(terms.ids) == len(terms.counts):
            raise WireError(f"the head's lists are of {len(terms.ids)} and {len(terms.counts)} of {len(names)} sites")
        return terms

    @functools.cached_property
    def total(self) -> SumRequest:
        """Over whom updates are added up, and how they are written as integers."""
        return read_sum(json.loads(self.sum))

    def of_site(self, site: str) -> Head:
        """The entries of the instructions that are this site's own."""
        if site not in self.total.names:
            raise WireError("this site is not part of the sum")
        place = self.total.names.index(site)
        return {"id": self.ids[place], "counted": self.counts[place]}

    def weight(self, site: str) -> float:
        """What a site's update is multiplied by."""
        [card] = [card for card in self.total.cards if card.site == site]
        return float(card.rows) if self.weighting == "samples" else 1.0


def stage_at(
    problem: Problem, algorithm: AbstractAlgorithm, outline: StageOutline, dtype: npt.DTypeLike
) -> tuple[Problem, AbstractServerAlgorithm]:
    """The problem and the stage's algorithm as both ends compute with them."""
    stages = algorithm.stages(problem, outline.rounds, outline.local_steps)
    if not 0 <= outline.number < len(stages):
        raise WireError(f"the message is of stage {outline.number}, but there are {len(stages)}")
    problem = dataclasses.replace(pose(problem, outline.plan), everyone=outline.everyone)
    dtype = np.dtype(dtype)
    return traced(problem, dtype), cast(AbstractServerAlgorithm, traced(stages[outline.number].algorithm, dtype))


def stand_in(infos: list[SiteInfo]) -> Federation:
    """A federation with the sites' names, sizes, shapes and types but none of their samples.

    It is what the engine's checks and the start of the model look at.
    """
    first = infos[0]
    labels = np.zeros((len(infos), 1, *first.targets), first.label_dtype)
    for place, info in enumerate(infos):
        labels[place] = info.outputs - 1 if info.outputs else info.lowest
    if first.dtype == "float64":
        jax.config.update("jax_enable_x64", True)
    names = tuple(info.site for info in infos)
    return Federation(
        rows=Rows(np.zeros((len(infos), 1, *first.features), first.dtype), labels),
        sizes=np.array([info.samples for info in infos], np.int32),
        ids=naming.ranks(names),
        names=names,
    )
