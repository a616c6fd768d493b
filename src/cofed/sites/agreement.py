"""How the server makes one design of what the sites tell of their tables."""

from collections.abc import Collection, Mapping, Sequence

import numpy as np
import pandas as pd

from cofed._util import checks, naming
from cofed._util.pandas_types import Frame
from cofed._util.toml_mistakes import did_you_mean
from cofed.sites.base import AbstractSites
from cofed.sites.columns import MOST_LEVELS, WORDS, ColumnInfo, Label, TableInfo, level_text
from cofed.sites.design import POLICIES, Design, Feature, Target
from cofed.sites.queries.observed import observed
from cofed.sites.queries.sums import MomentsMessage
from cofed.sites.site_table import POINTS, TableMismatch, remedy

LEAVE = "leave it out of the features (--features on the command line)"
ANOTHER = "choose another column to predict"
Told = dict[str, ColumnInfo]  # by site, what it tells of one column


def agree(
    infos: Mapping[str, TableInfo],
    target: str | Target | None = None,
    features: Sequence[str] | None = None,
    *,
    factors: Collection[str] = (),
    classify: bool | None = None,
    missing: str = "refuse",
) -> Design:
    """The design of all sites' tables: columns are matched by name, and factors have the union of the sites' levels.

    Parameters
    ----------
    infos : mapping of str to TableInfo
        What each site tells of its table.
    target : str or Target, optional
        The column to predict; of the time to an event, a target such as `Target(name="days", event="dead")`; of several
        responses, `Target(name="systolic", responses=("diastolic",))`.
    features : list of str, optional
        The columns to learn from, in order; all but the target where not given, in the order of the first site.
    factors : collection of str
        Columns of numbers that are codes: each of the numbers is a level.
    classify : bool, optional
        Whether the target is a class. By default it is where it is text, or true or false.
    missing : str
        "refuse" missing values, "drop" the rows that have some, or "impute" the mean or the most frequent level
        of all sites, on which they have yet to agree: see `agree_on_fills`. "keep" leaves them to a
        `cofed.transformers.FederatedSimpleImputer`, which must be fitted before anything else.

    Returns
    -------
    Design
        How every site's table becomes numbers.

    Raises
    ------
    TableMismatch
        Where the tables do not fit together, with all that does not.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import SiteTable, agree
    >>> oslo = pd.DataFrame({"age": [61, 52], "sex": ["male", "male"], "ill": [1, 0]})
    >>> rome = pd.DataFrame({"ill": [0, 1], "sex": ["male", "female"], "age": [44, 71.5]})
    >>> infos = {name: SiteTable(frame, name).info() for name, frame in (("Oslo", oslo), ("Rome", rome))}
    >>> agree(infos, "ill", classify=True).feature_names
    ('age', 'sex[male]')
    """
    checks.one_of("missing", missing, POLICIES)
    if not infos:
        raise ValueError("there is no site")
    predicted = predicted_columns(target)
    chosen = usable_columns(infos, target) if features is None else list(features)
    naming.require_different("features", chosen)
    naming.require_different("the columns of the target", predicted)
    both = next((name for name in predicted if name in chosen), None)
    if both is not None:
        raise ValueError(f"the target {both!r} is among the features")
    wanted = [*chosen, *predicted]
    strange = [name for name in factors if name not in wanted]
    if strange:
        raise ValueError(f"factors: there is no feature {naming.listed(strange)}; they are {naming.listed(chosen)}")
    findings = [finding for name in wanted for finding in absences(infos, name)]
    # Curves of the times to an event need no features; who asks for none names none.
    of_times = isinstance(target, Target) and target.event is not None
    if not chosen and not (of_times and features is not None):
        findings.append("no column is left to learn from beside the target")
    if findings:
        raise TableMismatch(findings)
    told = {name: {site: info.by_name[name] for site, info in infos.items()} for name in wanted}
    columns = [agreed_feature(name, told[name], name in factors, findings) for name in chosen]
    if isinstance(target, Target) and len(predicted) > 1:
        for name in predicted:
            agreed_target(name, told[name], False, findings)
        found = target
    else:
        found = agreed_target(predicted[0], told[predicted[0]], classify, findings) if predicted else None
    if missing == "refuse":
        findings += [finding for name in wanted for finding in gaps(name, told[name], infos, name in predicted)]
    if findings:
        raise TableMismatch(findings)
    return Design(features=tuple(columns), target=found, missing=missing)  # type: ignore[arg-type]


def agree_on_fills(design: Design, sites: AbstractSites) -> Design:
    """The design with what stands for missing values, for which all sites are asked one question.

    Parameters
    ----------
    design : Design
        A design that imputes.
    sites : AbstractSites
        The sites, with rows of `design.keeping_missing()`.
    """
    found = sites.ask(observed, MomentsMessage(np.zeros(sites.n_features)))
    return design.filled(np.asarray(found.n), np.asarray(found.X))


def predicted_columns(target: str | Target | None) -> list[str]:
    """The columns of a target."""
    if target is None:
        return []
    return [target] if isinstance(target, str) else [one.name for one in target.columns]


def usable_columns(infos: Mapping[str, TableInfo], target: str | Target | None) -> list[str]:
    """All columns but the target, in the order of the first site; then those that it lacks."""
    names = dict.fromkeys(column.name for info in infos.values() for column in info.columns)
    return [name for name in names if name not in predicted_columns(target)]


def absences(infos: Mapping[str, TableInfo], name: str) -> list[str]:
    """The sites that lack a column."""
    lacking = [site for site, info in infos.items() if name not in info.by_name]
    if not lacking:
        return []
    if len(lacking) == len(infos):
        have = list(next(iter(infos.values())).by_name)
        return [f"no site has a column {name!r}{did_you_mean(name, have)}; the first has {naming.listed(have)}"]
    return [f"site {naming.listed(lacking)} has no column {name!r}, which others have; add it there or {LEAVE}"]


def agreed_feature(name: str, told: Told, coded: bool, findings: list[str]) -> Feature:
    """A feature that is the same at all sites; what is wrong with it is added to the findings."""
    if not usable(name, told, findings):
        return Feature(name=name)
    if coded or any(info.kind == "text" for info in told.values() if info.kind != "empty"):
        levels = union(name, told, findings)
        if len(levels) == 1:
            findings.append(f"column {name!r} is {levels[0]!r} in every row of every site; {LEAVE}")
        return Feature(name=name, levels=levels or None)
    values = [info.levels for info in told.values() if info.kind != "empty"]
    if all(levels is not None and len(levels) == 1 for levels in values) and len(set(values)) == 1:
        where = naming.listed(told)
        findings.append(f"column {name!r} is {values[0][0]} in every row of every site ({where}); {LEAVE}")  # type: ignore[index]
    return Feature(name=name)


def agreed_target(name: str, told: Told, classify: bool | None, findings: list[str]) -> Target:
    """A target that is the same at all sites."""
    if not usable(name, told, findings, ANOTHER):
        return Target(name=name)
    kinds = {info.kind for info in told.values()} - {"empty"}
    if classify is None:
        classify = kinds <= {"text", "binary"}
    if not classify:
        if "text" in kinds:
            where = [site for site, info in told.items() if info.kind == "text"]
            findings.append(f"column {name!r} must hold numbers to be predicted, but is text at {naming.listed(where)}")
        return Target(name=name)
    found = union(name, told, findings)
    if len(found) == 1:
        findings.append(f"column {name!r} is {found[0]!r} in every row of every site; there is nothing to predict")
    if "text" in kinds:
        return Target(name=name, classes=tuple(sorted(found)))
    labels: set[Label] = {label for info in told.values() for label in info.levels or ()}
    return Target(name=name, classes=tuple(sorted(labels)))  # type: ignore[type-var]


def usable(name: str, told: Told, findings: list[str], advice: str = LEAVE) -> bool:
    """Whether a column holds numbers or levels at every site, and the same of the two; else what to do about it."""
    before = len(findings)
    for site, info in told.items():
        if info.kind in ("date", "mixed", "free text", "decimal commas"):
            what_to_do = {
                "date": f"turn them into numbers, such as days, or {advice}",
                "mixed": "make them all numbers or all text",
                "free text": f"a factor has at most {MOST_LEVELS} levels that come again; {advice}",
                "decimal commas": POINTS,
            }[info.kind]
            findings.append(f"site {site!r}, column {name!r} holds {WORDS[info.kind]}; {what_to_do}")
        if info.infinite:
            findings.append(f"site {site!r}, column {name!r} is infinite in {info.infinite} rows")
    text = [site for site, info in told.items() if info.kind == "text"]
    numeric = [site for site, info in told.items() if info.is_numeric]
    if text and numeric:
        some = naming.listed(told[text[0]].levels or ())
        findings.append(
            f"column {name!r} holds numbers at {naming.listed(numeric)}, but text at {naming.listed(text)} ({some})"
        )
    if not text and not numeric and len(findings) == before:
        findings.append(f"column {name!r} has no value at any site; {advice}")
    return len(findings) == before


def union(name: str, told: Told, findings: list[str]) -> tuple[str, ...]:
    """The levels of all sites, in natural order."""
    many = [site for site, info in told.items() if info.levels is None and info.kind != "empty"]
    if many:
        findings.append(
            f"column {name!r} has too many different numbers for levels or classes at {naming.listed(many)}"
        )
        return ()
    found = {level_text(level) for info in told.values() for level in info.levels or ()}
    if len(found) > MOST_LEVELS:
        findings.append(f"column {name!r} has {len(found)} levels over all sites; a factor has at most {MOST_LEVELS}")
    return tuple(sorted(found, key=naming.natural))


def gaps(name: str, told: Told, infos: Mapping[str, TableInfo], target: bool) -> list[str]:
    """The sites with missing values in a column."""
    counts = {site: info.missing for site, info in told.items() if info.missing}
    if not counts:
        return []
    where = ", ".join(f"{count} of {infos[site].rows} rows at {site!r}" for site, count in list(counts.items())[:10])
    more = f" and at {len(counts) - 10} more sites" if len(counts) > 10 else ""
    return [f"column {name!r} has missing values: {where}{more}; {remedy(target)}"]


def missing_values(infos: Mapping[str, TableInfo]) -> Frame:
    """How many values are missing: a row for each column of the tables, a column for each site.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import SiteTable, missing_values
    >>> table = SiteTable(pd.DataFrame({"age": [61, None], "ill": [0, 1]}), "Oslo")
    >>> missing_values({"Oslo": table.info()})["Oslo"].to_dict()
    {'age': 1, 'ill': 0}
    """
    names = usable_columns(infos, None)
    counts = {
        site: [info.by_name[n].missing if n in info.by_name else info.rows for n in names]
        for site, info in infos.items()
    }
    return pd.DataFrame(counts, index=pd.Index(names, name="column"))
