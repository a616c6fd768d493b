"""The rules of a policy for rounds of algorithms: what is told is an update of a model, over and over again."""

import dataclasses

from cofed.privacy import Release
from cofed.sites.guard import Refusal, SumOver
from cofed.sites.policy.ledger import Ledger
from cofed.sites.policy.noise import budget_spent
from cofed.sites.policy.rules import answered_enough
from cofed.sites.policy.schema import Policy
from cofed.sites.policy.site_sets import seen_alone, sums_tell


@dataclasses.dataclass(frozen=True)
class AskedRound:
    """A message of a round, or of what comes after the last, as a site's rules judge it.

    Attributes
    ----------
    algorithm : str
        The algorithm's name.
    digest : str
        The hash of the whole message.
    rows : int
        How many rows this site has.
    over : SumOver or None
        Over whom the update is added up; None where the server sees this site's own.
    release : Release or None
        What the noised sum of updates costs; None where it has no noise.
    """

    algorithm: str
    digest: str
    rows: int
    over: SumOver | None
    release: Release | None = None


def round_refusal(asked: AskedRound, policy: Policy, draft: Ledger, site: str, day: str) -> Refusal | None:
    """Why a site takes no part in a round of an algorithm that it allows; where it does, the ledger's draft says so.

    Parameters
    ----------
    asked : AskedRound
        The round.
    policy : Policy
        The site's rules.
    draft : Ledger
        What was answered, which is written to.
    site, day : str
        The site's name, and the day.
    """
    unknown = "the other sites' keys are known from the server alone; give client_app their keys (roster=)"
    refusal = seen_alone(asked.over, policy, "update", unknown)
    if refusal is None and asked.over is not None:
        refusal = sums_tell(asked.over, policy, draft, site)
    if refusal is None and asked.rows < policy.rows.site:
        why = f"this site has {asked.rows} rows"
        refusal = Refusal("rows", f"{why}; {policy.rows.site} must take part in a round (rows.site)")
    if refusal is not None:
        return refusal
    # Under masks, a message that is asked again gets the same numbers. An update that is seen may have other noise.
    if asked.over is not None and asked.digest in draft.digests:
        return None
    refusal = answered_enough(draft, policy.questions, day)
    draft.digests[asked.digest] = None
    if refusal is None and asked.release is not None:
        refusal = budget_spent(asked.release, draft, policy)
    return refusal
