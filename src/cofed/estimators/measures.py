"""Measures by which a strength is chosen, of models on rows held out, from sums and counts that sites may give."""

import dataclasses
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.special import ndtri

from cofed._util import naming
from cofed.estimators.held_out_curves import HeldOutCurves
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.losses import AbstractLoss
from cofed.models import Weights
from cofed.sites import AbstractSites, Folds, Scaling
from cofed.sites.folds import SiteFolds
from cofed.sites.queries import ConcordanceMessage, HeldOutAnswer, HeldOutMessage, concordance, held_out
from cofed.sites.queries.base import n_outputs

PER_BIN = 8  # rows of a fold for each bin of predictions
BINS = (4, 256)  # the fewest and the most


@dataclasses.dataclass(frozen=True)
class Measure:
    """One number for how well a model does."""

    words: str  # what it is, for axes and sentences
    serves: Callable[[AbstractLoss], bool]
    needs: str  # what it is for, where a loss does not serve
    is_better_large: bool = False


def of_rows(loss: AbstractLoss) -> bool:
    """Whether a loss is a sum over rows."""
    return loss.rowwise


def of_two_classes(loss: AbstractLoss) -> bool:
    """Whether labels are one of two classes."""
    return loss.rowwise and loss.has_accuracy and n_outputs(loss) == 1


MEASURES = {
    "deviance": Measure("deviance per row", lambda loss: True, "all models"),
    "mse": Measure("mean squared error", lambda loss: loss.rowwise or loss.of_rows.quadratic, "models of single rows"),
    "mae": Measure("mean absolute error", of_rows, "models of single rows"),
    "misclassification": Measure(
        "part of wrong predictions", lambda loss: loss.rowwise and loss.has_accuracy, "models of classes"
    ),
    "auc": Measure("area under the ROC curve", of_two_classes, "models of two classes", is_better_large=True),
    "c_index": Measure(
        "C-index of pairs within sites", lambda loss: loss.of_times, "times to an event", is_better_large=True
    ),
}


def check_measure(owner: str, measure: str, loss: AbstractLoss) -> None:
    """Refuse a measure that a model does not have."""
    if not MEASURES[measure].serves(loss):
        has = [name for name, one in MEASURES.items() if one.serves(loss)]
        this = "this one, with an intercept for each site," if loss.site_parameters else "this one"
        raise ValueError(f"{owner}: measure={measure!r} is for {MEASURES[measure].needs}; {this} has {', '.join(has)}")


@dataclasses.dataclass(frozen=True)
class MeasureTable:
    """A measure of models on held-out rows, by fold and strength."""

    table: np.ndarray  # NaN in a fold whose rows tell none
    bound: np.ndarray | None = None  # how far each number may be off, as predictions are counted in bins
    curves: tuple[HeldOutCurves, ...] = ()  # by strength, where predictions are counted


def measured(
    problem: StandardizedProblem, models: Sequence[Sequence[Weights]], measure: str, held: np.ndarray
) -> MeasureTable:
    """A measure of the models without each fold, by fold and strength, on the rows of the fold.

    One exchange tells sums of errors, and a second one counts of predictions by class, between edges at the quantiles
    of normal numbers with the mean and the variance that the first one told.

    Parameters
    ----------
    problem : StandardizedProblem
        Of all rows.
    models : sequences of Weights
        By fold and strength.
    measure : str
        One of MEASURES.
    held : array of shape (folds, strengths)
        The mean losses of held-out rows.
    """
    if measure == "deviance" or (measure == "mse" and problem.loss.of_rows.quadratic):
        return MeasureTable(2 * problem.units.objective * held)
    p, k = len(problem.units.mean), np.size(problem.null.mean)
    every = [(fold, w) for fold, own in enumerate(models) for w in own]
    return judged(
        HeldOutModels(
            problem.sites,
            coef=np.stack([np.reshape(np.asarray(w.coef, np.float64), (p, k)) for _, w in every]),
            intercept=np.stack([np.zeros(k) if w.intercept is None else np.reshape(w.intercept, k) for _, w in every]),
            without=np.array([fold for fold, _ in every], np.int32),
            scaling=problem.units.scaling,
            folds=problem.survey.folds,
            loss=problem.survey.loss,
        ),
        measure,
        np.shape(held),
    )


@dataclasses.dataclass(frozen=True)
class HeldOutModels:
    """M models, each with a fold that it has not learnt from."""

    sites: AbstractSites
    coef: np.ndarray  # M x p x outputs
    intercept: np.ndarray  # M x outputs
    without: np.ndarray  # M
    scaling: Scaling
    folds: Folds | None
    loss: AbstractLoss

    def errors(self, edges: np.ndarray | None = None) -> HeldOutAnswer:
        """Sums of errors on the rows held out, and counts of predictions between edges; one exchange."""
        asked = np.zeros((len(self.coef), 0)) if edges is None else edges
        units = {"scaling": self.scaling, "folds": self.folds, "loss": self.loss}
        return self.sites.ask(held_out, HeldOutMessage(self.coef, self.intercept, self.without, asked, **units))

    def ordered_pairs(self) -> np.ndarray:
        """Harrell's C of each, of pairs of rows within a site; one exchange. NaN where a fold is a site without any."""
        units = {"scaling": self.scaling, "folds": self.folds, "loss": self.loss}
        found = self.sites.ask(concordance, ConcordanceMessage(self.coef[:, :, 0], self.without, **units))
        known = np.asarray(found.pairs) > 0
        if not known.all() and not isinstance(self.folds, SiteFolds):
            raise ValueError(
                "in a fold, of no two rows of a site it is known who had the event first, so that there is no C-index; "
                "choose fewer folds (cv)"
            )
        return np.where(known, (found.concordant + found.tied / 2) / np.where(known, found.pairs, 1), np.nan)


def judged(models: HeldOutModels, measure: str, shape: tuple[int, ...]) -> MeasureTable:
    """A measure of models, by fold and strength: one exchange, or two."""
    if measure == "c_index":
        return MeasureTable(models.ordered_pairs().reshape(shape))
    found, size = models.errors(), float(models.scaling.label_size)
    if measure != "auc":
        return MeasureTable(np.reshape(mean_error(found, measure, size), shape))
    bins = bins_of(found, models.sites.has_weights)
    edges = spread_edges(of_strengths(found, shape), bins)  # the same for all folds, so that their counts add up
    counted = models.errors(np.tile(edges, (shape[0], 1)))
    area, bound = area_under_curve(counted)
    pooled = of_strengths(counted, shape)
    curves = tuple(map(HeldOutCurves, edges, pooled.rows, pooled.ones, pooled.expected))
    return MeasureTable(area.reshape(shape), bound.reshape(shape), curves)


def told_folds(owner: str, seen: MeasureTable, folds: Folds | None, depth: int) -> np.ndarray:
    """Which folds count: all, but for sites whose own rows tell no C-index, of which a warning is given to the caller
    that is so many calls up."""
    told = np.asarray(~np.isnan(seen.table).any(axis=1), bool)
    if told.all() or not isinstance(folds, SiteFolds):
        return np.ones(len(told), bool)
    without = naming.listed(name for name, one in zip(folds.left, told, strict=True) if not one)
    if told.sum() < 2:
        raise ValueError(
            f"{owner}: a C-index over sites needs two sites at which it is known of two rows who had the event first, "
            f"but at {without} it is of none; take measure='deviance', or a number of folds (cv)"
        )
    warnings.warn(
        f"{owner}: at {without} it is known of no two rows who had the event first, so that there is no C-index: the "
        "mean is over the other sites",
        stacklevel=depth + 1,
    )
    return told


def mean_error(found: HeldOutAnswer, measure: str, size: float) -> np.ndarray:
    """A measure that is a mean over rows, of models of labels that were divided by `size`."""
    sums = {
        "deviance": 2 * found.loss,
        "mse": found.squares * size**2,
        "mae": found.absolute * size,
        "misclassification": found.wrong,
    }
    return np.asarray(sums[measure] / found.n)


def bins_of(found: HeldOutAnswer, has_weights: bool) -> int:
    """Into how many bins predictions are counted: so many that the rows of the smallest fold can fill them."""
    few, most = BINS
    return few * 4 if has_weights else int(np.clip(np.min(found.n) // PER_BIN, few, most))


def of_strengths(found: HeldOutAnswer, shape: tuple[int, ...]) -> HeldOutAnswer:
    """The sums over all folds, by strength."""
    return HeldOutAnswer(*(np.asarray(one).reshape(*shape, *np.shape(one)[1:]).sum(axis=0) for one in found))


def spread_edges(found: HeldOutAnswer, bins: int) -> np.ndarray:
    """Edges between bins that would have as many rows each, were the predictions normal."""
    mean = found.total / found.n
    sd = np.sqrt(np.maximum(found.total_squares / found.n - mean**2, 0))
    return mean[:, None] + np.maximum(sd, 1e-9 * (1 + np.abs(mean)))[:, None] * ndtri(np.arange(1, bins) / bins)


def area_under_curve(found: HeldOutAnswer) -> tuple[np.ndarray, np.ndarray]:
    """The area under the ROC curve, pairs within a bin counting half; and half of their part, by which it may be off.

    >>> import numpy as np
    >>> from cofed.estimators.measures import area_under_curve
    >>> from cofed.sites.queries.held_out import HeldOutAnswer
    >>> nothing = np.zeros(1)
    >>> counts = np.array([[3.0, 2.0]]), np.array([[1.0, 2.0]])
    >>> area_under_curve(HeldOutAnswer(*(nothing,) * 7, *counts, nothing))
    (array([0.83333333]), array([0.16666667]))
    """
    ones, zeros = found.ones, found.rows - found.ones
    pairs = ones.sum(axis=1) * zeros.sum(axis=1)
    if not (pairs > 0).all():
        raise ValueError("a fold has rows of one class only, and so no area under a ROC curve; choose fewer folds (cv)")
    below = np.cumsum(zeros, axis=1) - zeros
    ties = (ones * zeros).sum(axis=1) / pairs
    return np.asarray((ones * below).sum(axis=1) / pairs + ties / 2), np.asarray(ties / 2)
