"""The budget of answers with noise: what all of them together have told of a row."""

from cofed.privacy import Release, epsilon_of
from cofed.sites.guard import Refusal
from cofed.sites.policy.case import Case
from cofed.sites.policy.ledger import Ledger
from cofed.sites.policy.schema import Policy
from cofed.sites.queries import AbstractPrivateQuery

DELTA = 1e-6  # at which epsilon is counted


def noise(case: Case) -> Refusal | None:
    """Whether the noise is enough: of the sites that this one counts on, and for all answers so far.

    Every answer counts, also one that is asked for again: whether all sites still have the same noise, a site cannot
    know.
    """
    query, message, over = case.asked.question.query, case.message, case.asked.over
    if not isinstance(query, AbstractPrivateQuery):
        return None
    sites = 1 if over is None else len(over.rows) + 1 - case.policy.sums.colluding
    lack = query.lacks(message, sites)
    if lack is not None:
        return Refusal("noise", f"{lack} (sums.colluding)")
    release = query.noised_sum(message, len(case.asked.design.feature_names)).release
    return budget_spent(release, case.ledger, case.policy)


def budget_spent(release: Release, ledger: Ledger, policy: Policy) -> Refusal | None:
    """Whether one more sum with noise costs too much together with all before it; the ledger's draft counts it."""
    ledger.releases = [*ledger.releases, (float(release.l2), float(release.l1), float(release.variance))]
    try:
        spent = epsilon_of([Release(*one) for one in ledger.releases], DELTA)
    except ImportError as error:
        return Refusal("epsilon", f"what answers with noise cost cannot be counted: {error}")
    most = policy.privacy.epsilon
    if spent <= most:
        return None
    why = f"answers with noise would have spent an epsilon of {spent:.3g} together, at a delta of {DELTA:g}"
    return Refusal("epsilon", f"{why}; {most:g} may be (privacy.epsilon)")
