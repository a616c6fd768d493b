"""The models of a path, by strength."""

import dataclasses
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure


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
        Whether the loss is squared, with an unknown variance.
    feature_names : tuple of str
        The features' names.
    weight : float or None
        What the rows count, all together, where they have weights.
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

    def criterion(self, kind: str) -> np.ndarray:
        """An information criterion of every model, with the number of non-zero coefficients as degrees of freedom.

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
        fit = self.n * np.log(np.maximum(self.deviance, 1e-300)) if self.gaussian else total * self.deviance
        return fit + {"aic": 2.0, "bic": np.log(self.n)}[kind] * self.nonzero

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
