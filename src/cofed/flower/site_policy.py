"""A site's policy in the rounds of an algorithm: the strict one where the site says nothing else."""

import logging
from collections.abc import Mapping

from cofed._util import checks
from cofed.algorithms.base import AbstractAlgorithm
from cofed.sites.base import QuestionRefused
from cofed.sites.guard import Refusal
from cofed.sites.policy import Policy, PolicyGuard
from cofed.sites.policy.rounds import AskedRound
from cofed.sites.secure.cards import KEY

log = logging.getLogger("flwr")


class RoundRefused(QuestionRefused):
    """A rule of the site's policy forbids to take part in a round; the server is told its name and nothing else."""

    def __init__(self, refusal: Refusal):
        super().__init__(refusal.told)
        self.rule, self.noted = refusal.rule, refusal.noted  # the second is for the site's own log of what left


def as_policy(given: object) -> Policy:
    """The rules of a site: those that are given, and the strict ones where none are.

    >>> from cofed.flower.site_policy import as_policy
    >>> as_policy(None).sums.masked
    'pinned'
    """
    if given is None:
        return Policy()
    if not isinstance(given, Policy):
        raise TypeError(f"policy must be a cofed.sites.policy.Policy, got {type(given).__name__}")
    return given


def as_roster(given: object) -> Mapping[str, str] | None:
    """The sites that a site's updates are added up with, and their keys; refused where it is no such mapping."""
    if given is None:
        return None
    whole = given if isinstance(given, Mapping) and len(given) > 1 else {None: None}
    found = {name: key for name, key in whole.items() if isinstance(name, str) and isinstance(key, str)}
    if len(found) < len(whole) or not all(KEY.fullmatch(key) for key in found.values()):
        raise ValueError(
            "roster must map the names of at least two sites to their long-term keys of 64 hexadecimal digits, "
            f"got {checks.shown(given)}"
        )
    return found


def check_taking_part(policy: Policy, has_roster: bool) -> None:
    """Refuse rules that a site could not meet in any round."""
    if policy.sums.masked == "pinned" and not has_roster:
        raise ValueError(
            "the site's policy wants sums with sites whose keys it knows, but there is no roster: give "
            "roster={name: key, ...} (cofed study key prints a site's key), "
            'policy=Policy(sums={"masked": "required"}) to believe the server about the keys of others, or, for rows '
            "of your own, policy=TRIAL, which is no rules"
        )


def algorithm_name(algorithm: AbstractAlgorithm) -> str:
    """What a policy calls an algorithm: the name of its class, for one that is not cofed's own behind its module's."""
    kind = type(algorithm)
    return kind.__name__ if kind.__module__.partition(".")[0] == "cofed" else f"{kind.__module__}.{kind.__qualname__}"


def require_hello(guard: PolicyGuard | None, is_pinned: bool) -> None:
    """Say what the data are like only to a server that the site's rules allow to hear it."""
    refusal = None if guard is None else guard.refuses_hello(is_pinned)
    if guard is not None and refusal is not None:
        log.warning("cofed: the site %s does not say who it is: %s", guard.site, refusal.sentence)
        raise RoundRefused(refusal)


def require_policy(guard: PolicyGuard, asked: AskedRound) -> None:
    """Take part in a round only where the site's rules allow it; the site's log says why they do not."""
    refusal = guard.refuses_round(asked)
    if refusal is not None:
        log.warning("cofed: the site %s takes no part in the round: %s", guard.site, refusal.sentence)
        raise RoundRefused(refusal)
