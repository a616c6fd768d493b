"""Linear models that predict a number."""

import numpy as np

from cofed.estimators.base import FederatedLinearModel
from cofed.sites.intake import Clients, Features
from cofed.sites.row_options import RowNumbers


class FederatedRegressor(FederatedLinearModel):
    """A linear model whose prediction is X coef + intercept."""

    def predict(self, X: Features, offset: RowNumbers = None, clients: Clients = None) -> np.ndarray:
        """The predictions for new rows.

        Parameters
        ----------
        X : array-like of shape (n, p) or pandas.DataFrame
            New rows, with the features of the fit (a column of client names is no feature).
        offset : array-like of shape (n,) or str, optional
            The rows' offsets, or the name of that column of a pandas X, of a model that was fitted with one.
        clients : array-like of shape (n,) or str, optional
            The rows' clients, of a model with an intercept for each (`site_effects`); None is the column of the fit,
            where X has it, else their mean.

        Returns
        -------
        ndarray of shape (n,)
            X coef + intercept + offset.
        """
        return self._linear(X, offset, clients)
