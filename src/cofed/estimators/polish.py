"""The exact minimiser of a penalised quadratic model, piece by piece, for penalties that act on each coordinate alone.

Such a penalty is smooth but for kinks: |w_j| at zero, a constraint at its bounds. Between two kinks, and with the other
coordinates held at theirs, the problem is a linear system, which is solved directly; directions without curvature are
followed to the next kink. A coordinate that reaches a kink is held there, and one that pulls away from it is let go,
until none does: an active-set method, as Lee, Battle, Raina, Ng 2006, NIPS ("feature-sign search"). Unlike iterations
of proximal steps it does not slow down where the problem is nearly flat.
"""

import copy
import dataclasses

import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cofed._util.rounding import EPS
from cofed.models import Weights
from cofed.regularizers import AbstractRegularizer

Vector = np.ndarray


class Pieces:
    """psi(w) = sum_j slope_j w_j + ridge_j w_j^2 / 2 on low_j <= w_j <= high_j, the piece that w is in."""

    def __init__(self, psi: AbstractRegularizer, like: Weights):
        form = psi.piecewise_quadratic()
        assert form is not None
        free = 0 if like.intercept is None else np.size(like.intercept)
        # The intercept is neither penalised nor bounded.
        widen = lambda a, fill: np.append(np.broadcast_to(a, like.coef.shape).ravel(), np.full(free, fill))  # noqa: E731
        self.l1, self.ridge = widen(form.l1, 0.0), widen(form.ridge, 0.0)
        self.least, self.most = widen(form.low, -np.inf), widen(form.high, np.inf)

    def scaled(self, factor: float) -> "Pieces":
        """The same with factor times the penalty."""
        found = copy.copy(self)
        found.l1, found.ridge = factor * self.l1, factor * self.ridge
        return found

    def around(self, w: Vector, downhill: Vector) -> tuple[Vector, Vector, Vector]:
        """slope, low and high around w; of a coordinate at a kink, on the side that it is drawn to."""
        sign = np.where(w != 0, np.sign(w), np.sign(downhill)) * (self.l1 > 0)
        low = np.where(sign > 0, 0.0, self.least)
        return self.l1 * sign, low, np.where(sign < 0, 0.0, self.most)


@dataclasses.dataclass(frozen=True)
class QuadraticModel:
    """<g, z - x> + (z - x)' H (z - x)/2 + psi(z), with how well the entries of g are known."""

    H: Vector
    g: Vector
    x: Vector
    pieces: Pieces
    noise: Vector

    def pull(self, z: Vector) -> Vector:
        """The direction in which the smooth part falls at z."""
        return -(self.g + self.H @ (z - self.x) + self.pieces.ridge * z)


def by_pieces(
    psi: AbstractRegularizer, hessian: Float[Array, "d d"], gradient: Weights, w: Weights, noise: Weights
) -> Weights:
    """The minimiser of the quadratic model at w + psi, with what is known of the loss there."""
    x, back = ravel_pytree(w)
    g, e = (np.asarray(ravel_pytree(one)[0]) for one in (gradient, noise))
    return back(jnp.asarray(minimise_by_pieces(np.asarray(hessian), g, np.asarray(x), Pieces(psi, w), e / 8)))


def minimise_by_pieces(H: Vector, g: Vector, x: Vector, pieces: Pieces, noise: Vector) -> Vector:
    """argmin_z <g, z - x> + (z - x)' H (z - x)/2 + psi(z), sought from x inside psi's domain.

    `noise` is how well the gradient's entries are known: what pulls less than that does not pull.
    """
    model, z = QuadraticModel(H, g, x, pieces, noise), np.clip(x, pieces.least, pieces.most)
    slope, low, high = pieces.around(z, 0 * z)
    moving = (low < z) & (z < high) & ((z != 0) | (pieces.l1 == 0))
    for _ in range(10 * z.size):
        z, moving = settle(model, z, moving)
        pull = model.pull(z)
        slope, low, high = pieces.around(z, pull)
        pull = pull - slope
        inward = ((pull > noise) & (z < high)) | ((pull < -noise) & (z > low))
        strength = np.where(inward & ~moving, np.abs(pull) / noise, 0)
        if not strength.any():
            break
        moving[np.argmax(strength)] = True
    return z


def settle(model: QuadraticModel, z: Vector, moving: Vector) -> tuple[Vector, Vector]:
    """The minimiser over those that move, of which some may come to be held at a kink."""
    z, moving, pieces = z.copy(), moving.copy(), model.pieces
    polished = False
    while moving.any():
        S = np.flatnonzero(moving)
        pull = model.pull(z)
        slope, low, high = (a[S] for a in pieces.around(z, pull))
        d, endless = direction(model.H[np.ix_(S, S)] + np.diag(pieces.ridge[S]), pull[S] - slope, model.noise[S])
        bound = np.where(d > 0, high, low)
        reach = np.where(d != 0, (bound - z[S]) / np.where(d != 0, d, 1), np.inf)
        first = int(np.argmin(reach))
        if not endless and reach[first] > 1:
            z[S] = z[S] + d
            if polished:
                break
            polished = True  # a second solve takes off the rounding of the first
            continue
        if not np.isfinite(reach[first]):
            break
        z[S] = z[S] + reach[first] * d
        z[S[first]] = bound[first]
        moving[S[first]] = False
        polished = False
    return z, moving


def direction(M: Vector, pull: Vector, noise: Vector) -> tuple[Vector, bool]:
    """M^{-1} pull; where pull is along a direction without curvature, that direction, which has no end."""
    values, vectors = np.linalg.eigh(M)
    rounding = 4 * EPS * values.size  # of the decomposition, relative to the largest entry
    flat = values <= rounding * np.abs(values).max(initial=0)
    along = vectors.T @ pull
    slide = vectors[:, flat] @ along[flat]
    if np.any(np.abs(slide) > np.maximum(noise, rounding * np.abs(pull).max(initial=0))):
        return slide, True
    return vectors[:, ~flat] @ (along[~flat] / values[~flat]), False
