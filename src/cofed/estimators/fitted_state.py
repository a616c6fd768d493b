"""What an estimator keeps of a fit, and which rows and options go with it."""

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.losses import AbstractLoss
from cofed.sites import AbstractSites, Design
from cofed.sites.host_rows import HostRows
from cofed.sites.intake import Features, encoded, numbers, refuse_masked
from cofed.sites.queries.base import is_classes, n_outputs, n_responses
from cofed.sites.row_options import refuse_columns


def refuse_privacy(model: BaseEstimator, what: str, why: str) -> None:
    """Refuse what would ask the sites for sums without noise."""
    if vars(model).get("privacy") is not None:
        raise ValueError(f"{type(model).__name__}: with privacy there are no {what}: {why}")


def check_row_options(model: BaseEstimator, loss: AbstractLoss, sites: AbstractSites) -> None:
    """Refuse weights and offsets where the model has no use for them."""
    if sites.has_weights or sites.has_offsets:
        refuse_privacy(model, "weights and offsets", "the noise is for rows that count alike")
    if not sites.has_offsets:
        return
    if is_classes(loss):
        raise ValueError(
            f"{type(model).__name__}: an offset is for two classes, and there are {n_outputs(loss)}; models of several "
            "classes take none, neither one number per row nor one per class"
        )
    refuse_columns(type(model).__name__, sites.offset_columns, n_responses(loss))


def check_errors(owner: str, loss: AbstractLoss, kind: str) -> None:
    """Refuse standard errors that a model does not have."""
    if loss.of_times and kind == "hc3":
        raise ValueError(f"{owner}: errors='hc3' is not for times to an event, which have no leverages; take 'hc1'")
    if not loss.rowwise and not loss.of_times and kind != "model":
        asked = f"{kind!r}" if kind != "cluster" else "clusters"
        raise ValueError(f"{owner}: errors must be 'model' beside intercepts of sites (site_effects), got {asked}")


def output_names(model: BaseEstimator) -> np.ndarray:
    """The classes, or the responses, that have coefficients each."""
    known = vars(model)
    return known["classes_"] if "classes_" in known else known["responses_"]


def forget_inference(model: BaseEstimator) -> None:
    """Intervals are of one fit."""
    for name in ("inference_", "inference_note_"):
        vars(model).pop(name, None)


def forget_earlier_fit(model: BaseEstimator) -> None:
    """What not every fit sets anew."""
    forget_inference(model)
    for name in ("privacy_", "site_effects_"):
        vars(model).pop(name, None)


def same_columns(one: Design | None, other: Design | None) -> bool:
    """Whether two designs of the same sites have the same columns for weights, offsets and clusters."""
    if one is None or other is None:
        return one is other
    return (one.weight, one.offset, one.cluster) == (other.weight, other.offset, other.cluster)


def check_same_rows(model: BaseEstimator, problem: StandardizedProblem) -> None:
    """Refuse rows whose sums are not those of the fit. (Files of older versions have no such sums.)"""
    kept = vars(model).get("fingerprint_")
    if kept is None:
        return
    now = problem.fingerprint
    if len(kept) != len(now) or kept[0] != now[0] or not np.allclose(kept, now, rtol=1e-7, atol=1e-9):
        raise ValueError(
            f"{type(model).__name__}: infer needs the rows of the fit, but the sums of X and y over these "
            f"{problem.n} rows differ from those of the fit's {int(kept[0])}"
        )


def new_rows(model: BaseEstimator, X: Features) -> HostRows:
    """New rows, checked against those of the fit; a client column is left out."""
    check_is_fitted(model)
    if isinstance(X, AbstractSites):
        raise TypeError(f"{type(model).__name__}: predictions are made of rows, and those of sites stay there")
    refuse_masked(type(model).__name__, "X", X)
    columns = [vars(model).get("client_column_"), *vars(model).get("row_columns_", ())]
    if isinstance(X, pd.DataFrame):
        X = X.drop(columns=[name for name in columns if name is not None and name in X.columns])
    return numbers(model, encoded(model, X), reset=False)
