"""What is done to a site's numbers before a model sees them: named, versioned data, which each site applies itself.

A step is what a fitted transformer has learnt, in numbers; no code travels. The same numbers at every site are the
transformation of the pooled rows.
"""

import hashlib
import math
from abc import abstractmethod
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import Field, model_validator
from sklearn.preprocessing import QuantileTransformer, SplineTransformer

from cofed._util import naming
from cofed.sites.columns import Agreed

Numbers: TypeAlias = tuple[float, ...]
MOST_DEGREE = 10  # of powers and splines
MOST_OUTPUTS = 100_000


class AbstractStep(Agreed):
    """A transformation of rows of numbers.

    Attributes
    ----------
    outputs : tuple of str
        The names of the columns that it makes.
    """

    outputs: tuple[str, ...]

    @property
    @abstractmethod
    def n_inputs(self) -> int:
        """How many columns it takes."""

    @property
    @abstractmethod
    def origins(self) -> tuple[tuple[int, ...], ...]:
        """For each column that it makes, the positions of those that it is made from."""

    @property
    def is_linear(self) -> bool:
        """Whether sums and products of what it makes are known from those of what it takes."""
        return False

    @abstractmethod
    def apply(self, X: np.ndarray) -> np.ndarray:
        """The columns that it makes of these rows."""

    @property
    def digest(self) -> str:
        """What tells it from another."""
        return hashlib.sha256(self.model_dump_json().encode()).hexdigest()[:16]

    @model_validator(mode="after")
    def fitting(self) -> "AbstractStep":
        """Refuse numbers that do not go together."""
        if len(self.outputs) > MOST_OUTPUTS or len(self.origins) != len(self.outputs):
            raise ValueError(f"a step must name what it makes, {len(self.origins)} columns, got {len(self.outputs)}")
        naming.require_different("the names of what a step makes", self.outputs)
        return self


class Scale(AbstractStep):
    """(x - centre) / width of each column."""

    kind: Literal["scale"] = "scale"
    version: Literal[1] = 1
    centre: Numbers
    width: Numbers

    @model_validator(mode="after")
    def positive(self) -> "Scale":
        """Refuse widths that are no numbers above 0."""
        if len(self.centre) != len(self.width) or not all(0 < one < math.inf for one in self.width):
            raise ValueError("the widths of a step must be finite numbers above 0, one for each centre")
        return self

    @property
    def n_inputs(self) -> int:
        return len(self.centre)

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return tuple((j,) for j in range(self.n_inputs))

    @property
    def is_linear(self) -> bool:
        return True

    def apply(self, X: np.ndarray) -> np.ndarray:
        return (X - np.asarray(self.centre)) / np.asarray(self.width)


class Project(AbstractStep):
    """Directions of the rows around a centre, each divided by a width: principal components."""

    kind: Literal["project"] = "project"
    version: Literal[1] = 1
    centre: Numbers
    directions: tuple[Numbers, ...]
    width: Numbers

    @property
    def n_inputs(self) -> int:
        return len(self.centre)

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(range(self.n_inputs)) for _ in self.directions)

    @property
    def is_linear(self) -> bool:
        return True

    def apply(self, X: np.ndarray) -> np.ndarray:
        return (X - np.asarray(self.centre)) @ np.asarray(self.directions).T / np.asarray(self.width)


class Powers(AbstractStep):
    """Products of powers of the columns."""

    kind: Literal["powers"] = "powers"
    version: Literal[1] = 1
    exponents: tuple[tuple[Annotated[int, Field(ge=0, le=MOST_DEGREE)], ...], ...] = Field(min_length=1)

    @property
    def n_inputs(self) -> int:
        return len(self.exponents[0])

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return tuple(tuple(j for j, power in enumerate(own) if power) for own in self.exponents)

    @property
    def is_linear(self) -> bool:
        return all(sum(own) <= 1 for own in self.exponents)

    def apply(self, X: np.ndarray) -> np.ndarray:
        made = np.ones((len(X), len(self.exponents)))
        for column, own in enumerate(self.exponents):
            for j, power in enumerate(own):
                made[:, column] *= X[:, j] ** power if power else 1.0
        return made


class Levels(AbstractStep):
    """Zeros and ones of levels from those that a design has, which leaves out the first of each factor.

    Each column is a sum of the design's, or what is left of 1 without it: the first level, and levels taken together.
    """

    kind: Literal["levels"] = "levels"
    version: Literal[1] = 1
    width: Annotated[int, Field(ge=0)]
    sums: tuple[tuple[Annotated[int, Field(ge=0)], ...], ...]
    rest: tuple[bool, ...]  # whether each is 1 without its sum

    @model_validator(mode="after")
    def within(self) -> "Levels":
        """Refuse columns that are not there."""
        if len(self.rest) != len(self.sums) or any(column >= self.width for own in self.sums for column in own):
            raise ValueError(f"the columns of levels must be sums of {self.width} columns, or 1 without one")
        return self

    @property
    def n_inputs(self) -> int:
        return self.width

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return self.sums

    @property
    def is_linear(self) -> bool:
        return True

    def apply(self, X: np.ndarray) -> np.ndarray:
        made = np.zeros((len(X), len(self.sums)))
        for column, (own, rest) in enumerate(zip(self.sums, self.rest, strict=True)):
            total = X[:, list(own)].sum(axis=1)
            made[:, column] = 1 - total if rest else total
        return made


class Bins(AbstractStep):
    """In which of the bins between edges a number is: the bin's position, or zeros and a one."""

    kind: Literal["bins"] = "bins"
    version: Literal[1] = 1
    edges: tuple[Numbers, ...]
    ordinal: bool

    @property
    def n_inputs(self) -> int:
        return len(self.edges)

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return tuple((j,) for j, own in enumerate(self.edges) for _ in range(1 if self.ordinal else len(own) - 1))

    def apply(self, X: np.ndarray) -> np.ndarray:
        place = np.column_stack(
            [np.searchsorted(own[1:-1], X[:, j], side="right") for j, own in enumerate(map(np.asarray, self.edges))]
        )
        if self.ordinal:
            return place.astype(float)
        return np.hstack([place[:, [j]] == np.arange(len(own) - 1) for j, own in enumerate(self.edges)]).astype(float)


class Ranks(AbstractStep):
    """The share of rows that a number is above, or the normal number of that share."""

    kind: Literal["ranks"] = "ranks"
    version: Literal[1] = 1
    quantiles: tuple[Numbers, ...]  # of each column
    references: Numbers
    distribution: Literal["uniform", "normal"]

    @property
    def n_inputs(self) -> int:
        return len(self.quantiles)

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return tuple((j,) for j in range(self.n_inputs))

    def apply(self, X: np.ndarray) -> np.ndarray:
        ranks = QuantileTransformer(output_distribution=self.distribution)
        ranks.quantiles_, ranks.references_ = np.asarray(self.quantiles).T, np.asarray(self.references)
        ranks.n_quantiles_ = len(self.references)
        vars(ranks)["n_features_in_"] = self.n_inputs
        return np.asarray(ranks.transform(X))


class Splines(AbstractStep):
    """B-splines of each column."""

    kind: Literal["splines"] = "splines"
    version: Literal[1] = 1
    knots: tuple[Numbers, ...]  # of each column, ascending
    degree: Annotated[int, Field(ge=0, le=MOST_DEGREE)]
    extrapolation: Literal["constant", "linear", "continue"]
    include_bias: bool

    @property
    def n_inputs(self) -> int:
        return len(self.knots)

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        each = len(self.knots[0]) + self.degree - 1 - (not self.include_bias)
        return tuple((j,) for j in range(self.n_inputs) for _ in range(each))

    def apply(self, X: np.ndarray) -> np.ndarray:
        knots = np.asarray(self.knots).T
        splines = SplineTransformer(
            len(knots),
            self.degree,
            knots=knots,  # pyright: ignore[reportArgumentType]
            extrapolation=self.extrapolation,
            include_bias=self.include_bias,
        )
        return np.asarray(splines.fit(knots).transform(X))


Single: TypeAlias = Annotated[Scale | Project | Powers | Bins | Ranks | Splines, Field(discriminator="kind")]


class StepPart(Agreed):
    """Some columns, and what is made of them; without a step they stay as they are."""

    columns: tuple[Annotated[int, Field(ge=0)], ...]
    step: Single | None = None

    @model_validator(mode="after")
    def fitting(self) -> "StepPart":
        """Refuse a step that takes another number of columns."""
        if self.step is not None and self.step.n_inputs != len(self.columns):
            raise ValueError(f"a step takes {self.step.n_inputs} columns, and is given {len(self.columns)}")
        return self

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        """For each column that it makes, the positions of those that it is made from."""
        if self.step is None:
            return tuple((column,) for column in self.columns)
        return tuple(tuple(self.columns[j] for j in own) for own in self.step.origins)

    def apply(self, X: np.ndarray) -> np.ndarray:
        """The columns that it makes."""
        own = X[:, list(self.columns)]
        return own if self.step is None else self.step.apply(own)


class Beside(AbstractStep):
    """What several parts make, beside each other: some columns as they are, some through a step each."""

    kind: Literal["beside"] = "beside"
    version: Literal[1] = 1
    width: Annotated[int, Field(ge=1)]
    parts: tuple[StepPart, ...]

    @model_validator(mode="after")
    def within(self) -> "Beside":
        """Refuse columns that are not there."""
        if max((column for part in self.parts for column in part.columns), default=0) >= self.width:
            raise ValueError(f"a part takes a column that is not there: there are {self.width}")
        return self

    @property
    def n_inputs(self) -> int:
        return self.width

    @property
    def origins(self) -> tuple[tuple[int, ...], ...]:
        return tuple(own for part in self.parts for own in part.origins)

    @property
    def is_linear(self) -> bool:
        return all(part.step is None or part.step.is_linear for part in self.parts)

    def apply(self, X: np.ndarray) -> np.ndarray:
        return np.hstack([part.apply(X) for part in self.parts])


Step: TypeAlias = Annotated[
    Scale | Project | Powers | Levels | Bins | Ranks | Splines | Beside, Field(discriminator="kind")
]


def as_numbers(values: np.ndarray) -> Numbers:
    """Numbers as they travel."""
    return tuple(float(one) for one in values)
