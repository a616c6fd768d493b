"""scikit-learn's transformers for data that cannot be pooled: fitted to sums over the clients, as if to all rows."""

from cofed.transformers.by_quantiles import (
    FederatedKBinsDiscretizer,
    FederatedQuantileTransformer,
    FederatedSplineTransformer,
)
from cofed.transformers.formula import FederatedFormula
from cofed.transformers.imputer import FederatedSimpleImputer
from cofed.transformers.one_hot import FederatedOneHotEncoder
from cofed.transformers.pca import FederatedPCA
from cofed.transformers.polynomial import FederatedPolynomialFeatures

__all__ = [
    "FederatedFormula",
    "FederatedKBinsDiscretizer",
    "FederatedOneHotEncoder",
    "FederatedPCA",
    "FederatedPolynomialFeatures",
    "FederatedQuantileTransformer",
    "FederatedSimpleImputer",
    "FederatedSplineTransformer",
]
