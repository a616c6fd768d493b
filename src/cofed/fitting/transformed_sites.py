"""The steps of an analysis over sites: transformers learn from sums, and the sites apply what they have learnt."""

from collections.abc import Sequence

from cofed.estimators import FederatedStandardScaler
from cofed.sites import AbstractSites
from cofed.studies import PlannedStep
from cofed.transformers import (
    FederatedFormula,
    FederatedKBinsDiscretizer,
    FederatedOneHotEncoder,
    FederatedPCA,
    FederatedPolynomialFeatures,
    FederatedQuantileTransformer,
    FederatedSplineTransformer,
)


def transformed_by(steps: Sequence[PlannedStep], sites: AbstractSites) -> AbstractSites:
    """The sites with the features that these steps make, learnt from the sites' sums one after another."""
    for planned in steps:
        sites = transformer_of(planned).fit(sites).transform(sites)
    return sites


def transformer_of(
    planned: PlannedStep,
) -> (
    FederatedFormula
    | FederatedOneHotEncoder
    | FederatedStandardScaler
    | FederatedPCA
    | FederatedPolynomialFeatures
    | FederatedKBinsDiscretizer
    | FederatedQuantileTransformer
    | FederatedSplineTransformer
):
    """The transformer of a step.

    >>> from cofed.fitting.transformed_sites import transformer_of
    >>> from cofed.studies import PlannedStep
    >>> transformer_of(PlannedStep(kind="splines", knots=4))
    FederatedSplineTransformer(include_bias=False, n_knots=4)
    """
    placed = "uniform" if planned.uniform else "quantile"
    match planned.kind:
        case "formula":
            assert planned.formula is not None
            return FederatedFormula(planned.formula)
        case "one_hot":
            return FederatedOneHotEncoder(drop=None if planned.first else "first")
        case "scale":
            return FederatedStandardScaler()
        case "pca":
            return FederatedPCA(planned.components, whiten=planned.whiten)
        case "polynomial":
            return FederatedPolynomialFeatures(planned.powers_degree, interaction_only=planned.interaction_only)
        case "bins":
            encode = "ordinal" if planned.ordinal else "onehot-dense"
            return FederatedKBinsDiscretizer(planned.n_bins, encode=encode, strategy=placed)
        case "ranks":
            return FederatedQuantileTransformer(
                n_quantiles=planned.n_quantiles, output_distribution=planned.distribution
            )
        case "splines":
            return FederatedSplineTransformer(
                planned.n_knots,
                planned.splines_degree,
                knots=placed,
                extrapolation=planned.extrapolation,
                include_bias=False,
            )
