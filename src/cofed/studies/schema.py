"""What a study file says, as pydantic models, and the design that each analysis gives."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cofed._util import naming
from cofed._util.toml_mistakes import Place, TomlFile
from cofed.sites.columns import Label
from cofed.sites.design import Design, RowColumn, Target
from cofed.studies.analysis import Analysis
from cofed.studies.planned_steps import PlannedStep, allowed
from cofed.studies.variables import StudyPart, Text, Variable


class StudyError(ValueError):
    """What is wrong with a study file, a line for each mistake."""


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
    >>> from cofed.studies.schema import StudySite
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
    >>> from cofed.studies import Analysis, Study, Variable
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
        said = self.model_dump(mode="json")
        for one in said["analyses"]:
            if not one["steps"]:  # studies without steps have the hash that they had before there were any
                del one["steps"]
        canonical = json.dumps(said, sort_keys=True, separators=(",", ":"))
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
        names = one.chosen(self.variables)
        target, variable = one.target, self.variables[one.target]
        classes = (variable.levels or (0, 1)) if one.family in ("binomial", "multinomial") else None
        return Design(
            features=tuple(self.variables[name].feature(name) for name in names),
            target=Target(
                name=target,
                classes=classes,
                markers=variable.missing,
                event=one.event,
                entry=one.entry,
                responses=one.responses,
            ),
            missing=one.missing,
            weight=self.row_column(one.weight),
            offset=self.row_column(one.offset),
            group=self.row_column(one.group),
            cluster=self.row_column(one.cluster),
        )

    def row_column(self, name: str | None) -> RowColumn | None:
        """A column of a design that is no feature, a variable or not."""
        return None if name is None else RowColumn(name=name, markers=self.markers.get(name, ()))

    @property
    def description_design(self) -> Design:
        """The design for a description of all variables, with missing values left as they are."""
        return Design(features=tuple(v.feature(name) for name, v in self.variables.items()), missing="keep")

    def contains(self, design: Design) -> bool:
        """Whether a question with this design is part of the study."""
        bare = [one.model_copy(update={"fill": None}) for one in design.features]
        asked = design.model_copy(update={"features": tuple(bare), "steps": ()})
        if design.steps:
            return any(self.asks(one, asked) and allowed(one.steps, asked, design.steps) for one in self.analyses)
        kept = [self.design(one).keeping_missing() for one in self.analyses]
        return asked in (*kept, self.description_design) or any(self.asks(one, asked) for one in self.analyses)

    def asks(self, analysis: Analysis, asked: Design) -> bool:
        """Whether a design is that of an analysis, before its steps."""
        if analysis.class_weight is not None:  # the sites' counts decide what the rows of a class count
            asked = asked.model_copy(update={"class_weight": None})
        return asked == self.design(analysis)

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
    >>> from cofed.studies import load
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
        found |= {id(table): list(part.model_fields) for table in tables_in(entries)}
    planned = [one.get("steps") for one in tables_in(raw.get("analyses")) if isinstance(one, dict)]
    found |= {id(table): list(PlannedStep.model_fields) for steps in planned for table in tables_in(steps)}
    return found


def tables_in(entries: Any) -> list[Any]:
    """The entries of a list; none of anything else."""
    return entries if isinstance(entries, list) else []


FILE = TomlFile(Study, Study.mistakes, allowed_keys, StudyError, "; `cofed study init TABLE` drafts one")
