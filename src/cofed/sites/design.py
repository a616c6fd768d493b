"""The design that all sites agree on: which columns are features, how each becomes numbers, and what is predicted."""

from typing import Literal, TypeAlias

import numpy as np
from pydantic import model_validator

from cofed.sites.columns import Agreed, Label, level_text
from cofed.sites.steps import Step

Missing: TypeAlias = Literal["refuse", "drop", "impute", "keep"]
OF_ROWS = (
    "weight",
    "offset",
    "class_weight",
    "group",
    "cluster",
)  # what a design says of rows beside features and target
POLICIES = ("refuse", "drop", "impute", "keep")


class Feature(Agreed):
    """A column that a model learns from.

    Attributes
    ----------
    name : str
        The column.
    levels : tuple of str or None
        The levels of a factor, of which the first is the reference; None for a number.
    fill : float, str or None
        What stands for a missing value where they are imputed: the mean of all sites, or the most frequent level.
    markers : tuple
        What a missing value looks like, beside an empty cell.
    """

    name: str
    levels: tuple[str, ...] | None = None
    fill: float | str | None = None
    markers: tuple[Label, ...] = ()

    @property
    def encoded(self) -> tuple[str, ...]:
        """The names of the numbers that it becomes.

        >>> from cofed.sites import Feature
        >>> Feature(name="age").encoded, Feature(name="sex", levels=("female", "male")).encoded
        (('age',), ('sex[male]',))
        """
        if self.levels is None:
            return (self.name,)
        return tuple(f"{self.name}[{level}]" for level in self.levels[1:])


class Target(Agreed):
    """The column that is predicted; of the time to an event, and of several responses, the columns.

    Attributes
    ----------
    name : str
        The column; of the time to an event, that of times.
    classes : tuple or None
        The classes, in order; None for a number.
    markers : tuple
        What a missing value looks like, beside an empty cell.
    event : str or None
        The column that is 1 where a time ends with an event, and 0 where nobody knows; None for other targets.
    entry : str or None
        The column with the times from which on rows are at risk; None is from the beginning.
    responses : tuple of str
        Columns of numbers that are predicted together with the first.

    Examples
    --------
    >>> from cofed.sites import Target
    >>> [one.name for one in Target(name="days", event="dead").columns]
    ['days', 'dead']
    >>> [one.name for one in Target(name="systolic", responses=("diastolic",)).columns]
    ['systolic', 'diastolic']
    """

    name: str
    classes: tuple[Label, ...] | None = None
    markers: tuple[Label, ...] = ()
    event: str | None = None
    entry: str | None = None
    responses: tuple[str, ...] = ()

    @model_validator(mode="after")
    def of_one_kind(self) -> "Target":
        """Refuse what is several responses and something else."""
        if self.responses and (self.classes is not None or self.event is not None):
            raise ValueError("several responses are numbers, neither classes nor times to an event")
        return self

    @property
    def columns(self) -> tuple["Target", ...]:
        """Each column as a target of its own, in the order of a row of labels."""
        if self.event is None and not self.responses:
            return (self,)
        names = (self.entry, self.name, self.event, *self.responses)
        return tuple(Target(name=name, markers=self.markers) for name in names if name is not None)


class RowColumn(Agreed):
    """A column that says something of every row but is no feature: its weight, offset, group or cluster.

    Attributes
    ----------
    name : str
        The column.
    markers : tuple
        What a missing value looks like, beside an empty cell.
    """

    name: str
    markers: tuple[Label, ...] = ()


class Design(Agreed):
    """How a table becomes numbers, the same at every site. It is plain JSON: `model_dump_json`, `model_validate_json`.

    Attributes
    ----------
    features : tuple of Feature
        In the order of the columns of X.
    target : Target or None
        What is predicted.
    missing : str
        "refuse" rows with missing values, "drop" them, or "impute" features by what all sites agreed on (rows
        without a target are then dropped); "keep" leaves them to the question, as NaN.
    weight : RowColumn or None
        How much a row counts, >= 0; rows of weight 0 are left out.
    offset : RowColumn or None
        What is added to a row's prediction.
    class_weight : tuple of float or None
        What the weights of the rows of each class are multiplied with.
    group : RowColumn or None
        Numbers or texts: rows with the same one, such as those of a person, are in one fold.
    cluster : RowColumn or None
        Numbers or texts: rows of a site with the same one are related, for standard errors by clusters.
    steps : tuple of Step
        What is then done to the numbers of the features, one step after another, as transformers have learnt it.

    Examples
    --------
    >>> from cofed.sites import Design, Feature
    >>> design = Design(features=(Feature(name="age"), Feature(name="sex", levels=("female", "male"))))
    >>> design.feature_names
    ('age', 'sex[male]')
    >>> Design.model_validate_json(design.model_dump_json()) == design
    True
    """

    features: tuple[Feature, ...]
    target: Target | None = None
    missing: Missing = "refuse"
    weight: RowColumn | None = None
    offset: RowColumn | None = None
    class_weight: tuple[float, ...] | None = None
    group: RowColumn | None = None
    cluster: RowColumn | None = None
    steps: tuple[Step, ...] = ()

    @model_validator(mode="after")
    def fitting_steps(self) -> "Design":
        """Refuse steps that do not take what there is before them."""
        width = len(self.table_names)
        for step in self.steps:
            if step.n_inputs != width:
                raise ValueError(f"a step takes {step.n_inputs} columns, and there are {width}")
            width = len(step.outputs)
        if self.steps and self.missing == "keep":
            raise ValueError("steps take numbers without gaps")
        return self

    @model_validator(mode="after")
    def fitting_class_weight(self) -> "Design":
        """Refuse weights of classes that are not one number above 0 for each."""
        given, classes = self.class_weight, None if self.target is None else self.target.classes
        if given is not None and (
            classes is None or len(classes) != len(given) or not all(0 < one < np.inf for one in given)
        ):
            raise ValueError("class_weight must be one finite number above 0 for each class of the target")
        return self

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The names of the columns of X."""
        return self.steps[-1].outputs if self.steps else self.table_names

    @property
    def table_names(self) -> tuple[str, ...]:
        """The names of the numbers that the table becomes, before the steps."""
        return tuple(name for feature in self.features for name in feature.encoded)

    def with_step(self, step: Step) -> "Design":
        """The same design with one step more."""
        return Design.model_validate({**dict(self), "steps": (*self.steps, step)})

    @property
    def groups(self) -> tuple[str, ...]:
        """For each column of X, the column of the table that it is made from; of several, its own name.

        >>> from cofed.sites import Design, Feature
        >>> Design(features=(Feature(name="ward", levels=("a", "b", "c")), Feature(name="age"))).groups
        ('ward', 'ward', 'age')
        """
        found = [feature.name for feature in self.features for _ in feature.encoded]
        for step in self.steps:
            whose = [{found[j] for j in own} for own in step.origins]
            found = [own.pop() if len(own) == 1 else name for own, name in zip(whose, step.outputs, strict=True)]
        return tuple(found)

    @property
    def classes(self) -> np.ndarray | None:
        """The classes of the target, as an array; None where it is a number."""
        if self.target is None or self.target.classes is None:
            return None
        return as_labels(self.target.classes)

    @property
    def needs_fills(self) -> bool:
        """Whether the sites have yet to agree on what stands for a missing value."""
        return self.missing == "impute" and any(feature.fill is None for feature in self.features)

    def keeping_missing(self) -> "Design":
        """The same design for questions about missing values, which stay NaN; all rows count alike."""
        return self.model_copy(update={"missing": "keep", "steps": (), **dict.fromkeys(OF_ROWS)})

    @property
    def row_columns(self) -> dict[str, RowColumn]:
        """The columns that are no features, by what they say of a row."""
        named = {"weight": self.weight, "offset": self.offset, "group": self.group, "cluster": self.cluster}
        return {role: column for role, column in named.items() if column is not None}

    def with_columns(
        self,
        weight: str | None = None,
        offset: str | None = None,
        group: str | None = None,
        cluster: str | None = None,
    ) -> "Design":
        """The same design with columns that are weights, offsets, groups or clusters, and no features.

        None leaves it as it is. One column may be both a group and a cluster.

        >>> from cofed.sites import Design, Feature, Target
        >>> design = Design(features=(Feature(name="age"), Feature(name="visits")), target=Target(name="cost"))
        >>> weighted = design.with_columns(weight="visits")
        >>> weighted.feature_names, weighted.weight.name
        (('age',), 'visits')
        """
        roles = {"weight": weight, "offset": offset, "group": group, "cluster": cluster}
        asked = {role: name for role, name in roles.items() if name is not None}
        target = () if self.target is None else (one.name for one in self.target.columns)
        for name in target:
            if name in asked.values():
                raise ValueError(f"the target {name!r} can be neither a weight nor an offset, a group or a cluster")
        named = {role: column.name for role, column in self.row_columns.items()} | asked
        numbers = [named[role] for role in ("weight", "offset") if role in named]
        labels = {named[role] for role in ("group", "cluster") if role in named}
        twice = next((name for name in numbers if numbers.count(name) > 1 or name in labels), None)
        if twice is not None:
            raise ValueError(f"the column {twice!r} cannot be two of a weight, an offset, and a group or cluster")
        markers = {part.name: part.markers for part in (*self.features, *self.row_columns.values())}
        left = tuple(feature for feature in self.features if feature.name not in asked.values())
        if self.steps and len(left) < len(self.features):
            raise ValueError("columns for weights, offsets, groups and clusters are named before any transformer")
        if not left:
            raise ValueError("no column is left to learn from beside the target, weights, offsets, groups and clusters")
        columns = {role: RowColumn(name=name, markers=markers.get(name, ())) for role, name in asked.items()}
        return self.model_copy(update={"features": left, **columns})

    def filled(self, counts: np.ndarray, sums: np.ndarray) -> "Design":
        """The design with what stands for a missing value.

        Parameters
        ----------
        counts, sums
            For each column of X, the values that are there over all sites, and their sum.

        Returns
        -------
        Design
            Means for numbers; for factors the most frequent level, the first of several.
        """
        features, place = [], 0
        for feature in self.features:
            own = slice(place, place + len(feature.encoded))
            place = own.stop
            features.append(feature.model_copy(update={"fill": fill_of(feature, counts[own], sums[own])}))
        return self.model_copy(update={"features": tuple(features), "missing": "impute"})


def fill_of(feature: Feature, counts: np.ndarray, sums: np.ndarray) -> float | str:
    """The mean of a number, or the most frequent level of a factor."""
    if counts[0] == 0:
        raise ValueError(f"the column {feature.name!r} has no value at any site, so that none can be imputed")
    if feature.levels is None:
        return float(sums[0] / counts[0])
    return feature.levels[int(np.argmax([counts[0] - sums.sum(), *sums]))]


def as_labels(labels: tuple[Label, ...]) -> np.ndarray:
    """Labels as an array of their own type; of several types, as texts."""
    if len({isinstance(label, str) for label in labels}) > 1:
        return np.array([level_text(label) for label in labels])
    return np.array(labels)
