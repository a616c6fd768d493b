"""How the sites' updates in a round are asked for, read, and brought to their weighted mean: plain, or under masks.

Masked, all sites of a cohort are sent the same message, whose hash binds their masks, and the server learns the sum of
their weighted updates and of their scores once it has all of their replies, and nothing before.
"""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PyTree

from cofed._util import trees
from cofed.algorithms import base
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.engine.server_rounds import weighted_mean
from cofed.flower import wire
from cofed.flower.cohorts import Cohorts
from cofed.flower.collection import Collection, read_scores
from cofed.flower.flwr_types import ArrayRecord, RecordDict
from cofed.flower.messages import SCORES, SumTerms
from cofed.flower.progress import Event
from cofed.flower.robust import robust_mean
from cofed.flower.server_io import RoundArrays, ServerIO
from cofed.flower.state import NetworkState
from cofed.flower.transport import Request, Transport, Trouble
from cofed.problem import Problem
from cofed.sites.packing import Malformed
from cofed.sites.secure.cards import Card
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.server_end import read_masked, sum_request, summed
from cofed.sites.secure.site_end import LANES
from cofed.sites.secure.wide import SCALED

MOST_ATTEMPTS = 5  # at one cohort in one round
CHANGED = Trouble(
    "Changed",
    "the keys or numbers of its cohort changed too often in one round; give each site a folder to keep its keys in "
    "(keep=)",
)


class RoundMessage(NamedTuple):
    """A message to a site."""

    head: wire.Head
    arrays: dict[str, ArrayRecord]
    mark: str = ""  # the hash of all of it, where updates are masked


class SiteUpdate(NamedTuple):
    """What a site has sent."""

    update: PyTree  # masked, these are wide integers that tell nothing alone
    scores: dict[str, float]
    size: int  # in bytes


class AbstractRoundSum(ABC):
    """How updates become their mean."""

    @abstractmethod
    def cohorts(self, state: NetworkState) -> Cohorts:
        """The sites that count together or not at all; none: each counts for itself."""

    @abstractmethod
    def message(self, state: NetworkState, found: Collection, site: str) -> RoundMessage | None:
        """The message to a site; None where it cannot be asked now."""

    @abstractmethod
    def read(self, state: NetworkState, site: str, mark: str, content: RecordDict) -> SiteUpdate:
        """What a site has sent in reply to the message with this hash; raises a `WireError` where that is no update."""

    @abstractmethod
    def current(self, state: NetworkState, found: Collection) -> Collection:
        """The collection in which cohorts are asked anew whose last message has become of no use."""

    @abstractmethod
    def judged(self, state: NetworkState, found: Collection, site: str) -> Collection:
        """The collection after a site's update has come, without what turns out to be of no use."""

    @abstractmethod
    def step(self, state: NetworkState, found: Collection) -> tuple[PyTree, bool]:
        """The server's state after its step on the updates that count, and whether that is finite."""

    @abstractmethod
    def scores(self, state: NetworkState, found: Collection) -> dict[str, float]:
        """The weighted means of what the sites say of the model."""


def round_sum(transport: Transport, state: NetworkState, arrays: RoundArrays, last: bool = False) -> AbstractRoundSum:
    """How updates become their mean in the present round, or, with `last`, in what comes after the last round."""
    if state.agreed.settings.plain:
        return PlainRoundSum(arrays, last)
    return MaskedRoundSum(arrays, last, transport)


@dataclasses.dataclass(frozen=True)
class PlainRoundSum(AbstractRoundSum):
    """Updates that the server sees."""

    arrays: RoundArrays
    last: bool = False

    def cohorts(self, state: NetworkState) -> Cohorts:
        return ()

    def message(self, state: NetworkState, found: Collection, site: str) -> RoundMessage:
        instructions = state.instructions(site, last=self.last)
        return RoundMessage(instructions.entries(), self.arrays.for_site(instructions))

    def read(self, state: NetworkState, site: str, mark: str, content: RecordDict) -> SiteUpdate:
        if self.last or self.arrays.only_model:
            return SiteUpdate((), read_scores(content), 0)
        update = wire.unpack(content, "up", state.stage.up_shape)
        return SiteUpdate(update, read_scores(content), wire.array_bytes(content.array_records["up"]))

    def current(self, state: NetworkState, found: Collection) -> Collection:
        return found

    def judged(self, state: NetworkState, found: Collection, site: str) -> Collection:
        return found

    def step(self, state: NetworkState, found: Collection) -> tuple[PyTree, bool]:
        stage = state.stage
        updates = stacked(found, stage.up_shape)
        (weights, heard), kind = weights_of(state, found), state.agreed.settings.robust
        if kind is not None:
            mean, share = robust_mean(kind, base.expanded(stage.algorithm, updates), weights, heard)
            new, finite = advanced(stage.algorithm, stage.problem, state.server, mean, share)
        else:
            new, finite = aggregated(stage.algorithm, stage.problem, state.server, updates, weights, heard)
        return new, bool(finite)

    def scores(self, state: NetworkState, found: Collection) -> dict[str, float]:
        return state.mean_scores(found.scores)


@dataclasses.dataclass(frozen=True)
class MaskedRoundSum(AbstractRoundSum):
    """Updates of which the server sees sums over cohorts only."""

    arrays: RoundArrays
    last: bool
    transport: Transport
    made: dict[tuple[str, ...], "MadeMessage"] = dataclasses.field(default_factory=dict)  # by cohort
    sums: dict[tuple[str, ...], np.ndarray] = dataclasses.field(default_factory=dict)  # of whole cohorts

    def cohorts(self, state: NetworkState) -> Cohorts:
        return state.agreed.settings.cohorts or (state.agreed.sites,)

    def message(self, state: NetworkState, found: Collection, site: str) -> RoundMessage | None:
        cohort = found.cohort_of(site)
        attempt, about = found.attempt(cohort), what_decides(state, cohort)
        if any(card is None for card, _ in about) or attempt > MOST_ATTEMPTS:
            return None
        made = self.made.get(cohort)
        if made is None or (made.attempt, made.about) != (attempt, about):
            made = self.made[cohort] = MadeMessage(attempt, about, self.posed(state, found, cohort))
        return made.message

    def posed(self, state: NetworkState, found: Collection, cohort: tuple[str, ...]) -> RoundMessage:
        """The one message to all sites of a cohort."""
        instructions = state.instructions(min(cohort, key=lambda site: state.counted[site]), last=self.last)
        invitation, cards = Invitation(self.transport.run), {site: state.membership.cards[site] for site in cohort}
        total = sum_request(invitation, cards, (state.round, found.attempt(cohort)), SCALED, {})
        terms = SumTerms(
            sum=total.model_dump_json(),
            ids=[state.agreed.sites.index(site) for site in total.names],
            counts=[state.counted[site] for site in total.names],
            weighting=self.weighting(state),
            ends=self.last and state.agreed.spec.w0 is None,
        )
        own = ("id", "counted")  # of one site: the terms have those of all
        head = {name: value for name, value in instructions.entries().items() if name not in own} | terms.entries()
        arrays = self.arrays.for_site(instructions)  # those that any of them needs
        return RoundMessage(head, arrays, wire.digest(self.transport.content(state.round, head, arrays)))

    def read(self, state: NetworkState, site: str, mark: str, content: RecordDict) -> SiteUpdate:
        shape = (SCALED.limbs, self.size(state) + len(self.score_names(state)) + LANES)
        planes = wire.unpack(content, "masked", jax.ShapeDtypeStruct(shape, np.int64))
        try:
            head, card = wire.head_of(content), state.membership.cards[site]
            planes = read_masked(card, mark, head, {"masked": planes}, shape)
        except Malformed as error:
            raise wire.WireError(str(error)) from None
        return SiteUpdate(planes, {}, planes.nbytes)

    def current(self, state: NetworkState, found: Collection) -> Collection:
        for cohort, made in list(self.made.items()):
            attempt = found.attempt(cohort)
            if attempt == made.attempt and made.about != what_decides(state, cohort):
                found = found.anew(cohort)
            if made.attempt <= MOST_ATTEMPTS < found.attempt(cohort):
                found = found.failed(cohort, CHANGED)
            self.message(state, found, cohort[0])
        return found

    def judged(self, state: NetworkState, found: Collection, site: str) -> Collection:
        cohort = found.cohort_of(site)
        if not all(one in found.updates for one in cohort):
            return found
        self.sums[cohort], ones, failed = summed(SCALED, [found.updates[one] for one in cohort])
        if ones != len(cohort):
            words = "the masks of its cohort do not cancel: one of its sites does not follow the protocol"
            return found.failed(cohort, Trouble("Masks", words))
        if failed:
            words = f"{int(failed)} of the {len(cohort)} updates of its cohort are not finite, or too large"
            return found.failed(cohort, Trouble("NotFinite", words))
        return found

    def step(self, state: NetworkState, found: Collection) -> tuple[PyTree, bool]:
        leaves, treedef = jax.tree.flatten(state.stage.up_shape)
        numbers = self.mean(state, found)
        parts = np.split(numbers[: self.size(state)], np.cumsum([leaf.size for leaf in leaves])[:-1])
        shaped = [
            jnp.asarray(part.reshape(leaf.shape).astype(leaf.dtype)) for part, leaf in zip(parts, leaves, strict=False)
        ]
        weights, heard = weights_of(state, found)
        share, stage = jnp.sum(jnp.where(heard, weights, 0)), state.stage
        mean = jax.tree.unflatten(treedef, shaped)
        new, finite = advanced(stage.algorithm, stage.problem, state.server, mean, share)
        return new, bool(finite)

    def scores(self, state: NetworkState, found: Collection) -> dict[str, float]:
        names = self.score_names(state)
        if not names or not found.counting:
            return {}
        return dict(zip(names, self.mean(state, found)[self.size(state) :].tolist(), strict=True))

    def mean(self, state: NetworkState, found: Collection) -> np.ndarray:
        """The weighted mean of what the sites of all whole cohorts have sent."""
        counting = set(found.counting)
        whole = [cohort for cohort in found.cohorts if counting.issuperset(cohort)]
        weight = sum(self.weight(state, site) for cohort in whole for site in cohort)
        return np.sum([self.sums[cohort] for cohort in whole], axis=0) / weight

    def weight(self, state: NetworkState, site: str) -> float:
        """What a site has multiplied its update by."""
        return float(state.membership.cards[site].rows) if self.weighting(state) == "samples" else 1.0

    def weighting(self, state: NetworkState) -> str:
        """How sites are weighted."""
        return str(state.membership.spec.weights)

    def size(self, state: NetworkState) -> int:
        """How many numbers an update has."""
        without = self.last or self.arrays.only_model
        return 0 if without else sum(leaf.size for leaf in jax.tree.leaves(state.stage.up_shape))

    def score_names(self, state: NetworkState) -> list[str]:
        """What the sites say of the model."""
        if not (state.agreed.settings.due(state.round) or self.arrays.only_model):
            return []
        return list(SCORES if state.stage.problem.loss.has_accuracy else SCORES[:1])


def ask(io: ServerIO, state: NetworkState, site: str, message: RoundMessage) -> NetworkState:
    """Send a site its message of the round."""
    state = state.asked(site, sum(wire.array_bytes(record) for record in message.arrays.values()))
    if state.membership.spec.privacy is not None:
        io.folder.spend(state.spent)  # before the message goes out: a killed server must not forget it
    request = Request(state.membership.nodes[site], site, state.round, "train", message.mark)
    io.transport.send(request, message.head, message.arrays, state.agreed.settings.patience)
    io.tell(state, [Event("asked", f"round {state.round}: asked {site}", {"site": site})])
    return state


class MadeMessage(NamedTuple):
    """A message to a cohort, and what it depends on in a round."""

    attempt: int
    about: tuple[tuple[Card | None, int], ...]
    message: RoundMessage


def what_decides(state: NetworkState, cohort: tuple[str, ...]) -> tuple[tuple[Card | None, int], ...]:
    """By site, its card and the last round of its own that counted: both may change while a round goes on."""
    return tuple((state.membership.cards.get(site), state.counted[site]) for site in cohort)


def weights_of(state: NetworkState, found: Collection) -> tuple[Array, Array]:
    """The weights of the sites that were asked, and whose updates count."""
    sites, counting = state.agreed.sites, set(found.counting)
    ids = np.asarray([sites.index(site) for site in found.sites], np.int32)
    return state.agreed.weights[ids], jnp.asarray([site in counting for site in found.sites])


def stacked(found: Collection, shape: PyTree) -> PyTree:
    """The updates of all sites that were asked, with zeros for those that are missing."""
    empty = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shape)
    updates: Sequence[PyTree] = [found.updates.get(site, empty) for site in found.sites]
    return jax.tree.map(lambda *leaves: jnp.asarray(np.stack(leaves)), *updates)


@eqx.filter_jit
def aggregated(
    algorithm: AbstractServerAlgorithm,
    problem: Problem,
    server: PyTree,
    updates: PyTree,
    weights: Float[Array, " asked"],
    heard: Bool[Array, " asked"],
) -> tuple[PyTree, Bool[Array, ""]]:
    """The server's step on the updates that were heard, and whether it is finite."""
    mean, share = weighted_mean(base.expanded(algorithm, updates), weights, heard)
    new = algorithm.aggregate(problem, server, mean, share)
    return trees.where(share > 0, new, server), trees.all_finite(new)


@eqx.filter_jit
def advanced(
    algorithm: AbstractServerAlgorithm, problem: Problem, server: PyTree, mean: PyTree, share: Float[Array, ""]
) -> tuple[PyTree, Bool[Array, ""]]:
    """The server's step on the mean of updates with this share of all weight, and whether it is finite."""
    new = algorithm.aggregate(problem, server, mean, share)
    return new, trees.all_finite(new)
