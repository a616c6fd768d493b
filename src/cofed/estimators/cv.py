"""Choosing the strength: cross-validation with folds inside each client, or an information criterion."""

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy.special import expit, logsumexp, xlogy

from cofed.estimators.base import check_count, check_number
from cofed.estimators.communication import Exchange
from cofed.estimators.elastic_net import FederatedElasticNet, FederatedLasso
from cofed.estimators.logistic import FederatedLogisticRegression
from cofed.estimators.path import MOST, RegularizationPath, collect, ordered, solve_path, strengths, warn
from cofed.estimators.plots import plot_cv
from cofed.estimators.poisson import FederatedPoisson
from cofed.estimators.sites import NUMBER, Sites
from cofed.estimators.solver import solve
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Logistic, Poisson, Softmax

SELECTIONS = ("min", "1se", "aic", "bic")


class CrossValidated:
    """What makes an estimator with a strength choose it itself.

    n_alphas, eps, alphas: the strengths, `n_alphas` from the federation's own alpha_max down to eps times it, or given.
    cv: the number of folds; every client splits its own rows, of each class evenly.
    selection: "min", the least cross-validated deviance; "1se", the strongest penalty within one standard error of it;
        "aic" or "bic" of the path, without folds.
    seed: of the folds.

    Fitted besides: `alpha_`, `alphas_`, `path_`, and with folds `cv_mean_`, `cv_se_`, `alpha_min_`, `alpha_1se_`.
    Rounds and bytes are those of everything: the folds' paths and the path itself.
    """

    def fit(self: Any, X: Any, y: Any = None, clients: Any = None) -> Any:
        """Choose the strength and fit, as the estimator without CV does."""
        self._check_numbers()
        name = type(self).__name__
        given = None if self.alphas is None else ordered(name, self.alphas)
        sites = self._intake(X, y, clients)
        if self.selection in ("min", "1se"):
            check_enough_rows(name, sites, self.cv, vars(self).get("classes_"))
        posed = self._pose(sites)
        self.alphas_ = strengths(self, posed, self.n_alphas, self.eps) if given is None else given
        answers = solve_path(self, posed, self.alphas_)
        warn(answers)
        self.path_ = collect(self, posed, self.alphas_, answers)
        spent = []
        if self.selection in ("min", "1se"):
            spent = self._cross_validate(sites)
            best = int(np.argmin(self.cv_mean_))
            close = np.flatnonzero(self.cv_mean_ <= self.cv_mean_[best] + self.cv_se_[best])
            self.alpha_min_, self.alpha_1se_ = self.alphas_[best], self.alphas_[close[0]]
            chosen = best if self.selection == "min" else int(close[0])
        else:
            chosen = int(np.argmin(self.path_.criterion(self.selection)))
        self.alpha_ = float(self.alphas_[chosen])
        psi = self._penalty(posed, self.alpha_)
        answer = answers[chosen]
        if not answer.certificate.converged:
            answer = solve(posed, psi, self.algorithm, self.tol, self.max_rounds, answer)
            answer.warn()
        for exchange in spent:
            posed.traffic.exchanges.append(exchange)
        self._take(posed, sites, answer)
        return self

    def plot(self: Any, path: str | Path | None = None) -> Figure:
        """Cross-validated deviance by strength, as in glmnet; written to `path` where one is given."""
        if not hasattr(self, "cv_mean_"):
            raise ValueError(f"{type(self).__name__}: selection={self.selection!r} has no cross-validation to draw")
        return plot_cv(self, path)

    def _cross_validate(self: Any, sites: Sites) -> list[Exchange]:
        """The deviance of every strength on held-out rows; returns what was exchanged."""
        folds = deal(sites, self.cv, self.seed, self._classifies)
        values, rows, rounds, down, up = [], [], 0, 0, 0
        answers = []
        for k in range(self.cv):
            held = sites.with_rows([fold == k for fold in folds])
            train = self._pose(sites.with_rows([fold != k for fold in folds]))
            answers += solve_path(self, train, self.alphas_)
            path = collect(self, train, self.alphas_, answers[-len(self.alphas_) :])
            values.append(held_out(train, path, held))
            rows.append(held.sizes.sum())
            # The models of the whole path go down once, a sum per model comes up.
            train.traffic.add("held-out rows", 1, NUMBER * path.coefs.size, NUMBER * (len(self.alphas_) + 1))
            rounds += train.traffic.rounds
            down += sum(exchange.down for exchange in train.traffic.exchanges)
            up += sum(exchange.up for exchange in train.traffic.exchanges)
        warn(answers, "models of cross-validation")
        table, weight = np.stack(values), np.array(rows) / np.sum(rows)
        self.cv_mean_ = weight @ table
        self.cv_se_ = np.sqrt(weight @ (table - self.cv_mean_) ** 2 / (self.cv - 1))
        return [Exchange("cross-validation", rounds, down, up)]

    def _check_numbers(self: Any) -> None:
        super()._check_numbers()  # type: ignore[misc]
        name = type(self).__name__
        if not isinstance(self.selection, str) or self.selection not in SELECTIONS:
            raise ValueError(f"{name}: selection must be one of {', '.join(SELECTIONS)}, got {self.selection!r}")
        check_count(name, "cv", self.cv, low=2, high=MOST)
        check_count(name, "n_alphas", self.n_alphas, high=MOST)
        check_count(name, "seed", self.seed, low=0, high=2**63)
        check_number(name, "eps", self.eps, low=0, high=1, strict=True)


def check_enough_rows(owner: str, sites: Sites, folds: int, classes: Any) -> None:
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
            "choose by selection='bic' or 'aic'"
        )


def deal(sites: Sites, folds: int, seed: Any, classifies: bool) -> list[np.ndarray]:
    """The fold of each row, shuffled within each client and class. Small clients, and classes, go on dealing where the
    one before stopped, so that no fold is left empty."""
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


def held_out(posed: Posed, path: RegularizationPath, held: Sites) -> np.ndarray:
    """The deviance per row of every model of a path on held-out rows: sums of the clients."""
    total = np.zeros(len(path.alphas))
    for X, y in zip(held.X, held.y, strict=True):
        if path.coefs.ndim == 2:
            z = X @ path.coefs.T + path.intercepts
        else:
            z = np.einsum("np,akp->nak", X, path.coefs) + path.intercepts[None]
        total += deviance(posed.loss, z, y).sum(axis=0)
    return total / held.sizes.sum()


def deviance(loss: Any, z: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Of each row and model, from the linear predictions (rows, models) or (rows, models, classes)."""
    match loss:
        case Logistic():
            z = z[..., 0] if z.ndim == 3 else z
            return -2 * np.log(np.maximum(expit(np.where(y[:, None] > 0, z, -z)), 1e-300))
        case Softmax():
            return 2 * (logsumexp(z, axis=2) - np.take_along_axis(z, y[:, None, None].astype(int), axis=2)[..., 0])
        case Poisson():
            return 2 * (np.exp(z) - y[:, None] * z - (y - xlogy(y, y))[:, None])
    return (y[:, None] - z) ** 2


class FederatedLassoCV(CrossValidated, FederatedLasso):
    """FederatedLasso with a strength chosen by the federation; see `CrossValidated` for the parameters.

    >>> rng = np.random.default_rng(0)
    >>> X, sites = rng.normal(size=(120, 6)), np.arange(120) % 3
    >>> y = X[:, 0] - X[:, 1] + rng.normal(size=120)
    >>> model = FederatedLassoCV(selection="1se", n_alphas=20).fit(X, y, clients=sites)
    >>> np.flatnonzero(model.support_).tolist(), bool(model.alpha_ == model.alpha_1se_)
    ([0, 1], True)
    """

    def __init__(
        self,
        *,
        alphas: Any = None,
        n_alphas: Any = 100,
        eps: Any = 1e-3,
        cv: Any = 5,
        selection: Any = "min",
        seed: Any = 0,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.selection = selection
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedElasticNetCV(CrossValidated, FederatedElasticNet):
    """FederatedElasticNet with a strength chosen by the federation; see `CrossValidated` for the parameters.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(120, 6))
    >>> model = FederatedElasticNetCV(l1_ratio=0.9, selection="bic", n_alphas=20)
    >>> np.flatnonzero(model.fit(X, X[:, 0] - X[:, 1] + rng.normal(size=120)).support_).tolist()
    [0, 1]
    """

    def __init__(
        self,
        *,
        l1_ratio: Any = 0.5,
        alphas: Any = None,
        n_alphas: Any = 100,
        eps: Any = 1e-3,
        cv: Any = 5,
        selection: Any = "min",
        seed: Any = 0,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.l1_ratio = l1_ratio
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.selection = selection
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedLogisticRegressionCV(CrossValidated, FederatedLogisticRegression):
    """FederatedLogisticRegression with a strength chosen by the federation; see `CrossValidated` for the parameters.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 4))
    >>> y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)
    >>> model = FederatedLogisticRegressionCV(selection="bic", n_alphas=10).fit(X, y, clients=np.arange(200) % 4)
    >>> model.support_.tolist()
    [True, False, False, False]
    """

    def __init__(
        self,
        *,
        penalty: Any = "l1",
        l1_ratio: Any = 0.5,
        groups: Any = None,
        alphas: Any = None,
        n_alphas: Any = 100,
        eps: Any = 1e-3,
        cv: Any = 5,
        selection: Any = "min",
        seed: Any = 0,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.penalty = penalty
        self.l1_ratio = l1_ratio
        self.groups = groups
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.selection = selection
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds


class FederatedPoissonCV(CrossValidated, FederatedPoisson):
    """FederatedPoisson with a strength chosen by the federation; see `CrossValidated` for the parameters.

    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 3))
    >>> y = rng.poisson(np.exp(X[:, 0] / 2))
    >>> model = FederatedPoissonCV(selection="bic", n_alphas=10).fit(X, y, clients=np.arange(200) % 4)
    >>> bool(model.support_[0]), bool(0.4 < model.coef_[0] < 0.6)
    (True, True)
    """

    def __init__(
        self,
        *,
        l1_ratio: Any = 1.0,
        alphas: Any = None,
        n_alphas: Any = 100,
        eps: Any = 1e-3,
        cv: Any = 5,
        selection: Any = "min",
        seed: Any = 0,
        fit_intercept: Any = True,
        standardize: Any = True,
        algorithm: Any = "auto",
        tol: Any = 1e-12,
        max_rounds: Any = 20_000,
    ):
        self.l1_ratio = l1_ratio
        self.alphas = alphas
        self.n_alphas = n_alphas
        self.eps = eps
        self.cv = cv
        self.selection = selection
        self.seed = seed
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.algorithm = algorithm
        self.tol = tol
        self.max_rounds = max_rounds
