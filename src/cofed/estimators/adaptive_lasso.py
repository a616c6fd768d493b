"""The adaptive lasso: a penalty for each feature that is the weaker, the more of it a first fit has used."""

from typing import TypeVar

import numpy as np

from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_number
from cofed.estimators.with_feature_options import WithFeatureOptions

Model = TypeVar("Model", bound=WithFeatureOptions)


def adaptive(estimator: Model, first: Given[FederatedLinearModel], gamma: Given[float] = 1.0) -> Model:
    """An estimator whose penalties are the adaptive lasso's (Zou 2006), from a first fit.

    The penalty of a feature is divided by the size of its first coefficient to the power of gamma; what the first fit
    does not use is left out. A size is |coefficient| times what the penalty multiplies it with: the standard deviation
    of the feature, or 1 where features are not standardised. Of several classes, and of the features of a group under
    one norm, it is the root of the sum of squares.

    Parameters
    ----------
    estimator : FederatedLasso, FederatedGroupLasso or another estimator with penalty_factor, or one with CV
        The estimator to fit next. Factors of its own are multiplied; what it leaves out stays so.
    first : FederatedLinearModel
        A fitted estimator of the same features: a ridge (l1_ratio=0), which uses all, or a lasso.
    gamma : float, default=1.0
        The power, above 0.

    Returns
    -------
    estimator of the same class
        Not fitted yet, with `penalty_factor` and `exclude`. Its certificate is that of a lasso with these factors.

    Raises
    ------
    ValueError
        Where the first fit uses no feature, or does not match.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedElasticNet, FederatedLasso, adaptive
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(90, 4)), np.arange(90) % 3
    >>> y = 2 * X[:, 0] - X[:, 2] + rng.normal(size=90)
    >>> ridge = FederatedElasticNet(0.01, l1_ratio=0).fit(X, y, clients=site)
    >>> adaptive(FederatedLasso(0.05), ridge).fit(X, y, clients=site).support_.tolist()
    [True, False, True, False]
    """
    owner = "adaptive"
    check_number(owner, "gamma", gamma, low=0, strict=True)
    if not isinstance(estimator, WithFeatureOptions):
        raise ValueError(f"{owner}: {type(estimator).__name__} has no penalty_factor, which the adaptive lasso sets")
    known = vars(first)
    if not isinstance(first, FederatedLinearModel) or "penalty_scale_" not in known:
        raise ValueError(f"{owner}: first must be a fitted estimator (without privacy), got {type(first).__name__}")
    if bool(first.standardize) != bool(estimator.standardize):
        raise ValueError(f"{owner}: both estimators must have the same standardize, got {first.standardize!r} first")
    used = np.linalg.norm(np.atleast_2d(first.coef_), axis=0) * known["penalty_scale_"]
    groups = estimator._together(len(used))
    used = np.sqrt(np.bincount(groups, used**2))[groups]
    if not used.any():
        raise ValueError(f"{owner}: the first fit uses no feature; take a smaller alpha, or a ridge (l1_ratio=0)")
    given = estimator.get_params(deep=False)
    new = type(estimator)(**given)
    for name in ("n_features_in_", "feature_names_in_", "design_"):  # to find features by their names
        if name in known:
            vars(new)[name] = known[name]
    before = new._feature_options()
    factor = np.ones(len(used)) if before is None else before.factor
    out = (used == 0) | np.isinf(factor)
    factors = np.where(out, 1.0, factor * np.where(out, 1.0, used) ** -float(gamma))
    return type(estimator)(**given | {"penalty_factor": factors, "exclude": np.flatnonzero(out).tolist() or None})
