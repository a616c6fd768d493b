"""argmin_z <g, z - x> + (z - x)' H (z - x)/2 + psi(z): what a server solves by itself, once it knows g and H.

Accelerated proximal gradient steps, and between them semi-smooth Newton steps on the fixed point z = prox(z - q'(z)/L):
those find the answer to round-off as soon as it is clear which coordinates move freely.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

BURST = 32  # proximal gradient steps between two semi-smooth Newton steps
Vector = Float[Array, " s"]
Scalar = Float[Array, ""]


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


def minimise(
    H: Float[Array, "s s"],
    g: Vector,
    x: Vector,
    prox: Callable[[Vector, Scalar], Vector],
    value: Callable[[Vector], Scalar],
    separable: bool,
    most: int = 400,
    precision: float = 8.0,
) -> Vector:
    """The minimiser, to `precision` units of round-off or after so many bursts of steps.

    `prox(v, step)` and `value(v)` are psi's; `separable` says that it acts on each coordinate alone. Where H is not
    positive semi-definite (of a loss that is not convex), a multiple of ||z - x||^2/2 is added that makes up for it.

    >>> soft = lambda v, step: jnp.sign(v) * jnp.maximum(jnp.abs(v) - step, 0)
    >>> l1 = lambda v: jnp.sum(jnp.abs(v))
    >>> minimise(jnp.eye(2), jnp.array([-3.0, -1.5]), jnp.zeros(2), soft, l1, True).round(9).tolist()
    [2.0, 0.5]
    """
    H, g, x = jax.lax.stop_gradient((H, g, x))  # derivatives do not go through the loop
    c = g - H @ x  # q'(z) = c + H z, or with a shift c - shift x + (H + shift) z
    eps = jnp.finfo(g.dtype).eps

    def bend(z, shift):
        return H @ z + shift * z

    def slope_at(Hz, p: Point):
        return c - p.shift * x + Hz

    def forward(z, Hz, p: Point):
        return prox(z - slope_at(Hz, p) / p.L, 1 / p.L)

    def total(p: Point) -> Scalar:
        return p.w @ (c - p.shift * x + p.Hw / 2) + value(p.w)

    def burst_step(_, p: Point) -> Point:
        w = forward(p.v, p.Hv, p)
        Hw = bend(w, p.shift)
        ahead, moved = w - p.v, w - p.w
        square = ahead @ ahead
        seen = (ahead @ (Hw - p.Hv)) / jnp.where(square > 0, square, 1)
        # Of two points that nearly agree, the curvature between them is mostly round-off.
        noise = 64 * eps * p.L * norm(w) / jnp.where(square > 0, jnp.sqrt(square), 1)
        t = jnp.where(ahead @ moved < 0, 1, p.t)
        following = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        beta = (t - 1) / following
        went = p._replace(w=w, Hw=Hw, v=w + beta * moved, Hv=Hw + beta * (Hw - p.Hw), t=following)
        # A curvature above L: the step was too long, so it is taken again from where the last burst stood.
        back = p._replace(v=p.w, Hv=p.Hw, t=jnp.ones_like(p.t), L=1.05 * seen)
        new = jax.tree.map(lambda a, b: jnp.where(seen > p.L + noise, a, b), back, went)
        shift = 2 * (p.shift - seen)
        again = opening(p.L + shift, shift)._replace(bursts=p.bursts)
        return jax.tree.map(lambda a, b: jnp.where(seen < -1e-9 * p.L - noise, a, b), again, new)

    def measured(p: Point) -> Point:
        return p._replace(residual=p.L * norm(p.w - forward(p.w, p.Hw, p)))

    def newton(p: Point) -> Point:
        u, step = p.w - slope_at(p.Hw, p) / p.L, 1 / p.L
        slope = prox_slope(prox, u, step, separable)
        identity = jnp.eye(u.size, dtype=u.dtype)
        # A direction without curvature (a constant added to all classes) must not stop the rest: hence the 1e-11.
        matrix = (1 + 1e-11) * identity - slope((1 - p.shift / p.L) * identity - H / p.L)
        z = p.w - jnp.linalg.solve(matrix, p.w - prox(u, step))
        w = forward(z, bend(z, p.shift), p)  # so that exact zeros stay exact
        Hw = bend(w, p.shift)
        new = measured(p._replace(w=w, Hw=Hw, v=w, Hv=Hw, t=jnp.ones_like(p.t)))
        # False where the matrix is singular; a small residual alone may be far away, where q + psi is nearly flat.
        before, after = total(p), total(new)
        better = (new.residual < p.residual) & (after <= before + precision * eps * jnp.abs(before))
        return jax.tree.map(lambda a, b: jnp.where(better, a, b), new, p)

    def burst(p: Point) -> Point:
        p = measured(jax.lax.fori_loop(0, BURST, burst_step, p))
        p = jax.lax.fori_loop(0, 2, lambda _, q: newton(q), p)
        return p._replace(bursts=p.bursts + 1)

    def more(p: Point):
        floor = precision * eps * (norm(c) + p.L * norm(p.w))
        return (p.residual > floor) & (p.bursts < most)

    one = jnp.ones((), g.dtype)
    start = prox(x, 0 * one)  # an indicator's prox brings the start into its set

    def opening(L, shift) -> Point:
        bent = bend(start, shift)
        return Point(start, bent, start, bent, one, L, shift, jnp.inf * one, jnp.zeros((), jnp.int32))

    return jax.lax.while_loop(more, burst, opening(curvature(H), 0 * one)).w


def prox_slope(prox: Callable, u: Vector, step: Scalar, separable: bool) -> Callable[[Any], Any]:
    """The derivative of v -> prox(v, step) at u, as a function of a matrix that it multiplies from the left."""
    if separable:
        diagonal = jax.jvp(lambda v: prox(v, step), (u,), (jnp.ones_like(u),))[1]
        return lambda matrix: diagonal[:, None] * matrix
    jacobian = jax.jacfwd(lambda v: prox(v, step))(u)
    return lambda matrix: jacobian @ matrix


def curvature(H: Float[Array, "s s"]) -> Scalar:
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
