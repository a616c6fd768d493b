"""How exact a fit is: its duality gap, from the loss and the gradient alone.

    P(w) = F(w) + psi(w),  F(w) = mean_i f(x_i w + b, y_i);     D(theta) = -mean_i f*(theta_i) - psi*(-X' theta / N)

with mean_i theta_i = 0 where there is a free intercept. Weak duality, P(w) - min P <= P(w) - D(theta), holds for every
such theta. Here theta_i = f'(prediction_i) at a point v, so that X' theta / N is the gradient g of F at v and, by
Fenchel and Young's equality, mean f*(theta_i) = <v, grad F(v)> - F(v): nothing but what the clients send anyway. Then

- where the intercept's gradient is not 0, theta is mixed with that of a model without features, chosen such that the
  mean vanishes. Features are centred, so that model's gradient does not depend on its intercept. f* is convex, so the
  mixture of the two values is an upper bound on it.
- where -g is outside psi*'s domain (a norm's dual ball), theta is scaled by s in [0, 1]; again by convexity
  mean f*(s theta_i) <= s mean f*(theta_i) - (1 - s) mean_i min f(., y_i).
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed import trees
from cofed.losses import Logistic, Poisson, Softmax, Squared
from cofed.problem import Problem
from cofed.regularizers import Box, ElasticNet, L1Ball, L2Ball, On, Simplex

Scalar = Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far from optimal a fit can be, on the documented objective.

    `gap` bounds the objective's distance from its minimum (infinite where there is no finite dual value), and
    `prox_gradient` is ||w - prox(w - gradient)||, zero exactly at a minimum. `scale` is the loss of the model without
    features. `converged`: gap <= tol * scale (or round-off, where that is more); where there is no dual, the
    prox-gradient norm is at most tol**0.5 times the gradient of that model.
    """

    objective: float
    gap: float
    prox_gradient: float
    scale: float
    tol: float
    converged: bool


class Null(eqx.Module):
    """What is known of the model without features, whose intercept is free."""

    gradient: PyTree  # of the coefficients, at the model without features
    mean: Float[Array, "*k"]  # the mean of y (for classes: their shares)
    loss: Scalar  # its loss
    least: Scalar  # mean_i min_z f(z, y_i)


class Look(eqx.Module):
    """What one exchange tells of a model w: F and its gradient."""

    loss: Scalar
    gradient: PyTree
    objective: Scalar
    gap: Scalar
    prox_gradient: Scalar


def look(problem: Problem, null: Null, w: PyTree, loss: Scalar, gradient: PyTree) -> Look:
    """The certificate of w from its loss and gradient."""
    psi = problem.regularizer
    residual = trees.sub(w, psi.prox(trees.sub(w, gradient), 1.0))
    gap = duality_gap(problem, null, w, loss, w, loss, gradient)
    return Look(loss, gradient, loss + psi.value(w), gap, trees.norm(residual))


def duality_gap(
    problem: Problem, null: Null, w: PyTree, bound: Scalar, v: PyTree, loss: Scalar, gradient: PyTree
) -> Scalar:
    """P(w) - D(theta(v)) with a bound on F(w), and the loss and gradient at v; inf where the dual is not finite."""
    assert isinstance(problem.regularizer, On)  # On(psi, "coef")
    psi = problem.regularizer.regularizer
    g, conjugate = gradient.coef, trees.dot(v, gradient) - loss
    if gradient.intercept is not None:
        t, intercept_part = balance(problem.loss, null, gradient.intercept)
        g = (1 - t) * g + t * null.gradient
        conjugate = (1 - t) * conjugate + t * intercept_part
    dual = jnp.stack(
        [(1 - s) * null.least - s * conjugate - psi_conjugate(psi, -s * g) for s in scalings(psi, g)]
    ).max()
    primal = bound + psi.value(w.coef)
    # Computed to round-off, so round-off is added: the gap must not be an underestimate.
    room = 16 * jnp.finfo(primal.dtype).eps * jnp.maximum(jnp.abs(primal), null.loss)
    return jnp.maximum(primal - dual, 0) + room


def balance(loss: Any, null: Null, slope: Float[Array, "*k"]) -> tuple[Scalar, Scalar]:
    """The part t of a model without features that makes the mean of theta vanish, and its mean f*(theta_i).

    These losses are A(z) - y z + const, so a model with the constant prediction b has mean theta A'(b) - mean(y).
    """
    size = jnp.sqrt(jnp.sum(slope**2))
    room = room_of(loss, null)
    mean = null.mean - room * slope / jnp.where(size > 0, size, 1)
    b = inverse_link(loss, mean)
    # Its loss: the best constant's, plus the difference of A(b) - mean(y) b.
    best = inverse_link(loss, null.mean)
    value = null.loss + potential(loss, b) - potential(loss, best) - jnp.sum(null.mean * (b - best))
    return size / (size + room), jnp.sum(b * (mean - null.mean)) - value


def room_of(loss: Any, null: Null) -> Scalar:
    """How far the mean may be moved in any direction and stay inside its domain."""
    match loss:
        case Squared():
            return jnp.sqrt(2 * null.loss) + jnp.finfo(null.loss.dtype).tiny
        case Logistic():
            return jnp.minimum(null.mean, 1 - null.mean) / 2
        case Poisson() | Softmax():
            return jnp.min(null.mean) / 2
    raise TypeError(f"{type(loss).__name__} has no dual here")


def inverse_link(loss: Any, mean: Array) -> Array:
    """The prediction whose mean is this."""
    match loss:
        case Squared():
            return mean
        case Logistic():
            return jnp.log(mean) - jnp.log1p(-mean)
    return jnp.log(mean)


def potential(loss: Any, z: Array) -> Array:
    """A(z), whose derivative is the mean."""
    match loss:
        case Squared():
            return z**2 / 2
        case Logistic():
            return jax.nn.softplus(z)
        case Softmax():
            return jax.nn.logsumexp(z)
    return jnp.exp(z)


def scalings(psi: Any, g: Array) -> list[Scalar]:
    """The s to try: 1, and the largest that brings s g into a norm's dual ball."""
    one = jnp.ones((), g.dtype)
    if isinstance(psi, ElasticNet):
        return [one, fitting(psi.strength * psi.l1_ratio, jnp.max(jnp.abs(g)))]
    if psi.is_norm:
        return [fitting(psi.strength, psi.dual_norm(g))]
    return [one]


def fitting(strength: Any, size: Scalar) -> Scalar:
    """The largest s <= 1 with s size <= strength."""
    strength = jnp.asarray(strength, size.dtype)
    return jnp.where(size > strength, strength / jnp.where(size > 0, size, 1), 1)


def psi_conjugate(psi: Any, u: Array) -> Scalar:
    """psi*(u); inf where it is not finite or not known."""
    zero, infinite = jnp.zeros((), u.dtype), jnp.full((), jnp.inf, u.dtype)
    rounding = 1 + 4 * jnp.finfo(u.dtype).eps
    match psi:
        case ElasticNet():
            strength, ratio = (jnp.asarray(a, u.dtype) for a in (psi.strength, psi.l1_ratio))
            ridge = strength * (1 - ratio)
            over = jnp.maximum(jnp.abs(u) - strength * ratio * rounding, 0)
            smooth = jnp.sum(over**2) / (2 * jnp.where(ridge > 0, ridge, 1))
            return jnp.where(ridge > 0, smooth, jnp.where(jnp.max(over) > 0, infinite, zero))
        case L1Ball():
            return jnp.asarray(psi.radius, u.dtype) * jnp.max(jnp.abs(u))
        case L2Ball():
            return jnp.asarray(psi.radius, u.dtype) * jnp.sqrt(jnp.sum(u**2))
        case Simplex():
            return jnp.asarray(psi.radius, u.dtype) * jnp.max(u)
        case Box():
            low, high = (jnp.broadcast_to(jnp.asarray(a, u.dtype), u.shape) for a in (psi.low, psi.high))
            at = jnp.where(u > 0, high, low)
            return jnp.sum(jnp.where(u == 0, 0, at * u))
    if psi.is_norm:
        return jnp.where(psi.dual_norm(u) <= jnp.asarray(psi.strength, u.dtype) * rounding, zero, infinite)
    return infinite
