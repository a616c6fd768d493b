"""A model's right-hand side as a formula: main effects, interactions and splines, with levels and knots of all sites.

formulaic reads the formula. What it says becomes the columns of a design and the steps of transformers, which sites
apply themselves: no formula and no code travels.
"""

import ast
import itertools
from typing import Any, NamedTuple, overload

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cofed._util import naming
from cofed._util.extras import imported
from cofed._util.types import Given
from cofed.estimators.checks import check_number
from cofed.sites import AbstractSites, Design, sites_of_frame, spent
from cofed.sites.intake import Clients, FitFeatures, Labels, by_design, learn_names
from cofed.sites.steps import Beside, Powers, Splines, StepPart
from cofed.transformers.by_quantiles import FederatedSplineTransformer
from cofed.transformers.learns_quantiles import TOL

OWNER = "FederatedFormula"
KNOWN = "names of columns, bs(column, df=, degree=), and +, :, * and / between them"


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


class FederatedFormula(TransformerMixin, BaseEstimator):
    """The columns that a formula describes, the same at every client.

    Texts are factors with the levels of all clients, of which the first is the reference. `bs(x, df=k)` are B-splines
    of a number with knots at quantiles of all clients' rows, k columns that span what R's and patsy's span beside an
    intercept; `a:b` is the product of two columns, `a * b` is `a + b + a:b`. The intercept is the estimator's.

    Parameters
    ----------
    formula : str
        Such as "age * sex + bs(bmi, df=5)", or "cost ~ age * sex" for clients whose target is the cost.
    tol : float, default=1e-6
        How precise knots are, in standard deviations of the feature.

    Attributes
    ----------
    design_ : Design
        The columns that it is about, and the steps that make the outputs of them.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.transformers import FederatedFormula
    >>> X = pd.DataFrame({"age": [40.0, 50.0, 60.0], "sex": ["f", "m", "m"], "site": ["a", "a", "b"]})
    >>> formula = FederatedFormula("age * sex").fit(X, clients="site")
    >>> formula.get_feature_names_out().tolist(), formula.transform(X)[1].tolist()
    (['age', 'sex[m]', 'age:sex[m]'], [50.0, 1.0, 50.0])
    """

    def __init__(self, formula: Given[str], *, tol: Given[float] = TOL):
        self.formula = formula
        self.tol = tol

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedFormula":
        """Learn levels and knots.

        Parameters
        ----------
        X : pandas.DataFrame or AbstractSites with tables
            The rows, with the columns that the formula names; others are not used.
        y : ignored
            For pipelines.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of X; None is one client.

        Returns
        -------
        self
            The fitted transformer.
        """
        check_number(OWNER, "tol", self.tol, 0, 1, strict=True)
        parsed = parse(self.formula)
        sites = sites_with(parsed, X, clients)
        before, design = len(sites.exchanges), narrowed(sites, parsed)
        own = sites.with_design(design)
        places: dict[str, tuple[int, ...]] = {}
        for place, column in enumerate(design.groups):
            places[column] = (*places.get(column, ()), place)
        parts, made = [], {}
        for factor in parsed.factors:
            part = part_of(factor, places[factor.column], own, float(self.tol))
            first = sum(len(names) for names in made.values())
            made[factor] = [*enumerate(names_of(factor, part, design), first)]
            parts.append(part)
        self.design_ = with_terms(design, parsed, tuple(parts), made)
        learn_names(self, len(parsed.columns), parsed.columns)
        self.n_rounds_, self.bytes_ = spent(sites.exchanges[before:])
        return self

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: pd.DataFrame) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """The columns that the formula describes.

        Parameters
        ----------
        X : pandas.DataFrame or AbstractSites with tables
            New rows, with the columns that the formula names; or sites, which transform theirs themselves.

        Returns
        -------
        ndarray of shape (n, outputs) or AbstractSites
            A column per output; or the sites that have them.
        """
        check_is_fitted(self)
        if isinstance(X, AbstractSites):
            given = sites_with(parse(self.formula), X, None).design
            assert given is not None
            how = {"features": self.design_.features, "steps": self.design_.steps}
            return X.with_design(given.model_copy(update=how))
        if not isinstance(X, pd.DataFrame):
            raise ValueError(f"{OWNER}: X must be a pandas table with the columns that the formula names")
        rows = by_design(self.design_, X).to_numpy()
        for step in self.design_.steps:
            rows = step.apply(rows)
        return rows

    def get_feature_names_out(self, input_features: object = None) -> np.ndarray:
        """The names of the outputs.

        Parameters
        ----------
        input_features : ignored
            For pipelines.

        Returns
        -------
        ndarray of str
            The names.
        """
        check_is_fitted(self)
        return np.array(self.design_.feature_names, dtype=object)


def parse(formula: Given[str]) -> Parsed:
    """What a formula says, of which every part is known."""
    if not isinstance(formula, str) or not formula.strip():
        raise ValueError(f"{OWNER}: formula must be a text such as 'age * sex + bs(bmi)', got {formula!r}")
    formulaic: Any = imported("formulaic", "A formula", "formulaic", "formulas")
    try:
        read = formulaic.Formula(formula)
    except Exception as error:  # formulaic has errors of many kinds
        raise ValueError(f"{OWNER}: {formula!r} cannot be read: {str(error).splitlines()[0]}") from None
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


def sites_with(parsed: Parsed, X: FitFeatures, clients: Clients) -> AbstractSites:
    """Sites with tables that have the columns of a formula: as given, or made of rows."""
    if isinstance(X, AbstractSites):
        if clients is not None:
            raise ValueError(f"{OWNER}: sites carry their own rows; leave clients out")
        design = X.design
        if design is None or design.steps or design.missing == "keep":
            raise ValueError(f"{OWNER}: a formula is of the columns of sites' tables without gaps, before other steps")
        if parsed.target is not None and (design.target is None or design.target.name != parsed.target):
            raise ValueError(f"{OWNER}: the formula predicts {parsed.target!r}, which is not the target of the sites")
        refuse_absent(parsed, [feature.name for feature in design.features])
        return X
    if not isinstance(X, pd.DataFrame):
        raise ValueError(f"{OWNER}: X must be a pandas table with the columns that the formula names, or sites")
    refuse_absent(parsed, [str(name) for name in X.columns])
    wanted = [*parsed.columns, *([clients] if isinstance(clients, str) else [])]
    absent = [name for name in wanted if name not in X.columns]
    if absent:
        raise ValueError(f"{OWNER}: clients={absent[0]!r} must name a column of X, or be one client name per row")
    return sites_of_frame(X.loc[:, wanted], None, clients)


def refuse_absent(parsed: Parsed, names: list[str]) -> None:
    """Refuse a formula with columns that are not there."""
    absent = [name for name in parsed.columns if name not in names]
    if absent:
        raise ValueError(f"{OWNER}: there is no column {absent[0]!r}; the columns are {naming.listed(names)}")


def narrowed(sites: AbstractSites, parsed: Parsed) -> Design:
    """The sites' design with the formula's columns alone, in its order."""
    assert sites.design is not None
    by_name = {feature.name: feature for feature in sites.design.features}
    return sites.design.model_copy(update={"features": tuple(by_name[name] for name in parsed.columns)})


def part_of(factor: Factor, columns: tuple[int, ...], sites: AbstractSites, tol: float) -> StepPart:
    """What a factor is made of: columns as they are, or splines, whose knots the sites tell."""
    if factor.splines is None:
        return StepPart(columns=columns)
    assert sites.design is not None
    feature = next(one for one in sites.design.features if one.name == factor.column)
    if feature.levels is not None:
        raise ValueError(f"{OWNER}: {factor.text} takes a number, and the column {factor.column!r} has levels")
    count, degree = factor.splines
    alone = sites.with_design(sites.design.model_copy(update={"features": (feature,)}))
    how = {"include_bias": False, "extrapolation": "continue", "tol": tol}
    step = FederatedSplineTransformer(count - degree + 2, degree, **how).fit(alone)._step()
    return StepPart(columns=columns, step=step)


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
