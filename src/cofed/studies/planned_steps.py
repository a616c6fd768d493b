"""The steps of an analysis: what transformers do to the numbers before the model, agreed on but for what they learn."""

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, model_serializer
from sklearn.preprocessing import PolynomialFeatures

from cofed.sites import formulas, steps
from cofed.sites.design import Design
from cofed.sites.steps import MOST_DEGREE, Step
from cofed.studies.variables import StudyPart, Text

# The settings that each kind has beside its name.
SETTINGS: dict[str, tuple[str, ...]] = {
    "formula": ("formula",),
    "one_hot": ("first",),
    "scale": (),
    "pca": ("components", "whiten"),
    "polynomial": ("degree", "interaction_only"),
    "bins": ("bins", "uniform", "ordinal"),
    "ranks": ("quantiles", "distribution"),
    "splines": ("knots", "uniform", "degree", "extrapolation"),
}
NEEDED = {"formula": "formula", "pca": "components"}


class PlannedStep(StudyPart):
    """A step of an analysis: its kind and settings; means, knots and the like are learnt from the sites' sums.

    Parameters
    ----------
    kind : {"formula", "one_hot", "scale", "pca", "polynomial", "bins", "ranks", "splines"}
        What is done: terms of a formula, or a column for every level of factors, either of which must be first; means
        taken off and standard deviations divided by; principal components; powers and products; zeros and ones of
        bins; shares of the rows below; B-splines.
    formula : str, optional
        Of "formula", such as "age * sex + bs(bmi, df=5)".
    first : bool
        Of "one_hot": whether the first level has a column, too.
    components : int, optional
        Of "pca", how many.
    whiten : bool
        Whether components have a variance of 1.
    degree : int, optional
        Of "polynomial" (2 where not given) and of "splines" (3).
    interaction_only : bool
        Of "polynomial": products of different columns alone.
    bins, quantiles, knots : int, optional
        How many: 5 bins, 100 quantiles of "ranks", 5 knots of "splines" where not given.
    uniform : bool
        Whether bins and knots are at one distance, and not at quantiles.
    ordinal : bool
        Whether bins are numbered in one column.
    distribution : {"uniform", "normal"}
        Of "ranks": shares, or the normal numbers that belong to them.
    extrapolation : {"constant", "linear", "continue"}
        Of "splines", beyond the knots.

    Examples
    --------
    >>> from cofed.sites import steps
    >>> from cofed.studies import PlannedStep
    >>> one = PlannedStep(kind="splines", knots=4)
    >>> step = steps.Splines(outputs=("a", "b", "c", "d", "e"), knots=((0, 1, 2.5, 3),), degree=3,
    ...     extrapolation="constant", include_bias=False)
    >>> one.allows(step), PlannedStep(kind="splines").allows(step), PlannedStep(kind="scale").allows(step)
    (True, False, False)
    """

    kind: Literal["formula", "one_hot", "scale", "pca", "polynomial", "bins", "ranks", "splines"]
    formula: Text | None = None
    first: bool = True
    components: Annotated[int, Field(ge=1)] | None = None
    whiten: bool = False
    degree: Annotated[int, Field(ge=1, le=MOST_DEGREE)] | None = None
    interaction_only: bool = False
    bins: Annotated[int, Field(ge=2)] | None = None
    quantiles: Annotated[int, Field(ge=1)] | None = None
    knots: Annotated[int, Field(ge=2)] | None = None
    uniform: bool = False
    ordinal: bool = False
    distribution: Literal["uniform", "normal"] = "uniform"
    extrapolation: Literal["constant", "linear", "continue"] = "constant"

    def mistakes(self, is_first: bool) -> Iterator[str]:
        """What is not of this kind, or does not stand where it must."""
        own, said = SETTINGS[self.kind], self.model_dump()
        strange = sorted(said.keys() - {"kind", *own})
        if strange:
            yield f"{self.kind} has no {strange[0]}" + (f"; it has {', '.join(own)}" if own else "")
        needed = NEEDED.get(self.kind)
        if needed is not None and needed not in said:
            yield f"{self.kind} needs {needed}"
        if not is_first and self.kind in ("formula", "one_hot"):
            yield f"{self.kind} is of the table's columns, and so the first step"
        if self.formula is not None:
            try:
                formulas.parse(self.formula)
            except (ValueError, ImportError) as error:
                yield str(error).removeprefix(f"{formulas.OWNER}: ")

    @model_serializer
    def said(self) -> dict[str, object]:
        """What is said beyond the defaults: a study's hash stays the same where more settings are known one day."""
        fields = type(self).model_fields
        return {name: value for name, value in self if value != fields[name].default}

    @property
    def n_bins(self) -> int:
        """Bins of a column."""
        return self.bins or 5

    @property
    def n_quantiles(self) -> int:
        """Quantiles of ranks."""
        return self.quantiles or 100

    @property
    def n_knots(self) -> int:
        """Knots of a column."""
        return self.knots or 5

    @property
    def powers_degree(self) -> int:
        """The degree of a polynomial."""
        return self.degree or 2

    @property
    def splines_degree(self) -> int:
        """The degree of splines."""
        return self.degree or 3

    def allows(self, step: Step) -> bool:
        """Whether a step is of this kind with these settings, whatever was learnt; formulas are looked at as a whole.

        Parameters
        ----------
        step : Step
            A step of a question's design.
        """
        match step:
            case steps.Scale():
                return self.kind == "scale"
            case steps.Levels():
                return self.kind == "one_hot" and (self.first or len(step.sums) <= step.width)
            case steps.Project():
                unit = self.whiten or all(width == 1 for width in step.width)
                return self.kind == "pca" and len(step.directions) == self.components and unit
            case steps.Powers():
                return self.kind == "polynomial" and step.exponents == self.exponents(step.n_inputs)
            case steps.Bins():
                few = all(2 <= len(own) <= self.n_bins + 1 for own in step.edges)
                return self.kind == "bins" and step.ordinal == self.ordinal and few
            case steps.Ranks():
                few = len(step.references) <= self.n_quantiles
                return self.kind == "ranks" and step.distribution == self.distribution and few
            case steps.Splines():
                shape = {(len(own), step.degree, step.extrapolation) for own in step.knots}
                agreed = {(self.n_knots, self.splines_degree, self.extrapolation)}
                return self.kind == "splines" and shape == agreed and not step.include_bias
            case steps.Beside():
                return False

    def exponents(self, width: int) -> tuple[tuple[int, ...], ...]:
        """The powers of this polynomial of so many columns, without the constant."""
        made = PolynomialFeatures(self.powers_degree, interaction_only=self.interaction_only, include_bias=False)
        powers = made.fit(np.zeros((1, width))).powers_
        return tuple(tuple(map(int, own)) for own in powers)


def allowed(planned: Sequence[PlannedStep], design: Design, asked: Sequence[Step]) -> bool:
    """Whether the steps of a question are the first of those that were planned, or all.

    Parameters
    ----------
    planned : sequence of PlannedStep
        What was agreed on.
    design : Design
        That of the analysis, without steps.
    asked : sequence of Step
        The steps of the question.
    """
    if not asked:
        return True
    if not planned:
        return False
    first, left = (), tuple(planned)
    if left[0].kind == "formula":
        first, left = formula_steps(left[0], design), left[1:]
    if tuple(map(bare, asked[: len(first)])) != first:
        return False
    others = asked[len(first) :]
    return len(others) <= len(left) and all(plan.allows(step) for plan, step in zip(left, others, strict=False))


def formula_steps(planned: PlannedStep, design: Design) -> tuple[Step, ...]:
    """The steps of a formula, with no knots yet."""
    spaced = lambda count: tuple(map(float, range(count)))  # noqa: E731
    assert planned.formula is not None
    parsed = formulas.parse(planned.formula)
    return formulas.stepped(design, parsed, lambda factor, _: formulas.spline_step(factor, spaced)).steps


def bare(step: Step) -> Step:
    """A step of a formula without the knots that were learnt: 0, 1, 2, ... in their place."""
    if not isinstance(step, steps.Beside):
        return step
    parts = []
    for part in step.parts:
        own = part.step
        if isinstance(own, steps.Splines):
            spaced = tuple(tuple(map(float, range(len(knots)))) for knots in own.knots)
            own = own.model_copy(update={"knots": spaced})
        parts.append(part.model_copy(update={"step": own}))
    return step.model_copy(update={"parts": tuple(parts)})
