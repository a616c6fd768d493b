"""Levels as zeros and ones, where no client need have all of them."""

from typing import overload

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofed._util import naming
from cofed._util.pandas_types import Series
from cofed._util.types import Given
from cofed.estimators.checks import check_choice, check_count, check_number, named_refusals
from cofed.sites import AbstractSites, Design, spent
from cofed.sites.columns import level_text, read_column
from cofed.sites.feature_intake import GatheredTables, frame_of, gather_tables
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, feature_names, refuse_masked
from cofed.sites.steps import Levels
from cofed.transformers.levels import count_levels, raise_findings

UNKNOWN = ("error", "ignore", "infrequent_if_exist")
INFREQUENT = "infrequent_sklearn"  # scikit-learn's name


class FederatedOneHotEncoder(TransformerMixin, BaseEstimator):
    """scikit-learn's OneHotEncoder for levels that clients agree on: the union of those of all clients.

    Columns are texts, true or false, or whole numbers with at most 20 different values; a text has at most 50
    levels. Missing values are refused: `FederatedSimpleImputer` fills them.

    Parameters
    ----------
    drop : {"first"} or None, default=None
        Whether the first level of each feature has no column.
    min_frequency : int, float or None, default=None
        Levels that fewer rows have, of all clients together, share one column; a number between 0 and 1 is a share
        of the rows.
    handle_unknown : {"error", "ignore", "infrequent_if_exist"}, default="error"
        Levels of new rows that no client had: refused, zeros in all columns, or infrequent ones.

    Attributes
    ----------
    categories_ : list of ndarray
        The levels of each feature, in order.
    counts_ : list of ndarray
        How many rows of all clients have each.
    infrequent_categories_ : list of ndarray or None
        The levels of each feature that share a column; None where none do.
    n_rounds_, bytes_ : int
        The exchanges, and their size (both ways, all clients).

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.transformers import FederatedOneHotEncoder
    >>> X = pd.DataFrame({"ward": ["A", "B", "A", "C"], "site": ["Oslo", "Oslo", "Rome", "Rome"]})
    >>> encoder = FederatedOneHotEncoder().fit(X, clients="site")
    >>> encoder.get_feature_names_out().tolist(), encoder.counts_[0].tolist()
    (['ward_A', 'ward_B', 'ward_C'], [2, 1, 1])
    >>> encoder.transform(X[["ward"]])[3].tolist()
    [0.0, 0.0, 1.0]
    """

    def __init__(
        self,
        *,
        drop: Given[str | None] = None,
        min_frequency: Given[int | float | None] = None,
        handle_unknown: Given[str] = "error",
    ):
        self.drop = drop
        self.min_frequency = min_frequency
        self.handle_unknown = handle_unknown

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedOneHotEncoder":
        """Learn the levels.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites with tables
            The features of every row.
        y : ignored
            For pipelines.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.

        Returns
        -------
        self
            The fitted encoder.
        """
        owner = type(self).__name__
        self.check_parameters(owner)
        vars(self).pop("design_", None)  # of an earlier fit
        tables = gather_tables(self, X, clients)
        refuse_gaps(owner, tables)
        with named_refusals(owner):
            found = count_levels(owner, tables)
        self.categories_, self.counts_ = [one.labels for one in found], [one.counts for one in found]
        least = least_rows(self.min_frequency, tables.n_rows)
        rare = [one.labels[one.counts < least] for one in found]
        self.infrequent_categories_ = [few if len(few) else None for few in rare]
        if isinstance(X, AbstractSites):
            self.design_ = tables.kept
        self.n_rounds_, self.bytes_ = spent(tables.exchanges[tables.before :])
        return self

    def check_parameters(self, owner: str) -> None:
        """Refuse parameters that mean nothing."""
        if self.drop is not None:
            check_choice(owner, "drop", self.drop, ("first",))
        check_choice(owner, "handle_unknown", self.handle_unknown, UNKNOWN)
        if self.drop is not None and self.handle_unknown != "error":
            raise ValueError(
                f"{owner}: drop='first' needs handle_unknown='error', since zeros in all columns are the first level"
            )
        if isinstance(self.min_frequency, (float, np.floating)):
            check_number(owner, "min_frequency", self.min_frequency, 0, 1, strict=True)
        elif self.min_frequency is not None:
            check_count(owner, "min_frequency", self.min_frequency)

    def columns_of(self, j: int) -> tuple[np.ndarray, list[str]]:
        """The column of each level of a feature, -1 for none, and the columns' names; infrequent ones come last."""
        labels, few = self.categories_[j], self.infrequent_categories_[j]
        rare = np.zeros(len(labels), bool) if few is None else np.isin(labels, few)
        places = np.where(rare, (~rare).sum(), np.cumsum(~rare) - 1)
        names = [str(label) for label in labels[~rare]] + ([INFREQUENT] if rare.any() else [])
        return (places, names) if self.drop is None else (places - 1, names[1:])

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """Zeros and ones.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites with tables
            New rows, with the features of the fit; or sites, all of whose columns are factors, which transform theirs
            themselves.

        Returns
        -------
        ndarray of shape (n, number of columns) or AbstractSites
            A column for each level that has one; or the sites that have them.
        """
        check_is_fitted(self)
        owner = type(self).__name__
        if isinstance(X, AbstractSites):
            if X.design is None or X.design.steps or X.design.missing == "keep":
                raise ValueError(f"{owner}: levels are of sites' tables without gaps, before other steps")
            return X.with_design(X.design.with_step(self.step(X.design)))
        refuse_masked(owner, "X", X)
        design = vars(self).get("design_")
        if design is not None and isinstance(X, np.ndarray) and X.dtype.kind == "f":
            step = self.step(design)  # of the step before, in a pipeline: zeros and ones as at the sites
            if X.ndim == 2 and X.shape[1] == step.width:
                return step.apply(X)
        frame = frame_of(self, X, reset=False)
        return np.hstack([self.encoded(frame[name], j) for j, name in enumerate(frame.columns)])

    def step(self, design: Design) -> Levels:
        """What sites with this design are told."""
        owner, names = type(self).__name__, feature_names(self)
        if [feature.name for feature in design.features] != names:
            raise ValueError(f"{owner} was fitted to the columns {naming.listed(names)}, and the sites have others")
        sums, rest, first = [], [], 0
        for j, feature in enumerate(design.features):
            if feature.levels is None:
                raise ValueError(
                    f"{owner}: the column {feature.name!r} is a number at the sites; name it among the factors where "
                    "they are made (factors=), or leave it out"
                )
            places, columns = self.columns_of(j)
            known = {level_text(label): int(place) for label, place in zip(self.categories_[j], places, strict=True)}
            strange = [level for level in feature.levels if level not in known]
            if strange:
                raise ValueError(f"{owner}: the sites have {feature.name!r} {strange[0]!r}, a level that the fit lacks")
            for column in range(len(columns)):
                has_first = known[feature.levels[0]] == column
                own = [k for k, level in enumerate(feature.levels[1:]) if (known[level] == column) != has_first]
                sums.append(tuple(first + k for k in own))
                rest.append(has_first)
            first += len(feature.levels) - 1
        outputs = tuple(map(str, self.get_feature_names_out()))
        return Levels(outputs=outputs, width=first, sums=tuple(sums), rest=tuple(rest))

    def encoded(self, values: Series, j: int) -> np.ndarray:
        """The columns of one feature."""
        owner, labels = type(self).__name__, self.categories_[j]
        column = read_column(values)
        if column.missing.any():
            raise ValueError(f"{owner}: column {values.name!r} of X has {column.missing.sum()} missing values; {FILL}")
        codes = column.codes(labels.tolist())
        if self.handle_unknown == "error" and (codes < 0).any():
            strange = sorted({str(text) for text in column.texts()[codes < 0]}, key=naming.natural)
            known = naming.listed(level_text(label) for label in labels.tolist())
            there = f"column {values.name!r} of X has {naming.listed(strange)}"
            raise ValueError(f"{owner}: {there}, but the levels of the fit are {known}")
        places, names = self.columns_of(j)
        to_rare = self.handle_unknown == "infrequent_if_exist" and self.infrequent_categories_[j] is not None
        chosen = np.append(places, len(names) - 1 if to_rare else -1)[codes]  # the last is for unknown ones
        return (chosen[:, None] == np.arange(len(names))).astype(np.float64)

    def get_feature_names_out(self, input_features: Given[list[str] | None] = None) -> np.ndarray:
        """The names of the columns: the feature's and the level's.

        Parameters
        ----------
        input_features : list of str, optional
            The names of the features; those of the fit where not given.

        Returns
        -------
        ndarray of str
            A name for each column.
        """
        check_is_fitted(self)
        own = feature_names(self) if input_features is None else [str(name) for name in input_features]
        if len(own) != len(self.categories_):
            raise ValueError(
                f"{type(self).__name__}: input_features must have {len(self.categories_)} names, got {len(own)}"
            )
        return np.array([f"{name}_{level}" for j, name in enumerate(own) for level in self.columns_of(j)[1]], object)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.categorical = tags.input_tags.string = True
        return tags


FILL = "fill them first, such as by FederatedSimpleImputer(strategy='most_frequent')"


def refuse_gaps(owner: str, tables: GatheredTables) -> None:
    """Refuse columns with missing values."""
    counts = {feature.name: tables.missing(feature.name) for feature in tables.features}
    findings = [f"column {name!r} of X has {count} missing values; {FILL}" for name, count in counts.items() if count]
    raise_findings(owner, findings)


def least_rows(asked: Given[int | float | None], rows: int) -> float:
    """How many rows a level must have to have a column of its own."""
    if asked is None:
        return 0.0
    return float(asked) if isinstance(asked, (int, np.integer)) else float(asked) * rows
