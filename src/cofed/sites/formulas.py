"""Formulas: which columns of a design they name, and the steps that make their terms of them.

formulaic reads the formula. What it says becomes steps, which sites apply themselves: no formula is evaluated anywhere.
"""

import ast
import functools
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

from cofed._util.extras import imported
from cofed._util.types import Given
from cofed.sites.design import Design
from cofed.sites.steps import Beside, Numbers, Powers, Splines, StepPart

OWNER = "FederatedFormula"
KNOWN = "names of columns, bs(column, df=, degree=), and +, :, *, / and ** between them"


class Factor(NamedTuple):
    """A column as it is, or splines of it."""

    text: str
    column: str
    splines: tuple[int, int] | None = None  # how many, and of which degree


class Parsed(NamedTuple):
    """What a formula says."""

    target: str | None
    terms: tuple[tuple[Factor, ...], ...]

    @property
    def factors(self) -> tuple[Factor, ...]:
        """Each factor once."""
        return tuple(dict.fromkeys(factor for term in self.terms for factor in term))

    @property
    def columns(self) -> tuple[str, ...]:
        """Each column once."""
        return tuple(dict.fromkeys(factor.column for factor in self.factors))


def parse(formula: Given[str]) -> Parsed:
    """What a formula says, of which every part is known."""
    if not isinstance(formula, str) or not formula.strip():
        raise ValueError(f"{OWNER}: formula must be a text such as 'age * sex + bs(bmi)', got {formula!r}")
    return read_text(formula)


@functools.lru_cache(maxsize=256)
def read_text(formula: str) -> Parsed:
    """What a text says, read once."""
    formulaic: Any = imported("formulaic", "A formula", "formulaic", "formulas")
    try:
        read = formulaic.Formula(formula)
    except Exception:  # formulaic has errors of many kinds, whose texts are about its own insides
        raise ValueError(
            f"{OWNER}: {formula!r} cannot be read: a part is missing, or stands where none can; a formula has {KNOWN}"
        ) from None
    left, right = (list(read.lhs), list(read.rhs)) if "~" in formula else ([], list(read))
    if len(left) > 1 or any(len(term.factors) != 1 for term in left):
        raise ValueError(f"{OWNER}: {formula!r} must have one column left of ~")
    target = factor_of(left[0].factors[0]).column if left else None
    if not any(str(term) == "1" for term in right):
        raise ValueError(f"{OWNER}: the intercept is the estimator's: leave 0 and -1 out of {formula!r}")
    terms = tuple(tuple(map(factor_of, term.factors)) for term in right if str(term) != "1")
    if not terms:
        raise ValueError(f"{OWNER}: {formula!r} names no column")
    there = {frozenset(term) for term in terms}
    for term in terms:
        for size in range(1, len(term)):
            for part in itertools.combinations(term, size):
                if frozenset(part) not in there:
                    raise ValueError(
                        f"{OWNER}: {formula!r} has {text_of(term)} without {text_of(part)}: name that, too"
                    )
    return Parsed(target, terms)


def text_of(term: tuple[Factor, ...]) -> str:
    """A term as a formula has it."""
    return ":".join(factor.text for factor in term)


def factor_of(given: Any) -> Factor:
    """One factor of a term."""
    text = str(given.expr)
    if given.eval_method.value == "lookup":
        return Factor(text, text)
    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        assert isinstance(call.func, ast.Name)
        assert call.func.id == "bs"
        (column,) = call.args
        assert isinstance(column, ast.Name)
        numbers = {str(one.arg): ast.literal_eval(one.value) for one in call.keywords}
        degree = numbers.pop("degree", 3)
        count = numbers.pop("df", degree)
        assert not numbers
        assert all(isinstance(one, int) and one >= 1 for one in (degree, count))
        assert degree <= count
    except (SyntaxError, ValueError, AssertionError):
        raise ValueError(
            f"{OWNER}: {text!r} is not known; a formula has {KNOWN}, whole numbers 1 <= degree <= df"
        ) from None
    return Factor(text, column.id, (count, degree))


def stepped(design: Design, parsed: Parsed, splines: Callable[[Factor, int], Splines]) -> Design:
    """The design of a formula's columns with the steps that make its terms.

    Parameters
    ----------
    design : Design
        With the formula's columns, and no steps.
    parsed : Parsed
        The formula.
    splines : callable
        Gives the splines of a factor, whose column is at a position of the design's.
    """
    places: dict[str, tuple[int, ...]] = {}
    for place, column in enumerate(design.groups):
        places[column] = (*places.get(column, ()), place)
    parts, made = [], {}
    for factor in parsed.factors:
        part = StepPart(columns=places[factor.column])
        if factor.splines is not None:
            refuse_levels(factor, design)
            part = StepPart(columns=part.columns, step=splines(factor, part.columns[0]))
        first = sum(len(names) for names in made.values())
        made[factor] = [*enumerate(names_of(factor, part, design), first)]
        parts.append(part)
    return with_terms(design, parsed, tuple(parts), made)


def refuse_levels(factor: Factor, design: Design) -> None:
    """Refuse splines of a factor with levels."""
    if any(one.name == factor.column and one.levels is not None for one in design.features):
        raise ValueError(f"{OWNER}: {factor.text} takes a number, and the column {factor.column!r} has levels")


def spline_step(factor: Factor, knots: Callable[[int], Numbers]) -> Splines:
    """The splines of a factor: `knots` gives so many for its column."""
    assert factor.splines is not None
    count, degree = factor.splines
    outputs = tuple(f"{factor.column}_sp_{place}" for place in range(count))
    found = knots(count - degree + 2)
    return Splines(outputs=outputs, knots=(found,), degree=degree, extrapolation="continue", include_bias=False)


def names_of(factor: Factor, part: StepPart, design: Design) -> list[str]:
    """The names of what a factor becomes."""
    if isinstance(part.step, Splines):
        return [f"{factor.text}[{place}]" for place in range(len(part.step.outputs))]
    return [design.feature_names[place] for place in part.columns]


def with_terms(
    design: Design, parsed: Parsed, parts: tuple[StepPart, ...], made: dict[Factor, list[tuple[int, str]]]
) -> Design:
    """The design with the steps that make the terms."""
    width = len(design.feature_names)
    names = tuple(name for own in made.values() for _, name in own)
    stepped = design.with_step(Beside(outputs=names, width=width, parts=parts))
    if all(len(term) == 1 for term in parsed.terms):
        return stepped
    outputs, exponents = [], []
    for term in parsed.terms:
        for chosen in itertools.product(*(made[factor] for factor in term)):
            outputs.append(":".join(name for _, name in chosen))
            exponents.append(tuple(int(place in [one for one, _ in chosen]) for place in range(len(names))))
    return stepped.with_step(Powers(outputs=tuple(outputs), exponents=tuple(exponents)))
