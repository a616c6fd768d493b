"""The units in which a problem is solved, so that the scales and the means of X and y change nothing.

Columns are centred (where there is an intercept) and divided by their `width`; the y of a squared loss is centred and
divided by its standard deviation, counts by their mean. The penalty is brought along, so that it is the user's problem
that is solved: features that the penalty treats apart have a width each, those of a group, a matrix or a ball have one.
"""

import dataclasses

import numpy as np

from cofed._util.rounding import is_constant
from cofed.estimators.moments import Moments
from cofed.losses import LabelUnits
from cofed.sites import Scaling


@dataclasses.dataclass(frozen=True)
class Units:
    """How the solved problem's numbers come from the user's, and how they go back."""

    mean: np.ndarray  # taken off the columns; 0 without an intercept
    width: np.ndarray  # what the columns are divided by
    spread: np.ndarray  # the columns' root mean square after that; 0 for a constant one
    standard: np.ndarray  # what the penalty multiplies coefficients with: standard deviations, or 1
    labels: LabelUnits  # of y, the predictions and the objective

    @property
    def objective(self) -> float:
        """The user's objective, less a constant, is so many times the solved one."""
        return self.labels.objective

    @property
    def coef(self) -> np.ndarray:
        """The user's coefficients are so many times the solved ones."""
        return self.labels.stretch / self.width

    @property
    def penalised(self) -> np.ndarray:
        """What the user's penalty is about is so many times the solved coefficients."""
        return self.standard * self.coef

    def weights(self, ndim: int) -> np.ndarray:
        """`penalised`, to be multiplied with coefficients of so many dimensions, the first of them the features."""
        return self.penalised.reshape((-1,) + (1,) * (ndim - 1))

    @property
    def scaling(self) -> Scaling:
        """What the sites do to their rows; a column that is constant to rounding becomes exactly zero."""
        width = np.where(self.spread > 0, self.width, np.inf)
        centre = self.labels.centre
        own = tuple(centre.tolist()) if isinstance(centre, np.ndarray) else float(centre)
        return Scaling(self.mean, width, own, float(self.labels.size))

    def of_part(self, found: Moments, standardize: bool) -> "Units":
        """The same units, with what the penalty and the columns are in a part of the rows."""
        standard = found.scale if standardize else np.ones_like(self.mean)
        spread = np.where(self.spread > 0, np.sqrt(squares(found, self.mean)) / self.width, 0.0)
        return dataclasses.replace(self, standard=standard, spread=spread)


def squares(found: Moments, centre: np.ndarray) -> np.ndarray:
    """The mean squares of the columns around a centre."""
    return np.where(is_constant(found.n, found.mean, found.var), 0, found.var) + (found.mean - centre) ** 2


def units(found: Moments, labels: LabelUnits, *, fit_intercept: bool, standardize: bool, blocks: np.ndarray) -> Units:
    """The units of a problem. `blocks` labels the features: those with one label share a width.

    >>> import numpy as np
    >>> from cofed.estimators.moments import Moments
    >>> from cofed.estimators.units import units
    >>> from cofed.losses.label_units import LabelUnits
    >>> X = np.array([[1.0], [3.0]])
    >>> found = Moments(2, X.mean(axis=0), X.var(axis=0))
    >>> same = {"fit_intercept": True, "standardize": False, "blocks": np.zeros(1, int)}
    >>> made = units(found, LabelUnits(20.0, 10.0, 10.0, 20.0, 100.0), **same)
    >>> made.scaling.rows(X).tolist(), made.scaling.labels(np.array([10.0, 30.0])).tolist(), made.coef.tolist()
    ([[-1.0], [1.0]], [-1.0, 1.0], [10.0])
    """
    mean = found.mean if fit_intercept else np.zeros_like(found.mean)
    square = squares(found, mean)
    standard = found.scale if standardize else np.ones_like(mean)
    relative = np.sqrt(square) / standard
    _, label = np.unique(blocks, return_inverse=True)
    # A block's largest curvature is between the mean of its squares (nothing is correlated) and their sum (all is): in
    # the middle of that it is like the intercept's.
    level = np.sqrt(np.bincount(label, relative**2) / np.sqrt(np.bincount(label)))
    width = standard * np.where(level > 0, level, 1.0)[label]
    return Units(mean, width, np.sqrt(square) / width, standard, labels)
