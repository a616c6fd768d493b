"""Units of labels and predictions, and what they are chosen by."""

import dataclasses

import numpy as np

from cofed._util.rounding import is_constant


@dataclasses.dataclass(frozen=True)
class LabelMoments:
    """What is known of the labels of all rows, from sums alone.

    Parameters
    ----------
    n : int
        The number of rows.
    mean, var : float
        Of the labels.
    saturated : float
        The mean loss of the saturated model.
    """

    n: int
    mean: float
    var: float
    saturated: float


@dataclasses.dataclass(frozen=True)
class LabelUnits:
    """Units of labels and predictions in which a problem is well scaled.

    Parameters
    ----------
    centre, size : float
        The label is solved for as (y - centre) / size; an infinite size makes a constant label 0.
    stretch, shift : float
        The user's prediction is stretch * prediction + shift.
    objective, least : float
        The user's mean loss is objective * mean loss + least.
    """

    centre: float = 0.0
    size: float = 1.0
    stretch: float = 1.0
    shift: float = 0.0
    objective: float = 1.0
    least: float = 0.0


def standard_units(labels: LabelMoments, fit_intercept: bool, degree: int) -> LabelUnits:
    """Labels centred (where there is an intercept) and divided by their standard deviation, of a loss that grows by
    s^degree where all errors grow by s."""
    mean = labels.mean if fit_intercept else 0.0
    var = labels.var if fit_intercept else labels.var + labels.mean**2
    if is_constant(labels.n, mean, var):
        return LabelUnits(mean, np.inf, 1.0, mean, 1.0, 0.0)
    size = float(np.sqrt(var))
    return LabelUnits(mean, size, size, mean, var if degree == 2 else size**degree, 0.0)
