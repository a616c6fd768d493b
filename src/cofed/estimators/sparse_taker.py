"""Estimators whose rows may be sparse."""

from sklearn.base import BaseEstimator
from sklearn.utils import Tags


class SparseTaker(BaseEstimator):
    """An estimator that takes sparse matrices of SciPy, and keeps them so."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags
