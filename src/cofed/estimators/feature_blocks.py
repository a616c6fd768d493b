"""Which features must keep their proportions when a problem is put into the units of the solver."""

import numpy as np
import numpy.typing as npt

from cofed._util.types import Given
from cofed.estimators.solver import DENSE


def treated_apart(features: int, outputs: int, l1_ratio: Given[npt.ArrayLike]) -> np.ndarray:
    """The labels of features under an elastic net, or under each of several, for `_blocks`: one each.

    A ridge penalty alone with many parameters is FedFISTA's, whose rounds grow with the condition number: there all
    features keep their proportions, so that the penalty curves all of them alike.
    """
    together = np.max(l1_ratio) == 0 and features * outputs > DENSE
    return np.zeros(features, int) if together else np.arange(features)
