"""scikit-learn's own checks of an estimator, for every one of cofed's."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from cofed import estimators

FAST = [estimators.FederatedStandardScaler(), estimators.FederatedLasso(), estimators.FederatedElasticNet()]


@parametrize_with_checks(FAST)
def test_scikit_learns_checks(estimator, check):
    check(estimator)
