"""What a study file says, as pydantic models, and the design that each analysis gives."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cofed._util import naming
from cofed._util.toml_mistakes import Place, TomlFile, did_you_mean
from cofed.losses.families import FAMILIES as LOSSES
from cofed.losses.families import Family
from cofed.sites.columns import MOST_LEVELS, Label, level_text
from cofed.sites.design import Design, Feature, RowColumn, Target

VariableKind: TypeAlias = Literal["number", "count", "binary", "factor"]
# Which kinds of variables a family predicts.
PREDICTS: dict[str, tuple[VariableKind, ...]] = {
    "gaussian": ("number", "count"),
    "binomial": ("binary", "factor"),
    "multinomial": ("factor",),
    "poisson": ("count",),
    **dict.fromkeys(LOSSES, ("number", "count")),
    "cox": ("number", "count"),
}
Text = Annotated[str, Field(min_length=1)]


class StudyError(ValueError):
    """What is wrong with a study file, a line for each mistake."""


class StudyPart(BaseModel):
    """A table of a study file: unknown keys are refused, and so is text where a number belongs."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Variable(StudyPart):
    """A variable of a study: a column that every site's table has.

    Parameters
    ----------
    kind : {"number", "count", "binary", "factor"}
        A number; a whole number from 0 on; 0 or 1, or one of two levels; one of several levels.
    levels : list, optional
        The levels; the first is the reference, to which a model compares the others.
    unit : str, optional
        Such as "years".
    range : list of two numbers, optional
        The lowest and the highest number that is allowed.
    missing : list, optional
        What a missing value looks like, such as -99 or "unknown"; an empty cell always is one.
    description : str, optional
        In words.

    Examples
    --------
    >>> Variable(kind="factor", levels=["female", "male"]).levels
    ('female', 'male')
    """

    kind: VariableKind
    levels: Annotated[tuple[Label, ...], Field(strict=False)] | None = None
    unit: str | None = None
    range: Annotated[tuple[float, float], Field(strict=False)] | None = None
    missing: Annotated[tuple[Label, ...], Field(strict=False)] = ()
    description: str | None = None

    @field_validator("levels")
    @classmethod
    def different(cls, levels: tuple[Label, ...] | None) -> tuple[Label, ...] | None:
        """Refuse levels that are the same, too few or too many."""
        if levels is None:
            return levels
        texts = [level_text(level) for level in levels]
        if len(set(texts)) < len(texts) or not 2 <= len(texts) <= MOST_LEVELS or "" in texts:
            raise ValueError(f"it should be 2 to {MOST_LEVELS} levels that differ")
        return levels

    @field_validator("range")
    @classmethod
    def ascending(cls, bounds: tuple[float, float] | None) -> tuple[float, float] | None:
        """Refuse bounds in the wrong order."""
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ValueError("it should be the lowest and the highest number that is allowed")
        return bounds

    def mistakes(self) -> Iterator[tuple[Place, str]]:
        """What does not go together."""
        if self.kind == "factor" and self.levels is None:
            yield (), "a factor needs its levels"
        if self.kind == "binary" and self.levels is not None and len(self.levels) != 2:
            yield ("levels",), f"a binary variable has two levels, not {len(self.levels)}"
        if self.kind in ("number", "count") and self.levels is not None:
            yield ("levels",), f"a {self.kind} has no levels; the kind of a column of codes is factor"
        if self.range is not None and self.kind not in ("number", "count"):
            yield ("range",), f"a {self.kind} variable has no range"

    def feature(self, name: str) -> Feature:
        """The variable as a feature of a design."""
        levels = None if self.levels is None else tuple(level_text(level) for level in self.levels)
        return Feature(name=name, levels=levels, markers=self.missing)


class StudySite(StudyPart):
    """A site that takes part.

    Parameters
    ----------
    name : str
        Its name.
    key : str, optional
        The public half of its long-term key, which `cofed study key` prints at the site. With the keys of all sites,
        no server can invent a site or take the place of one.
    releasable : bool
        Whether sums with and without it may be told, so that a fit can go on without it (`--missing drop`).

    Examples
    --------
    >>> StudySite(name="oslo").releasable
    False
    """

    name: Text
    key: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    releasable: bool = False


class StudyHead(StudyPart):
    """What a study is."""

    name: Text
    description: str | None = None


class Analysis(StudyPart):
    """One model to fit.

    Parameters
    ----------
    name : str
        Its name in the study.
    target : str
        The variable to predict; of "cox", that of times.
    family : str
        What the target is: "gaussian", a number; "binomial", one of two classes; "multinomial", one of several;
        "poisson", a count; "gamma", a positive amount; "tweedie(power)", an amount that may be 0; "huber(delta)" and
        "quantile(level, width)", a number with outliers, and a quantile of one; "cox", the time to an event.
    features : list of str, optional
        The variables to predict from; all others where not given.
    penalty : {"l1", "elasticnet", "group"}
        "group" takes the levels of a factor together.
    l1_ratio : float, optional
        The part of "elasticnet" that is the l1 norm.
    alpha : float, optional
        The strength of the penalty; where not given, it is chosen.
    cv : int, optional
        The folds of the cross-validation that chooses the strength.
    select : {"min", "1se", "aic", "bic"}, optional
        By what the strength is chosen.
    intervals : bool
        Whether confidence intervals are computed.
    missing : {"refuse", "drop", "impute"}
        What is done about missing values.
    seed : int
        Of the folds.
    event, entry : str, optional
        Of "cox": the binary variable that is 1 where a time ends with an event, and the times from which on rows are
        at risk.
    weight, offset : str, optional
        The variables that say how much a row counts, and what is added to its prediction: no features.
    class_weight : {"balanced"}, optional
        Let all classes count the same, all together.
    site_effects : {"none", "fixed"}
        "fixed" gives every site an intercept of its own; not of "multinomial" and "cox".

    Examples
    --------
    >>> Analysis(name="main", family="binomial", target="ill").penalty
    'l1'
    """

    name: Text
    family: Text
    target: Text
    features: Annotated[tuple[Text, ...], Field(strict=False, min_length=1)] | None = None
    penalty: Literal["l1", "elasticnet", "group"] = "l1"
    l1_ratio: float | None = Field(default=None, ge=0, le=1)
    alpha: float | None = Field(default=None, ge=0)
    cv: int | None = Field(default=None, ge=2, le=50)
    select: Literal["min", "1se", "aic", "bic"] | None = None
    intervals: bool = False
    missing: Literal["refuse", "drop", "impute"] = "refuse"
    seed: int = Field(default=0, ge=0, lt=2**31)
    event: Text | None = None
    entry: Text | None = None
    weight: Text | None = None
    offset: Text | None = None
    class_weight: Literal["balanced"] | None = None
    site_effects: Literal["none", "fixed"] = "none"

    @field_validator("family")
    @classmethod
    def known_family(cls, family: str) -> str:
        """Refuse what is no family, or has other numbers."""
        found = Family.of(family)
        if found.name not in PREDICTS or (found.numbers and found.name not in LOSSES):
            raise ValueError(f"it should be one of {', '.join(PREDICTS)}")
        if found.name in LOSSES:
            found.loss()
        return family

    @property
    def kind(self) -> str:
        """The family's name, without its numbers."""
        return Family.of(self.family).name

    @property
    def takes_robust_errors(self) -> bool:
        """Whether the model does not know the variances of its coefficients."""
        return self.class_weight is not None or self.kind in ("huber", "quantile")

    @property
    def predicted(self) -> tuple[str, ...]:
        """The variables that are predicted: one, or those of the time to an event."""
        return tuple(name for name in (self.target, self.event, self.entry) if name is not None)

    @property
    def roles(self) -> dict[str, str]:
        """The variables that are no features, by what they are."""
        named = {"target": self.target, "event": self.event, "entry": self.entry}
        named |= {"weight": self.weight, "offset": self.offset}
        return {role: name for role, name in named.items() if name is not None}

    def mistakes(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What does not go together with itself and with the variables."""
        for key, names in (*((role, [name]) for role, name in self.roles.items()), ("features", self.features or ())):
            for name in names:
                if name not in variables:
                    yield (key,), f"{name!r} is no variable{did_you_mean(name, list(variables))}"
        if self.features is not None:
            twice = {name for name in self.features if self.features.count(name) > 1}
            if twice or set(self.predicted) & set(self.features):
                yield ("features",), "the features should differ from each other and from the target"
        yield from self.unfit_event(variables)
        if self.target in variables:
            yield from self.unfit_target(variables[self.target])
        if self.l1_ratio is not None and self.penalty != "elasticnet":
            yield ("l1_ratio",), f"it is for the penalty elasticnet, which is {self.penalty} here"
        if self.alpha is not None and (self.cv is not None or self.select is not None):
            yield ("alpha",), "it sets the strength, cv and select choose it; give one or the other"
        if self.class_weight is not None and self.family not in ("binomial", "multinomial"):
            yield ("class_weight",), f"it is for classes, and the family is {self.family}"
        yield from self.unfit_roles(variables)

    def unfit_roles(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """Why variables cannot be weights or offsets, and sites have no intercepts of their own."""
        if self.site_effects == "fixed" and self.kind in ("multinomial", *LOSSES, "cox"):
            yield ("site_effects",), f"it is for gaussian, binomial and poisson, and the family is {self.family}"
        for role, name in self.roles.items():
            if role in ("target", "event"):
                continue
            if name in (self.features or ()) or list(self.roles.values()).count(name) > 1:
                yield (role,), f"{name!r} cannot be a feature, the target or another role, too"
            if name in variables and variables[name].kind not in ("number", "count"):
                yield (role,), f"it should be a number or a count, but {name!r} is a {variables[name].kind}"

    def unfit_event(self, variables: dict[str, Variable]) -> Iterator[tuple[Place, str]]:
        """What is wrong with the variables of the time to an event."""
        if self.family != "cox":
            if self.event is not None or self.entry is not None:
                yield ("family",), f"event and entry are for the family cox, which is {self.family} here"
            return
        if self.event is None:
            yield ("family",), "cox needs an event, the binary variable that is 1 where a time ends with one"
        if self.weight is not None or self.offset is not None:
            yield ("family",), "cox takes neither a weight nor an offset"
        if self.event == self.target:
            yield ("event",), "target and event should be different variables"
        event = variables.get(self.event or "")
        if event is not None and (event.kind != "binary" or event.levels is not None):
            yield ("event",), f"an event is a binary variable of 0 and 1, and {self.event!r} is not"

    def unfit_target(self, target: Variable) -> Iterator[tuple[Place, str]]:
        """Why the family does not predict a variable of this kind."""
        if target.kind not in PREDICTS[self.kind]:
            kinds = " or ".join(PREDICTS[self.kind])
            yield ("family",), f"{self.family} predicts a {kinds}, but {self.target!r} is a {target.kind}"
        elif self.family == "binomial" and target.levels is not None and len(target.levels) > 2:
            yield ("family",), f"binomial predicts two levels, but {self.target!r} has {len(target.levels)}"


class Study(StudyPart):
    """A study: its variables, sites and analyses.

    Parameters
    ----------
    study : dict
        The name, and a description.
    variables : dict of str to Variable
        The variables by their names, which are names of columns.
    sites : list of dict
        The sites' names.
    analyses : list of Analysis
        The models to fit.

    Examples
    --------
    >>> age, ill = Variable(kind="number"), Variable(kind="binary")
    >>> one = Analysis(name="main", family="binomial", target="ill")
    >>> study = Study(study={"name": "demo"}, variables={"age": age, "ill": ill}, analyses=[one])
    >>> study.design("main").feature_names, study.design("main").classes.tolist()
    (('age',), [0, 1])
    """

    study: StudyHead
    variables: dict[Text, Variable] = Field(min_length=1)
    sites: Annotated[tuple[StudySite, ...], Field(strict=False)] = ()
    analyses: Annotated[tuple[Analysis, ...], Field(strict=False)] = ()

    @property
    def name(self) -> str:
        """The study's name."""
        return self.study.name

    @property
    def digest(self) -> str:
        """The hash of what the study says, whatever its comments and the order of its keys."""
        canonical = json.dumps(self.model_dump(mode="json"), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(f"cofed study 1 {canonical}".encode()).hexdigest()

    @property
    def roster(self) -> dict[str, str] | None:
        """The sites' long-term keys by name; None where one has none."""
        keys = {site.name: site.key for site in self.sites if site.key is not None}
        return keys if keys and len(keys) == len(self.sites) else None

    @property
    def releasable(self) -> frozenset[str]:
        """The sites that agree to sums with and without them."""
        return frozenset(site.name for site in self.sites if site.releasable)

    @property
    def markers(self) -> dict[str, tuple[Label, ...]]:
        """By variable, what a missing value looks like."""
        return {name: variable.missing for name, variable in self.variables.items()}

    def analysis(self, name: str) -> Analysis:
        """The analysis with this name."""
        found = [one for one in self.analyses if one.name == name]
        if not found:
            raise ValueError(f"there is no analysis {name!r}; there are {naming.listed(a.name for a in self.analyses)}")
        return found[0]

    def design(self, analysis: str | Analysis) -> Design:
        """How a table becomes numbers for an analysis: nobody has to be asked, but for what missing values become.

        Parameters
        ----------
        analysis : str or Analysis
            An analysis of this study.
        """
        one = self.analysis(analysis) if isinstance(analysis, str) else analysis
        names = one.features or tuple(name for name in self.variables if name not in one.roles.values())
        target, variable = one.target, self.variables[one.target]
        classes = (variable.levels or (0, 1)) if one.family in ("binomial", "multinomial") else None
        return Design(
            features=tuple(self.variables[name].feature(name) for name in names),
            target=Target(name=target, classes=classes, markers=variable.missing, event=one.event, entry=one.entry),
            missing=one.missing,
            weight=self.row_column(one.weight),
            offset=self.row_column(one.offset),
        )

    def row_column(self, name: str | None) -> RowColumn | None:
        """A variable as a column of a design that is no feature."""
        return None if name is None else RowColumn(name=name, markers=self.variables[name].missing)

    @property
    def description_design(self) -> Design:
        """The design for a description of all variables, with missing values left as they are."""
        return Design(features=tuple(v.feature(name) for name, v in self.variables.items()), missing="keep")

    def contains(self, design: Design) -> bool:
        """Whether a question with this design is part of the study."""
        bare = [one.model_copy(update={"fill": None}) for one in design.features]
        asked = design.model_copy(update={"features": tuple(bare)})
        mine = [self.design(one) for one in self.analyses]
        # The sites' counts decide what the rows of a class count.
        even = asked.model_copy(update={"class_weight": None})
        balanced = [self.design(one) for one in self.analyses if one.class_weight is not None]
        return asked in (*mine, *(one.keeping_missing() for one in mine), self.description_design) or even in balanced

    def mistakes(self) -> Iterator[tuple[Place, str]]:
        """What in the study does not go together: where, and why."""
        for name, variable in self.variables.items():
            for place, why in variable.mistakes():
                yield ("variables", name, *place), why
        keys = [site.key for site in self.sites]
        for i, key in enumerate(keys):
            if key is not None and key in keys[:i]:
                yield ("sites", i, "key"), "another site has the same key; each makes its own (cofed study key)"
        for key, names in (("sites", [s.name for s in self.sites]), ("analyses", [a.name for a in self.analyses])):
            for i, name in enumerate(names):
                if name in names[:i]:
                    yield (key, i, "name"), f"{name!r} is there twice"
        for i, analysis in enumerate(self.analyses):
            for place, why in analysis.mistakes(dict(self.variables)):
                yield ("analyses", i, *place), why


def load(path: str | Path) -> Study:
    """Read and check a study file.

    Parameters
    ----------
    path : str or Path
        A TOML file.

    Returns
    -------
    Study
        What it says.

    Raises
    ------
    StudyError
        If the file cannot be read, or has mistakes: the sentences name line, key and what is allowed.

    Examples
    --------
    >>> load("no-such.toml")
    Traceback (most recent call last):
    cofed.studies.schema.StudyError: there is no file no-such.toml; `cofed study init TABLE` drafts one
    """
    return FILE.load(path)


def parse(text: str) -> Study:
    """The study of a TOML text."""
    return FILE.parse(text)


def allowed_keys(raw: dict[str, Any]) -> dict[int, list[str]]:
    """The keys that each table of a file may have, by the table's identity."""
    found = {id(raw): list(Study.model_fields), id(raw.get("study")): list(StudyHead.model_fields)}
    variables = raw.get("variables")
    tables = list(variables.values()) if isinstance(variables, dict) else []
    found |= {id(table): list(Variable.model_fields) for table in tables}
    for key, part in (("sites", StudySite), ("analyses", Analysis)):
        entries = raw.get(key)
        found |= {id(table): list(part.model_fields) for table in (entries if isinstance(entries, list) else [])}
    return found


FILE = TomlFile(Study, Study.mistakes, allowed_keys, StudyError, "; `cofed study init TABLE` drafts one")
