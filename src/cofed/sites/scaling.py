"""The units in which a question is about rows."""

import equinox as eqx
import numpy as np


class Scaling(eqx.Module):
    """The units in which a question is about the rows: (X - centre) / width and (y - label_centre) / label_size.

    Attributes
    ----------
    centre, width : array of shape (p,)
        Of the features. An infinite width makes a feature exactly 0.
    label_centre, label_size : float
        Of numeric labels; labels of classes stay as they are. Several responses have a tuple of
        floats, whose type says no more, as checkers would draw one of them at random.
    """

    centre: np.ndarray
    width: np.ndarray
    label_centre: float | tuple = eqx.field(static=True, default=0.0)
    label_size: float = eqx.field(static=True, default=1.0)

    def rows(self, X: np.ndarray) -> np.ndarray:
        """The features in these units."""
        fixed = np.isinf(self.width)
        return np.where(fixed, 0.0, (X - self.centre) / np.where(fixed, 1.0, self.width))

    def labels(self, y: np.ndarray) -> np.ndarray:
        """The labels in these units."""
        if (self.label_centre, self.label_size) == (0.0, 1.0):
            return y
        return (y - np.asarray(self.label_centre)) / self.label_size
