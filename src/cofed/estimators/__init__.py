"""scikit-learn estimators for data that cannot be pooled: no tuning, and a certificate of how exact they are."""

from cofed.estimators.adaptive import adaptive
from cofed.estimators.certificate import Certificate
from cofed.estimators.concave import ConcavePath, concave_path
from cofed.estimators.constrained import FederatedConstrained
from cofed.estimators.cox import FederatedCox
from cofed.estimators.cox_cv import FederatedCoxCV
from cofed.estimators.cv import FederatedElasticNetCV, FederatedLassoCV
from cofed.estimators.elastic_net import FederatedElasticNet, FederatedLasso
from cofed.estimators.glm import FederatedGLM, FederatedGLMCV
from cofed.estimators.glm_cv import FederatedLogisticRegressionCV, FederatedPoissonCV
from cofed.estimators.group_lasso import FederatedGroupLasso, FederatedGroupLassoCV
from cofed.estimators.held_out_curves import HeldOutCurves
from cofed.estimators.logistic import FederatedLogisticRegression
from cofed.estimators.mixed_glm import FederatedMixedGLM
from cofed.estimators.mixed_model import FederatedMixedModel
from cofed.estimators.multi_task import FederatedMultiTaskLasso, FederatedMultiTaskLassoCV
from cofed.estimators.nested import NestedCV, nested_cv
from cofed.estimators.path import RegularizationPath, regularization_path
from cofed.estimators.permutation import PermutationImportance, permutation_importance
from cofed.estimators.poisson import FederatedPoisson
from cofed.estimators.relaxed import relaxed_path
from cofed.estimators.scaler import FederatedStandardScaler
from cofed.estimators.serialization import load
from cofed.estimators.stability import StabilitySelection, stability_selection
from cofed.estimators.trace import FederatedTraceRegression

__all__ = [
    "Certificate",
    "ConcavePath",
    "FederatedConstrained",
    "FederatedCox",
    "FederatedCoxCV",
    "FederatedElasticNet",
    "FederatedElasticNetCV",
    "FederatedGLM",
    "FederatedGLMCV",
    "FederatedGroupLasso",
    "FederatedGroupLassoCV",
    "FederatedLasso",
    "FederatedLassoCV",
    "FederatedLogisticRegression",
    "FederatedLogisticRegressionCV",
    "FederatedMixedGLM",
    "FederatedMixedModel",
    "FederatedMultiTaskLasso",
    "FederatedMultiTaskLassoCV",
    "FederatedPoisson",
    "FederatedPoissonCV",
    "FederatedStandardScaler",
    "FederatedTraceRegression",
    "HeldOutCurves",
    "NestedCV",
    "PermutationImportance",
    "RegularizationPath",
    "StabilitySelection",
    "adaptive",
    "concave_path",
    "load",
    "nested_cv",
    "permutation_importance",
    "regularization_path",
    "relaxed_path",
    "stability_selection",
]
