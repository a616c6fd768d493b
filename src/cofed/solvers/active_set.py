"""argmin_z <g, z - x> + (z - x)' H (z - x)/2 + sum_j l1_j |z_j| + ridge_j z_j^2/2, to rounding, from a good guess.

An active-set method in the manner of Lee, Battle, Raina, Ng 2006, NIPS ("feature-sign search"), with whole blocks of
coordinates entering and leaving at once. A step is one Cholesky solve on the coordinates in use. Coordinates at zero
that the slope pulls away enter all together; those that would go the wrong way are sent home again. Coordinates in use
that would change sign are all set to zero, or the step ends at the best point along it, whichever is lower. Every step
lowers the objective, so there is an end; from the answer to a similar problem it takes one to three steps.
"""

import warnings
from typing import NamedTuple

import numpy as np
from scipy.linalg.lapack import dposv  # pyright: ignore[reportAttributeAccessIssue]
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from cofed._util.rounding import EPS

Vector = np.ndarray
SWEEPS = 2000  # of coordinate descent
FEW, MOST = 20, 200  # steps from a guess, and from an answer to nearly the same problem
FARTHEST = 1e100  # coordinates: products of larger ones overflow
LIFT = 1e-11  # of the diagonal, for what has no curvature; later steps make up for it
FLAT = 1e-200  # the least of it, where nothing has any: steps are farther than FARTHEST then, and still numbers


class ElasticQuadratic(NamedTuple):
    """The function to minimise. Coordinates with l1_j = 0 have no kink."""

    H: np.ndarray  # d x d, symmetric, positive semi-definite
    g: Vector
    x: Vector
    l1: Vector
    ridge: Vector

    def slope(self, z: Vector) -> Vector:
        """The gradient of all but the l1 norm."""
        return self.g + self.H @ (z - self.x) + self.ridge * z

    def value(self, z: Vector) -> float:
        """The function."""
        away = z - self.x
        return float(away @ (self.g + self.H @ away / 2) + self.l1 @ np.abs(z) + self.ridge @ z**2 / 2)


def minimise(q: ElasticQuadratic, z: Vector) -> Vector:
    """The minimiser, sought from z.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.solvers.active_set import ElasticQuadratic, minimise
    >>> q = ElasticQuadratic(np.eye(2), np.array([-3.0, 0.5]), np.zeros(2), np.ones(2), np.zeros(2))
    >>> minimise(q, np.zeros(2)).round(9).tolist()
    [2.0, 0.0]
    """
    found, settled = descended(q, z, FEW)
    if not settled:  # a guess too far off
        found, settled = descended(q, by_coordinates(q, found), FEW)
    if settled:
        return found
    # Down from an l1 norm so strong that nothing is used, each answer the next one's guess.
    kinked = q.l1 > 0
    z = free_only(q, kinked)
    top = float(np.max(np.abs(q.slope(z)[kinked]) / q.l1[kinked], initial=1.0))
    for factor in np.geomspace(top, 1, int(np.ceil(np.log(top) / np.log(1.5))) + 1):
        z, _ = descended(q._replace(l1=factor * q.l1), z, MOST)
    return z


def by_coordinates(q: ElasticQuadratic, z: Vector) -> Vector:
    """A better guess: scikit-learn's coordinate descent from z, where the penalty is an elastic net in some units.

    It is given products alone: its one row of features is not read.
    """
    kinked = q.l1 > 0
    if not (q.H.any() or q.ridge.any()):  # nothing bends, and a pull goes to infinity
        return z
    own, free = np.flatnonzero(kinked), np.flatnonzero(~kinked)
    unit = q.l1[own]
    ridges = q.ridge[own] / unit**2
    if not len(own) or not np.allclose(ridges, ridges[0], rtol=1e-9, atol=0):
        return z
    # What is free follows from the others: it is taken out of the products.
    target = q.H @ q.x - q.g
    across = np.linalg.lstsq(block(q.H, free) + np.diag(q.ridge[free]), q.H[np.ix_(free, own)])[0]
    G = (block(q.H, own) - q.H[np.ix_(own, free)] @ across) / unit / unit[:, None]
    Xy = (target[own] - across.T @ target[free]) / unit
    ridge = float(ridges[0])
    square = Xy @ solve(G.copy(), np.zeros(len(own)), Xy)  # of labels that are explained wholly
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # what comes of it is looked at
        v = enet_path(
            np.zeros((1, len(own))),
            np.array([np.sqrt(max(float(square), np.finfo(float).tiny))]),
            l1_ratio=1 / (1 + ridge),
            alphas=np.array([1 + ridge]),  # pyright: ignore[reportArgumentType]
            precompute=np.ascontiguousarray(G),  # pyright: ignore[reportArgumentType]
            Xy=Xy,
            coef_init=z[own] * unit,
            check_input=False,
            tol=1e-10,
            max_iter=SWEEPS,
        )[1][:, 0]
    found = np.zeros_like(z)
    found[own] = v / unit
    found[free] = np.linalg.lstsq(block(q.H, free) + np.diag(q.ridge[free]), -q.slope(found)[free])[0]
    return found if q.value(found) < q.value(z) else z


def free_only(q: ElasticQuadratic, kinked: np.ndarray) -> Vector:
    """The minimiser where all coordinates with a kink are zero."""
    z, free = np.zeros_like(q.x), np.flatnonzero(~kinked)
    z[free] = solve(block(q.H, free), q.ridge[free], -q.slope(z)[free])
    return z if np.abs(z).max(initial=0) < FARTHEST else np.zeros_like(z)


def descended(q: ElasticQuadratic, z: Vector, most: int) -> tuple[Vector, bool]:
    """Steps from z until the minimum is reached to rounding, and whether it was."""
    free = q.l1 == 0
    root = np.sqrt(np.maximum(q.H.diagonal(), 0))  # |H_jk| <= root_j root_k
    for _ in range(most):
        slope, size = q.slope(z), np.abs(z)
        # What pulls less than the rounding of the slope does not pull.
        noise = 2 * EPS * (np.abs(q.g) + q.l1 + root * (root @ (size + np.abs(q.x))) + q.ridge * size)
        used = (z != 0) | free
        new = ~used & (np.abs(slope) > q.l1 + noise)
        pull = -slope - q.l1 * np.where(z != 0, np.sign(z), -np.sign(slope))
        calm = bool(np.all(np.abs(pull[used]) <= noise[used]))
        if calm and not new.any():
            return z, True
        active, step = block_step(q, pull, used, new, calm)
        moved = advanced(q, z, active, step, pull)
        if not np.abs(moved).max() < FARTHEST:  # along a direction that is flat but for rounding
            return z, False
        z = moved
        if pull[active] @ step <= noise[active] @ np.abs(step):  # a step that rounding has made
            return z, True
    return z, False


def block_step(q: ElasticQuadratic, pull: Vector, used: Vector, new: Vector, calm: bool) -> tuple[Vector, Vector]:
    """The Newton step on the coordinates in use and those newcomers that go where they are pulled.

    Where those in use are calm, at least the newcomer that is pulled most goes its way.
    """
    strongest, new = np.argmax(np.where(new, np.abs(pull), -1)), new.copy()
    while True:
        active = np.flatnonzero(used | new)
        step = solve(block(q.H, active), q.ridge[active], pull[active])
        wrong = new[active] & (step * pull[active] <= 0)
        if not wrong.any():
            return active, step
        new[active[wrong]] = False
        if calm and not new.any():
            new[strongest], calm = True, False


def block(H: np.ndarray, active: Vector) -> np.ndarray:
    """A copy of some rows and columns."""
    return H.take(active, axis=0).take(active, axis=1)


def solve(M: np.ndarray, ridge: Vector, b: Vector) -> Vector:
    """(M + diag(ridge))^{-1} b, of a matrix that is a little larger; more so where it is singular still. M is lost."""
    if not b.size:
        return b
    diagonal = M.reshape(-1)[:: len(b) + 1]
    diagonal += ridge
    lift = np.maximum(LIFT * np.maximum(diagonal, 1e-8 * float(diagonal.max())), FLAT)
    while True:
        diagonal += lift
        _, found, failed = dposv(M.T, b, lower=1)  # symmetric, and in LAPACK's own order when transposed
        if not failed:
            return found
        lift *= 100


def advanced(q: ElasticQuadratic, z: Vector, active: Vector, step: Vector, pull: Vector) -> Vector:
    """z after the step; where coordinates would change sign, with those at zero, or as far along as it goes down."""
    moved, own = z.copy(), z[active]
    moved[active] = own + step
    crossing = np.flatnonzero((q.l1[active] > 0) & (moved[active] * np.sign(own) < 0))
    if not crossing.size:
        return moved
    clipped = moved.copy()
    clipped[active[crossing]] = 0.0
    when = -own[crossing] / step[crossing]
    order = np.argsort(when)
    crossing, when = crossing[order], when[order]
    fall = float(pull[active] @ step)  # minus the slope along the step, and its curvature, as the step is Newton's
    kinks = 2 * np.cumsum(q.l1[active][crossing] * np.abs(step[crossing]))
    rising = fall * (when - 1) + kinks >= 0  # just after each kink
    first = int(np.argmax(rising)) if rising.any() else len(when)
    lowest = 1 - (kinks[first - 1] if first else 0.0) / fall  # where the slope vanishes in front of that kink
    if first < len(when) and lowest >= when[first]:
        moved[active] = own + when[first] * step
        moved[active[crossing[first]]] = 0.0
    else:
        moved[active] = own + lowest * step
    with np.errstate(over="ignore", invalid="ignore"):  # of a step that is too long: see FARTHEST
        return clipped if q.value(clipped) < q.value(moved) else moved
