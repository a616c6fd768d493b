"""The rules about whom a sum is over: who sees it, and which sites it tells apart."""

from cofed.sites.folds import SiteFolds
from cofed.sites.guard import Refusal, SumOver
from cofed.sites.policy.case import Case
from cofed.sites.policy.ledger import Ledger
from cofed.sites.policy.rosters import MOST_SETS, is_new, told_apart
from cofed.sites.policy.schema import Policy


def masked(case: Case) -> Refusal | None:
    """Whether the answer is seen alone."""
    unknown = "the other sites' keys are not those of a study that this site has approved; approve the study"
    return seen_alone(case.asked.over, case.policy, "answer", unknown)


def seen_alone(over: SumOver | None, policy: Policy, what: str, unknown: str) -> Refusal | None:
    """Whether something is seen alone, or in a sum with sites whom this one cannot tell from others.

    `unknown` says of the latter why, and what else can be done than to change the policy.
    """
    wanted = policy.sums.masked
    if wanted != "optional" and over is None:
        why = f"the server would see this site's own {what}; the policy (sums.masked) wants it masked"
        return Refusal("masked", f"{why}, so that only the sum over all sites is seen")
    if wanted == "pinned" and over is not None and not over.is_pinned:
        return Refusal("masked", f"{unknown}, or set sums.masked to required")
    return None


def sites(case: Case) -> Refusal | None:
    """Whether enough sites are in the sum, and in the difference to other sums."""
    over, folds = case.asked.over, case.message.folds
    if over is None:
        return None
    refusal = sums_tell(over, case.policy, case.ledger, case.site)
    if refusal is None and isinstance(folds, SiteFolds):  # the sums of a fold are those of a site
        each = (tells_apart({name}, over, case.policy, case.ledger) for name in folds.names if name in over.rows)
        refusal = next((found for found in each if found is not None), None)
    return refusal


def sums_tell(over: SumOver, policy: Policy, ledger: Ledger, site: str) -> Refusal | None:
    """Whether a sum, or its difference to those before, tells of too few sites."""
    least = policy.least_sites
    if site not in over.rows or len(over.rows) < least:
        own = "with" if site in over.rows else "without"
        why = f"the sum would be over {len(over.rows)} sites, {own} this one"
        return Refusal("sites", f"{why}; it must be over this and others, {least} at least (sums.sites)")
    return tells_apart(set(over.rows), over, policy, ledger)


def tells_apart(members: set[str], over: SumOver, policy: Policy, ledger: Ledger) -> Refusal | None:
    """Whether sums over these sites, beside all earlier ones, whatever their study, tell what few sites answered."""
    least, known, before = policy.least_sites, over.known_as(members), [set(one) for one in ledger.rosters]
    if not is_new(before, known.keys()):
        return None
    if len(before) >= MOST_SETS - 1:
        return Refusal(
            "site sets",
            f"sums over {len(before)} different sets of sites were answered; more are not held against each other, so "
            "ask about one of these",
        )
    ledger.names |= known
    ledger.released = sorted({*ledger.released, *over.known_as(over.released)})
    ledger.rosters = [*ledger.rosters, sorted(known)]
    told = told_apart([*before, known.keys()], least, {*ledger.released, *policy.sums.released})
    if not told:
        return None
    names = ", ".join(sorted(ledger.names[key] for key in told))
    return Refusal(
        "site sets",
        f"together with sums that were answered before, in this study or another, the sum would tell what {names} "
        f"answered alone; sums may differ by {least} sites or more, or by sites that have released this",
    )
