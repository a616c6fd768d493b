"""The linear mixed model of sites: exactly that of all rows together, from one exchange of each site's own sums."""

from typing import TypeVar

import numpy as np
from sklearn.base import RegressorMixin

from cofed._util.types import Given
from cofed.estimators.checks import named_refusals
from cofed.estimators.fitted_state import check_row_options
from cofed.estimators.inference.table import Chosen
from cofed.estimators.mixed_base import AbstractMixedModel, to_units
from cofed.losses import Squared
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, FitFeatures, Labels
from cofed.sites.row_options import RowNumbers, row_options, with_row_options
from cofed.statistics.mixed_model import SiteProducts, fit_mixed_model

Model = TypeVar("Model", bound="FederatedMixedModel")
EXPLAINED = 1e-13  # the part of the labels' variance from which on the rest is rounding


class FederatedMixedModel(RegressorMixin, AbstractMixedModel):
    """A linear model in which every site has an intercept, and perhaps slopes, of its own: random site effects.

    y = X beta + b_0 + Z b_1 + e, where the (b_0, b_1) of the sites are draws from a normal distribution around 0 with
    any covariance, and Z are some columns of X. The fit is that of R's `lmer(y ~ X + (1 + Z | site))` on all rows.
    **The products of each site's columns are seen**: over a network whose answers are masked it is refused
    (see the page "site-effects").

    Parameters
    ----------
    slopes : list of str or int, optional
        Names or positions of features whose slopes vary between sites; None is none.
    method : {"reml", "ml"}, default="reml"
        Restricted or plain maximum likelihood.
    level : float, default=0.95
        The coverage of the limits.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (p,), float
        The effects of all sites.
    fixed_effects_ : pandas.DataFrame
        A row for the intercept and each feature: coef, se, low, high, z, p_value.
    covariance_ : pandas.DataFrame
        The covariances of intercepts and slopes between sites.
    residual_variance_ : float
        The variance within sites.
    random_effects_, random_effects_se_ : pandas.DataFrame
        A row for each site: the best linear unbiased predictions of what it has of its own, and their standard errors
        where the parameters are taken as known.
    log_likelihood_ : float
        The logarithm of the (restricted) likelihood; NaN where weights stay at their sites, since it takes the sum of
        their logarithms.
    is_singular_ : bool
        Whether there is no variation between sites in some direction.
    is_settled_ : bool
        Whether the likelihood is known to be greatest here, as far as its derivatives tell.
    exchanges_, n_rounds_, bytes_, clients_, client_sizes_
        What was asked, and of whom.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedMixedModel
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(120, 2)), np.arange(120) % 6
    >>> y = X[:, 0] + np.array([0.0, 1.0, -1.0, 2.0, 0.5, -2.0])[site] + 0.3 * rng.normal(size=120)
    >>> model = FederatedMixedModel().fit(X, y, clients=site)
    >>> float(model.coef_[0].round(1)), model.random_effects_["(Intercept)"].round(1).tolist()
    (1.0, [0.1, 1.0, -1.1, 1.8, 0.3, -2.1])
    """

    def __init__(self, slopes: Chosen = None, *, method: Given[str] = "reml", level: Given[float] = 0.95):
        self.slopes = slopes
        self.method = method
        self.level = level

    def fit(
        self: Model,
        X: FitFeatures,
        y: Labels = None,
        clients: Clients = None,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
    ) -> Model:
        """Fit to the rows of all clients.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame, cofed.Federation or AbstractSites
            The features of every row; or sites, wherever their rows are.
        y : array-like of shape (n,)
            The targets.
        clients : array-like of shape (n,) or str
            The site's name of every row, or the name of that column of a pandas X.
        sample_weight : array-like of shape (n,), str or None
            The precisions of the rows' errors, >= 0, whose variance is `residual_variance_` divided by them, as the
            weights of R's `lmer`; or the name of that column of a pandas X or of the sites' tables.
        offset : array-like of shape (n,), str or None
            What is added to every row's prediction, or the name of that column.

        Returns
        -------
        self
            The fitted estimator.
        """
        owner = type(self).__name__
        given = row_options(owner, X, sample_weight, offset)
        taken = self._taken_in(given.X, y, clients, classifies=False)
        with named_refusals(owner):
            sites = with_row_options(owner, taken.of_numbers(), given, clients)
        if len(sites.names) < 2:
            raise ValueError(f"{owner}: there must be two sites or more with rows of a weight above 0, and there is 1")
        check_row_options(self, Squared(), sites)
        self.row_columns_, self.has_offset_ = given.columns, sites.has_offsets
        before, some, reml = len(sites.exchanges), self._random(), self.method == "reml"
        moments = self._asked(sites, Squared())
        size, label_size = moments.sizes[:-1], float(moments.sizes[-1])
        if label_size <= 1e-12 * abs(moments.label_centre):
            raise ValueError(f"{owner}: y does not vary: every row has {moments.label_centre:g}")
        unit = np.r_[1.0, size, label_size]
        scaled = moments.products / np.outer(unit, unit)
        try:
            found = fit_mixed_model(SiteProducts(moments.rows, scaled, some), reml)
        except np.linalg.LinAlgError:
            found = None
        if found is None or not found.profile.scale > EXPLAINED:
            raise ValueError(
                f"{owner}: the model explains y wholly, which tells no variances: nothing is left within sites"
            )
        self._set_effects(sites, found, to_units(moments.centre, size) * label_size, moments.label_centre)
        freedom = sum(sites.sizes) - (len(unit) - 1 if reml else 0)
        deviance = found.profile.deviance + 2 * freedom * np.log(label_size)
        likelihood = -0.5 * (deviance + (2 * np.log(size).sum() if reml else 0.0))
        self.log_likelihood_ = float(likelihood + half_of_logs(sites, given.weight, moments.mean_weight))
        self.residual_variance_ = found.profile.scale * label_size**2 * moments.mean_weight
        self._set_exchanges(sites, before)
        return self

    def _mean(self, predictor: np.ndarray) -> np.ndarray:
        return predictor

    def _notes(self) -> list[str]:
        own, rest = float(self.covariance_.iloc[0, 0]), self.residual_variance_
        lines = [f"within sites  sd {np.sqrt(rest):.5g}"]
        if len(self.covariance_) == 1:
            lines.append(f"between sites {100 * own / (own + rest):.1f} % of the variance (intraclass correlation)")
        kind = "restricted log likelihood" if self.method == "reml" else "log likelihood"
        return [*lines, f"{kind} {self.log_likelihood_:.4f}"]


def half_of_logs(sites: AbstractSites, weight: np.ndarray | None, mean: float) -> float:
    """Half the sum of the logarithms of the rows' weights divided by their mean, which a likelihood has of them."""
    if not sites.has_weights:
        return 0.0
    return float(np.log(weight[weight > 0] / mean).sum() / 2) if weight is not None else np.nan
