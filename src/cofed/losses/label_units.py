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
    mean, var : float or array
        Of the labels; of several responses, one each.
    saturated : float
        The mean loss of the saturated model.
    """

    n: int
    mean: float | np.ndarray
    var: float | np.ndarray
    saturated: float


@dataclasses.dataclass(frozen=True)
class LabelUnits:
    """Units of labels and predictions in which a problem is well scaled.

    Parameters
    ----------
    centre, size : float
        The label is solved for as (y - centre) / size; an infinite size makes a constant label 0. Several responses
        have a centre each, an array, and one size.
    stretch, shift : float
        The user's prediction is stretch * prediction + shift; the shift is an array where the centre is.
    objective, least : float
        The user's mean loss is objective * mean loss + least.
    """

    centre: float | np.ndarray = 0.0
    size: float = 1.0
    stretch: float = 1.0
    shift: float | np.ndarray = 0.0
    objective: float = 1.0
    least: float = 0.0


def standard_units(labels: LabelMoments, fit_intercept: bool, degree: int) -> LabelUnits:
    """Labels centred (where there is an intercept) and divided by their standard deviation, of a loss that grows by
    s^degree where all errors grow by s."""
    mean = labels.mean if fit_intercept else 0.0 * labels.mean
    var = labels.var if fit_intercept else labels.var + labels.mean**2
    if np.all(is_constant(labels.n, np.asarray(mean), np.asarray(var))):
        return LabelUnits(mean, np.inf, 1.0, mean, 1.0, 0.0)
    square = float(np.mean(var))  # of all responses: a size for each would weigh them otherwise than the user does
    size = float(np.sqrt(square))
    return LabelUnits(mean, size, size, mean, square if degree == 2 else size**degree, 0.0)
