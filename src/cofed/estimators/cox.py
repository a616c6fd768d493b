"""Cox's model of proportional hazards, with a baseline hazard for each site."""

import copy
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofed._util import naming
from cofed._util.types import Given
from cofed.estimators.checks import check_choice, named_refusals
from cofed.estimators.feature_blocks import treated_apart
from cofed.estimators.feature_options import Chosen, PerFeature
from cofed.estimators.fitted_state import new_rows
from cofed.estimators.parameters import ratio_of
from cofed.estimators.penalty import WeightedElasticNet, elastic_net
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.with_feature_options import WithFeatureOptions
from cofed.losses import AbstractPartialLikelihood, Breslow, Efron
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, aligned
from cofed.sites.queries import ConcordanceMessage, SumsAnswer, concordance
from cofed.sites.row_options import RowNumbers, RowOptions, row_options, with_row_options
from cofed.sites.time_intake import gather_times
from cofed.statistics.survival import BaselineHazard

CoxModel = TypeVar("CoxModel", bound="FederatedCox")

TIES: dict[str, AbstractPartialLikelihood] = {"breslow": Breslow(), "efron": Efron()}


class FederatedCox(WithFeatureOptions):
    """Cox's proportional hazards with a baseline hazard for each client, on rows that stay there, to the exact answer.

    Minimises -(log partial likelihood) / N + alpha (l1_ratio |w|_1 + (1 - l1_ratio) ||w||^2 / 2), N the rows of all
    clients (or the sum of their weights, which are those of R's coxph). Each client is a stratum: its rows are compared
    with its own rows only, so that the clients' likelihoods add up, and their hazards may differ in whatever way. It is
    R's `coxph(y ~ x + strata(client))`, and glmnet's cox with `stratifySurv`.

    Parameters
    ----------
    alpha : float, default=0.1
        The strength of the penalty.
    l1_ratio : float, default=1.0
        The part of the penalty that is the l1 norm.
    ties : {"efron", "breslow"}, default="efron"
        What is assumed where several events of a client have one time: "efron" as R's coxph, "breslow" as glmnet.
    standardize : bool, default=True
        Let the penalty act on the coefficients of features divided by their standard deviations, as glmnet does;
        `coef_` is for the features as given.
    algorithm : {"auto", "newton", "fista"}, default="auto"
        How to solve: "auto" chooses (see the page "estimators").
    tol : float, default=1e-12
        The fit stops where the duality gap is at most tol times the loss of the model without features.
    max_rounds : int, default=20_000
        The most rounds of the algorithm; where they do not suffice, a warning says how far it came.
    penalty_factor : float, array-like of shape (p,) or dict, optional
        What the penalty of each feature is multiplied with, by position or name (1 for those that are left out): 0 is
        not penalised.
    exclude : list of str or int, optional
        Features that are left out.
    low, high : float, array-like of shape (p,) or dict, optional
        Limits of the coefficients of features as given, low <= 0 <= high, by position or name.

    Attributes
    ----------
    coef_ : ndarray of shape (p,)
        Log hazard ratios for the features as they were given.
    intercept_ : float
        0: the baseline hazards have it.
    support_ : ndarray of bool
        True where a feature is used.
    certificate_ : Certificate
        How far from optimal the fit can be. Its objective has the log partial likelihood less that of the saturated
        model, half of glmnet's deviance.
    n_events_ : int or float
        The events of all clients; of rows with weights, the sum of theirs.
    n_rounds_, bytes_ : int
        The exchanges between the server and its clients, and their size (both ways, all clients).
    exchanges_ : tuple of ExchangeTotal
        What they were.
    clients_, client_sizes_ : tuple
        The clients' names, and how many rows each has.
    algorithm_ : str
        The algorithm that was used.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedCox
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(200, 3)), np.arange(200) % 4
    >>> death, end = rng.exponential(np.exp(-X[:, 0]) / (1 + site)), rng.exponential(1.0, 200)
    >>> y = np.column_stack([np.minimum(death, end), death <= end])
    >>> model = FederatedCox(alpha=0.1).fit(X, y, clients=site)
    >>> model.support_.tolist(), model.n_events_ == int(y[:, 1].sum())
    ([True, False, False], True)
    >>> model.predict_survival(np.zeros((1, 3)), site="3", times=[0.1, 0.5]).round(1).tolist()
    [[0.7, 0.1]]
    >>> round(model.score(X, y, clients=site), 2)
    0.75
    """

    fit_intercept: bool = False  # and no parameter

    def __init__(
        self,
        alpha: Given[float] = 0.1,
        *,
        l1_ratio: Given[float] = 1.0,
        ties: Given[str] = "efron",
        standardize: Given[bool] = True,
        algorithm: Given[str] = "auto",
        tol: Given[float] = 1e-12,
        max_rounds: Given[int] = 20_000,
        penalty_factor: PerFeature = None,
        exclude: Chosen = None,
        low: PerFeature = None,
        high: PerFeature = None,
    ):
        self.alpha = alpha
        self.l1_ratio = l1_ratio
        self.ties = ties
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
        self.penalty_factor = penalty_factor
        self.exclude = exclude
        self.low = low
        self.high = high

    def predict(self, X: Features, offset: RowNumbers = None) -> np.ndarray:
        """The log hazards of new rows, beside their clients' baseline: the larger, the sooner the event.

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            New rows, with the features of the fit.
        offset : array-like of shape (n,) or str, optional
            The rows' offsets, or the name of that column of a pandas X, of a model that was fitted with one.

        Returns
        -------
        ndarray of shape (n,)
            X coef + offset.
        """
        return self._linear(X, offset)

    def predict_survival(
        self, X: Features, site: Given[str], times: Given[npt.ArrayLike], offset: RowNumbers = None
    ) -> np.ndarray:
        """The probability of new rows of a client to have no event until some times.

        The client's baseline hazard comes from its own rows: those of the fit, where they were given to it as rows, or
        those of `keep_baselines`.

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            New rows, with the features of the fit.
        site : str
            The client whose baseline hazard they have.
        times : array-like of shape (k,)
            The times.
        offset : array-like of shape (n,) or str, optional
            As in `predict`.

        Returns
        -------
        ndarray of shape (n, k)
            The probabilities. After the client's last event they stay as they are until its last time, with or without
            an event; beyond it nobody there was followed, and they are NaN.
        """
        hazard = np.exp(self._linear(X, offset))
        name = type(self).__name__
        at = np.asarray(times, np.float64)
        if at.ndim != 1 or np.isnan(at).any():
            raise ValueError(f"{name}: times must be a list of numbers, got {times!r}")
        held = vars(self).get("_baselines", {})
        if str(site) not in held:
            known = naming.listed(held) if held else "none"
            raise ValueError(
                f"{name}: the baseline hazard of {site!r} is not known here (known: {known}); whoever has its rows "
                "gives them to keep_baselines"
            )
        return np.exp(-hazard[:, None] * held[str(site)].at(at)[None, :])

    def keep_baselines(
        self: CoxModel,
        X: Features,
        y: Labels,
        clients: Clients = None,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
    ) -> CoxModel:
        """Compute the baseline hazards of clients from their rows, for `predict_survival`.

        They belong to the client: steps are at its own event times. So they stay in this object, are not saved with
        it, and nobody is asked for them. A site that loads a model does this with its own rows.

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            The clients' rows, with the features of the fit.
        y : array-like of shape (n, 2) or (n, 3)
            Their times and events, as in `fit`.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or that column of a pandas X; None is the single client of the fit.
        sample_weight, offset : array-like of shape (n,) or str, optional
            As in `fit`.

        Returns
        -------
        self
            The estimator.
        """
        count = new_rows(self, X).shape[0]
        if clients is None and len(self.clients_) > 1:
            raise ValueError(f"{type(self).__name__}: clients must name the client of every row")
        given = row_options(type(self).__name__, X, sample_weight, offset)
        rows = self._rows_beside(given, y, self.clients_ * count if clients is None else clients)
        self._baselines = vars(self).get("_baselines", {}) | self._baselines_of(rows)
        return self

    def score(
        self,
        X: FitFeatures,
        y: Labels = None,
        clients: Clients = None,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
    ) -> float:
        """Harrell's C-index: how often, of two rows of a client, that with the earlier event has the larger hazard.

        Counted are pairs of which it is known who had the event first; equal hazards count half. Rows of different
        clients are not compared, as their baseline hazards differ.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            Rows; or sites, which carry their times and send nothing but counts of pairs.
        y : array-like of shape (n, 2) or (n, 3)
            Times and events of rows, as in `fit`.
        clients : array-like of shape (n,), str or None
            As in `fit`; None is one client.
        sample_weight : array-like of shape (n,) or str, optional
            As in `fit`: a pair counts as the product of its rows' weights.
        offset : array-like of shape (n,) or str, optional
            As in `predict`. Sites have the columns of the fit for both.

        Returns
        -------
        float
            1 at best; 0.5 is what a model without features has.
        """
        check_is_fitted(self)
        name = type(self).__name__
        if isinstance(X, AbstractSites):
            if sample_weight is not None or offset is not None:
                raise ValueError(f"{name}: sites have the weights and offsets of the fit; leave both out")
            sites = self._labelled(aligned(self, X))
            self._check_offsets(sites)
        else:
            if new_rows(self, X).shape[0] < 2:
                raise ValueError(f"{name}: a C-index needs two rows or more")
            sites = self._rows_beside(row_options(name, X, sample_weight, offset), y, clients)
        with named_refusals(name):
            coef, every = np.asarray(self.coef_)[None, :], np.array([-1], np.int32)
            found = sites.ask(concordance, ConcordanceMessage(coef, every, loss=self._loss()))
        if not found.pairs[0] > 0:
            raise ValueError(f"{name}: of no two rows of a client it is known who had the event first")
        return float((found.concordant[0] + found.tied[0] / 2) / found.pairs[0])

    def _rows_beside(self, given: RowOptions, y: Labels, clients: Clients) -> AbstractSites:
        """Rows that are not those of the fit, in this process, with their times, weights and offsets."""
        own = copy.copy(self)._intake(given.X, y, clients)
        sites = with_row_options(type(self).__name__, own, given, clients)
        self._check_offsets(sites)
        return sites

    def _check_offsets(self, sites: AbstractSites) -> None:
        """Refuse rows without offsets beside a fit with them, and the other way round."""
        if sites.has_offsets != bool(vars(self).get("has_offset_", False)):
            raise ValueError(f"{type(self).__name__}: give offset= where the fit was given one, and only there")

    def __getstate__(self) -> dict[str, object]:
        """A pickled or copied estimator does not take event times along."""
        return {name: value for name, value in super().__getstate__().items() if name != "_baselines"}

    def _remember(self, X: FitFeatures, problem: StandardizedProblem) -> None:
        super()._remember(X, problem)
        self.__dict__.pop("_baselines", None)  # of an earlier fit
        if not isinstance(X, AbstractSites):
            self._baselines = self._baselines_of(problem.sites)

    def _baselines_of(self, sites: AbstractSites) -> dict[str, BaselineHazard]:
        """The baseline hazards of clients in this process."""
        return sites.baseline_hazards(self.coef_, self.ties == "efron")

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.positive_only = True
        return tags

    def _intake(self, X: FitFeatures, y: Labels, clients: Clients) -> AbstractSites:
        self.client_column_ = clients if isinstance(clients, str) else None
        return self._labelled(gather_times(self, X, y, clients))

    def _labelled(self, sites: AbstractSites) -> AbstractSites:
        with named_refusals(type(self).__name__):
            return sites.of_times()

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_choice(type(self).__name__, "ties", self.ties, tuple(TIES))
        if self.algorithm not in ("auto", "newton", "fista"):
            raise ValueError(
                f"{type(self).__name__}: algorithm must be one of auto, newton, fista, got {self.algorithm!r}: the "
                "steps of others are for losses that are sums over rows"
            )

    def _check_sums(self, found: SumsAnswer) -> None:
        super()._check_sums(found)
        events = np.asarray(found.labels)[:, 0]
        if not events.sum() > 0:
            raise ValueError(f"{type(self).__name__}: y has no event: all rows are censored")
        if len(events) > 1 and events.max() == events.sum():
            raise ValueError(
                f"{type(self).__name__}: all {events.sum():g} events are in one fold, so that there are none to learn "
                "from; choose fewer folds (cv), or another random_state"
            )
        total = float(events.sum())
        self.n_events_ = int(total) if total.is_integer() else total

    def _loss(self) -> AbstractPartialLikelihood:
        return TIES[self.ties]

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> WeightedElasticNet:
        return elastic_net(alpha, ratio_of(self), problem.units, options=self._feature_options())

    def _blocks(self, features: int) -> np.ndarray:
        return treated_apart(features, 1, self.l1_ratio)
