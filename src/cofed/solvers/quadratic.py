"""argmin_z <g, z - x> + (z - x)' H (z - x)/2 + psi(z): what a server solves by itself, once it knows g and H.

Accelerated proximal gradient steps, and between them semi-smooth Newton steps on the fixed point z = prox(z - q'(z)/L):
those find the answer to round-off as soon as it is clear which coordinates move freely.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from cofed._util import trees

BURST = 32  # proximal gradient steps between two semi-smooth Newton steps
Vector = Float[Array, " s"]
Scalar = Float[Array, ""]
Matrix = Float[Array, "s s"]


class VectorPenalty(NamedTuple):
    """psi as a function of one vector."""

    prox: Callable[[Vector, Scalar], Vector]
    value: Callable[[Vector], Scalar]
    separable: bool  # whether it acts on each coordinate alone


class Point(NamedTuple):
    w: Vector  # the iterate
    Hw: Vector
    v: Vector  # the extrapolated point
    Hv: Vector
    t: Scalar  # the momentum's sequence
    L: Scalar  # the largest curvature met so far
    shift: Scalar  # added to H's diagonal, 0 unless negative curvature was met
    residual: Scalar  # L ||w - prox(w - q'(w)/L)||, at w
    bursts: Int[Array, ""]


def minimise(H: Matrix, g: Vector, x: Vector, psi: VectorPenalty, most: int = 400, precision: float = 8.0) -> Vector:
    """The minimiser, to `precision` units of round-off or after `most` bursts of steps.

    Where H is not positive semi-definite (of a loss that is not convex), a multiple of ||z - x||^2/2 is added that
    makes up for it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> from cofed.solvers.quadratic import VectorPenalty, minimise
    >>> soft = lambda v, step: jnp.sign(v) * jnp.maximum(jnp.abs(v) - step, 0)
    >>> l1 = VectorPenalty(soft, lambda v: jnp.sum(jnp.abs(v)), separable=True)
    >>> minimise(jnp.eye(2), jnp.array([-3.0, -1.5]), jnp.zeros(2), l1).round(9).tolist()
    [2.0, 0.5]
    """
    H, g, x = jax.lax.stop_gradient((H, g, x))  # derivatives do not go through the loop
    zero = jnp.zeros((), g.dtype)
    start = psi.prox(x, zero)  # an indicator's prox brings the start into its set
    solver = QuadraticSolver(H, g - H @ x, x, start, psi, precision)
    first = solver.opening(curvature(H), zero)
    return jax.lax.while_loop(lambda p: solver.unfinished(p) & (p.bursts < most), solver.burst, first).w


@dataclasses.dataclass(frozen=True, eq=False)  # by identity: JAX hashes the functions that it traces
class QuadraticSolver:
    """The steps of `minimise`. q'(z) = c + H z, or c - shift x + (H + shift) z where a shift makes up for H."""

    H: Matrix
    c: Vector
    x: Vector
    start: Vector
    psi: VectorPenalty
    precision: float

    @property
    def eps(self) -> np.floating:
        """A unit of round-off."""
        return jnp.finfo(self.c.dtype).eps

    def opening(self, L: Scalar, shift: Scalar) -> Point:
        """Where to begin, with this curvature and shift."""
        one = jnp.ones((), self.c.dtype)
        bent = self.bend(self.start, shift)
        return Point(self.start, bent, self.start, bent, one, L, shift, jnp.inf * one, jnp.zeros((), jnp.int32))

    def bend(self, z: Vector, shift: Scalar) -> Vector:
        """(H + shift) z"""
        return self.H @ z + shift * z

    def slope_at(self, Hz: Vector, p: Point) -> Vector:
        """q'(z)"""
        return self.c - p.shift * self.x + Hz

    def forward(self, z: Vector, Hz: Vector, p: Point) -> Vector:
        """prox(z - q'(z)/L)"""
        return self.psi.prox(z - self.slope_at(Hz, p) / p.L, 1 / p.L)

    def total(self, p: Point) -> Scalar:
        """q + psi at w, up to a constant"""
        return p.w @ (self.c - p.shift * self.x + p.Hw / 2) + self.psi.value(p.w)

    def measured(self, p: Point) -> Point:
        """The point with its residual."""
        return p._replace(residual=p.L * norm(p.w - self.forward(p.w, p.Hw, p)))

    def unfinished(self, p: Point) -> Bool[Array, ""]:
        """Whether the residual is above round-off."""
        return p.residual > self.precision * self.eps * (norm(self.c) + p.L * norm(p.w))

    def burst(self, p: Point) -> Point:
        """Proximal gradient steps, then two Newton steps."""
        p = self.measured(jax.lax.fori_loop(0, BURST, self.gradient_step, p))
        p = jax.lax.fori_loop(0, 2, lambda _, q: self.newton_step(q), p)
        return p._replace(bursts=p.bursts + 1)

    def gradient_step(self, _: Int[Array, ""] | int, p: Point) -> Point:
        """An accelerated proximal gradient step; from the start again where L or the shift was too small."""
        w = self.forward(p.v, p.Hv, p)
        Hw = self.bend(w, p.shift)
        ahead, moved = w - p.v, w - p.w
        square = ahead @ ahead
        seen = (ahead @ (Hw - p.Hv)) / jnp.where(square > 0, square, 1)
        # Of two points that nearly agree, the curvature between them is mostly round-off.
        noise = 64 * self.eps * p.L * norm(w) / jnp.where(square > 0, jnp.sqrt(square), 1)
        t = jnp.where(ahead @ moved < 0, 1, p.t)
        following = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        beta = (t - 1) / following
        went = p._replace(w=w, Hw=Hw, v=w + beta * moved, Hv=Hw + beta * (Hw - p.Hw), t=following)
        # A curvature above L: the step was too long, so it is taken again from where the last burst stood.
        back = p._replace(v=p.w, Hv=p.Hw, t=jnp.ones_like(p.t), L=1.05 * seen)
        new = trees.where(seen > p.L + noise, back, went)
        shift = 2 * (p.shift - seen)
        again = self.opening(p.L + shift, shift)._replace(bursts=p.bursts)
        return trees.where(seen < -1e-9 * p.L - noise, again, new)

    def newton_step(self, p: Point) -> Point:
        """A semi-smooth Newton step on w = prox(w - q'(w)/L), where it helps."""
        u, step = p.w - self.slope_at(p.Hw, p) / p.L, 1 / p.L
        slope = prox_slope(self.psi, u, step)
        identity = jnp.eye(u.size, dtype=u.dtype)
        # A direction without curvature (a constant added to all classes) must not stop the rest: hence the 1e-11.
        matrix = (1 + 1e-11) * identity - slope((1 - p.shift / p.L) * identity - self.H / p.L)
        z = p.w - jnp.linalg.solve(matrix, p.w - self.psi.prox(u, step))
        w = self.forward(z, self.bend(z, p.shift), p)  # so that exact zeros stay exact
        Hw = self.bend(w, p.shift)
        new = self.measured(p._replace(w=w, Hw=Hw, v=w, Hv=Hw, t=jnp.ones_like(p.t)))
        # False where the matrix is singular; a small residual alone may be far away, where q + psi is nearly flat.
        before, after = self.total(p), self.total(new)
        better = (new.residual < p.residual) & (after <= before + self.precision * self.eps * jnp.abs(before))
        return trees.where(better, new, p)


def prox_slope(psi: VectorPenalty, u: Vector, step: Scalar) -> Callable[[Matrix], Matrix]:
    """The derivative of v -> prox(v, step) at u, as a function of a matrix that it multiplies from the left."""
    if psi.separable:
        diagonal = jax.jvp(lambda v: psi.prox(v, step), (u,), (jnp.ones_like(u),))[1]
        return lambda matrix: diagonal[:, None] * matrix
    jacobian = jax.jacfwd(lambda v: psi.prox(v, step))(u)
    return lambda matrix: jacobian @ matrix


def curvature(H: Matrix) -> Scalar:
    """A first estimate of the largest eigenvalue, by power iteration; 1 where H is zero."""

    def power(_, v):
        v = H @ v
        return v / jnp.maximum(norm(v), jnp.finfo(v.dtype).tiny)

    v = jax.lax.fori_loop(0, 8, power, jnp.sqrt(jnp.abs(jnp.diagonal(H))) + jnp.finfo(H.dtype).eps)
    top = 1.02 * jnp.maximum(norm(H @ v), jnp.max(jnp.abs(jnp.diagonal(H))))
    return jnp.where(top > 0, top, 1)


def norm(v: Vector) -> Scalar:
    """||v||_2"""
    return jnp.sqrt(v @ v)
