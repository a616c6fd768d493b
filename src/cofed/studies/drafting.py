"""A first draft of a study, from what one or more sites tell of their tables."""

import dataclasses
from collections.abc import Iterable, Mapping

from cofed._util import naming
from cofed._util.toml_mistakes import did_you_mean
from cofed.losses.families import Family
from cofed.sites.agreement import predicted_columns, union, usable, usable_columns
from cofed.sites.columns import WORDS, ColumnInfo, Label, TableInfo
from cofed.sites.design import Design, Target
from cofed.sites.site_table import TableMismatch
from cofed.studies.analysis import PREDICTS, Analysis
from cofed.studies.schema import Study, StudyHead, StudySite
from cofed.studies.variables import Variable


@dataclasses.dataclass(frozen=True)
class Draft:
    """A drafted study.

    Parameters
    ----------
    study : Study
        The draft.
    left_out : dict of str to str
        Columns that cannot be variables, and why.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import SiteTable
    >>> from cofed.studies import draft
    >>> frame = pd.DataFrame({"born": ["1963-01-31", "1971-12-01"], "age": [61.5, 53], "country": "Norway"})
    >>> found = draft({"Oslo": SiteTable(frame, "Oslo").info()})
    >>> list(found.study.variables), found.left_out
    (['age'], {'born': "it holds dates or times at 'Oslo'", 'country': "it is 'Norway' in every row"})
    """

    study: Study
    left_out: dict[str, str]


def draft(
    infos: Mapping[str, TableInfo],
    target: str | Target | None = None,
    family: str | None = None,
    name: str = "study",
) -> Draft:
    """A study of all columns that can be variables, with one analysis where there is a target.

    Parameters
    ----------
    infos : mapping of str to TableInfo
        What each site tells of its table.
    target : str or Target, optional
        The column to predict; of the time to an event, a target such as `Target(name="days", event="dead")`; of several
        responses, `Target(name="systolic", responses=("diastolic",))`.
    family : str, optional
        What it is; by default what its values suggest.
    name : str
        The study's name.

    Returns
    -------
    Draft
        The study, and which columns are left out.

    Raises
    ------
    TableMismatch
        Where a column holds numbers at one site and text at another, or the target cannot be predicted.
    """
    findings: list[str] = []
    predicted = predicted_columns(target)
    variables: dict[str, Variable] = {}
    left_out: dict[str, str] = {}
    for column in usable_columns(infos, None):
        told = {site: info.by_name[column] for site, info in infos.items() if column in info.by_name}
        why = unusable(told, infos)
        if why is not None and column not in predicted:
            left_out[column] = why
        elif usable(column, told, findings):
            wanted = family if column in predicted else None
            variables[column] = variable_of(column, told, wanted, findings)
    if not findings:
        absent = [name for name in predicted if name not in variables]
        hints = [f"{name!r}{did_you_mean(name, list(variables))}" for name in absent]
        findings += [f"no site has a column {hint}; there are {naming.listed(variables)}" for hint in hints]
    if not variables:
        findings.append("no column can be a variable: " + "; ".join(f"{n!r}: {why}" for n, why in left_out.items()))
    if findings:
        raise TableMismatch(findings)
    if target is not None and family == "poisson":
        variables[predicted[0]] = Variable(kind="count")
    asked = Target(name=target) if isinstance(target, str) else target
    analyses = () if asked is None else (analysis_of(asked, variables, family),)
    head, sites = StudyHead(name=name), tuple(StudySite(name=site) for site in infos)
    return Draft(Study(study=head, variables=variables, sites=sites, analyses=analyses), left_out)


def draft_of_times(design: Design, sites: Iterable[str]) -> Study:
    """The study that questions about times to an event and one factor, or none, are of.

    Parameters
    ----------
    design : Design
        What all sites have agreed on; that of the study's one analysis is the same.
    sites : iterable of str
        Their names.

    Returns
    -------
    Study
        The study, of these columns alone.

    Examples
    --------
    >>> from cofed.sites import Design, Target
    >>> from cofed.studies import draft_of_times
    >>> times = Target(name="days", event="dead")
    >>> study = draft_of_times(Design(features=(), target=times), ["Oslo", "Rome"])
    >>> list(study.variables), study.design("main").target == times
    (['days', 'dead'], True)
    """
    target = design.target
    assert target is not None
    numbers = {name: Variable(kind="number") for name in (target.name, target.entry) if name is not None}
    variables = numbers | {str(target.event): Variable(kind="binary")}
    variables |= {one.name: Variable(kind="factor", levels=one.levels) for one in design.features}
    one = Analysis(
        name="main",
        family="cox",
        target=target.name,
        event=target.event,
        entry=target.entry,
        features=tuple(feature.name for feature in design.features) or None,
        missing=design.missing,  # type: ignore[arg-type]
    )
    named = tuple(StudySite(name=site) for site in sites)
    return Study(study=StudyHead(name=f"{target.name}"), variables=variables, sites=named, analyses=(one,))


def unusable(told: Mapping[str, ColumnInfo], infos: Mapping[str, TableInfo]) -> str | None:
    """Why a column cannot be a variable; None where it can, or where something is to be corrected."""
    absent = [site for site in infos if site not in told]
    if absent:
        return f"it is not there at {naming.listed(absent)}"
    for kind in ("date", "free text", "decimal commas", "mixed"):
        where = [site for site, info in told.items() if info.kind == kind]
        if where:
            return f"it holds {WORDS[kind]} at {naming.listed(where)}"
    known = [info.levels for info in told.values() if info.kind != "empty"]
    if not known:
        return "it has no value"
    values = {level for levels in known if levels is not None for level in levels}
    if None not in known and len(values) == 1:
        return f"it is {values.pop()!r} in every row"
    return None


def variable_of(name: str, told: dict[str, ColumnInfo], family: str | None, findings: list[str]) -> Variable:
    """A column as a variable; as a target, what its family needs it to be."""
    kinds = {info.kind for info in told.values()} - {"empty"}
    if "text" in kinds:
        levels = union(name, told, findings)
        return Variable(kind="factor", levels=levels) if len(levels) > 1 else Variable(kind="number")
    known = [info.levels for info in told.values() if info.kind != "empty"]
    values: set[Label] = {level for levels in known if levels is not None for level in levels}
    if None not in known and values <= {0, 1}:
        return Variable(kind="binary")
    if family in ("binomial", "multinomial") and None not in known and len(values) > 1:
        return Variable(kind="factor", levels=tuple(sorted(values)))  # type: ignore[type-var]
    return Variable(kind="number")


def analysis_of(asked: Target, variables: Mapping[str, Variable], family: str | None) -> Analysis:
    """The analysis of a draft: a lasso whose strength cross-validation chooses."""
    target = asked.name
    variable = variables[target]
    if family is None:
        two = variable.kind == "binary" or len(variable.levels or ()) == 2
        family = "binomial" if two else "multinomial" if variable.kind == "factor" else "gaussian"
        family = "mgaussian" if asked.responses else family if asked.event is None else "cox"
    allowed = PREDICTS[Family.of(family).name]
    if variable.kind not in allowed:
        kinds = " or ".join(allowed)
        raise TableMismatch([f"{family} predicts a {kinds}, but column {target!r} is a {variable.kind}"])
    features = tuple(name for name in variables if name not in predicted_columns(asked))
    if not features:
        raise TableMismatch([f"no column is left to predict {target!r} from"])
    found = Analysis(name="main", family=family, target=target, features=features, cv=5, select="1se")
    found = found.model_copy(update={"event": asked.event, "entry": asked.entry, "responses": asked.responses})
    wrong = [why for one in (found.unfit_event, found.unfit_responses) for _, why in one(dict(variables))]
    wrong += [why for _, why in found.unfit_target(variable)]
    if wrong:
        raise TableMismatch(wrong)
    return found
