"""The parameters that all estimators share, checked when they are used."""

from collections.abc import Mapping

from sklearn.base import BaseEstimator

from cofed.estimators.checks import check_count, check_flag, check_number
from cofed.estimators.solver import check_algorithm
from cofed.privacy import Privacy


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
        check_number(name, "l1_ratio", given["l1_ratio"], low=0, high=1)
    check_algorithm(name, given["algorithm"])
    privacy = given.get("privacy")
    if privacy is not None and not isinstance(privacy, Privacy):
        raise TypeError(f"{name}: privacy must be a cofed.Privacy, got {privacy!r}")


def refuse_unknown_privacy(estimator: type[BaseEstimator], given: Mapping[str, object]) -> None:
    """Say of `privacy=`, which others have, why this estimator does not."""
    if "privacy" in given and "privacy" not in estimator._get_param_names():
        raise TypeError(
            f"{estimator.__name__} takes no privacy: differential privacy is for FederatedLasso, FederatedElasticNet, "
            "their CV forms and FederatedLogisticRegression (docs/privacy.md)"
        )
