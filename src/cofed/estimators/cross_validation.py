"""Choosing the strength: cross-validation with folds inside each client, or an information criterion."""

import copy
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from cofed._util.figure_types import Figure
from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_choice, check_count, check_number
from cofed.estimators.fitted_path import RegularizationPath
from cofed.estimators.fitted_state import forget_inference, refuse_privacy
from cofed.estimators.fold_choice import (
    BY_SITE,
    CV,
    AskedFolds,
    asked_folds,
    check_cv,
    column_of,
    with_folds,
    without_column,
)
from cofed.estimators.lock_step import PathsAnswer
from cofed.estimators.measures import MEASURES, check_measure, measured, told_folds
from cofed.estimators.parameters import several
from cofed.estimators.path import MOST, NEAR, collect, ordered, solve_grids, strengths, warn
from cofed.estimators.plots import CrossValidation, plot_cv
from cofed.estimators.progress import CertifiedFit, FitProgress
from cofed.estimators.solver import solve
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.sites import AbstractSites, Folds
from cofed.sites.intake import Clients, FitFeatures, Labels
from cofed.sites.queries import SumsAnswer
from cofed.sites.row_options import RowNumbers, RowOptions, row_options

FOLDED = ("min", "1se")  # the criteria that need folds
CRITERIA = (*FOLDED, "aic", "bic")
OF_RATIO = ("alphas_", "path_", "cv_mean_", "cv_se_", "cv_bound_", "_curves")  # what a fit finds for each l1_ratio
OF_CHOICE = ("alpha_min_", "alpha_1se_", "curves_", "l1_ratio_", "l1_ratios_", "ratio_scores_")

Model = TypeVar("Model", bound="CrossValidated")


class CrossValidated(FederatedLinearModel):
    """What makes an estimator with a strength choose it itself.

    Parameters
    ----------
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from the federation's own alpha_max down to eps times it.
    n_alphas : int, default=100
        How many strengths.
    eps : float, default=1e-3
        The last strength as a part of the first.
    cv : int, str, (str, int), splitter or splits, default=5
        The number of folds, into which every client splits its own rows, of each class evenly;
        "leave-one-site-out", a fold for each client; the name of a column (of a pandas X, or of the sites' tables),
        alone or with a number of folds, whose groups are each in one fold; or, of rows that are given, a splitter of
        scikit-learn or its splits.
    criterion : {"min", "1se", "aic", "bic"}, default="min"
        "min" takes the best cross-validated measure; "1se" the strongest penalty within one standard error of it;
        "aic" and "bic" that criterion of the path, without folds.
    measure : {"deviance", "mse", "mae", "misclassification", "auc", "c_index"}, default="deviance"
        What is cross-validated, on the scale of the labels: the mse of two classes is Brier's score. The auc is from
        counts of predictions in bins, and may be off by `cv_bound_`. The C-index is of pairs of a fold within a site;
        where sites are the folds, one without such pairs is left out of the mean, and a warning names it.
    random_state : int, default=0
        The seed of the folds.

    Attributes
    ----------
    alpha_ : float
        The chosen strength.
    alphas_ : ndarray
        The strengths.
    path_ : RegularizationPath
        The models of all of them. Rounds and bytes of the estimator are those of everything: the folds' paths and the
        path itself.
    cv_mean_, cv_se_ : ndarray
        The cross-validated measures with their standard errors; with folds only.
    cv_bound_ : ndarray
        By how much the measures may be off, of "auc" only.
    curves_ : HeldOutCurves
        The ROC curve and the calibration curve of the chosen strength on held-out rows, of "auc" only.
    alpha_min_, alpha_1se_ : float
        The strengths of "min" and of "1se"; with folds only.
    l1_ratio_ : float
        The chosen one of several l1_ratio, of which alphas_, path_ and cv_mean_ are.
    l1_ratios_, ratio_scores_ : ndarray
        All of them, and the best measure (or information criterion) that each has.
    """

    alphas: npt.ArrayLike | None
    n_alphas: int
    eps: float
    cv: CV
    criterion: str
    measure: str
    random_state: int
    alphas_: np.ndarray
    path_: RegularizationPath
    l1_ratio_: float

    def fit(
        self: Model,
        X: FitFeatures,
        y: Labels = None,
        clients: Clients = None,
        sample_weight: RowNumbers = None,
        offset: RowNumbers = None,
    ) -> Model:
        """Choose the strength and fit, as the estimator without CV does.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame, cofed.Federation or AbstractSites
            The features of every row.
        y : array-like of shape (n,)
            The targets.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.
        sample_weight : array-like of shape (n,), str or None
            How much every row counts, >= 0, or the name of that column of a pandas X or of the sites' tables; the
            mean loss is divided by the sum of the weights.
        offset : array-like of shape (n,), str or None
            What is added to every row's prediction, or the name of that column: for counts the logarithm of the time
            or the number of persons that they are of.

        Returns
        -------
        self
            The fitted estimator.
        """
        sites, folds = self._with_folds(row_options(type(self).__name__, X, sample_weight, offset), y, clients)
        for name in (*OF_RATIO, *OF_CHOICE):  # of an earlier fit, which may have had other folds, or none
            vars(self).pop(name, None)
        if vars(self).get("privacy") is not None:
            return self._fit_privately(sites)
        self._remember(X, self._select(sites, folds))
        return self

    def _with_folds(self, options: RowOptions, y: Labels, clients: Clients) -> tuple[AbstractSites, Folds | None]:
        """The sites of a fit, and the folds of their rows where a criterion needs them."""
        self._check_parameters()
        owner, has_folds = type(self).__name__, self.criterion in FOLDED
        if self.alphas is not None:
            ordered(owner, self.alphas)
        asked = asked_folds(owner, self.cv, options.X, y) if has_folds else AskedFolds(0)
        sites = self._sites_of(options, y, clients)
        if not has_folds or vars(self).get("privacy") is not None:
            return sites, None
        check_measure(owner, self.measure, self._posed_loss())
        if not asked.n_folds and len(sites.names) < 2:
            raise ValueError(f"{owner}: cv={BY_SITE!r} needs two sites or more, and there is {len(sites.names)}")
        sites = with_folds(owner, sites, asked, options, clients)
        return sites, asked.of_sites(sites.names, int(self.random_state), self._classifies)

    def _select(self, sites: AbstractSites, folds: Folds | None) -> StandardizedProblem:
        """Choose the strength, and take its model."""
        given = None if self.alphas is None else ordered(type(self).__name__, self.alphas)
        has_folds, found = folds is not None, list[PathsAnswer]()

        def selected(problem: StandardizedProblem, before: CertifiedFit | None) -> CertifiedFit:
            tried = self._candidates()
            for one in tried:
                one.alphas_ = strengths(one, problem, int(self.n_alphas), float(self.eps)) if given is None else given
            found[:] = solve_grids(tried, problem, [one.alphas_ for one in tried], has_folds)
            for one, answer in zip(tried, found, strict=True):
                one.path_ = collect(one, problem, one.alphas_, answer.models)
                if has_folds:
                    one._cross_validate(problem, answer)
            best = self._take_best(tried)
            return self._choose(problem, found[best].models)

        problem, answer = self._settled(self._standardized(sites, folds), selected, NEAR)
        warn([fit for one in found for fit in one.models])
        warn([fit for one in found for own in one.of_folds for fit in own], "models of cross-validation")
        answer.warn()
        self._set_fitted(problem, answer)
        return problem

    def plot(self, path: str | Path | None = None) -> Figure:
        """The cross-validated measure by strength, as in glmnet.

        Parameters
        ----------
        path : str or Path, optional
            A file to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.

        Raises
        ------
        ValueError
            Where the strength was chosen without folds.
        """
        if "cv_mean_" not in vars(self):
            raise ValueError(f"{type(self).__name__}: criterion={self.criterion!r} has no cross-validation to draw")
        chosen = {"min": self.alpha_min_, "1se": self.alpha_1se_}
        words = None if self.measure == "deviance" else MEASURES[self.measure].words
        return plot_cv(CrossValidation(self.path_, self.cv_mean_, self.cv_se_, chosen, words), path)

    def at(self: Model, alpha: Given[float]) -> Model:
        """The estimator with the model of another strength of its path: for predictions, scores and files.

        Parameters
        ----------
        alpha : float
            The strength; see `RegularizationPath.coef_at`.

        Returns
        -------
        estimator of the same class
            A copy with other coefficients. It has no certificate and no intervals, which are those of the fit.
        """
        check_is_fitted(self)
        other = copy.copy(self)
        other.coef_, other.intercept_ = self.path_.coef_at(alpha), self.path_.intercept_at(alpha)
        other.support_ = np.any(np.atleast_2d(other.coef_) != 0, axis=0)
        other.alpha_, other.certificate_ = float(alpha), None
        forget_inference(other)
        if self._has_site_effects:
            other.site_effects_ = None  # of the fit's strength
        return other

    def _candidates(self: Model) -> list[Model]:
        """The estimator with each of its l1_ratio; itself where it has one."""
        vars(self).pop("l1_ratio_", None)
        ratios = several(vars(self).get("l1_ratio"))
        if ratios is None:
            return [self]
        tried = [copy.copy(self) for _ in ratios]
        for one, ratio in zip(tried, ratios, strict=True):
            one.l1_ratio_ = float(ratio)
        return tried

    def _take_best(self: Model, tried: list[Model]) -> int:
        """Take over what the best of the estimators has found; which one it is."""
        least = [float(one._losses().min()) for one in tried]
        best = int(np.argmin(least))
        if tried[best] is self:
            return best
        known = ("l1_ratio_", *OF_RATIO)
        for name in known:
            vars(self).pop(name, None)
        vars(self).update({name: value for name, value in vars(tried[best]).items() if name in known})
        self.l1_ratios_ = np.array([one.l1_ratio_ for one in tried])
        self.ratio_scores_ = np.array(least) * (-1 if self._is_better_large else 1)
        return best

    @property
    def _is_better_large(self) -> bool:
        """Whether the best strength has the largest measure."""
        return self.criterion in FOLDED and MEASURES[self.measure].is_better_large

    def _losses(self) -> np.ndarray:
        """What the best strength has least of."""
        if self.criterion in FOLDED:
            return -self.cv_mean_ if self._is_better_large else self.cv_mean_
        return self.path_.criterion(self.criterion)

    def _choose(self, problem: StandardizedProblem, answers: list[CertifiedFit]) -> CertifiedFit:
        """Set the chosen strength, and give its model, solved once more where the path's is not converged."""
        loss = self._losses()
        chosen = int(np.argmin(loss))
        if self.criterion in FOLDED:
            close = np.flatnonzero(loss <= loss[chosen] + self.cv_se_[chosen])
            self.alpha_min_, self.alpha_1se_ = self.alphas_[chosen], self.alphas_[close[0]]
            chosen = chosen if self.criterion == "min" else int(close[0])
        self.alpha_ = float(self.alphas_[chosen])
        curves = vars(self).pop("_curves", ())
        vars(self).pop("curves_", None)
        if curves:
            self.curves_ = curves[chosen]
        answer, psi = answers[chosen].on_device(), self._penalty(problem, self.alpha_)
        fit = FitProgress(problem, psi, float(self.tol), int(self.max_rounds))
        if answer.certificate.converged and problem.hessian is not None:
            # A path is known from products of features; the model that is taken is looked at itself.
            answer = fit.finished(answer.w, fit.assess(answer.w), answer.algorithm)
        if not answer.certificate.converged:
            answer = solve(problem, psi, self.algorithm, float(self.tol), int(self.max_rounds), answer)
        return answer

    def _cross_validate(self, problem: StandardizedProblem, found: PathsAnswer) -> None:
        """Set the measures of every strength, from those of the models of all folds on the rows that they leave out."""
        models = [[fit.w for fit in own] for own in found.of_folds]
        seen, rows = measured(problem, models, self.measure, found.held), np.asarray(problem.survey.sums.n)
        told = told_folds(type(self).__name__, seen, problem.survey.folds, depth=6)
        table, rows = seen.table[told], rows[told]
        weight = rows / np.sum(rows)
        self.cv_mean_ = weight @ table
        vars(self).pop("cv_bound_", None)
        if seen.bound is not None:
            self.cv_bound_ = weight @ seen.bound
        self._curves = seen.curves
        self.cv_se_ = np.sqrt(weight @ (table - self.cv_mean_) ** 2 / (len(rows) - 1))

    def _intake(self, X: FitFeatures, y: Labels, clients: Clients) -> AbstractSites:
        owner, column = type(self).__name__, column_of(self.cv)
        if column is not None and isinstance(clients, str) and clients == column:
            raise ValueError(f"{owner}: cv={column!r} names the clients: a fold for each of them is cv={BY_SITE!r}")
        return super()._intake(without_column(owner, self.cv, X), y, clients)

    def _sites_of(self, given: RowOptions, y: Labels, clients: Clients) -> AbstractSites:
        sites, column = super()._sites_of(given, y, clients), column_of(self.cv)
        if column is not None:
            self.row_columns_ = (*self.row_columns_, column)  # no feature of new rows either
        return sites

    def _check_sums(self, found: SumsAnswer) -> None:
        super()._check_sums(found)
        if len(found.n) > 1:
            check_enough_rows(type(self).__name__, found, vars(self).get("classes_"))
            if self._loss().least_label == 0:
                check_enough_counts(type(self).__name__, found)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        name = type(self).__name__
        check_choice(name, "criterion", self.criterion, CRITERIA)
        check_choice(name, "measure", self.measure, tuple(MEASURES))
        check_cv(name, self.cv)
        if self.measure != "deviance" and self.criterion not in FOLDED:
            raise ValueError(
                f"{name}: measure={self.measure!r} is of held-out rows, and criterion={self.criterion!r} holds none "
                "out: leave measure out, or take criterion='min' or '1se'"
            )
        if self._has_site_effects and isinstance(self.cv, str) and self.cv == BY_SITE and self.criterion in FOLDED:
            raise ValueError(
                f"{name}: with site_effects='fixed' a site that is left out has no intercept, which its own labels "
                f"would have to tell; give folds of rows (cv=5), or site_effects='none' with cv={BY_SITE!r}"
            )
        if vars(self).get("privacy") is not None and not isinstance(self.cv, (int, np.integer)):
            raise ValueError(f"{name}: with privacy cv must be a number of folds, got {self.cv!r}")
        if self.measure != "deviance":
            refuse_privacy(self, f"measures such as {self.measure!r}", "their sums would not be noised")
        check_count(name, "n_alphas", self.n_alphas, high=MOST)
        check_count(name, "random_state", self.random_state, low=0, high=2**63)
        check_number(name, "eps", self.eps, low=0, high=1, strict=True)


def check_enough_rows(owner: str, found: SumsAnswer, classes: np.ndarray | None) -> None:
    """Every fold needs a row, and every training set a row of each class."""
    rows, folds = np.asarray(found.n), len(found.n)
    if folds > rows.sum():
        raise ValueError(f"{owner}: cv must be at most the number of rows, {rows.sum():g}, got {folds}")
    if rows.min() == 0:
        raise ValueError(f"{owner}: one of {folds} folds has no row; choose fewer (cv), or another random_state")
    if classes is None:
        return
    labels = np.asarray(found.labels)
    counts = labels if labels.shape[1] > 1 else np.column_stack([rows - labels[:, 0], labels[:, 0]])
    left = counts.sum(axis=0) - counts
    if left.min() > 0:
        return
    rare = int(np.argmin(left.min(axis=0)))
    many = int(counts.sum(axis=0)[rare])
    raise ValueError(
        f"{owner}: cross-validation needs at least 2 rows of every class, but there is only 1 of class "
        f"{classes.tolist()[rare]!r}: the fold that holds it out has none to learn from. Leave the class out, or "
        "choose by criterion='bic' or 'aic'"
        if many == 1
        else f"{owner}: all {many} rows of class {classes.tolist()[rare]!r} are in one fold, so that there are none to "
        "learn from; choose another random_state, or leave the class out"
    )


def check_enough_counts(owner: str, found: SumsAnswer) -> None:
    """Every training set needs a count, or an amount, above 0."""
    sums = np.asarray(found.labels)[:, 0]
    if sums.max() >= sums.sum():
        raise ValueError(
            f"{owner}: all rows with a value above 0 are in one fold, so that there are none to learn from; choose "
            "another random_state, or choose by criterion='bic' or 'aic'"
        )
