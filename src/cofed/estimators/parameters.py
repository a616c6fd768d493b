"""The parameters that all estimators share, checked when they are used."""

from collections.abc import Mapping

import numpy as np
from sklearn.base import BaseEstimator

from cofed._util.types import Given
from cofed.estimators.checks import check_count, check_flag, check_number
from cofed.estimators.feature_options import LIMITS
from cofed.estimators.solver import check_algorithm
from cofed.privacy import Privacy

MOST_RATIOS = 20


def check_parameters(model: BaseEstimator) -> None:
    """Refuse parameters that mean nothing, before anything is computed."""
    name, given = type(model).__name__, model.get_params(deep=False)
    check_number(name, "tol", given["tol"], low=0, strict=True)
    if given["tol"] > 1:
        raise ValueError(f"{name}: tol must be at most 1, got {given['tol']!r}: the model without features would do")
    check_count(name, "max_rounds", given["max_rounds"])
    for flag in [one for one in ("fit_intercept", "standardize") if one in given]:  # Cox models have no intercept
        check_flag(name, flag, given[flag])
    if "alpha" in given:
        check_number(name, "alpha", given["alpha"], low=0)
    if "l1_ratio" in given:
        check_ratio(name, given)
    check_algorithm(name, given["algorithm"])
    privacy = given.get("privacy")
    if privacy is not None and not isinstance(privacy, Privacy):
        raise TypeError(f"{name}: privacy must be a cofed.Privacy, got {privacy!r}")


def check_ratio(name: str, given: Mapping[str, object]) -> None:
    """Refuse what is no part of a penalty, nor several of an estimator that chooses its strength."""
    ratios = several(given["l1_ratio"]) if "criterion" in given else None
    if ratios is None:
        return check_number(name, "l1_ratio", given["l1_ratio"], low=0, high=1)  # pyright: ignore[reportArgumentType]
    for one in ratios[:MOST_RATIOS]:
        check_number(name, "l1_ratio", one, low=0, high=1)
    if not 0 < len(ratios) <= MOST_RATIOS or len(set(ratios)) < len(ratios):
        most = f"up to {MOST_RATIOS} different ones"
        raise ValueError(f"{name}: l1_ratio must be a number or {most}, got {given['l1_ratio']!r}")
    if given.get("penalty", "elasticnet") != "elasticnet":
        raise ValueError(f"{name}: several l1_ratio are for penalty='elasticnet', got {given['penalty']!r}")
    if given.get("privacy") is not None:
        raise ValueError(f"{name}: with privacy there are no several l1_ratio: each would cost")


def several(l1_ratio: object) -> list[Given[float]] | None:
    """The l1_ratio of a list; None where there is one."""
    if isinstance(l1_ratio, np.ndarray) and l1_ratio.ndim == 0:
        return None
    return list(l1_ratio) if isinstance(l1_ratio, (list, tuple, np.ndarray)) else None


def ratio_of(model: BaseEstimator) -> float:
    """The part of the penalty that is the l1 norm: that which is given, or the chosen one of several."""
    return float(vars(model).get("l1_ratio_", vars(model)["l1_ratio"]))


def refuse_unknown_options(estimator: type[BaseEstimator], given: Mapping[str, object]) -> None:
    """Say of parameters that others have why this estimator does not."""
    refuse_unknown_privacy(estimator, given)
    refuse_unknown_site_effects(estimator, given)
    known = estimator._get_param_names()
    limit = next((name for name in LIMITS if name in given and name not in known), None)
    if limit is not None and "penalty_factor" in known:
        raise TypeError(
            f"{estimator.__name__} takes no {limit}: coefficients that are in one norm, those of a group of features "
            "or of a feature for all responses, have no limits of their own"
        )


def refuse_unknown_site_effects(estimator: type[BaseEstimator], given: Mapping[str, object]) -> None:
    """Say of `site_effects=`, which others have, why this estimator does not."""
    known = estimator._get_param_names()
    if "site_effects" in given and "site_effects" not in known and "penalty_factor" in known:
        raise TypeError(
            f"{estimator.__name__} takes no site_effects: intercepts of the sites' own are for a single response, and "
            "times to an event have a baseline for every site anyway"
        )


def refuse_unknown_privacy(estimator: type[BaseEstimator], given: Mapping[str, object]) -> None:
    """Say of `privacy=`, which others have, why this estimator does not."""
    if "privacy" in given and "privacy" not in estimator._get_param_names():
        raise TypeError(
            f"{estimator.__name__} takes no privacy: differential privacy is for FederatedLasso, FederatedElasticNet, "
            'their CV forms and FederatedLogisticRegression (see the page "privacy" of the documentation)'
        )
