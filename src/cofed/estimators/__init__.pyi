from .adaptive_lasso import adaptive as adaptive
from .certificate import Certificate as Certificate
from .concave import ConcavePath as ConcavePath
from .concave import concave_path as concave_path
from .constrained import FederatedConstrained as FederatedConstrained
from .cox import FederatedCox as FederatedCox
from .cox_cv import FederatedCoxCV as FederatedCoxCV
from .cv import FederatedElasticNetCV as FederatedElasticNetCV
from .cv import FederatedLassoCV as FederatedLassoCV
from .elastic_net import FederatedElasticNet as FederatedElasticNet
from .elastic_net import FederatedLasso as FederatedLasso
from .glm import FederatedGLM as FederatedGLM
from .glm import FederatedGLMCV as FederatedGLMCV
from .glm_cv import FederatedLogisticRegressionCV as FederatedLogisticRegressionCV
from .glm_cv import FederatedPoissonCV as FederatedPoissonCV
from .group_lasso import FederatedGroupLasso as FederatedGroupLasso
from .group_lasso import FederatedGroupLassoCV as FederatedGroupLassoCV
from .held_out_curves import HeldOutCurves as HeldOutCurves
from .logistic import FederatedLogisticRegression as FederatedLogisticRegression
from .mixed_glm import FederatedMixedGLM as FederatedMixedGLM
from .mixed_model import FederatedMixedModel as FederatedMixedModel
from .multi_task import FederatedMultiTaskLasso as FederatedMultiTaskLasso
from .multi_task import FederatedMultiTaskLassoCV as FederatedMultiTaskLassoCV
from .nested import NestedCV as NestedCV
from .nested import nested_cv as nested_cv
from .path import RegularizationPath as RegularizationPath
from .path import regularization_path as regularization_path
from .permutation import PermutationImportance as PermutationImportance
from .permutation import permutation_importance as permutation_importance
from .poisson import FederatedPoisson as FederatedPoisson
from .relaxed import relaxed_path as relaxed_path
from .scaler import FederatedStandardScaler as FederatedStandardScaler
from .serialization import load as load
from .stability import StabilitySelection as StabilitySelection
from .stability import stability_selection as stability_selection
from .trace import FederatedTraceRegression as FederatedTraceRegression

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
