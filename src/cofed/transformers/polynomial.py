"""Powers and products of features, which need no number of the clients' rows."""

from typing import overload

import numpy as np
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofed._util.types import Given
from cofed.estimators.checks import check_count, check_flag
from cofed.sites import AbstractSites
from cofed.sites.intake import Clients, Features, FitFeatures, Labels, encoded, gather, transformed
from cofed.sites.steps import MOST_DEGREE, Powers


class FederatedPolynomialFeatures(PolynomialFeatures):
    """scikit-learn's PolynomialFeatures, which learn nothing of rows but how many features there are, and their names.

    Parameters
    ----------
    degree : int or tuple of int, default=2
        The largest degree, or the least and the largest.
    interaction_only : bool, default=False
        Whether products of different features are made only, and no powers.
    include_bias : bool, default=False
        Whether a column of ones comes first; an estimator has its own intercept.

    Attributes
    ----------
    powers_ : ndarray of shape (n_output_features_, p)
        Which power of which feature is in each output.
    n_output_features_ : int
        How many outputs there are.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.transformers import FederatedPolynomialFeatures
    >>> X = pd.DataFrame({"age": [1.0, 2.0], "dose": [3.0, 4.0], "site": ["a", "b"]})
    >>> powers = FederatedPolynomialFeatures().fit(X, clients="site")
    >>> powers.get_feature_names_out().tolist()
    ['age', 'dose', 'age^2', 'age dose', 'dose^2']
    """

    def __init__(
        self,
        degree: Given[int | tuple[int, int]] = 2,
        *,
        interaction_only: Given[bool] = False,
        include_bias: Given[bool] = False,
    ):
        super().__init__(degree, interaction_only=interaction_only, include_bias=include_bias)  # pyright: ignore

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, X: FitFeatures
    ) -> np.ndarray | AbstractSites:
        """The powers and products of new rows.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            New rows, with the features of the fit; or sites, which transform theirs themselves.

        Returns
        -------
        ndarray of shape (n, n_output_features_) or AbstractSites
            The outputs; or the sites that have them.
        """
        if not isinstance(X, AbstractSites):
            return np.asarray(super().transform(encoded(self, X)))
        check_is_fitted(self)
        if int(self.powers_.max(initial=0)) > MOST_DEGREE:
            raise ValueError(f"{type(self).__name__}: at sites, degree is at most {MOST_DEGREE}")
        exponents = tuple(tuple(map(int, own)) for own in self.powers_)
        return transformed(self, X, Powers(outputs=tuple(map(str, self.get_feature_names_out())), exponents=exponents))

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = False
        return tags

    def fit(self, X: FitFeatures, y: Labels = None, clients: Clients = None) -> "FederatedPolynomialFeatures":
        """Learn the number of features, and their names: nobody is asked.

        Parameters
        ----------
        X, y, clients
            As for `FederatedKBinsDiscretizer.fit`.

        Returns
        -------
        self
            The fitted transformer.
        """
        owner = type(self).__name__
        check_flag(owner, "interaction_only", self.interaction_only)
        check_flag(owner, "include_bias", self.include_bias)
        least, most = self.degree if isinstance(self.degree, tuple) and len(self.degree) == 2 else (0, self.degree)
        check_count(owner, "degree", least, 0)
        check_count(owner, "degree", most, max(1, least))
        sites = gather(self, X, None, clients, target=False)
        kept = {name: value for name, value in vars(self).items() if name in ("n_features_in_", "feature_names_in_")}
        super().fit(np.zeros((1, sites.n_features)))
        vars(self).update(kept)
        self.n_rounds_ = self.bytes_ = 0
        return self
