"""Rows with times to an event in, sites out."""

import numpy as np
from sklearn.base import BaseEstimator

from cofed.federation import Federation
from cofed.sites.base import AbstractSites
from cofed.sites.follow_up import survival_labels
from cofed.sites.intake import Clients, FitFeatures, Labels, gather, refuse_unlike_rows
from cofed.sites.memory import MemorySites


def gather_times(estimator: BaseEstimator, X: FitFeatures, y: Labels, clients: Clients) -> AbstractSites:
    """The sites of a fit to times to an event: as given, or made of rows, which are checked."""
    owner = type(estimator).__name__
    if isinstance(X, Federation):
        raise ValueError(f"{owner}: a Federation has one number for a target; give X, y and clients, or sites")
    if isinstance(X, AbstractSites):
        return gather(estimator, X, y, clients)
    refuse_unlike_rows(owner, X, "y", y)
    labels = survival_labels(owner, y)
    # Each row's position stands for its label, and comes back by client.
    sites = gather(estimator, X, np.arange(len(labels)), clients)
    assert isinstance(sites, MemorySites)
    return sites.with_labels(labels[sites.rows.y.astype(int)])
