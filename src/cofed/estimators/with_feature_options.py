"""Estimators whose users may say something of single features."""

from cofed.estimators.base import FederatedLinearModel, refuse_privacy
from cofed.estimators.feature_options import FEATURE_OPTIONS, FeatureNames, FeatureOptions
from cofed.sites.intake import feature_names


class WithFeatureOptions(FederatedLinearModel):
    """A linear model with the parameters penalty_factor, exclude, low and high."""

    def _given_options(self) -> list[str]:
        """Those of the parameters that were given."""
        return [name for name in FEATURE_OPTIONS if vars(self).get(name) is not None]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._given_options():
            refuse_privacy(self, "factors of the penalty, limits and features left out", "it has no such options")

    def _feature_options(self) -> FeatureOptions | None:
        if not self._given_options():
            return None
        names, design = feature_names(self), vars(self).get("design_")
        known = FeatureNames(type(self).__name__, names, names if design is None else design.groups)
        return known.options(*(vars(self).get(name) for name in FEATURE_OPTIONS))
