"""Choosing the strength: cross-validation with folds inside each client, or an information criterion."""

from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_choice, check_count, check_number
from cofed.estimators.communication import NUMBER, ExchangeTotal
from cofed.estimators.path import MOST, collect, ordered, solve_path, strengths, warn
from cofed.estimators.plots import CrossValidation, plot_cv
from cofed.estimators.progress import CertifiedFit
from cofed.estimators.regularization_path import RegularizationPath
from cofed.estimators.sites import Clients, Features, Labels, Sites
from cofed.estimators.solver import solve
from cofed.estimators.standardized_problem import StandardizedProblem

CRITERIA = ("min", "1se", "aic", "bic")

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
    cv : int, default=5
        The number of folds; every client splits its own rows, of each class evenly.
    criterion : {"min", "1se", "aic", "bic"}, default="min"
        "min" takes the least cross-validated deviance; "1se" the strongest penalty within one standard error of it;
        "aic" and "bic" that criterion of the path, without folds.
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
        The cross-validated deviances with their standard errors; with folds only.
    alpha_min_, alpha_1se_ : float
        The strengths of "min" and of "1se"; with folds only.
    """

    alphas: npt.ArrayLike | None
    n_alphas: int
    eps: float
    cv: int
    criterion: str
    random_state: int

    def fit(self: Model, X: Features, y: Labels = None, clients: Clients = None) -> Model:
        """Choose the strength and fit, as the estimator without CV does.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or cofed.Federation
            The features of every row.
        y : array-like of shape (n,)
            The targets.
        clients : array-like of shape (n,), str or None
            The client's name of every row, or the name of that column of a pandas X; None is one client.

        Returns
        -------
        self
            The fitted estimator.
        """
        self._check_parameters()
        name, folds = type(self).__name__, self.criterion in ("min", "1se")
        given = None if self.alphas is None else ordered(name, self.alphas)
        sites = self._intake(X, y, clients)
        if folds:
            check_enough_rows(name, sites, int(self.cv), vars(self).get("classes_"))
        problem = self._standardized(sites)
        self.alphas_ = strengths(self, problem, int(self.n_alphas), float(self.eps)) if given is None else given
        answers = solve_path(self, problem, self.alphas_)
        warn(answers)
        self.path_ = collect(self, problem, self.alphas_, answers)
        spent = self._cross_validate(sites) if folds else None
        answer = self._choose(problem, answers)
        if spent is not None:
            problem.communication.exchanges.append(spent)
        self._set_fitted(problem, sites, answer)
        return self

    def plot(self, path: str | Path | None = None) -> Figure:
        """Cross-validated deviance by strength, as in glmnet.

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
        return plot_cv(CrossValidation(self.path_, self.cv_mean_, self.cv_se_, chosen), path)

    def _choose(self, problem: StandardizedProblem, answers: list[CertifiedFit]) -> CertifiedFit:
        """Set the chosen strength, and give its model, solved once more where the path's is not converged."""
        if self.criterion in ("min", "1se"):
            best = int(np.argmin(self.cv_mean_))
            close = np.flatnonzero(self.cv_mean_ <= self.cv_mean_[best] + self.cv_se_[best])
            self.alpha_min_, self.alpha_1se_ = self.alphas_[best], self.alphas_[close[0]]
            chosen = best if self.criterion == "min" else int(close[0])
        else:
            chosen = int(np.argmin(self.path_.criterion(self.criterion)))
        self.alpha_ = float(self.alphas_[chosen])
        answer = answers[chosen]
        if not answer.certificate.converged:
            psi = self._penalty(problem, self.alpha_)
            answer = solve(problem, psi, self.algorithm, float(self.tol), int(self.max_rounds), answer)
            answer.warn(stacklevel=4)
        return answer

    def _cross_validate(self, sites: Sites) -> ExchangeTotal:
        """The deviance of every strength on held-out rows; returns what was exchanged."""
        folds = deal(sites, int(self.cv), int(self.random_state), self._classifies)
        values, rows, rounds, down, up = [], [], 0, 0, 0
        answers: list[CertifiedFit] = []
        for k in range(self.cv):
            held = sites.with_rows([fold == k for fold in folds])
            train = self._standardized(sites.with_rows([fold != k for fold in folds]))
            answers += solve_path(self, train, self.alphas_)
            path = collect(self, train, self.alphas_, answers[-len(self.alphas_) :])
            values.append(held_out(train, path, held))
            rows.append(held.sizes.sum())
            # The models of the whole path go down once, a sum per model comes up.
            train.communication.add("held-out rows", 1, NUMBER * path.coefs.size, NUMBER * (len(self.alphas_) + 1))
            spent = train.communication.total("fold")
            rounds, down, up = rounds + spent.rounds, down + spent.down, up + spent.up
        warn(answers, "models of cross-validation", stacklevel=4)
        table, weight = np.stack(values), np.array(rows) / np.sum(rows)
        self.cv_mean_ = weight @ table
        self.cv_se_ = np.sqrt(weight @ (table - self.cv_mean_) ** 2 / (self.cv - 1))
        return ExchangeTotal("cross-validation", rounds, down, up)

    def _check_parameters(self) -> None:
        super()._check_parameters()
        name = type(self).__name__
        check_choice(name, "criterion", self.criterion, CRITERIA)
        check_count(name, "cv", self.cv, low=2, high=MOST)
        check_count(name, "n_alphas", self.n_alphas, high=MOST)
        check_count(name, "random_state", self.random_state, low=0, high=2**63)
        check_number(name, "eps", self.eps, low=0, high=1, strict=True)


def check_enough_rows(owner: str, sites: Sites, folds: int, classes: np.ndarray | None) -> None:
    """Every fold needs a row, and every training set a row of each class."""
    n = int(sites.sizes.sum())
    if folds > n:
        raise ValueError(f"{owner}: cv must be at most the number of rows, {n}, got {folds}")
    if classes is None:
        return
    counts = np.sum([np.bincount(y, minlength=len(classes)) for y in sites.y], axis=0)
    rare = int(counts.argmin())
    if counts[rare] < 2:
        raise ValueError(
            f"{owner}: cross-validation needs at least 2 rows of every class, but there is only 1 of class "
            f"{classes.tolist()[rare]!r}: the fold that holds it out has none to learn from. Leave the class out, or "
            "choose by criterion='bic' or 'aic'"
        )


def deal(sites: Sites, folds: int, seed: int, classifies: bool) -> list[np.ndarray]:
    """The fold of each row, shuffled within each client and class.

    Small clients, and classes, go on dealing where the one before stopped, so that no fold is left empty.
    """
    rng = np.random.default_rng(seed)
    if not classifies and (sites.sizes >= folds).all():
        return [rng.permutation(np.arange(n) % folds) for n in sites.sizes]
    dealt = [np.empty(n, int) for n in sites.sizes]
    begin = 0
    for label in np.unique(np.concatenate(sites.y)) if classifies else [None]:
        for fold, y in zip(dealt, sites.y, strict=True):
            rows = np.flatnonzero(y == label) if classifies else np.arange(len(y))
            fold[rows] = rng.permutation((begin + np.arange(len(rows))) % folds)
            begin += len(rows)
    return dealt


def held_out(problem: StandardizedProblem, path: RegularizationPath, held: Sites) -> np.ndarray:
    """The deviance per row of every model of a path on held-out rows: sums of the clients."""
    total = np.zeros(len(path.alphas))
    for X, y in zip(held.X, held.y, strict=True):
        if path.coefs.ndim == 2:
            z = X @ path.coefs.T + path.intercepts
        else:
            z = np.einsum("np,akp->nak", X, path.coefs) + path.intercepts[None]
            z = z[..., 0] if z.shape[2] == 1 else z
        total += problem.loss.deviance(z, y).sum(axis=0)
    return total / held.sizes.sum()
