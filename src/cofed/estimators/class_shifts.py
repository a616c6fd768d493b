"""Coefficients of several classes: which of those that predict the same are told.

The same number, added to a feature's coefficients of all classes, changes no probability. An l1 norm wants the number
to be a median of them. Of an even number of classes, the two in the middle and all between serve, and rounding would
decide: so it is one of the two, which sets a coefficient to zero. More zeros count first, and then shorter vectors.
Of a feature that is not penalised any number serves: it is their mean, which gives the shortest vector, to which weak
ridges and norms of groups lead.
"""

import jax.numpy as jnp
import numpy as np

from cofed._util.rounding import EPS
from cofed.regularizers import AbstractRegularizer

SAME = 64 * EPS  # beside a feature's largest coefficient
STRONG = 1e50  # a step of a prox: what it does not move is not penalised


def sparsest_shift(psi: AbstractRegularizer, coef: np.ndarray) -> np.ndarray:
    """The coefficients (features, classes), those of each feature moved together as its l1 norm likes it best.

    Features whose penalty is another one, is not the same for all classes, or has bounds, stay as they are.

    Parameters
    ----------
    psi : AbstractRegularizer
        The penalty.
    coef : ndarray of shape (features, classes)
        The coefficients.

    Returns
    -------
    ndarray of shape (features, classes)
        The coefficients that are told.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> from cofed.estimators.class_shifts import sparsest_shift
    >>> sparsest_shift(cofed.L1(0.1), np.array([[-2.0, -0.5, 0.5, 3.0]])).tolist()
    [[-2.5, -1.0, 0.0, 2.5]]
    """
    form = psi.piecewise_quadratic()
    shortest = coef - coef.mean(axis=1, keepdims=True)
    if form is None:
        unmoved = np.asarray(psi.prox(jnp.ones(coef.shape), STRONG)) == 1
        return np.where(unmoved.all(axis=1)[:, None], shortest, coef)
    l1, ridge, low, high = (np.broadcast_to(one, coef.shape) for one in (form.l1, form.ridge, form.low, form.high))
    endless = (ridge == 0) & np.isneginf(low) & np.isposinf(high)
    alike, free = (l1 > 0) & (l1 == l1[:, :1]) & endless, (l1 == 0) & endless
    order, count = np.sort(coef, axis=1), coef.shape[1]
    middle = order[:, [(count - 1) // 2, count // 2]].T  # (2, features)
    near = SAME * np.abs(coef).max(axis=1, initial=0)
    zeros = (np.abs(coef - middle[:, :, None]) <= near[:, None]).sum(axis=2)
    length = np.abs(middle - coef.mean(axis=1))  # a shift by the mean gives the shortest vector
    second = (zeros[1] > zeros[0]) | ((zeros[1] == zeros[0]) & (length[1] < length[0]))
    moved = coef - np.where(second, middle[1], middle[0])[:, None]
    moved = np.where(np.abs(moved) <= near[:, None], 0.0, moved)
    moved = np.where(alike.all(axis=1)[:, None], moved, coef)
    return np.where(free.all(axis=1)[:, None], shortest, moved)
