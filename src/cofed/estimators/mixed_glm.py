"""Generalised linear mixed models of sites by penalised quasi-likelihood: linear mixed models of working responses.

Problem: y has the mean h(X beta + Z b_i) at site i, with the variance of its family (binomial, Poisson; h is the
    inverse of the canonical link), and the b_i are draws from N(0, D).
Round: at its own predictor eta_i = X_i (beta + b_i), a site tells the gradient g_i and the Hessian H_i = X_i'W_i X_i of
    its log likelihood. With them X_i'W_i z_i = H_i (beta + b_i) + g_i is known, of the working response
    z = eta + (y - h(eta)) / h'(eta) with the weights W.
Server: the linear mixed model of all z_i with residual variance 1 gives the next beta, b_i and D; until they rest.
Reference: Breslow and Clayton (1993), Approximate inference in generalized linear mixed models.
Deviations: the dispersion is 1, as of a binomial or a Poisson variable; MASS's `glmmPQL` estimates it, unless it is
    given `control = lmeControl(sigma = 1)`.
"""

import dataclasses
from typing import NamedTuple, TypeVar

import jax.numpy as jnp
import numpy as np
from scipy.special import expit

from cofed._util.types import Given
from cofed.estimators.checks import check_choice, check_count, named_refusals
from cofed.estimators.inference.table import Chosen
from cofed.estimators.mixed_base import AbstractMixedModel, to_units
from cofed.losses import AbstractLoss, Logistic, Poisson
from cofed.sites import AbstractSites, Scaling
from cofed.sites.intake import Clients, FitFeatures, Labels
from cofed.sites.queries import LookAnswer, LookMessage, look
from cofed.solvers.curvature import unpack
from cofed.statistics.mixed_model import MixedFit, SiteProducts, fit_mixed_model

Model = TypeVar("Model", bound="FederatedMixedGLM")
RESTS = 1e-9  # of parameters of standardised features: a change that is none
ENDLESS = 30.0  # of a linear predictor, one standard deviation from the mean: no probability, no count is so certain


class MixedFamily(NamedTuple):
    """A family of labels."""

    loss: AbstractLoss
    classifies: bool


FAMILIES = {"binomial": MixedFamily(Logistic(), True), "poisson": MixedFamily(Poisson(), False)}


class FederatedMixedGLM(AbstractMixedModel):
    """A logistic or Poisson model in which every site has an intercept, and perhaps slopes, of its own.

    The effects of sites are draws from a normal distribution around 0. The fit is that of penalised quasi-likelihood on
    all rows, R's `glmmPQL` with a dispersion of 1; with few events per site it takes the variance between sites for
    smaller than it is, as that method does. **Each site's gradients and Hessians are seen**: over a network whose
    answers are masked it is refused (see the page "site-effects").

    Parameters
    ----------
    family : {"binomial", "poisson"}, default="binomial"
        Labels of two classes, or counts.
    slopes : list of str or int, optional
        Names or positions of features whose slopes vary between sites; None is none.
    method : {"reml", "ml"}, default="reml"
        How the covariance between sites is estimated in each round; `glmmPQL` takes "ml".
    level : float, default=0.95
        The coverage of the limits.
    max_rounds : int, default=100
        The most rounds.

    Attributes
    ----------
    coef_, intercept_ : ndarray of shape (p,), float
        The effects of all sites.
    fixed_effects_ : pandas.DataFrame
        A row for the intercept and each feature: coef, se, low, high, z, p_value.
    covariance_ : pandas.DataFrame
        The covariances of intercepts and slopes between sites.
    random_effects_, random_effects_se_ : pandas.DataFrame
        A row for each site: what it has of its own, and standard errors where the parameters are taken as known.
    classes_ : ndarray of shape (2,)
        The labels; the model is of the probability of the second. Of "binomial" only.
    is_singular_ : bool
        Whether there is no variation between sites in some direction.
    is_settled_ : bool
        Whether the last linear mixed model's likelihood is known to be greatest.
    n_iter_ : int
        The rounds.
    exchanges_, n_rounds_, bytes_, clients_, client_sizes_
        What was asked, and of whom.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedMixedGLM
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(600, 2)), np.arange(600) % 6
    >>> z = X[:, 0] + np.array([0.0, 1.0, -1.0, 2.0, 0.5, -2.0])[site]
    >>> y = rng.uniform(size=600) < 1 / (1 + np.exp(-z))
    >>> model = FederatedMixedGLM("binomial").fit(X, y, clients=site)
    >>> float(model.coef_[0].round(1)), float(model.covariance_.iloc[0, 0].round(1))
    (0.9, 1.8)
    """

    def __init__(
        self,
        family: Given[str] = "binomial",
        slopes: Chosen = None,
        *,
        method: Given[str] = "reml",
        level: Given[float] = 0.95,
        max_rounds: Given[int] = 100,
    ):
        self.family = family
        self.slopes = slopes
        self.method = method
        self.level = level
        self.max_rounds = max_rounds

    def fit(self: Model, X: FitFeatures, y: Labels = None, clients: Clients = None) -> Model:
        """Fit to the rows of all clients.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame, cofed.Federation or AbstractSites
            The features of every row; or sites, wherever their rows are.
        y : array-like of shape (n,)
            Labels of two classes, or counts.
        clients : array-like of shape (n,) or str
            The site's name of every row, or the name of that column of a pandas X.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        ValueError
            Where the rows tell no such model, or the rounds do not come to rest.
        """
        owner = type(self).__name__
        check_choice(owner, "family", self.family, tuple(FAMILIES))
        check_count(owner, "max_rounds", self.max_rounds)
        family = FAMILIES[self.family]
        taken = self._taken_in(X, y, clients, family.classifies)
        if taken.has_weights or taken.has_offsets:
            raise ValueError(f"{owner}: rows take neither weights nor offsets, as those of FederatedMixedModel do")
        sites = self._labelled(taken, family)
        before, some = len(sites.exchanges), self._random()
        moments = self._asked(sites, family.loss)
        share = moments.label_centre
        if not share > 0 or (family.classifies and not share < 1):
            raise ValueError(
                f"{owner}: y must have {'rows of both classes' if family.classifies else 'counts above 0'}"
            )
        scaling = Scaling(moments.centre, moments.sizes[:-1])
        with named_refusals(owner):
            doors = [sites.alone(name) for name in sites.names]
        beta = np.r_[float(np.asarray(family.loss.link(jnp.asarray(share)))), np.zeros(len(moments.centre))]
        found = self._at_rest(WorkingSites(family.loss, scaling, doors, moments.rows, some), beta)
        self._set_effects(sites, found, to_units(moments.centre, scaling.width), 0.0)
        self._set_exchanges(sites, before)
        return self

    def _labelled(self, taken: AbstractSites, family: MixedFamily) -> AbstractSites:
        """The sites, with the labels of the family."""
        with named_refusals(type(self).__name__):
            if not family.classifies:
                vars(self).pop("classes_", None)  # of an earlier fit
                return taken.of_numbers()
            sites, self.classes_ = taken.of_classes()
        if len(self.classes_) != 2:
            raise ValueError(
                f"{type(self).__name__}: 'binomial' is for two classes, and the data contains {len(self.classes_)}"
            )
        return sites

    def _at_rest(self, sites: "WorkingSites", beta: np.ndarray) -> MixedFit:
        """The linear mixed model of working responses, from round to round until nothing changes."""
        owner, own, change = type(self).__name__, np.zeros((len(sites.doors), len(sites.random))), np.inf
        endless = f"{owner}: the effects grow without end, as where features tell labels with certainty (separation)"
        for done in range(1, int(self.max_rounds) + 1):
            self.n_iter_ = done
            try:
                found = sites.round(beta, own, self.method == "reml")
            except np.linalg.LinAlgError:  # weights of 0: predictions without doubt
                raise ValueError(endless) from None
            change = max(np.abs(found.profile.beta - beta).max(), np.abs(found.profile.effects - own).max())
            beta, own = found.profile.beta, found.profile.effects
            if not np.isfinite(beta).all() or np.abs(beta).max() > ENDLESS:
                raise ValueError(endless)
            if change <= RESTS * max(1.0, np.abs(beta).max()):
                return found
        raise ValueError(
            f"{owner}: after {self.max_rounds} rounds the effects still change by {change:.1g} standard units; give a "
            "larger max_rounds, or fewer slopes"
        )

    def _mean(self, predictor: np.ndarray) -> np.ndarray:
        return expit(predictor) if self.family == "binomial" else np.exp(predictor)

    def _notes(self) -> list[str]:
        of = f"log odds of {self.classes_[1]!r}" if self.family == "binomial" else "logarithm of the mean"
        return [f"effects       on the {of}", f"rounds        {self.n_iter_} of penalised quasi-likelihood"]


@dataclasses.dataclass(frozen=True)
class WorkingSites:
    """The sites, each by itself, as they are asked in every round."""

    loss: AbstractLoss
    scaling: Scaling
    doors: list[AbstractSites]
    rows: np.ndarray  # of each
    random: np.ndarray  # positions of the columns with effects of the sites' own

    def round(self, beta: np.ndarray, own: np.ndarray, reml: bool) -> MixedFit:
        """The linear mixed model of the working responses at these effects: one exchange with each site."""
        at = np.tile(beta, (len(self.doors), 1))
        at[:, self.random] += own
        products = []
        for door, theta in zip(self.doors, at, strict=True):
            seen = door.ask(look, question(self.loss, self.scaling, theta))
            products.append(working_products(seen, theta))
        return fit_mixed_model(SiteProducts(self.rows, np.array(products), self.random, scale=1.0), reml)


def question(loss: AbstractLoss, scaling: Scaling, theta: np.ndarray) -> LookMessage:
    """A look at one model, with its Hessian by the intercept and all coefficients."""
    p = len(theta) - 1
    first, whole = np.zeros(1, np.int32), np.arange(p + 1, dtype=np.int32)[None]
    return LookMessage(
        theta[1:].reshape(1, p, 1), theta[:1].reshape(1, 1), first - 1, first, whole, loss=loss, scaling=scaling
    )


def working_products(seen: LookAnswer, theta: np.ndarray) -> np.ndarray:
    """The products of 1, the features and the working response, up to a constant in the last."""
    size = len(theta)
    order = np.r_[size - 1, np.arange(size - 1)]  # the intercept is the last of a look
    H = unpack(np.asarray(seen.hessian)[0], size)[np.ix_(order, order)]
    g = np.r_[np.asarray(seen.slope)[0, 0], np.asarray(seen.gradient)[0, :, 0]]
    made = np.empty((size + 1, size + 1))
    made[:size, :size] = H
    made[:size, size] = made[size, :size] = H @ theta - g
    made[size, size] = theta @ (H @ theta) - 2 * theta @ g
    return made
