"""What has come in of a round, and whom to ask next: pure functions, which the server's loop calls again and again."""

import dataclasses
import math
from collections.abc import Mapping, Set

import jax
import numpy as np
from jaxtyping import PyTree

from cofed.engine import history
from cofed.flower.flwr_types import RecordDict
from cofed.flower.membership import Membership
from cofed.flower.settings import ServerSettings
from cofed.flower.transport import Trouble

AGAIN = 5.0  # seconds before a site that answered badly is asked again, where the quorum needs it
LATE, ABSENT = Trouble("Silent", "it did not answer in time"), Trouble("Absent", "it is absent")
SILENT, NOT_FINITE = Trouble("Silent", "it did not answer"), Trouble("NotFinite", history.NOT_FINITE)


@dataclasses.dataclass(frozen=True)
class Collection:
    """What has come in of a round so far.

    Parameters
    ----------
    sites : tuple of str
        The sites whose updates are wanted.
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
    """

    sites: tuple[str, ...]
    updates: Mapping[str, PyTree] = dataclasses.field(default_factory=dict)
    scores: Mapping[str, Mapping[str, float]] = dataclasses.field(default_factory=dict)
    troubles: Mapping[str, Trouble] = dataclasses.field(default_factory=dict)
    nodes: Mapping[str, int] = dataclasses.field(default_factory=dict)
    ask_again: Mapping[str, float] = dataclasses.field(default_factory=dict)
    interval: Mapping[str, float] = dataclasses.field(default_factory=dict)

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

    # Where it stands

    @property
    def missing(self) -> list[str]:
        """The sites whose updates have not come."""
        return [site for site in self.sites if site not in self.updates]

    @property
    def hopeless(self) -> bool:
        """Whether everybody's update was not finite: asking again would give the same."""
        kinds = [trouble.kind for trouble in self.troubles.values()]
        return len(kinds) == len(self.sites) and all(kind == NOT_FINITE.kind for kind in kinds)

    def silent(self, there: Set[str]) -> list[str]:
        """The sites that are there and have said nothing."""
        return [site for site in self.missing if site in there and site not in self.troubles]

    def done(self, there: Set[str], settings: ServerSettings, seconds: float) -> bool:
        """Whether the round can go on after so many seconds, with these sites there."""
        return len(self.updates) >= settings.quorum and (seconds > settings.deadline or not self.silent(there))

    def waiting(self, there: Set[str], settings: ServerSettings, seconds: float) -> bool:
        """Whether it is held up by sites that are late or missing, which a user wants to know of."""
        return seconds > settings.deadline or (len(self.updates) < settings.quorum and not self.silent(there))

    def closed(self) -> "Collection":
        """The collection at the end of the round, in which every missing update has a reason."""
        troubles = {site: self.troubles.get(site, LATE if site in self.nodes else ABSENT) for site in self.missing}
        return dataclasses.replace(self, troubles=troubles)


def is_finite(update: PyTree) -> bool:
    """Whether all numbers of an update are finite."""
    return all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(update))


def read_scores(content: RecordDict) -> dict[str, float]:
    """A site's evaluation of the model, where its reply has one."""
    found = content.metric_records.get("metrics", {})
    return {name: score for name in ("loss", "accuracy") if isinstance(score := found.get(name), float)}
