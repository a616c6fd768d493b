"""A site's policy in the rounds of an algorithm."""

import logging

from cofed.sites.base import QuestionRefused
from cofed.sites.guard import Refusal
from cofed.sites.policy import PolicyGuard
from cofed.sites.policy.rounds import AskedRound

log = logging.getLogger("flwr")


class RoundRefused(QuestionRefused):
    """A rule of the site's policy forbids to take part in a round; the server is told its name and nothing else."""

    def __init__(self, refusal: Refusal):
        super().__init__(refusal.told)
        self.rule = refusal.rule


def require_policy(guard: PolicyGuard, asked: AskedRound) -> None:
    """Take part in a round only where the site's rules allow it; the site's log says why they do not."""
    refusal = guard.refuses_round(asked)
    if refusal is not None:
        log.warning("cofed: the site %s takes no part in the round: %s", guard.site, refusal.sentence)
        raise RoundRefused(refusal)
