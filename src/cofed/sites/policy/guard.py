"""A site's policy as what stands at its door."""

import contextlib
import datetime
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from cofed._util.files import NotWritten
from cofed.sites.guard import AbstractGuard, Asked, Refusal
from cofed.sites.policy.case import Case
from cofed.sites.policy.ledger import Ledger, LedgerLost, held_alone, row_marks
from cofed.sites.policy.rounds import AskedRound, round_refusal
from cofed.sites.policy.rules import RULES
from cofed.sites.policy.schema import Policy
from cofed.sites.site_table import SiteTable


def today() -> str:
    """The day in UTC."""
    return datetime.datetime.now(datetime.UTC).date().isoformat()


class PolicyGuard(AbstractGuard):
    """The rules of a policy, and the record of what was answered.

    Parameters
    ----------
    policy : Policy
        The site's rules.
    keep : Path or None
        The folder in which the site keeps what it must not forget; None forgets at the end of the process.
    site : str
        The site's name.
    day : callable
        Gives the day, by which questions are counted.

    Examples
    --------
    >>> from cofed.sites.policy import Policy, PolicyGuard
    >>> guard = PolicyGuard(Policy(), None, "oslo")
    >>> guard.refuses_hello(is_pinned=False).rule
    'masked'
    """

    def __init__(self, policy: Policy, keep: Path | None, site: str, day: Callable[[], str] = today):
        self.policy, self.keep, self.site, self.day = policy, keep, site, day
        self.ledger: Ledger | None = None
        self.placed: tuple[SiteTable, np.ndarray] | None = None

    def refuses_hello(self, is_pinned: bool) -> Refusal | None:
        if is_pinned or self.policy.sums.masked != "pinned":
            return None
        why = "a server asks what the table is like, and not for a study with keys that this site has approved"
        return Refusal("masked", f"{why}; approve the study, or set sums.masked to required")

    def refuses(self, asked: Asked) -> Refusal | None:
        try:
            with self.held() as ledger:
                return self.judged(asked, ledger)
        except (LedgerLost, NotWritten) as error:
            return Refusal("ledger", str(error))

    @contextlib.contextmanager
    def held(self) -> Iterator[Ledger]:
        """The ledger as it is, which no other process changes within the block."""
        with held_alone(self.keep):
            if self.ledger is None or self.ledger.is_stale:
                self.ledger, self.placed = Ledger.open(self.keep), None
            yield self.ledger

    def judged(self, asked: Asked, ledger: Ledger) -> Refusal | None:
        """Why a question is not answered; what later judgements need is on disk."""
        draft = ledger.draft()
        places = self.places(asked.table, draft)
        case = Case(asked, self.policy, draft, places, self.site, self.day())
        refusal = next((found for rule in RULES if (found := rule(case)) is not None), None)
        if refusal is None:
            draft.digests[asked.digest] = None
            self.placed = asked.table, places
        elif refusal.is_silent:
            draft = ledger.draft()  # of the question nothing remains but that it failed
            draft.failures[case.study] = draft.failures.get(case.study, 0) + 1
        else:
            return refusal
        draft.save()
        self.ledger = draft
        return refusal

    def places(self, table: SiteTable, draft: Ledger) -> np.ndarray:
        """Where a table's rows stand in the ledger, to which new ones are added. They stay where they are."""
        if self.placed is None or self.placed[0] is not table:
            return draft.places(row_marks(table.frame, draft.secret))
        return self.placed[1]

    def refuses_round(self, asked: AskedRound) -> Refusal | None:
        """Why the site takes no part in a round of an algorithm; where it does, that is on disk."""
        try:
            with self.held() as ledger:
                draft = ledger.draft()
                refusal = self.refuses_algorithm(asked.algorithm)
                refusal = refusal or round_refusal(asked, self.policy, draft, self.site, self.day())
                if refusal is None:
                    draft.save()
                    self.ledger = draft
                return refusal
        except (LedgerLost, NotWritten) as error:
            return Refusal("ledger", str(error))

    def refuses_algorithm(self, name: str) -> Refusal | None:
        """Whether the site takes no part in rounds of this algorithm."""
        allowed = self.policy.questions.algorithms
        if "*" in allowed or name in allowed:
            return None
        words = ", ".join(allowed) or "none"
        return Refusal("algorithms", f"{name} is not among the algorithms of questions.algorithms: {words}")
