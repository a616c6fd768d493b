"""A study as a TOML file for people: comments say what can be added."""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from cofed._util.files import atomically
from cofed.studies.analysis import Analysis
from cofed.studies.schema import Study
from cofed.studies.variables import Variable

HEAD = """\
# A study: which variables every site's table has, who takes part, and what is computed.
# Agree on it with all sites; then each runs, before anything leaves it:
#   cofed study check study.toml --data TABLE      says what of its table does not fit
#   cofed study approve study.toml --data TABLE    from then on it answers what the study contains
"""
VARIABLES = """\
# Variables: a table for each column. kind is number, count (0, 1, 2, ...), binary (0 or 1, or two levels) or factor.
# May be added: unit = "years", range = [18, 110], missing = [-99, "unknown"] (an empty cell is always missing),
# description = "...". The first level of a factor is the reference that others are compared with.
"""
SITES = """\
# Sites. May be added: key = "..." (each site prints its own: cofed study key), so that no one can pose as a site;
# releasable = true, where a fit may go on without the site (the server then learns what the site had added).
"""
ANALYSES = """\
# Analyses. family: gaussian, mgaussian (with responses = ["column"], predicted together with the target), binomial,
# multinomial, poisson, negbin, gamma, tweedie(1.5), huber(1.35),
# quantile(0.9, 0.1) (their numbers: power; delta; level and width, in the units of the target) or cox (with event).
# penalty: l1, elasticnet (with l1_ratio) or group.
# The strength is chosen by cross-validation (cv = 5, select = "1se" or "min"), or set: alpha = 0.1. May be added:
# measure = "auc", group = "column" (its groups of rows are each in one fold), cv = "leave-one-site-out".
# intervals = true may have errors = "hc1", "hc3", "site" or "column" (by which rows are related).
# missing: refuse, drop (rows with a gap) or impute (the mean or the most frequent level of all sites).
# May be added: weight = "column" (how much a row counts), offset = "column" (added to its prediction: of counts, the
# logarithm of the time that they are of), class_weight = "balanced",
# site_effects = "fixed" (an intercept for every site), penalty_factor = { age = 0 } (0: not penalised), and limits of
# coefficients, low = { dose = 0 } and high = { age = 0.5 }; steps = [{ kind = "scale" }], what is done to the numbers
# before the model: formula (with formula), scale, pca (components), polynomial, bins, ranks or splines.
"""


def to_toml(study: Study, notes: Mapping[str, str] | None = None) -> str:
    """The text of a study file.

    Parameters
    ----------
    study : Study
        What it says.
    notes : mapping of str to str, optional
        Columns that are no variables, and why.

    Returns
    -------
    str
        TOML, with comments.

    Examples
    --------
    >>> from cofed.studies import Study, Variable, to_toml
    >>> age, cost = Variable(kind="number", unit="years"), Variable(kind="number")
    >>> text = to_toml(Study(study={"name": "demo"}, variables={"age": age, "total cost": cost}))
    >>> print(text[text.index("[variables.age]"):].strip())
    [variables.age]
    kind = "number"
    unit = "years"
    <BLANKLINE>
    [variables."total cost"]
    kind = "number"
    """
    parts = [HEAD, entries("[study]", study.study.model_dump(exclude_none=True)), VARIABLES]
    for name, variable in study.variables.items():
        parts.append(entries(f"[variables.{key(name)}]", given(variable)))
    if notes:
        lines = [f"#   {comment(name)}: {comment(why)}" for name, why in notes.items()]
        parts.append("\n".join(["# Columns that are left out:", *lines]) + "\n")
    if study.sites:
        parts.append(SITES)
    parts += [entries("[[sites]]", site.model_dump(exclude_defaults=True)) for site in study.sites]
    if study.analyses:
        parts.append(ANALYSES)
    parts += [entries("[[analyses]]", given(analysis)) for analysis in study.analyses]
    return "\n".join(parts)


def write(path: str | Path, study: Study, notes: Mapping[str, str] | None = None) -> None:
    """Write a study file, whole or not at all.

    Parameters
    ----------
    path : str or Path
        Where to.
    study, notes
        As for `to_toml`.
    """
    text = to_toml(study, notes)
    atomically(path, lambda name: Path(name).write_text(text, encoding="utf-8"), shown=True)


def given(part: Variable | Analysis) -> dict[str, object]:
    """What a table says beyond its defaults."""
    return {name: value for name, value in part.model_dump(exclude_none=True).items() if value not in ((), {})}


def entries(header: str, values: Mapping[str, object]) -> str:
    """A table of the file."""
    return "\n".join([header, *(f"{name} = {value_text(value)}" for name, value in values.items())]) + "\n"


def value_text(value: object) -> str:
    """A value in TOML; JSON's texts, numbers and truth values are TOML's.

    >>> from cofed.studies.writing import value_text
    >>> value_text(("a", 1, 0.5, True)), value_text('say "yes"'), value_text({"age": 0.0})
    ('["a", 1, 0.5, true]', '"say \\\\"yes\\\\""', '{ age = 0.0 }')
    """
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(value_text(one) for one in value)}]"
    if isinstance(value, Mapping):
        return f"{{ {', '.join(f'{key(name)} = {value_text(one)}' for name, one in value.items())} }}"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def key(name: str) -> str:
    """A key of TOML: bare where it can be."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else value_text(name)


def comment(text: str) -> str:
    """A text that stays on the line of its comment."""
    return "".join(letter if letter.isprintable() else " " for letter in text)
