"""Rows with several responses in, sites out."""

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.base import BaseEstimator

from cofed._util.types import Given
from cofed.sites.base import AbstractSites
from cofed.sites.intake import Clients, FitFeatures, Labels, gather, refuse_unlike_rows
from cofed.sites.memory import MemorySites, numbered

FORM = "y must have rows and columns, one for each response (FederatedLasso is for a single one)"


def gather_responses(
    estimator: BaseEstimator, X: FitFeatures, y: Labels, clients: Clients
) -> tuple[AbstractSites, tuple[str, ...]]:
    """The sites of a fit to several responses, as given or made of rows that are checked, and the responses' names."""
    owner = type(estimator).__name__
    if y is None or isinstance(X, AbstractSites):
        if not isinstance(X, AbstractSites):
            raise ValueError(f"{owner} requires y to be passed, but the target y is None: {FORM}")
        return gather(estimator, X, y, clients).of_responses()
    refuse_unlike_rows(owner, X, "y", y)
    labels = response_labels(owner, y)
    # Each row's position stands for its labels, and comes back by client.
    sites = gather(estimator, X, np.arange(len(labels)), clients)
    assert isinstance(sites, MemorySites)
    own = labels[sites.rows.y.astype(int)]
    names = tuple(map(str, y.columns)) if isinstance(y, pd.DataFrame) else numbered(labels.shape[1])
    return sites.with_labels(own[:, 0] if len(names) == 1 else own), names


def response_labels(owner: str, y: Given[npt.ArrayLike | pd.Series]) -> np.ndarray:
    """Rows of finite numbers, one for each response.

    >>> from cofed.sites.response_intake import response_labels
    >>> response_labels("y", [[1, 2.5], [0, 3]]).tolist()
    [[1.0, 2.5], [0.0, 3.0]]
    """
    try:
        given = np.asarray(y)
        labels = np.real(given).astype(np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{owner}: y must be numbers, but {error}; encode text as numbers") from None
    if np.iscomplexobj(given):
        raise ValueError(f"{owner}: Complex data not supported: responses are real numbers")
    if labels.ndim != 2 or not labels.shape[1]:
        raise ValueError(f"{owner}: {FORM}, got the shape {labels.shape}; y.reshape(-1, 1) makes a column of numbers")
    for word, wrong in (("NaN", np.isnan(labels)), ("infinity", np.isinf(labels))):
        if wrong.any():
            column = int(wrong.any(axis=0).argmax())
            raise ValueError(f"{owner}: Input y contains {word} in column {column}; leave those rows out")
    return labels
