"""What all linear estimators share: data in, a certified fit, coefficients on the scale of the data out."""

import copy
import math
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from cofed.estimators.communication import Exchange
from cofed.estimators.sites import Sites, gather, numbers, refuse_masked
from cofed.estimators.solver import DENSE, Solved, check_algorithm, solve
from cofed.estimators.standardized_problem import Posed, pose


class FederatedLinearModel(BaseEstimator):
    """A linear model of clients' rows. A family gives its loss (`_loss`) and its penalty (`_penalty`).

    Fitted: `coef_`, `intercept_`, `support_` (True where a feature is used), `certificate_`, `n_rounds_`, `bytes_`
    (both ways, all clients), `exchanges_` (what they were), `clients_` (names), `client_sizes_`, `algorithm_`.
    """

    alpha: Any
    fit_intercept: bool
    standardize: bool
    algorithm: Any
    tol: Any
    max_rounds: Any
    _classifies = False

    def fit(self, X: Any, y: Any = None, clients: Any = None) -> Any:
        """Fit to the rows of all clients.

        X, y: as in scikit-learn; or X a `cofed.Federation`, which carries y and the clients.
        clients: the client's name of every row, or the name of that column of a pandas X; None is one client.
        """
        self._check_numbers()
        sites = self._intake(X, y, clients)
        posed = self._pose(sites)
        self.__dict__.pop("inference_", None)
        solved = solve(posed, self._penalty(posed), self.algorithm, self.tol, self.max_rounds)
        solved.warn()
        self._take(posed, sites, solved)
        return self

    def path(
        self, X: Any, y: Any = None, clients: Any = None, *, alphas: Any = None, n_alphas: Any = 100, eps: Any = 1e-3
    ) -> Any:
        """The models of many strengths, from the one at which no feature is used (found by the federation) down to
        `eps` times it; see `RegularizationPath`."""
        from cofed.estimators.path import regularization_path

        return regularization_path(self, X, y, clients, alphas=alphas, n_alphas=n_alphas, eps=eps)

    def infer(
        self, X: Any, y: Any = None, clients: Any = None, *, coefficients: Any = None, level: Any = 0.95
    ) -> pd.DataFrame:
        """Debiased coefficients with standard errors, intervals and p-values, from the rows of the fit.

        For linear models and the logistic model of two classes; `coefficients` are names or positions (None: all). The
        table is kept as `inference_` and shown by `summary()`. Clients send sums, gradients and a Hessian: their rows
        stay where they are.
        """
        from cofed.estimators.inference import infer

        check_is_fitted(self)
        other = copy.copy(self)  # taking in rows sets what is known of features and classes
        sites = other._intake(X, y, clients)
        posed = other._pose(sites)
        check_same_rows(self, posed)
        self.inference_ = infer(self, posed, sites, coefficients, level)
        self.n_rounds_, self.bytes_ = self.n_rounds_ + posed.traffic.rounds, self.bytes_ + posed.traffic.bytes
        up, down = (sum(getattr(one, way) for one in posed.traffic.exchanges) for way in ("up", "down"))
        self.exchanges_ = (*self.exchanges_, Exchange("inference", posed.traffic.rounds, down, up))
        return self.inference_

    def summary(self) -> str:
        """Coefficients in use, intervals where `infer` was called, certificate, clients, rounds and bytes, as text."""
        from cofed.estimators.summary import summary

        check_is_fitted(self)
        return summary(self)

    def save(self, path: Any) -> None:
        """Write the fitted estimator to one safetensors file; `cofed.estimators.load` reads it."""
        from cofed.estimators.serialization import save

        check_is_fitted(self)
        save(self, path)

    def _loss(self) -> Any:
        raise NotImplementedError

    def _penalty(self, posed: Posed, alpha: Any = None) -> Any:
        raise NotImplementedError

    def _intake(self, X: Any, y: Any, clients: Any) -> Sites:
        self.client_column_ = clients if isinstance(clients, str) else None
        sites = gather(self, X, y, clients, self._classifies)
        try:
            return Sites(sites.names, sites.X, [np.asarray(y, np.float64) for y in sites.y])
        except ValueError as error:
            raise ValueError(f"{type(self).__name__}: y must be numbers, but {error}; encode text as numbers") from None

    def _shape(self, features: int) -> tuple[int, int] | None:
        """The shape of the coefficients where they are a matrix."""
        return None

    def _blocks(self, features: int) -> np.ndarray:
        """A label per feature: those with one label must keep their proportions, as the penalty takes them together."""
        return np.arange(features)

    def _pose(self, sites: Sites) -> Posed:
        sites.check_size(type(self).__name__)
        return pose(
            sites,
            self._loss(),
            fit_intercept=self.fit_intercept,
            standardize=self.standardize,
            blocks=self._blocks(sites.n_features),
            shape=self._shape(sites.n_features),
        )

    def _take(self, posed: Posed, sites: Sites, solved: Solved) -> None:
        """The fitted attributes."""
        coef, intercept = posed.original(solved.w)
        self.coef_, self.intercept_ = self._output(coef + 0.0, intercept)  # no -0
        self.support_ = np.any(coef.reshape(len(coef), -1) != 0, axis=1)
        self.certificate_ = solved.certificate
        self.algorithm_ = solved.algorithm
        self.n_rounds_, self.bytes_ = posed.traffic.rounds, posed.traffic.bytes
        self.n_iter_ = max(1, self.n_rounds_)
        self.exchanges_ = tuple(posed.traffic.exchanges)
        self.fingerprint_ = posed.fingerprint
        self.clients_, self.client_sizes_ = sites.names, tuple(int(n) for n in sites.sizes)

    def _output(self, coef: np.ndarray, intercept: Any) -> tuple[np.ndarray, Any]:
        """Coefficients in the shape that users of scikit-learn know."""
        return coef, intercept

    def _check_numbers(self) -> None:
        """Refuse numbers that mean nothing, before anything is computed."""
        name = type(self).__name__
        check_number(name, "tol", self.tol, low=0, strict=True)
        if self.tol > 1:
            raise ValueError(f"{name}: tol must be at most 1, got {self.tol!r}: the model without features would do")
        check_count(name, "max_rounds", self.max_rounds)
        check_flag(name, "fit_intercept", self.fit_intercept)
        check_flag(name, "standardize", self.standardize)
        if hasattr(self, "alpha"):
            check_number(name, "alpha", self.alpha, low=0)
        if hasattr(self, "l1_ratio"):
            check_number(name, "l1_ratio", vars(self)["l1_ratio"], low=0, high=1)
        check_algorithm(name, self.algorithm)

    def _rows(self, X: Any) -> np.ndarray:
        """New rows, checked against those of the fit; a client column is left out."""
        check_is_fitted(self)
        refuse_masked(type(self).__name__, "X", X)
        column = getattr(self, "client_column_", None)
        if column is not None and hasattr(X, "columns") and column in X.columns:
            X = X.drop(columns=column)
        return np.asarray(numbers(self, X, reset=False))

    def _linear(self, X: Any) -> np.ndarray:
        """X coef + intercept"""
        rows = self._rows(X)
        return rows @ np.asarray(self.coef_).T + self.intercept_


def check_same_rows(model: Any, posed: Posed) -> None:
    """Refuse rows whose sums are not those of the fit. (Files of older versions have no such sums.)"""
    kept = vars(model).get("fingerprint_")
    if kept is None:
        return
    now = posed.fingerprint
    if len(kept) != len(now) or kept[0] != now[0] or not np.allclose(kept, now, rtol=1e-7, atol=1e-9):
        raise ValueError(
            f"{type(model).__name__}: infer needs the rows of the fit, but the sums of X and y over these "
            f"{posed.n} rows differ from those of the fit's {int(kept[0])}"
        )


def check_number(
    owner: str, name: str, value: Any, low: Any = -math.inf, high: Any = math.inf, strict: bool = False
) -> None:
    """Refuse what is no finite number in a range."""
    wanted = f"a number {'>' if strict else '>='} {low:g}" + ("" if high == math.inf else f" and <= {high:g}")
    number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not number or not math.isfinite(value) or not low <= value <= high or (strict and value == low):
        raise ValueError(f"{owner}: {name} must be {wanted}, got {value!r}")


def check_count(owner: str, name: str, value: Any, low: int = 1, high: int = 10**9) -> None:
    """Refuse what is no integer in a range."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    if not whole or value < low:
        raise ValueError(f"{owner}: {name} must be an integer >= {low}, got {value!r}")
    if value > high:
        raise ValueError(f"{owner}: {name} must be an integer <= {high}, got {value!r}")


def check_flag(owner: str, name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, (bool, np.bool_)):
        raise ValueError(f"{owner}: {name} must be True or False, got {value!r}")


def treated_apart(features: int, outputs: int, l1_ratio: Any) -> np.ndarray:
    """The labels of features under an elastic net, for `_blocks`: one each.

    A ridge penalty alone with many parameters is FedFISTA's, whose rounds grow with the condition number: there all
    features keep their proportions, so that the penalty curves all of them alike.
    """
    together = float(l1_ratio) == 0 and features * outputs > DENSE
    return np.zeros(features, int) if together else np.arange(features)
