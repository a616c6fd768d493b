"""Intercepts of the sites' own: their mean, which is a sum over sites, and where nobody hides them, each."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cofed._util import naming
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.models import Weights
from cofed.sites.intake import Clients, Features, is_list, refuse_other_order
from cofed.sites.queries import InterceptsMessage, intercepts

if TYPE_CHECKING:
    from cofed.estimators.base import FederatedLinearModel

SITE_EFFECTS = ("none", "fixed")
SiteEffects = dict[str, float] | dict[str, np.ndarray]  # by site; of several classes a number for each


def question(problem: StandardizedProblem, models: Sequence[Weights]) -> InterceptsMessage:
    """What is asked of the sites' intercepts."""
    coef = np.stack([np.asarray(w.coef, np.float64) for w in models])
    return InterceptsMessage(coef, scaling=problem.units.scaling, loss=problem.asked_loss)


def mean_intercepts(problem: StandardizedProblem, models: Sequence[Weights]) -> np.ndarray:
    """The mean intercept of each model, every site counting as its rows do, in the solver's units: one exchange.

    Of several classes it is a row for each model. Sites with an infinite intercept are left out; where all are, the
    mean is 0.
    """
    found = problem.sites.ask(intercepts, question(problem, models))
    summed, weight = np.asarray(found.intercept), np.asarray(found.weight)
    return summed / np.where(weight > 0, weight, 1).reshape(-1, *(1,) * (summed.ndim - 1))


def site_effects(problem: StandardizedProblem, w: Weights) -> tuple[float | np.ndarray, SiteEffects | None]:
    """The mean intercept in the solver's units, and every site's in the user's, as far as sites show them.

    An infinite one is NaN: the labels of that site are of one class (of several classes: lack one), or all 0, and
    nobody's prediction there is certain. Over a network whose answers are masked there is the mean alone.
    """
    if problem.sites.is_masked:
        return mean_intercepts(problem, [w])[0], None
    alone = problem.sites.ask_each(intercepts, question(problem, [w]))
    own, total, weight = {}, 0.0, 0.0
    for name, found in alone.items():
        size, summed = float(found.weight[0]), np.asarray(found.intercept)[0]
        total, weight = total + summed, weight + size
        own[name] = problem.original(w, summed / size)[1] if size > 0 else summed * np.nan
    mean = total / weight if weight > 0 else 0.0 * total
    if np.ndim(mean) == 0:
        return float(mean), {name: float(value) for name, value in own.items()}
    return mean, own


def intercepts_of_rows(model: "FederatedLinearModel", X: Features, clients: Clients, rows: int) -> float | np.ndarray:
    """The intercept of new rows: the model's, or of a model with one for every client, the client's."""
    owner, effects = type(model).__name__, vars(model).get("site_effects_")
    if not model._has_site_effects:
        if clients is not None:
            raise ValueError(f"{owner}: clients have the same intercept, unless site_effects='fixed': leave them out")
        return model.intercept_
    column = vars(model).get("client_column_") if clients is None else clients
    if isinstance(X, pd.DataFrame) and isinstance(column, str) and column in X.columns:
        clients = X[column]
    elif isinstance(clients, str):
        raise ValueError(f"{owner}: clients={clients!r} must name a column of a pandas X, or be one name per row")
    if clients is None:
        return model.intercept_
    if effects is None:
        raise ValueError(
            f"{owner}: the clients' own intercepts are not known (of masked answers, and of other strengths of a "
            "path): leave clients out for the mean intercept"
        )
    if not is_list(clients) or len(np.asarray(clients)) != rows:
        raise ValueError(f"{owner}: clients must name one client per row: {rows} rows, got {clients!r}")
    refuse_other_order(owner, X, "clients", clients)
    names = [str(name) for name in np.asarray(clients)]
    strange = sorted({name for name in names if name not in effects})
    if strange:
        raise ValueError(
            f"{owner}: {strange[0]!r} is none of the clients of the fit, {naming.listed(effects)}, and has no "
            "intercept; leave clients out (also of X) for the mean intercept"
        )
    found = np.array([effects[name] for name in names])
    unknown = next((name for name in names if np.isnan(effects[name]).any()), None)
    if unknown is not None:
        what = "lack a class" if found.ndim > 1 else "are of one class, or all 0"
        raise ValueError(
            f"{owner}: the labels of {unknown!r} {what}, which tell no intercept; leave clients out (also of X) for "
            "the mean intercept"
        )
    return found[:, None] if np.ndim(model.intercept_) == 1 and found.ndim == 1 else found
