"""A model's right-hand side as a formula: main effects, interactions and splines, with levels and knots of all sites.

formulaic reads the formula. What it says becomes the columns of a design and the steps of transformers, which sites
apply themselves: no formula and no code travels.
"""

from collections.abc import Callable
from typing import overload

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from cofed._util import naming
from cofed._util.types import Given
from cofed.estimators.checks import check_number, named_refusals
from cofed.sites import AbstractSites, Design, sites_of_frame, spent
from cofed.sites.formulas import OWNER, Factor, Parsed, parse, spline_step, stepped
from cofed.sites.intake import Clients, FitFeatures, Labels, learn_names, stepped_by
from cofed.sites.steps import Splines, as_numbers
from cofed.transformers.by_quantiles import knots_of
from cofed.transformers.learns_quantiles import TOL
from cofed.transformers.order_statistics import columns_of


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
        with named_refusals(OWNER):
            self.design_ = stepped(design, parsed, splines_from(own, parsed, float(self.tol)))
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
        return stepped_by(self.design_, X).to_numpy()

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


def splines_from(sites: AbstractSites, parsed: Parsed, tol: float) -> Callable[[Factor, int], Splines]:
    """Splines of the columns of a formula, whose knots all sites' rows with these columns tell."""
    smooth = any(factor.splines is not None for factor in parsed.factors)
    columns = columns_of(sites) if smooth else None

    def splines(factor: Factor, place: int) -> Splines:
        assert columns is not None
        own = columns.of([place])
        return spline_step(factor, lambda count: as_numbers(knots_of(OWNER, sites, own, count, tol)[:, 0]))

    return splines
