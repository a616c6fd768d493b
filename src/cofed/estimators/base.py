"""What all linear estimators share: data in, a certified fit, coefficients on the scale of the data out."""

import copy
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.estimators import fitted_state
from cofed.estimators.checks import named_refusals
from cofed.estimators.feature_options import FeatureOptions
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.parameters import check_parameters, refuse_unknown_options
from cofed.estimators.progress import SETTLED, CertifiedFit, Solve, Solved
from cofed.estimators.site_effects import intercepts_of_rows, site_effects
from cofed.estimators.solver import solve
from cofed.estimators.sparse_taker import SparseTaker
from cofed.estimators.standardized_problem import StandardizedProblem, require_duality, standardized
from cofed.estimators.survey import Survey, survey
from cofed.losses import AbstractLoss, SiteIntercepts
from cofed.regularizers import AbstractRegularizer
from cofed.sites import AbstractSites, Folds
from cofed.sites.clusters import asked_errors, in_clusters
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, gather
from cofed.sites.queries import SumsAnswer
from cofed.sites.row_options import RowNumbers, RowOptions, predicted_offset, row_options, with_row_options

if TYPE_CHECKING:
    from cofed.privacy import PrivacyReport

Model = TypeVar("Model", bound="FederatedLinearModel")


class FederatedLinearModel(SparseTaker):
    """A linear model of clients' rows. A family gives its loss (`_loss`) and its penalty (`_penalty`).

    Attributes
    ----------
    coef_ : ndarray
        Coefficients for the features as they were given.
    intercept_ : float or ndarray
        The intercept.
    support_ : ndarray of bool
        True where a feature is used.
    certificate_ : Certificate
        How far from optimal the fit can be.
    penalty_scale_ : ndarray of shape (p,)
        What the penalty multiplies coefficients with: the features' standard deviations, or 1.
    n_rounds_ : int
        The exchanges between the server and its clients.
    bytes_ : int
        Their size, both ways, of all clients.
    exchanges_ : tuple of ExchangeTotal
        What they were.
    clients_, client_sizes_ : tuple
        The clients' names, and how many rows each has.
    algorithm_ : str
        The algorithm that was used.
    """

    fit_intercept: bool
    standardize: bool
    algorithm: str | AbstractServerAlgorithm
    tol: float
    max_rounds: int
    privacy_: "PrivacyReport"  # of a fit with `privacy=`
    _classifies: ClassVar[bool] = False

    def __new__(cls: type[Model], *args: object, **given: object) -> Model:
        """Say of parameters that others have why this estimator does not."""
        refuse_unknown_options(cls, given)
        return object.__new__(cls)

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
        X : array-like or sparse matrix of shape (n, p), pandas.DataFrame, cofed.Federation or AbstractSites
            The features of every row; columns of text are factors, with the levels of all clients. A Federation
            carries y and the clients, too; so do sites, whose rows may be anywhere.
        y : array-like of shape (n,)
            The targets. Rows are matched by position, as in scikit-learn; pandas objects with the same row labels in
            another order are refused.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.
        sample_weight : array-like of shape (n,), str or None
            How much every row counts, >= 0, or the name of that column of a pandas X or of the sites' tables; the
            mean loss is divided by the sum of the weights.
        offset : array-like of shape (n,), str or None
            What is added to every row's prediction, or the name of that column: for counts the logarithm of the time
            or the number of persons that they are of. Of several responses, a column for each: shape (n, responses).

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_parameters()
        sites = self._sites_of(row_options(type(self).__name__, X, sample_weight, offset), y, clients)
        if vars(self).get("privacy") is not None:
            return self._fit_privately(sites)
        problem, answer = self._settled(self._standardized(sites), self._solve, SETTLED)
        answer.warn()
        self._set_fitted(problem, answer)
        self._remember(X, problem)
        return self

    def path(
        self,
        X: FitFeatures,
        y: Labels = None,
        clients: Clients = None,
        *,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
        alphas: Given[npt.ArrayLike | None] = None,
        n_alphas: Given[int] = 100,
        eps: Given[float] = 1e-3,
        dfmax: Given[int | None] = None,
    ) -> RegularizationPath:
        """The models of many strengths, from the one at which no feature is used down to a fraction of it.

        Parameters
        ----------
        X, y, clients, sample_weight, offset
            As in `fit`.
        alphas : array-like, optional
            The strengths; None takes `n_alphas` from alpha_max (found by the federation) down to eps times it.
        n_alphas : int, default=100
            How many strengths.
        eps : float, default=1e-3
            The last strength as a part of the first.
        dfmax : int, optional
            The path ends before the first model that uses more features.

        Returns
        -------
        RegularizationPath
            The models.
        """
        from cofed.estimators.path import regularization_path

        given = {"sample_weight": sample_weight, "offset": offset, "dfmax": dfmax}
        return regularization_path(self, X, y, clients, **given, alphas=alphas, n_alphas=n_alphas, eps=eps)

    def infer(
        self,
        X: FitFeatures,
        y: Labels = None,
        clients: Clients = None,
        *,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
        coefficients: Given[list[str] | list[int] | str | int | None] = None,
        level: Given[float] = 0.95,
        errors: Given[str | npt.ArrayLike] = "model",
    ) -> pd.DataFrame:
        """Coefficients without the penalty's bias, with standard errors, intervals and p-values.

        For linear, logistic, multinomial, Poisson and Cox models: those of least squares or maximum likelihood where
        the rows are enough for them, else of the debiased lasso (see the page "estimators"). The table is kept as
        `inference_` and shown by `summary()`. Clients send sums: their rows stay where they are.

        Parameters
        ----------
        X, y, clients, sample_weight, offset
            As in `fit`, and the same rows. Weights are those of R's `lm` and `glm`: of the rows' precisions.
        coefficients : list of str or int, optional
            Names or positions of features; None is all.
        level : float, default=0.95
            The coverage of the intervals.
        errors : {"model", "hc1", "hc3", "site"}, str or array-like of shape (n,), default="model"
            The standard errors: those that the model implies; robust ones, for errors of unequal variance; or ones
            for rows that are related within a site, or within the clusters that an array, or a column of a pandas X or
            of the sites' tables, names for every row (a person, a practice; within a site). Of Cox models robust ones
            are Lin and Wei's, as R's coxph has them, without factors for few rows; "hc3" is not for them.

        Returns
        -------
        pandas.DataFrame
            A row per coefficient: coef, debiased, se, low, high, z, p_value. NaN where a column depends on those
            before it, as in R. Of several classes, a row for each but the first, of log odds against the first.

        Raises
        ------
        ValueError
            Where the rows are not those of the fit, or tell no intervals.

        Examples
        --------
        >>> import numpy as np
        >>> from cofed.estimators import FederatedLasso
        >>> rng = np.random.default_rng(0)
        >>> X, person = rng.normal(size=(80, 2)), np.arange(80) // 2
        >>> y = X[:, 0] + rng.normal(size=40)[person] + rng.normal(size=80)
        >>> table = FederatedLasso(0.1).fit(X, y).infer(X, y, errors=person)
        >>> table[["low", "high"]].round(1).to_numpy().tolist()
        [[0.5, 1.3], [-0.1, 0.7]]
        """
        from cofed.estimators.inference import infer, keep_inference

        check_is_fitted(self)
        fitted_state.refuse_privacy(self, "intervals", "their sums would not be noised")
        other, owner = copy.copy(self), type(self).__name__  # taking in rows sets what is known of features and classes
        given = asked_errors(owner, X, errors)
        fitted_state.check_errors(owner, self._posed_loss(), given.kind)
        options = row_options(owner, given.X, sample_weight, offset)
        clustered = in_clusters(owner, other._intake(options.X, y, clients), given._replace(X=options.X), clients)
        sites = with_row_options(owner, clustered, options, clients)
        fitted_state.check_row_options(self, self._loss(), sites)
        problem = self._asked_before(X, sites) or other._standardized(sites)
        fitted_state.check_same_rows(self, problem)
        found = infer(self, problem, coefficients, level, given.kind)
        keep_inference(self, found, problem)
        return found.table

    def summary(self) -> str:
        """The fit as a table of text.

        Returns
        -------
        str
            Coefficients in use, intervals where `infer` was called, certificate, clients, rounds and bytes.
        """
        from cofed.estimators.summary import summary

        check_is_fitted(self)
        return summary(self)

    def save(self, path: Given[str | Path]) -> None:
        """Write the fitted estimator to one safetensors file; `cofed.estimators.load` reads it.

        Parameters
        ----------
        path : str or Path
            The file.
        """
        from cofed.estimators.serialization import save

        check_is_fitted(self)
        save(self, path)

    def _solve(self, problem: StandardizedProblem, before: CertifiedFit | None) -> CertifiedFit:
        """The model of the estimator's strength, begun from that of a similar problem."""
        psi = self._penalty(problem, float(vars(self).get("alpha", 0)))
        warm = None if before is None else dataclasses.replace(before, assessment=problem.assess(psi, before.w))
        return solve(problem, psi, self.algorithm, float(self.tol), int(self.max_rounds), warm)

    def _settled(self, problem: StandardizedProblem, solve: Solve, near: float) -> Solved:
        """The problem with all numbers of its loss, and its answer; those that are estimated to so many parts."""
        return problem, solve(problem, None)

    def _fit_privately(self: Model, sites: AbstractSites) -> Model:
        """Fit to noised sums only."""
        from cofed.estimators import private

        self.__dict__.pop("_surveyed", None)
        return private.fit(self, sites)

    def _loss(self) -> AbstractLoss:
        """The loss of a row; called after `_intake`."""
        raise NotImplementedError

    @property
    def _has_site_effects(self) -> bool:
        """Whether every site has an intercept of its own."""
        return vars(self).get("site_effects", "none") == "fixed"

    @property
    def _has_one_intercept(self) -> bool:
        """Whether all sites have the same intercept."""
        return bool(self.fit_intercept) and not self._has_site_effects

    def _posed_loss(self) -> AbstractLoss:
        """The loss of the problem that is solved: of rows, or of sites, each with the best intercept for its rows."""
        return SiteIntercepts(self._loss()) if self._has_site_effects else self._loss()

    def _penalty(self, problem: StandardizedProblem, alpha: float) -> AbstractRegularizer:
        """The penalty of this strength, on the coefficients that are solved for."""
        raise NotImplementedError

    def _intake(self, X: FitFeatures, y: Labels, clients: Clients) -> AbstractSites:
        """The sites, with targets as floats."""
        self.client_column_ = clients if isinstance(clients, str) else None
        return self._labelled(gather(self, X, y, clients, self._classifies))

    def _sites_of(self, given: RowOptions, y: Labels, clients: Clients) -> AbstractSites:
        """The sites of a fit, with targets that the loss takes, weights and offsets."""
        self.row_columns_ = given.columns
        sites = with_row_options(type(self).__name__, self._intake(given.X, y, clients), given, clients)
        self.has_offset_ = sites.has_offsets
        fitted_state.check_row_options(self, self._loss(), sites)
        return sites

    def _by_class(self, sites: AbstractSites) -> AbstractSites:
        """The sites, whose rows count by their class where the estimator has weights of classes."""
        return sites

    def _labelled(self, sites: AbstractSites) -> AbstractSites:
        """The sites, with the targets that the loss takes."""
        with named_refusals(type(self).__name__):
            return sites.of_numbers()

    def _feature_options(self) -> FeatureOptions | None:
        """Factors of the penalty, features that are left out, and limits; None where there are none."""
        return None

    def _shape(self, features: int) -> tuple[int, int] | None:
        """The shape of the coefficients where they are a matrix."""
        return None

    def _blocks(self, features: int) -> np.ndarray:
        """A label per feature: those with one label must keep their proportions, as the penalty takes them together."""
        return np.arange(features)

    def _standardized(self, sites: AbstractSites, folds: Folds | None = None) -> StandardizedProblem:
        """The problem in the units of the solver."""
        loss, before = self._posed_loss(), len(sites.exchanges)
        self._feature_options()  # refuses what does not fit, before anything is asked
        require_duality(loss)
        with named_refusals(type(self).__name__):
            found = survey(self._by_class(sites), loss, self._has_one_intercept, self._check_sums, folds)
        return self._posed(dataclasses.replace(found, before=before))

    def _posed(self, found: Survey) -> StandardizedProblem:
        """The problem that a survey tells of."""
        features = found.sites.n_features
        blocks, shape = self._blocks(features), self._shape(features)
        return standardized(found, standardize=bool(self.standardize), blocks=blocks, shape=shape)

    def _remember(self, X: FitFeatures, problem: StandardizedProblem) -> None:
        """Keep what sites have told, so that `infer` need not ask them again."""
        self.__dict__.pop("_surveyed", None)
        if isinstance(X, AbstractSites):
            self._surveyed = X, problem.survey

    def _asked_before(self, X: FitFeatures, sites: AbstractSites) -> StandardizedProblem | None:
        """The problem of the fit, where these are its very sites, with the same columns for weights and the like."""
        fitted, found = vars(self).get("_surveyed", (None, None))
        if found is None or X is not fitted or not fitted_state.same_columns(sites.design, found.sites.design):
            return None
        return self._posed(dataclasses.replace(found, before=len(sites.exchanges)))

    def __getstate__(self) -> dict[str, object]:
        """A pickled or copied estimator does not take its sites along."""
        state = super().__getstate__()
        assert isinstance(state, dict)
        return {name: value for name, value in state.items() if name != "_surveyed"}

    def _check_sums(self, found: SumsAnswer) -> None:
        """Refuse rows that nothing can be fitted to, by their sums."""

    def _set_fitted(self, problem: StandardizedProblem, answer: CertifiedFit) -> None:
        """Set the fitted attributes."""
        fitted_state.forget_earlier_fit(self)
        own = None
        if self._has_site_effects:
            own, self.site_effects_ = site_effects(problem, answer.w)
        coef, intercept = problem.original(answer.w, own)
        self.coef_, self.intercept_ = self._output(coef + 0.0, intercept)  # no -0
        self.support_ = np.any(coef.reshape(len(coef), -1) != 0, axis=1)
        self.certificate_, self.penalty_scale_ = answer.certificate, problem.units.standard
        self.algorithm_ = answer.algorithm
        self.n_rounds_, self.bytes_, self.n_iter_ = problem.n_rounds, problem.bytes, max(1, problem.n_rounds)
        self.exchanges_ = problem.exchanges
        self.fingerprint_ = problem.fingerprint
        self.clients_, self.client_sizes_ = problem.sites.names, problem.sites.sizes

    def _output(self, coef: np.ndarray, intercept: float | np.ndarray) -> tuple[np.ndarray, float | np.ndarray]:
        """Coefficients in the shape that users of scikit-learn know."""
        return coef, intercept

    def _check_parameters(self) -> None:
        """Refuse parameters that mean nothing, before anything is computed."""
        check_parameters(self)

    def _linear(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """X coef + intercept + offset, with the intercepts of the clients where each has its own"""
        rows = fitted_state.new_rows(self, X)
        has_offset = bool(vars(self).get("has_offset_", False))
        found = rows @ np.asarray(self.coef_).T + intercepts_of_rows(self, X, clients, rows.shape[0])
        responses = 1 if found.ndim == 1 else found.shape[1]
        added = predicted_offset(type(self).__name__, X, offset, rows.shape[0], has_offset, responses)
        return found + (added if added.ndim == found.ndim else added[:, None])
