"""Rows in, sites out: rows that a user gives are checked, and go behind the door that an estimator asks at."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse
from sklearn.base import BaseEstimator
from sklearn.utils import get_tags
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import validate_data

from cofed._util import checks, naming
from cofed._util.types import Given
from cofed.federation import Federation
from cofed.sites.base import AbstractSites, QuestionRefused
from cofed.sites.design import Design
from cofed.sites.frame_intake import check_frame, refuse_text, text_columns, with_factors
from cofed.sites.host_rows import SparseRows
from cofed.sites.memory import MemorySites
from cofed.sites.rows import SiteRows
from cofed.sites.site_table import SiteTable
from cofed.sites.steps import Step

Sparse = scipy.sparse.sparray | scipy.sparse.spmatrix
Features = Given[npt.ArrayLike | pd.DataFrame | Sparse | Federation]
FitFeatures = Given[npt.ArrayLike | pd.DataFrame | Sparse | Federation | AbstractSites]
Labels = Given[npt.ArrayLike | pd.Series | None]
Clients = Given[npt.ArrayLike | pd.Series | str | None]


def gather(
    estimator: BaseEstimator, X: FitFeatures, y: Labels, clients: Clients, classifies: bool = False, target: bool = True
) -> AbstractSites:
    """The sites of a fit: as given, or made of rows, which are checked as scikit-learn checks them.

    Sets the estimator's `n_features_in_` and `feature_names_in_`.
    """
    name = type(estimator).__name__
    for earlier in ("design_", "from_tables_"):
        vars(estimator).pop(earlier, None)
    if isinstance(X, AbstractSites):
        return as_given(estimator, X, y, clients, target)
    if isinstance(X, Federation):
        return from_federation(estimator, X, y, clients, target)
    X, clients = without_client_column(name, X, clients)
    for what, given in (("X", X), ("y", y), ("clients", clients)):
        refuse_masked(name, what, given)
    for what, given in (("y", y), ("clients", clients)):
        refuse_other_order(name, X, what, given)
    refuse_times(name, "X", X)
    X = of_frame(estimator, X, clients, target)
    if target:
        check_target(name, y, classifies)
        rows, labels = numbers(estimator, X, y, y_numeric=not classifies, ensure_min_samples=2)
        if classifies:
            check_classification_targets(labels)
    else:
        rows, labels = numbers(estimator, X), np.zeros(0)
    named = vars(estimator).get("feature_names_in_")
    names = None if named is None else tuple(map(str, named))
    if clients is None:
        return MemorySites(SiteRows.of_sites(("all",), [rows], [labels]), names)
    sites, own = by_client(name, clients, rows.shape[0])
    each = [labels[r] if target else labels for r in own]
    return MemorySites(SiteRows.of_sites(sites, [rows[r] for r in own], each), names)


def of_frame(estimator: BaseEstimator, X: Features, clients: Clients, target: bool) -> Features:
    """A pandas X whose columns are numbers: of models, text becomes factors; a scaler takes none."""
    name = type(estimator).__name__
    if not isinstance(X, pd.DataFrame):
        return X
    check_frame(name, X)
    if not target:
        refuse_text(name, X)
        return X
    if not text_columns(X):
        return X
    own = (("all",), [np.arange(len(X))]) if clients is None else by_client(name, clients, len(X))
    return with_factors(estimator, X, dict(zip(*own, strict=True)))


def as_given(
    estimator: BaseEstimator, sites: AbstractSites, y: Labels, clients: Clients, target: bool
) -> AbstractSites:
    """Sites that carry everything themselves."""
    name = type(estimator).__name__
    if y is not None or clients is not None:
        raise ValueError(f"{name}: sites carry their own targets; leave y and clients out")
    if target and sites.design is not None and sites.design.target is None:
        raise ValueError(f"{name}: the sites have no target; name its column where they are made")
    if sites.design is not None and sites.design.missing == "keep":
        raise ValueError(
            f"{name}: the sites keep missing values; fill them first (cofed.transformers.FederatedSimpleImputer), or "
            "make the sites with missing='drop' or 'impute'"
        )
    learn_names(estimator, sites.n_features, sites.feature_names)
    if sites.design is not None:
        vars(estimator)["design_"] = sites.design
    return sites


def aligned(estimator: BaseEstimator, sites: AbstractSites) -> AbstractSites:
    """Sites with the features of the fit: tables become numbers by its design, whatever the order of their columns."""
    name, known = type(estimator).__name__, vars(estimator)
    design = known.get("design_")
    if design is not None and sites.design is not None:
        if design.target is None:  # of a frame, whose target came apart from it
            design = design.model_copy(update={"target": sites.design.target})
        return sites if sites.design == design else sites.with_design(design)
    if sites.n_features != known["n_features_in_"]:
        raise ValueError(
            f"{name} was fitted to {known['n_features_in_']} features, but the sites have {sites.n_features}"
        )
    own = feature_names(estimator) if "feature_names_in_" in known else None
    if own is not None and sites.feature_names is not None and own != list(sites.feature_names):
        raise ValueError(
            f"{name} was fitted to the features {naming.listed(own)}, but those of the sites are, in this order, "
            f"{naming.listed(sites.feature_names)}"
        )
    return sites


def transformed(estimator: BaseEstimator, sites: AbstractSites, step: Step) -> AbstractSites:
    """Sites with the features of a transformer's fit, each of which applies what the transformer has learnt."""
    try:
        return aligned(estimator, sites).with_step(step)
    except QuestionRefused as refused:
        raise ValueError(f"{type(estimator).__name__}: {refused}") from None


def learn_names(estimator: BaseEstimator, features: int, names: tuple[str, ...] | None) -> None:
    """Set what scikit-learn's checks of an array would set."""
    vars(estimator)["n_features_in_"] = features
    vars(estimator).pop("feature_names_in_", None)  # of an earlier fit
    if names is not None:
        naming.require_different(f"{type(estimator).__name__}: the names of features", names)
        vars(estimator)["feature_names_in_"] = np.array(names, dtype=object)


def without_client_column(
    owner: str, X: Features, clients: Clients, has_gaps: bool = False
) -> tuple[Features, Clients]:
    """X without the column that names the clients, and that column, where `clients` is its name."""
    if not isinstance(clients, str):
        return X, clients
    if not isinstance(X, pd.DataFrame) or clients not in X.columns:
        raise ValueError(
            f"{owner}: clients={clients!r} must name a column of a pandas X, or be one client name per row"
        )
    if not has_gaps:
        check_frame(owner, X, besides=clients)
    return X.drop(columns=clients), X[clients]


def refuse_other_order(owner: str, X: Features, what: str, given: Labels | Clients, rows: str = "X") -> None:
    """Rows are taken by position, so the same row labels in another order are most likely a mistake."""
    if not isinstance(X, pd.DataFrame) or not isinstance(given, (pd.Series, pd.DataFrame)):
        return
    here, there = X.index, given.index
    if len(here) != len(there) or here.equals(there) or not (here.is_unique and there.is_unique):
        return
    if here.isin(there).all():
        raise ValueError(
            f"{owner}: {rows} and {what} have the same row labels in a different order, and rows are matched by "
            f"position; bring them into one order, such as {what}.loc[{rows}.index]"
        )


def check_target(owner: str, y: Labels, classifies: bool) -> None:
    """Refuse targets that NumPy would take for something else."""
    refuse_times(owner, "y", y)
    refuse_missing(owner, y)
    if classifies:
        check_labels(owner, y)


def numbers(estimator: BaseEstimator, X: Features, *y: Labels, **how: bool | int) -> Any:
    """scikit-learn's checks of X (and y), with the name of what is no number."""
    name = type(estimator).__name__
    if X is None or isinstance(X, (str, bytes)):
        raise ValueError(f"{name}: X must be an array of numbers, a row for each sample, got {X!r}")
    try:
        sparse = "csr" if get_tags(estimator).input_tags.sparse else False
        found = validate_data(estimator, X, *y, dtype=np.float64, accept_sparse=sparse, **how)  # pyright: ignore
        rows, *labels = found if y else (found,)
        if not scipy.sparse.issparse(rows):
            return found
        return (SparseRows(rows), *labels) if y else SparseRows(rows)
    except ValueError as error:
        said = about_forms(str(error), X) or about_values(str(error), X)
        if said is None:
            raise
        raise ValueError(f"{name}: {said}") from None


def about_forms(error: str, X: Features) -> str | None:
    """What is wrong with shapes and kinds of numbers, without scikit-learn's dump of them; None for other errors."""
    if "Expected 2D array" in error:
        return (
            f"Expected 2D array: X must have a row for each sample and a column for each feature, got the shape "
            f"{np.shape(np.asarray(X))}. Reshape your data: X.reshape(-1, 1) makes one feature of it, X.reshape(1, -1) "
            "one row"
        )
    if "Complex data not supported" in error:
        values = scipy.sparse.csr_array(X).data if scipy.sparse.issparse(X) else np.asarray(X)
        wrong = "X" if np.iscomplexobj(values) else "y"
        return f"Complex data not supported: {wrong} must be real numbers; take .real of it, or both parts as columns"
    if "inconsistent numbers of samples" in error:
        rows, labels = re.findall(r"\d+", error)[:2]
        return f"inconsistent numbers of samples: X has {rows} rows and y {labels}, and each row needs its y"
    return error if "y should be a 1d array" in error else None


def about_values(error: str, X: Features) -> str | None:
    """What is wrong with values, and where, in place of scikit-learn's words and advice; None for other errors."""
    if "could not convert" in error:
        if is_numeric(X):
            return f"y must be numbers, but {error}; encode text as numbers"
        column = first_column(X, lambda values: not is_numeric(values))
        return f"X must be numbers, but {'' if column is None else f'column {column}: '}{error}; encode text as numbers"
    word = next((word for word in ("NaN", "infinity") if f" contains {word}" in error), None)
    if word is None:
        return None
    if "Input y" in error:
        return f"y contains {word}; leave those rows out"
    test = np.isnan if word == "NaN" else np.isinf
    column = first_column(X, lambda values: bool(test(np.asarray(values, np.float64)).any()))
    return f"X contains {word}{'' if column is None else f' in column {column}'}; fill such values or drop the rows"


def first_column(X: Features, wrong: Callable[[object], bool]) -> int | None:
    """The position of the first column in which something is wrong."""
    if scipy.sparse.issparse(X):
        held = scipy.sparse.csc_array(X)
        parts = np.split(held.data, held.indptr[1:-1])
        return next((j for j, values in enumerate(parts) if wrong(values)), None)
    table = np.asarray(X, object)
    if table.ndim != 2:
        return None
    return next((j for j in range(table.shape[1]) if wrong(table[:, j])), None)


def encoded(estimator: BaseEstimator, X: Features) -> Features:
    """New rows as numbers, where the estimator was fitted to tables and X is one: by the design of the fit."""
    design, named = vars(estimator).get("design_"), vars(estimator).get("feature_names_in_")
    if design is not None and named is not None and isinstance(X, np.ndarray) and X.shape[1:] == named.shape:
        return pd.DataFrame(X, columns=named)  # of the step before, in a pipeline
    if design is None or not isinstance(X, pd.DataFrame):
        return X
    if design.steps and vars(estimator).get("from_tables_"):  # the whole way from a table, of a study's fit
        return stepped_by(design, X)
    names = list(design.feature_names)
    if set(names) <= set(X.columns):  # numbers already
        return X[names]
    if design.steps:  # predictions take features as the fit had them: transformed
        return X
    return by_design(design, X)


def by_design(design: Design, X: pd.DataFrame) -> pd.DataFrame:
    """The numbers that a design's features make of new rows, before any step: of every row."""
    missing = "impute" if design.missing == "impute" else "refuse"
    bare = Design(features=design.features, missing=missing)
    return pd.DataFrame(SiteTable(X, "new rows").rows(bare).X, columns=list(bare.feature_names))


def stepped_by(design: Design, X: pd.DataFrame) -> pd.DataFrame:
    """The numbers that a design and its steps make of new rows."""
    rows = by_design(design, X).to_numpy()
    for step in design.steps:
        rows = step.apply(rows)
    return pd.DataFrame(rows, columns=list(design.feature_names))


def feature_names(estimator: BaseEstimator) -> list[str]:
    """The features' names, x0, x1, ... where they have none."""
    names = vars(estimator).get("feature_names_in_")
    if names is None:
        return [f"x{j}" for j in range(vars(estimator)["n_features_in_"])]
    return [str(name) for name in names]


def is_numeric(X: object) -> bool:
    """Whether all of X is numbers."""
    X = X.data if scipy.sparse.issparse(X) else X  # pyright: ignore[reportAttributeAccessIssue]
    try:
        np.asarray(X, np.float64)
    except (TypeError, ValueError):
        return False
    return True


def by_client(owner: str, clients: Clients, n: int) -> tuple[tuple[str, ...], list[np.ndarray]]:
    """The clients' names in natural order, and the rows of each."""
    if not is_list(clients):
        raise ValueError(f"{owner}: clients must name one client per row, got {checks.kind(clients)}")
    given = pd.Series(clients).to_numpy()
    if len(given) != n:
        raise ValueError(f"{owner}: clients must name one client per row: {n} rows, {len(given)} names")
    missing = int(pd.isna(given).sum())
    if missing:
        raise ValueError(f"{owner}: clients must name one client per row, but {missing} of {len(given)} are missing")
    codes, values = pd.factorize(given)
    names = [str(value) for value in values]
    twice = next((one for one in names if names.count(one) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise ValueError(f"{owner}: clients has two values that differ but both read {twice!r}, such as 1 and '1'")
    order = sorted(range(len(names)), key=lambda code: naming.natural(names[code]))
    return tuple(names[code] for code in order), [np.flatnonzero(codes == code) for code in order]


def row_order(owner: str, X: FitFeatures, clients: Clients, n: int) -> np.ndarray:
    """The positions of the rows of a user's in the order in which `gather` makes sites of them."""
    if clients is None:
        return np.arange(n)
    whose = X[clients] if isinstance(clients, str) and isinstance(X, pd.DataFrame) else clients
    return np.concatenate(by_client(owner, whose, n)[1])


def is_list(value: Given[npt.ArrayLike | None]) -> bool:
    """Whether this is a list of single values: np.ndim alone fails where its parts have different lengths."""
    try:
        return value is not None and np.ndim(value) == 1
    except (TypeError, ValueError):
        return False


def refuse_masked(owner: str, what: str, given: object) -> None:
    """A mask would be dropped without a word on the way to numbers."""
    if isinstance(given, np.ma.MaskedArray) and np.ma.getmaskarray(given).any():
        count = int(np.ma.getmaskarray(given).sum())
        raise ValueError(f"{owner}: {what} must have no masked values, but {count} are masked; leave those rows out")


def refuse_times(owner: str, what: str, given: object) -> None:
    """Dates and durations would be taken for numbers of whatever unit they are in."""
    if isinstance(given, (np.ndarray, pd.Series, pd.Index)) and getattr(given.dtype, "kind", "O") in "mM":
        raise ValueError(f"{owner}: {what} must be numbers, got {given.dtype}; convert it, such as to days as floats")


def refuse_unlike_rows(owner: str, X: Features, what: str, given: Labels | Clients) -> None:
    """Refuse numbers of rows that are masked, in another order than X, or times."""
    refuse_masked(owner, what, given)
    refuse_other_order(owner, X, what, given)
    refuse_times(owner, what, given)


def refuse_missing(owner: str, y: Labels) -> None:
    """None and NA among objects would become NaN, or fail where they are compared."""
    if not is_list(y) or getattr(y, "dtype", np.dtype(object)).kind in "biufcmM":
        return  # scikit-learn says it
    missing = pd.isna(np.asarray(y, object))
    if missing.any():
        count = f"{int(missing.sum())} of {len(missing)}"
        raise ValueError(f"{owner}: y must have a value for every row, but {count} are NaN or missing")


def check_labels(owner: str, y: Labels) -> None:
    """Labels of classes: one for every row, which can be put in order."""
    if not is_list(y):
        return  # scikit-learn says it
    kinds = sorted({type(label).__name__ for label in np.asarray(y, object)})
    if "str" in kinds and len(kinds) > 1:
        raise ValueError(f"{owner}: y must have labels of one kind, got {' and '.join(kinds)}")
    if pd.api.types.is_object_dtype(getattr(y, "dtype", None)) and not {"str", "str_"} & set(kinds):
        raise ValueError(
            f"{owner}: Unknown label type: labels are text, whole numbers or truths, and y has objects "
            f"({' and '.join(kinds)}); convert them, such as by y.astype(int)"
        )


def from_federation(
    estimator: BaseEstimator, federation: Federation, y: Labels, clients: Clients, target: bool
) -> MemorySites:
    """The clients of a Federation, which carries targets and names already."""
    name = type(estimator).__name__
    if y is not None or clients is not None:
        raise ValueError(f"{name}: a Federation carries its own targets and clients; leave y and clients out")
    if federation.draw is not None:
        raise ValueError(f"{name}: the clients of this federation draw fresh samples; an estimator needs fixed rows")
    if len(federation.feature_shape) != 1 or federation.target_shape:
        raise ValueError(
            f"{name}: rows must be vectors with one target each, got rows of shape {federation.feature_shape} and "
            f"targets of shape {federation.target_shape}"
        )
    pairs = [federation.client(m) for m in range(federation.n_clients)]
    learn_names(estimator, federation.n_features, federation.feature_names)
    rows = SiteRows.of_sites(
        federation.names,
        [X.astype(np.float64) for X, _ in pairs],
        [y if target else np.zeros(0) for _, y in pairs],
    )
    return MemorySites(rows, federation.feature_names)
