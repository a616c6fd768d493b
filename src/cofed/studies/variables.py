"""The variables of a study: columns that every site's table has."""

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, field_validator

from cofed._util.toml_mistakes import Place
from cofed.sites.columns import MOST_LEVELS, Label, level_text
from cofed.sites.design import Feature

VariableKind: TypeAlias = Literal["number", "count", "binary", "factor"]
Text = Annotated[str, Field(min_length=1)]


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
    >>> from cofed.studies import Variable
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
