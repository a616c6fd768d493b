"""Nested cross-validation: how well a model does whose strength was chosen, on rows that had no part in the choice.

The rows of every fold are left out of everything in turn: the strength is chosen by cross-validation among the other
folds, and the chosen model is tried on the fold that was left out. The best cross-validated measure of a path is
somewhat too good, as the best of many; this one is not.
"""

import copy
import dataclasses

import numpy as np

from cofed._util.types import Given
from cofed.estimators.cross_validation import CrossValidated
from cofed.estimators.fitted_state import refuse_privacy
from cofed.estimators.held_out_curves import HeldOutCurves
from cofed.estimators.measures import HeldOutModels, judged, told_folds
from cofed.losses import NegativeBinomial
from cofed.sites import Scaling, spent
from cofed.sites.intake import Clients, FitFeatures, Labels
from cofed.sites.queries import Message, sums
from cofed.sites.row_options import RowNumbers, row_options

OWNER = "nested_cv"


@dataclasses.dataclass(frozen=True)
class NestedCV:
    """A measure of models whose strengths were chosen without the rows that they are tried on.

    Attributes
    ----------
    measure : str
        What was measured.
    scores : ndarray of shape (folds,)
        The measure on each fold; NaN at a site that is a fold and tells no C-index.
    rows : ndarray of shape (folds,)
        The rows (or their weights) of each.
    alphas : ndarray of shape (folds,)
        The strengths that were chosen without each.
    coefs : ndarray of shape (folds, ...)
        The coefficients of the models.
    bound : float
        By how much the mean may be off, as predictions are counted in bins; 0 but for "auc".
    curves : HeldOutCurves or None
        The ROC curve and the calibration curve, of "auc" only.
    n_rounds : int
        The exchanges.
    bytes : int
        Their size, both ways, of all clients.
    """

    measure: str
    scores: np.ndarray
    rows: np.ndarray
    alphas: np.ndarray
    coefs: np.ndarray
    bound: float
    curves: HeldOutCurves | None
    n_rounds: int
    bytes: int

    @property
    def mean(self) -> float:
        """The mean of the folds, each counting by its rows; those without a measure do not count."""
        told = ~np.isnan(self.scores)
        return float(self.rows[told] @ self.scores[told] / self.rows[told].sum())

    @property
    def se(self) -> float:
        """Its standard error, from the spread over the folds."""
        told = ~np.isnan(self.scores)
        rows, away = self.rows[told], self.scores[told] - self.mean
        return float(np.sqrt(rows @ away**2 / rows.sum() / (len(rows) - 1)))


def nested_cv(
    estimator: Given[CrossValidated],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
) -> NestedCV:
    """How well an estimator does that chooses its strength, on rows that it has not chosen by.

    Parameters
    ----------
    estimator : CrossValidated
        Such as FederatedLassoCV(cv=5): its folds are left out one after another, and each time its strength is chosen
        by the others. Its `measure` is what is told; of times to an event, whose deviance is of all rows together and
        not of a fold, "c_index" is told beside a strength that is chosen by the deviance.
    X, y, clients, sample_weight, offset
        As in the estimator's `fit`.

    Returns
    -------
    NestedCV
        The measure, by fold and in the mean. It takes the exchanges of as many fits as there are folds, and one or two.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLassoCV, nested_cv
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(120, 4)), np.arange(120) % 3
    >>> found = nested_cv(FederatedLassoCV(cv=3, n_alphas=5), X, X[:, 0] + rng.normal(size=120), site)
    >>> found.scores.shape, bool(0.7 < found.mean < 1.5)
    ((3,), True)
    """
    if not isinstance(estimator, CrossValidated):
        raise TypeError(f"{OWNER}: estimator must choose its strength, such as FederatedLassoCV(), got {estimator!r}")
    own = copy.copy(estimator)
    refuse_privacy(own, "nested folds", "each would cost")
    if own.criterion not in ("min", "1se"):
        raise ValueError(f"{OWNER}: criterion must be 'min' or '1se', which have folds, got {own.criterion!r}")
    sites, folds = own._with_folds(row_options(OWNER, X, sample_weight, offset), y, clients)
    assert folds is not None
    loss, begun = own._posed_loss(), len(sites.exchanges)
    if not loss.rowwise and not loss.of_times:
        raise ValueError(f"{OWNER}: models with an intercept of each site's (site_effects) are not tried elsewhere")
    if isinstance(loss, NegativeBinomial) and loss.is_open:
        raise ValueError(f"{OWNER}: NegativeBinomial needs a theta here, such as that of a fit (loss_)")
    if folds.n < 3:
        raise ValueError(f"{OWNER}: cv must be 3 folds or more, so that two are left to choose by, got {folds.n}")
    models = [copy.copy(own) for _ in range(folds.n)]
    for k, one in enumerate(models):
        one._select(sites, dataclasses.replace(folds, left_out=k))
    p = sites.n_features
    tried = HeldOutModels(
        sites,
        coef=np.stack([np.atleast_2d(one.coef_).T for one in models]),
        intercept=np.stack([np.atleast_1d(np.asarray(one.intercept_, float)) for one in models]),
        without=np.arange(folds.n, dtype=np.int32),
        scaling=Scaling(np.zeros(p), np.ones(p)),
        folds=folds,
        loss=loss,
    )
    # A few rows alone have hardly a risk set: what they add to the likelihood of others is no measure of them.
    measure = "c_index" if loss.of_times else own.measure
    seen = judged(tried, measure, (folds.n, 1))
    told_folds(OWNER, seen, folds, depth=2)
    rows = np.asarray(sites.ask(sums, Message(loss=loss, folds=folds)).n)
    taken = spent(sites.exchanges[begun:])
    return NestedCV(
        measure=measure,
        scores=seen.table[:, 0],
        rows=rows,
        alphas=np.array([one.alpha_ for one in models]),
        coefs=np.stack([one.coef_ for one in models]),
        bound=0.0 if seen.bound is None else float(rows @ seen.bound[:, 0] / rows.sum()),
        curves=seen.curves[0] if seen.curves else None,
        n_rounds=taken.rounds,
        bytes=taken.bytes,
    )
