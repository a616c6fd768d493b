"""scikit-learn estimators for data that cannot be pooled: no tuning, and a certificate of how exact they are."""

from cofed.estimators.certificate import Certificate
from cofed.estimators.constrained import FederatedConstrained
from cofed.estimators.elastic_net import FederatedElasticNet, FederatedLasso
from cofed.estimators.group_lasso import FederatedGroupLasso
from cofed.estimators.logistic import FederatedLogisticRegression
from cofed.estimators.poisson import FederatedPoisson
from cofed.estimators.scaler import FederatedStandardScaler
from cofed.estimators.trace import FederatedTraceRegression

__all__ = [
    "Certificate",
    "FederatedConstrained",
    "FederatedElasticNet",
    "FederatedGroupLasso",
    "FederatedLasso",
    "FederatedLogisticRegression",
    "FederatedPoisson",
    "FederatedStandardScaler",
    "FederatedTraceRegression",
]
