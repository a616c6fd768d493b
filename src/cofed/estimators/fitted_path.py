"""The models of a path, by strength."""

import dataclasses
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
import scipy.sparse

from cofed._util.figure_types import Figure
from cofed._util.types import Given
from cofed.estimators.checks import check_number
from cofed.sites.host_rows import SparseRows
from cofed.sites.row_options import RowNumbers, predicted_offset


@dataclasses.dataclass(frozen=True)
class RegularizationPath:
    """Models by strength, the strongest first; coefficients are for the features as they were given.

    Attributes
    ----------
    alphas : ndarray of shape (strengths,)
        The strengths.
    coefs : ndarray of shape (strengths, features) or (strengths, classes, features)
        The coefficients.
    scale : ndarray of shape (features,)
        The features' standard deviations; 1 where they were not standardised.
    intercepts : ndarray of shape (strengths,) or (strengths, classes)
        The intercepts.
    deviance : ndarray of shape (strengths,)
        Twice the mean loss: the mean squared error, or the deviance per row.
    nonzero : ndarray of shape (strengths,)
        How many coefficients are not zero.
    gaps, converged : ndarray of shape (strengths,)
        Of the certificates.
    n : int
        The number of rows.
    n_rounds, bytes : int
        What was exchanged.
    gaussian : bool
        Whether the labels vary by a number that is not known: the variance beside a squared or Huber's loss, the
        dispersion beside those of `Gamma` and `Tweedie`.
    feature_names : tuple of str
        The features' names.
    weight : float or None
        What the rows count, all together, where they have weights.
    has_offset : bool
        Whether the rows had offsets, which predictions then need.
    absolute : bool
        Whether the loss grows as errors do, and not as their squares: that of quantiles.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso
    >>> X = np.random.default_rng(0).normal(size=(60, 2))
    >>> path = FederatedLasso(standardize=False).path(X, 3 * X[:, 0], alphas=[2.0, 1.0])
    >>> path.coef_at(1.5).round(3).tolist(), path.coefs[:, 0].round(3).tolist()
    ([1.307, 0.0], [0.742, 1.871])
    """

    alphas: np.ndarray
    coefs: np.ndarray
    scale: np.ndarray
    intercepts: np.ndarray
    deviance: np.ndarray
    nonzero: np.ndarray
    gaps: np.ndarray
    converged: np.ndarray
    n: int
    n_rounds: int
    bytes: int
    gaussian: bool
    feature_names: tuple[str, ...]
    weight: float | None = None
    has_offset: bool = False
    absolute: bool = False

    def criterion(self, kind: str) -> np.ndarray:
        """An information criterion of every model, with the number of non-zero coefficients as degrees of freedom.

        Where the labels vary by a number that is not known, the number of rows times the logarithm of the mean deviance
        stands for the deviance, twice of quantiles, whose loss is Laplace's likelihood.

        Parameters
        ----------
        kind : {"aic", "bic"}
            Akaike's or the Bayesian one.

        Returns
        -------
        ndarray of shape (strengths,)
            The criterion; less is better.
        """
        total = self.n if self.weight is None else self.weight
        numbers = self.n * (self.coefs.shape[1] if self.coefs.ndim == 3 else 1)  # of several responses, all of them
        numbers *= 2 if self.absolute else 1
        fit = numbers * np.log(np.maximum(self.deviance, 1e-300)) if self.gaussian else total * self.deviance
        return fit + {"aic": 2.0, "bic": np.log(self.n)}[kind] * self.nonzero

    def coef_at(self, alpha: Given[float]) -> np.ndarray:
        """The coefficients of a strength.

        Those of a strength of the path are exact. Between two, they are interpolated linearly in alpha, as glmnet's
        `coef(s=)` does: a lasso's are exact then where the same features are in use, others are near. Above the
        first strength nothing is in use, where nothing is at it.

        Parameters
        ----------
        alpha : float
            The strength, between the least and the largest of the path.

        Returns
        -------
        ndarray of shape (features,) or (classes, features)
            The coefficients.

        Raises
        ------
        ValueError
            Where the path does not tell them: a strength outside of it.
        """
        return self._interpolated(self.coefs, alpha)

    def intercept_at(self, alpha: Given[float]) -> float | np.ndarray:
        """The intercept of a strength, as `coef_at` has its coefficients.

        Parameters
        ----------
        alpha : float
            The strength.

        Returns
        -------
        float or ndarray of shape (classes,)
            The intercept.
        """
        found = self._interpolated(self.intercepts, alpha)
        return found if found.ndim else float(found)

    def predict(self, X: Given[npt.ArrayLike], alpha: Given[float], offset: RowNumbers = None) -> np.ndarray:
        """X coef + intercept + offset of a strength, as glmnet's `predict`: of classes log odds, of counts logarithms.

        The estimator that has the path gives an estimator of any strength, `at(alpha)`, with classes and
        probabilities.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, p), or pandas.DataFrame
            Rows of numbers, with the features of the fit; the columns of a frame are taken by their names.
        alpha : float
            The strength, as for `coef_at`.
        offset : array-like of shape (n,) or str, optional
            The rows' offsets, or the name of that column of a pandas X, of models that were fitted with one.

        Returns
        -------
        ndarray of shape (n,) or (n, classes)
            The predictions.
        """
        given, coef, intercept = X, self.coef_at(alpha), self.intercept_at(alpha)
        names = list(self.feature_names)
        if isinstance(X, pd.DataFrame) and set(names) <= set(X.columns):
            X = X[names]
        try:
            rows = SparseRows(X) if scipy.sparse.issparse(X) else np.asarray(X, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"RegularizationPath: X must be rows of numbers, but {error}; the estimator's at(alpha) takes tables"
            ) from None
        if len(rows.shape) != 2 or rows.shape[1] != len(names):
            raise ValueError(
                f"RegularizationPath: X must have rows of {len(names)} features, got the shape {rows.shape}"
            )
        found = rows @ coef.T + intercept
        responses = 1 if found.ndim == 1 else found.shape[1]
        added = predicted_offset("RegularizationPath", given, offset, rows.shape[0], self.has_offset, responses)
        if not np.isfinite(found).all():
            raise ValueError("RegularizationPath: X must be finite numbers, and has missing or infinite ones")
        found = found + (added if added.ndim == found.ndim else added[:, None])
        return found[:, 0] if found.shape[1:] == (1,) else found

    def _interpolated(self, values: np.ndarray, alpha: Given[float]) -> np.ndarray:
        """What lies between the two nearest strengths."""
        check_number("RegularizationPath", "alpha", alpha, low=0)
        given, first, last = float(alpha), float(self.alphas[0]), float(self.alphas[-1])
        if given > first and not self.nonzero[0]:
            return np.asarray(values[0])
        if not last <= given <= first:
            above = " (at which features are in use, so that stronger ones are not known)" if given > first else ""
            raise ValueError(
                f"RegularizationPath: alpha must be between {last:g} and {first:g}, the strengths of the path{above}, "
                f"got {given:g}"
            )
        right = int(np.searchsorted(-self.alphas, -given))
        if self.alphas[right] == given:
            return np.asarray(values[right])
        t = (self.alphas[right - 1] - given) / (self.alphas[right - 1] - self.alphas[right])
        return np.asarray((1 - t) * values[right - 1] + t * values[right])

    def plot(self, path: str | Path | None = None) -> Figure:
        """The coefficients by strength, as in glmnet.

        Parameters
        ----------
        path : str or Path, optional
            A file to write the figure to.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        from cofed.estimators.plots import plot_path

        return plot_path(self, path)
