"""What transformers have in common whose numbers are quantiles of all clients' rows."""

from typing import overload

import numpy as np
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from cofed.estimators.checks import check_number, named_refusals
from cofed.sites import AbstractSites, spent
from cofed.sites.intake import Clients, Features, FitFeatures, encoded, gather, transformed
from cofed.sites.steps import Step
from cofed.transformers.order_statistics import ColumnSpread, Wanted, columns_of, quantiles

TOL = 1e-6  # of quantiles, in standard deviations


class LearnsQuantiles:
    """What scikit-learn's transformers need so as to learn quantiles of clients. It stands left of those."""

    tol: float

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # pyright: ignore[reportAttributeAccessIssue]
        tags.input_tags.sparse = tags.input_tags.allow_nan = False
        return tags

    @overload
    def transform(self, X: AbstractSites) -> AbstractSites: ...
    @overload
    def transform(self, X: Features) -> np.ndarray: ...
    def transform(self, X: FitFeatures) -> np.ndarray | AbstractSites:
        """The outputs of new rows.

        Parameters
        ----------
        X : array-like of shape (n, p), pandas.DataFrame or AbstractSites
            New rows, with the features of the fit; or sites, which transform theirs themselves.

        Returns
        -------
        ndarray or AbstractSites
            The outputs; or the sites that have them.
        """
        check_is_fitted(self)  # pyright: ignore[reportArgumentType]
        if isinstance(X, AbstractSites):
            return transformed(self, X, self._step())  # pyright: ignore[reportArgumentType]
        return super().transform(encoded(self, X))  # pyright: ignore

    def _step(self) -> Step:
        """What sites are told."""
        raise NotImplementedError

    def _outputs(self) -> tuple[str, ...]:
        """The names of what it makes."""
        return tuple(map(str, self.get_feature_names_out()))  # pyright: ignore[reportAttributeAccessIssue]

    def _begin(self, X: FitFeatures, clients: Clients) -> AbstractSites:
        """The sites of a fit, after a look at what all these transformers have."""
        check_number(type(self).__name__, "tol", self.tol, 0, 1, strict=True)
        sites = gather(self, X, None, clients, target=False)  # pyright: ignore[reportArgumentType]
        self._before = len(sites.exchanges)
        return sites

    def _columns(self, sites: AbstractSites) -> ColumnSpread:
        """Means and standard deviations."""
        with named_refusals(type(self).__name__):
            return columns_of(sites)

    def _quantiles(self, sites: AbstractSites, columns: ColumnSpread, wanted: list[Wanted]) -> np.ndarray:
        """Quantiles of every column, in order."""
        with named_refusals(type(self).__name__):
            return np.maximum.accumulate(quantiles(sites, columns, wanted, float(self.tol)))

    def _end(self, sites: AbstractSites) -> None:
        """Set what was asked."""
        self.n_rounds_, self.bytes_ = spent(sites.exchanges[self._before :])
        del self._before
