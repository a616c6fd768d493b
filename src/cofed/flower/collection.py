"""What has come in of a round, and whom to ask next: pure functions, which the server's loop calls again and again."""

import dataclasses
import math
from collections.abc import Mapping, Set

import jax
import numpy as np
from jaxtyping import PyTree

from cofed.engine import history
from cofed.flower.cohorts import Cohorts
from cofed.flower.flwr_types import RecordDict
from cofed.flower.membership import Membership
from cofed.flower.messages import SCORES
from cofed.flower.settings import ServerSettings
from cofed.flower.transport import Trouble

AGAIN = 5.0  # seconds before a site that answered badly is asked again, where the quorum needs it
LATE, ABSENT = Trouble("Silent", "it did not answer in time"), Trouble("Absent", "it is absent")
NOT_WHOLE = Trouble("Cohort", "its cohort was not whole, and masked updates count together or not at all")
SILENT, NOT_FINITE = Trouble("Silent", "it did not answer"), Trouble("NotFinite", history.NOT_FINITE)


@dataclasses.dataclass(frozen=True)
class Collection:
    """What has come in of a round so far.

    Parameters
    ----------
    sites : tuple of str
        The sites whose updates are wanted.
    cohorts : tuple of tuple of str
        Those that count together or not at all; none: each counts for itself.
    updates : mapping of str to pytree
        The updates that count.
    scores : mapping of str to mapping
        What the sites say of the model that they were sent.
    troubles : mapping of str to Trouble
        Why others have sent none.
    nodes : mapping of str to int
        The node that each site was asked at, where it was asked.
    ask_again : mapping of str to float
        When a site is asked again.
    interval : mapping of str to float
        How long it is then waited for.
    attempts : mapping of tuple to int
        How often a cohort was asked anew, with other masks.
    """

    sites: tuple[str, ...]
    cohorts: Cohorts = ()
    updates: Mapping[str, PyTree] = dataclasses.field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    troubles: Mapping[str, Trouble] = dataclasses.field(default_factory=dict)
    nodes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ask_again: Mapping[str, float] = dataclasses.field(default_factory=dict)
    interval: Mapping[str, float] = dataclasses.field(default_factory=dict)
    attempts: Mapping[tuple[str, ...], int] = dataclasses.field(default_factory=dict)

    # Whom to ask

    def due(self, membership: Membership, clock: float) -> list[str]:
        """The sites to ask now: the new ones, those at another node than before, and those whose time has come."""
        there = membership.present
        return [
            site
            for site in self.sites
            if site not in self.updates
            and site in there
            and (self.nodes.get(site) != membership.nodes[site] or clock > self.ask_again.get(site, math.inf))
        ]

    def asked(self, site: str, node: int, clock: float, deadline: float) -> "Collection":
        """The collection after a site was asked.

        Below the quorum, a silent site is asked anew, since the message may have died with its node; at growing
        intervals, since it may only be slow. Work on a round can be repeated without harm.
        """
        interval = self.interval.get(site, deadline)
        return dataclasses.replace(
            self,
            nodes={**self.nodes, site: node},
            ask_again={**self.ask_again, site: clock + interval},
            interval={**self.interval, site: 2 * interval},
        )

    # What came

    def heard(self, site: str, update: PyTree, scores: Mapping[str, float]) -> "Collection":
        """The collection with a site's update."""
        return dataclasses.replace(
            self,
            updates={**self.updates, site: update},
            scores={**self.scores, site: scores},
            troubles={name: trouble for name, trouble in self.troubles.items() if name != site},
        )

    def troubled(self, site: str, trouble: Trouble, again: float) -> "Collection":
        """The collection after a site has answered badly, which is asked again at this time."""
        return dataclasses.replace(
            self, troubles={**self.troubles, site: trouble}, ask_again={**self.ask_again, site: again}
        )

    def ask_at_once(self, site: str) -> "Collection":
        """The collection in which a site is asked again now."""
        return dataclasses.replace(self, ask_again={**self.ask_again, site: -math.inf})

    def failed(self, cohort: tuple[str, ...], trouble: Trouble) -> "Collection":
        """The collection after a whole cohort has answered without a sum; to ask it again would give the same."""
        never = dict.fromkeys(cohort, math.inf)
        found = dataclasses.replace(self.without(cohort), ask_again={**self.ask_again, **never})
        return dataclasses.replace(found, troubles={**found.troubles, **dict.fromkeys(cohort, trouble)})

    def anew(self, cohort: tuple[str, ...]) -> "Collection":
        """The collection in which a cohort is asked anew, now and with other masks; what it has sent is of no use."""
        found = self.without(cohort)
        nodes = {site: node for site, node in self.nodes.items() if site not in cohort}
        return dataclasses.replace(found, nodes=nodes, attempts={**self.attempts, cohort: self.attempt(cohort) + 1})

    def without(self, cohort: tuple[str, ...]) -> "Collection":
        """The collection without what these sites have said."""
        updates, scores, troubles = (
            {site: value for site, value in part.items() if site not in cohort}
            for part in (self.updates, self.scores, self.troubles)
        )
        return dataclasses.replace(self, updates=updates, scores=scores, troubles=troubles)

    # Where it stands

    def attempt(self, cohort: tuple[str, ...]) -> int:
        """How often a cohort was asked anew."""
        return self.attempts.get(cohort, 0)

    def cohort_of(self, site: str) -> tuple[str, ...]:
        """The sites that a site counts together with, itself included."""
        return next((cohort for cohort in self.cohorts if site in cohort), (site,))

    @property
    def counting(self) -> list[str]:
        """The sites whose updates count: all of their cohort have come."""
        return [site for site in self.sites if all(other in self.updates for other in self.cohort_of(site))]

    @property
    def missing(self) -> list[str]:
        """The sites whose updates have not come."""
        return [site for site in self.sites if site not in self.updates]

    @property
    def hopeless(self) -> bool:
        """Whether everybody's update was not finite: asking again would give the same."""
        kinds = [trouble.kind for trouble in self.troubles.values()]
        return len(kinds) == len(self.sites) and all(kind == NOT_FINITE.kind for kind in kinds)

    def is_short(self, quorum: int) -> bool:
        """Whether too few updates have come, and none of the missing sites will be asked again."""
        gone = all(site in self.troubles and self.ask_again.get(site) == math.inf for site in self.missing)
        return gone and len(self.counting) < quorum

    def silent(self, there: Set[str]) -> list[str]:
        """The sites that are there and have said nothing, if all of their cohort are there."""
        return [
            site
            for site in self.missing
            if site not in self.troubles and all(one in there or one in self.updates for one in self.cohort_of(site))
        ]

    def done(self, there: Set[str], settings: ServerSettings, seconds: float) -> bool:
        """Whether the round can go on after so many seconds, with these sites there."""
        return len(self.counting) >= settings.quorum and (seconds > settings.deadline or not self.silent(there))

    def waiting(self, there: Set[str], settings: ServerSettings, seconds: float) -> bool:
        """Whether it is held up by sites that are late or missing, which a user wants to know of."""
        return seconds > settings.deadline or (len(self.counting) < settings.quorum and not self.silent(there))

    def closed(self, there: Set[str] = frozenset()) -> "Collection":
        """The collection at the end of the round: whose update does not count has a reason, and no update."""
        counting = set(self.counting)
        troubles = {site: self.reason(site, there) for site in self.sites if site not in counting}
        updates = {site: update for site, update in self.updates.items() if site in counting}
        return dataclasses.replace(self, updates=updates, troubles=troubles)

    def reason(self, site: str, there: Set[str]) -> Trouble:
        """Why a site's update does not count, where these sites are there."""
        if site in self.updates or (site in there and site not in self.nodes and site not in self.troubles):
            return NOT_WHOLE
        return self.troubles.get(site, LATE if site in self.nodes else ABSENT)


def is_finite(update: PyTree) -> bool:
    """Whether all numbers of an update are finite."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(update))


def read_scores(content: RecordDict) -> dict[str, float]:
    """A site's evaluation of the model, where its reply has one."""
    found = content.metric_records.get("metrics", {})
    return {name: score for name in SCORES if isinstance(score := found.get(name), float)}
