"""Missing values, filled by what all clients' rows say."""

import math
from typing import overload

import numpy as np
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofed._util import naming
from cofed._util.types import Given
from cofed.estimators.checks import check_choice, named_refusals
from cofed.sites import AbstractSites, Design, missing_values, spent
from cofed.sites.columns import Label, level_text, read_column
from cofed.sites.feature_intake import GatheredTables, frame_of, gather_tables
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, by_design, feature_names, refuse_masked
from cofed.sites.queries import MomentsMessage, observed
from cofed.transformers.learns_quantiles import TOL
from cofed.transformers.levels import check_columns, count_levels, holds_text
from cofed.transformers.order_statistics import columns_of, medians

STRATEGIES = ("mean", "median", "most_frequent", "constant")


class FederatedSimpleImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """scikit-learn's SimpleImputer, from counts and sums of the clients: the same fills as from the pooled rows.

    Parameters
    ----------
    strategy : {"mean", "median", "most_frequent", "constant"}, default="mean"
        What stands for a missing value: the mean of a number, its median (to 1e-6 standard deviations, of whole
        numbers exactly), the most frequent level (the first of several, of texts and of whole numbers with few
        values), or `fill_value`.
    fill_value : float, str or None, default=None
        The constant; None is 0 for numbers and "missing_value" for texts.

    Attributes
    ----------
    statistics_ : ndarray of shape (p,)
        The fill of each feature; objects where some features are texts.
    n_missing_ : ndarray of shape (p,)
        How many values were missing, at all clients together.
    missing_by_client_ : pandas.DataFrame
        How many at each client: a row for each feature, a column for each client.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.transformers import FederatedSimpleImputer
    >>> X = pd.DataFrame({"age": [40.0, None, 70.0], "site": ["Oslo", "Oslo", "Rome"]})
    >>> imputer = FederatedSimpleImputer().fit(X, clients="site")
    >>> imputer.statistics_.tolist(), imputer.n_missing_.tolist()
    ([55.0], [1])
    >>> imputer.transform(X[["age"]]).ravel().tolist()
    [40.0, 55.0, 70.0]
    """

    def __init__(self, *, strategy: Given[str] = "mean", fill_value: Given[float | str | None] = None):
        self.strategy = strategy
        self.fill_value = fill_value

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedSimpleImputer":
        """Learn what stands for missing values.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites with tables
            The features of every row; NaN, None and NA are missing.
        y : ignored
            For pipelines.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.

        Returns
        -------
        self
            The fitted imputer.
        """
        owner = type(self).__name__
        check_choice(owner, "strategy", self.strategy, STRATEGIES)
        check_fill_value(owner, self.fill_value)
        vars(self).pop("design_", None)  # of an earlier fit
        tables = gather_tables(self, X, clients)
        check_columns(owner, tables)
        names = [feature.name for feature in tables.features]
        texts = np.array([holds_text(tables, name) for name in names])
        with named_refusals(owner):
            fills = self.fills(tables, names, texts)
        self.statistics_ = np.array(fills, object if texts.any() else np.float64)
        self.n_missing_ = np.array([tables.missing(name) for name in names])
        self.missing_by_client_ = missing_values(tables.infos).loc[names]
        if isinstance(X, AbstractSites):
            self.design_ = X.design
        self.n_rounds_, self.bytes_ = spent(tables.exchanges[tables.before :])
        return self

    def fills(self, tables: GatheredTables, names: list[str], texts: np.ndarray) -> list[Label]:
        """What stands for a missing value of each feature."""
        owner = type(self).__name__
        if self.strategy == "most_frequent":
            return [levels.most_frequent for levels in count_levels(owner, tables)]
        if self.strategy == "constant":
            return [constant(owner, name, self.fill_value, bool(text)) for name, text in zip(names, texts, strict=True)]
        levels = [one.levels is not None for one in tables.kept.features]
        if texts.any() or any(levels):
            first = names[int(np.argmax(texts | np.array(levels)))]
            raise ValueError(
                f"{owner}: strategy={self.strategy!r} takes numbers, but column {first!r} is text or has levels; use "
                "most_frequent"
            )
        sites = tables.sites_of(tables.kept)
        if self.strategy == "median":
            return medians(sites, columns_of(sites), TOL).tolist()
        found = sites.ask(observed, MomentsMessage(np.zeros(len(names))))
        return (np.asarray(found.X) / np.asarray(found.n)).tolist()

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """Fill missing values.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites with tables
            New rows, with the features of the fit; or sites, which fill theirs themselves.

        Returns
        -------
        ndarray of shape (n, p) or AbstractSites
            The rows without missing values: float64, or objects where some features are texts (fitted to sites: zeros
            and ones, as there); or the sites that have them.
        """
        check_is_fitted(self)
        owner = type(self).__name__
        if isinstance(X, AbstractSites):
            return X.with_design(filled_design(self, X.design))
        refuse_masked(owner, "X", X)
        frame = frame_of(self, X, reset=False)
        design = vars(self).get("design_")
        if design is not None and any(feature.levels is not None for feature in design.features):
            # As at sites, whose factors are zeros and ones.
            return by_design(filled_design(self, design), frame).to_numpy()
        filled = np.empty(frame.shape, self.statistics_.dtype)
        for j, name in enumerate(frame.columns):
            column, fill = read_column(frame[name]), self.statistics_[j]
            if column.kind in ("date", "mixed") or (not isinstance(fill, str) and column.kind == "text"):
                kind = "text" if isinstance(fill, str) else "numbers"
                raise ValueError(f"{owner}: column {name!r} of X must be {kind}, as in the fit, but is {column.kind}")
            if column.is_numeric and np.isinf(column.values).any():
                raise ValueError(f"{owner}: X contains infinity in column {name!r}; such values are not missing")
            values = column.texts() if isinstance(fill, str) else column.values
            filled[:, j] = np.where(column.missing, fill, values)
        return filled

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = True
        return tags


def filled_design(imputer: FederatedSimpleImputer, design: Design | None) -> Design:
    """A design of sites, with what stands for missing values; rows without a target are left out."""
    owner = type(imputer).__name__
    if design is None or design.steps:
        raise ValueError(f"{owner}: missing values are filled in the sites' tables, before any other step")
    names = feature_names(imputer)
    if [feature.name for feature in design.features] != names:
        raise ValueError(f"{owner} was fitted to the columns {naming.listed(names)}, and the sites have others")
    filled = []
    for feature, fill in zip(design.features, imputer.statistics_.tolist(), strict=True):
        stands = fill if feature.levels is None else level_text(fill)
        if feature.levels is not None and stands not in feature.levels:
            levels = naming.listed(feature.levels)
            raise ValueError(f"{owner}: {stands!r} is no level of the column {feature.name!r}, which has {levels}")
        filled.append(feature.model_copy(update={"fill": stands}))
    return design.model_copy(update={"features": tuple(filled), "missing": "impute"})


def check_fill_value(owner: str, value: object) -> None:
    """Refuse what is neither a finite number nor a text."""
    if isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool):
        fine = math.isfinite(value)
    else:
        fine = value is None or (isinstance(value, str) and value.strip() != "")
    if not fine:
        raise ValueError(f"{owner}: fill_value must be a finite number, a text or None, got {value!r}")


def constant(owner: str, name: str, value: Given[float | str | None], text: bool) -> Label:
    """The constant that fills a column."""
    if value is None:
        return "missing_value" if text else 0.0
    if isinstance(value, str) != text:
        raise ValueError(
            f"{owner}: fill_value={value!r} must be {'text' if text else 'a number'}, as column {name!r} of X is"
        )
    return value if isinstance(value, str) else float(value)
