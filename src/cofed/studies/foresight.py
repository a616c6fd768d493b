"""What a site's own rules would refuse of a study, as far as its own table shows it, before it is approved."""

import math
from collections.abc import Iterable, Sequence

from cofed.sites.folds import Folds, GroupFolds, SiteFolds
from cofed.sites.guard import Asked
from cofed.sites.policy import Policy
from cofed.sites.policy.case import Case
from cofed.sites.policy.ledger import Ledger, row_marks
from cofed.sites.policy.rosters import told_apart
from cofed.sites.policy.rules import queries, rows
from cofed.sites.queries import Message, sums
from cofed.sites.questions import Question
from cofed.sites.site_table import SiteTable
from cofed.studies.analysis import Analysis
from cofed.studies.checking import TableCheck, without_fills
from cofed.studies.schema import Study

FOLDS = 5  # where an analysis says no number


def check_rules(study: Study, table: SiteTable, policy: Policy) -> TableCheck:
    """Hold a study against a site's rules, once its table fits: too few rows, small folds, rare levels, long names.

    What also depends on the other sites, such as how many rows they have, is a note where it looks doubtful.

    Parameters
    ----------
    study : Study
        What was agreed on.
    table : SiteTable
        The site's table.
    policy : Policy
        The site's rules.

    Returns
    -------
    TableCheck
        What would be refused, and what is good to know.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import SiteTable
    >>> from cofed.sites.policy import Policy
    >>> from cofed.studies import Study, Variable, check_rules
    >>> table = SiteTable(pd.DataFrame({"age": [50.5, 61.0, 70.2]}), "Oslo")
    >>> study = Study(study={"name": "demo"}, variables={"age": Variable(kind="number")})
    >>> check_rules(study, table, Policy()).findings
    ("the rule 'rows' would refuse the description: the question is about 3 rows here; 10 must be (rows.site)",)
    """
    findings, said = [], []
    if study.sites and len(study.sites) < policy.least_sites:
        many, least = len(study.sites), policy.least_sites
        said.append(f"the study names {many} site{'s' * (many > 1)}, and a sum must be over {least} (sums.sites)")
    for analysis in study.analyses or (None,):
        what = "the description" if analysis is None else f"the analysis {analysis.name!r}"
        case = first_question(study, analysis, table, policy)
        refusals = [found for rule in (queries, rows) if (found := rule(case)) is not None]
        findings += [f"the rule {one.rule!r} would refuse {what}: {one.sentence}" for one in refusals]
        p, folds = len(case.asked.design.feature_names), case.message.n_folds
        needed, others = math.ceil(p * folds / policy.parameters.per_row), max(len(study.sites), policy.least_sites) - 1
        if analysis is not None and case.rows * (1 + max(0, others - policy.sums.colluding)) < needed:
            said.append(
                f"{what} asks about products of {p} columns in {folds} fold{'s' * (folds > 1)}: the rule 'parameters' "
                f"wants {needed} rows of all sites, the {policy.sums.colluding} largest others not counted "
                "(parameters.per_row)"
            )
    return TableCheck(tuple(findings), tuple(said))


def check_sites(study: Study, others: Iterable[Study], policy: Policy) -> tuple[str, ...]:
    """What a site's rules would refuse since sums of this study, and of others, together tell of few sites.

    Parameters
    ----------
    study : Study
        What was agreed on.
    others : iterable of Study
        Studies that the site has approved.
    policy : Policy
        The site's rules.

    Returns
    -------
    tuple of str
        A sentence for each of the others whose sites differ by too few.

    Examples
    --------
    >>> from cofed.sites.policy import Policy
    >>> from cofed.studies import Study, check_sites
    >>> def of(names):
    ...     age = {"age": {"kind": "number"}}
    ...     return Study(study={"name": names}, variables=age, sites=[{"name": name} for name in names])
    >>> first, second = of("abcd"), of("abc")
    >>> len(check_sites(second, [first], Policy())), len(check_sites(second, [second], Policy()))
    (1, 0)
    """
    found, mine = [], known_sites(study)
    for other in others:
        theirs = known_sites(other)
        agreed = {key for one, keys in ((study, mine), (other, theirs)) for key in keys if keys[key] in one.releasable}
        told = told_apart([theirs.keys(), mine.keys()], policy.least_sites, agreed | {*policy.sums.released})
        if min(len(mine), len(theirs)) >= policy.least_sites and told:  # sums over fewer are refused anyway
            names = ", ".join(sorted((theirs | mine)[key] for key in told))
            found.append(
                f"the rule 'site sets' would refuse it once sums of the study {other.name!r} were answered, as both "
                f"together tell of {names}: agree on releasable = true for who comes or goes"
            )
    return tuple(found)


def known_sites(study: Study) -> dict[str, str]:
    """By long-term key, or by name where the study names no key, the names of its sites."""
    return {site.key or site.name: site.name for site in study.sites}


def first_question(study: Study, analysis: Analysis | None, table: SiteTable, policy: Policy) -> Case:
    """What a fit asks first, as a site's rules see it that has answered nothing yet."""
    design = study.description_design if analysis is None else without_fills(study.design(analysis))
    folds = None if analysis is None else folds_of(analysis, [site.name for site in study.sites] or [table.site])
    question = Question(sums, Message(folds=folds), {"design": design.model_dump(mode="json")})
    ledger = Ledger.open(None)
    places = ledger.places(row_marks(table.frame, ledger.secret))
    return Case(Asked(question, question.digest, design, table, None), policy, ledger, places, table.site, "")


def folds_of(analysis: Analysis, sites: Sequence[str]) -> Folds | None:
    """The folds of an analysis; None where its strength needs none."""
    if analysis.alpha is not None or analysis.select in ("aic", "bic"):
        return None
    if isinstance(analysis.cv, str):
        return SiteFolds.of(tuple(sites))
    return (Folds if analysis.group is None else GroupFolds)(analysis.cv or FOLDS, analysis.seed)
