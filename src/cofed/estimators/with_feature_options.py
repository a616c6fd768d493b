"""Estimators whose users may say something of single features, and of the sites."""

import numpy as np

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_choice
from cofed.estimators.feature_options import FEATURE_OPTIONS, FeatureNames, FeatureOptions
from cofed.estimators.fitted_state import refuse_privacy
from cofed.estimators.site_effects import SITE_EFFECTS
from cofed.sites.intake import feature_names


class WithFeatureOptions(FederatedLinearModel):
    """A linear model with the parameters penalty_factor, exclude, low, high and site_effects."""

    def _given_options(self) -> list[str]:
        """Those of the parameters that were given."""
        return [name for name in FEATURE_OPTIONS if vars(self).get(name) is not None]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self._given_options():
            refuse_privacy(self, "factors of the penalty, limits and features left out", "it has no such options")
        name = type(self).__name__
        check_choice(name, "site_effects", vars(self).get("site_effects", "none"), SITE_EFFECTS)
        if not self._has_site_effects:
            return
        refuse_privacy(self, "intercepts of sites", "each would need noise of its own")
        if not self.fit_intercept:
            raise ValueError(
                f"{name}: site_effects='fixed' gives every site an intercept, and fit_intercept=False none"
            )
        if self.algorithm not in ("auto", "newton", "fista"):
            raise ValueError(
                f"{name}: with site_effects='fixed' algorithm must be one of auto, newton, fista, got "
                f"{self.algorithm!r}: the steps of others are for losses that are sums over rows"
            )

    def _together(self, features: int) -> np.ndarray:
        """A label per feature: those with one label are in one norm of the penalty, and have one factor."""
        return np.arange(features)

    def _feature_options(self) -> FeatureOptions | None:
        if not self._given_options():
            return None
        names, design = feature_names(self), vars(self).get("design_")
        known = FeatureNames(type(self).__name__, names, names if design is None else design.groups)
        options = known.options(*(vars(self).get(name) for name in FEATURE_OPTIONS))
        known.require_one_factor(options, self._together(len(names)))
        return options
