"""How exact a fit is: its duality gap, from sums over the clients alone.

    P(w) = F(w) + psi(w),  F(w) = mean_i f(x_i w + b, y_i);     D(theta) = -mean_i f*(theta_i) - psi*(-X' theta / N)

with mean_i theta_i = 0 where there is a free intercept. Weak duality, P(w) - min P <= P(w) - D(theta), holds for every
such theta. Here theta_i = f'(prediction_i) at a point v, so that X' theta / N is the gradient g of F at v and, by
Fenchel and Young's equality, mean f*(theta_i) = <v, grad F(v)> - F(v): nothing but what the clients send anyway. Then

- where the Hessian H at v is known too, theta may be moved by -W_i x_i' d for any d, W_i = f''(prediction_i): the
  gradient becomes g - H d, and mean f* grows by at most -<v, H d> + <d, H d> / (2 (1 - 2 t)^2), with t = max_i |x_i' d|
  below 1/2 (0 for a squared loss). That brings a gradient which is infeasible by no more than rounding into psi*'s
  domain at the price of a rounding squared. Two d are tried: one that shrinks g, and one that takes off what is not
  optimal.
- where the intercept's gradient is not 0, theta is mixed with that of a model without features, chosen such that the
  mean vanishes. f* is convex, so the mixture of the two values is an upper bound on it.
- where -g is outside psi*'s domain (a norm's dual ball), theta is scaled by s in [0, 1]; again by convexity
  mean f*(s theta_i) <= s mean f*(theta_i), as min f(., y_i) = 0 for all i; for a squared loss it is known exactly.

The proof of the second: f* of these losses has the second derivative 1/W at theta, and at most 1/(W (1 - 2t)^2) on the
way to theta - W x'd; its first derivative is the prediction, so the first-order term is -<v, H d> after summation.

Rounding. The gradient's j-th entry is known to err_j = 8 eps q_j (curvature * sum_k q_k |v_k| + rms theta), q the root
mean squares of the columns, and the gap to `rounding`, a like expression in the sizes of its terms: never 1/alpha.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float, PyTree

from cofed._util import trees
from cofed.estimators.penalty import EPS, conjugate, excess, fitting, shrinkages
from cofed.losses import Logistic, Poisson, Softmax, Squared
from cofed.models import Weights
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer, On

Scalar = Float[Array, ""]


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far from optimal a fit can be, on the documented objective.

    The objective of the coefficients exceeds its minimum by at most `gap` + `rounding`, whatever the outcome:
    `gap` is the difference to a dual value (infinite where none is known), `rounding` allows for what float64 does to
    it. `prox_gradient` is ||w - prox(w - gradient)|| in the units of the solver, zero exactly at a minimum. `scale` is
    the loss of the model without features.

    `outcome` is one of

    - "converged": gap + rounding <= tol * scale, and the data are not separable without a penalty. `converged` is True.
    - "limited by rounding": not that, but the conditions of optimality hold in every coordinate to within the rounding
      of the gradient, or gap <= tol * scale and it is the allowance for rounding that exceeds. More rounds bring
      nothing; `gap` says what is known.
    - "not converged": neither; a warning has said why.
    """

    objective: float
    gap: float
    prox_gradient: float
    scale: float
    tol: float
    converged: bool
    rounding: float = 0.0
    limited_by_rounding: bool = False

    @property
    def outcome(self) -> str:
        """ "converged", "limited by rounding" or "not converged"."""
        if self.converged:
            return "converged"
        return "limited by rounding" if self.limited_by_rounding else "not converged"


class Null(eqx.Module):
    """What is known of the model without features, whose intercept is free, and of the columns."""

    gradient: Weights  # of its loss
    mean: Float[Array, "*k"]  # the mean of y (for classes: their shares)
    loss: Scalar  # its loss
    tilt: Float[Array, " p"]  # the columns' means, zero to round-off where there is an intercept
    spread: Float[Array, " p"]  # the columns' root mean squares
    rows: Scalar  # N


class Look(eqx.Module):
    """What one exchange tells of a model w: F and its gradient."""

    loss: Scalar
    gradient: PyTree
    objective: Scalar
    gap: Scalar
    prox_gradient: Scalar
    rounding: Scalar
    settled: Bool[Array, ""]  # optimal to within the rounding of the gradient


class Curvature(eqx.Module):
    """A Hessian H of the parameters laid out as one vector, ready to be solved with."""

    hessian: Float[Array, "d d"]
    root: Float[Array, "d d"]  # root root' is its inverse, where it is not flat

    def solve(self, e: Float[Array, " d"]) -> Float[Array, " d"]:
        """The least d with H d = e, as far as e is in H's range."""
        return self.root @ (self.root.T @ e)


def curvature_of(hessian: Any) -> Curvature:
    """Directions whose curvature is rounding count as flat."""
    H = np.asarray(hessian)
    values, vectors = np.linalg.eigh(H)
    flat = values <= 4 * EPS * values.size * np.abs(values).max(initial=0)
    return Curvature(jnp.asarray(H), jnp.asarray(vectors / np.where(flat, np.inf, np.sqrt(np.abs(values)))))


def curvature_beside(hessian: Any, first: Curvature) -> tuple[Curvature, float]:
    """The same, flat only where `first` (the Hessian at the model without features) is; and the least curvature by
    comparison with that, which vanishes where predictions run off to infinity: separable data."""
    H, root = np.asarray(hessian), np.asarray(first.root)
    basis = root[:, np.any(root != 0, axis=0)]
    values, vectors = np.linalg.eigh(basis.T @ H @ basis)
    least = float(values.min(initial=np.inf))
    seen = basis @ (vectors / np.where(values > 0, np.sqrt(np.abs(values)), np.inf))
    whole = np.zeros_like(root)
    whole[:, : seen.shape[1]] = seen
    return Curvature(jnp.asarray(H), jnp.asarray(whole)), least


def look(
    problem: Problem, null: Null, w: PyTree, loss: Scalar, gradient: PyTree, curved: Curvature | None = None
) -> Look:
    """The certificate of w from its loss and gradient, a sharper one with its Hessian."""
    psi = problem.regularizer
    residual = trees.sub(w, psi.prox(trees.sub(w, gradient), 1.0))
    err = gradient_rounding(problem.loss, null, w, loss)
    within = [jnp.all(jnp.abs(r) <= 8 * e) for r, e in zip(*map(jax.tree.leaves, (residual, err)), strict=True)]
    value = loss + psi.value(w)
    gap = duality_gap(problem, null, w, loss, w, loss, gradient)
    if curved is not None:
        gap = jnp.minimum(gap, sharper_gap(problem, null, w, loss, gradient, curved, err))
    rounding = gap_rounding(problem.loss, null, w, loss, value, curved)
    return Look(loss, gradient, value, gap, trees.norm(residual), rounding, jnp.all(jnp.stack(within)))


def duality_gap(
    problem: Problem, null: Null, w: PyTree, bound: Scalar, v: PyTree, loss: Scalar, gradient: PyTree
) -> Scalar:
    """P(w) - D(theta(v)) with a bound on F(w), and the loss and gradient at v; inf where the dual is not finite."""
    primal = bound + problem.regularizer.value(w)
    return jnp.maximum(primal - dual(problem, null, gradient, trees.dot(v, gradient) - loss, loss), 0)


def of_coefficients(problem: Problem) -> AbstractRegularizer:
    """psi of On(psi, "coef"): the intercept is free."""
    assert isinstance(problem.regularizer, On)
    return problem.regularizer.regularizer


def sharper_gap(
    problem: Problem, null: Null, w: PyTree, loss: Scalar, gradient: PyTree, curved: Curvature, err: PyTree
) -> Scalar:
    """The gap at w, its theta moved by the Hessian as the file's head says."""
    psi = of_coefficients(problem)
    v, g = ravel_pytree(w)[0], ravel_pytree(gradient)[0]
    back = ravel_pytree(gradient)[1]
    wide = ravel_pytree(spreads(null, w))[0]
    shrink = curved.solve((1 - fitting(psi, gradient.coef)) * g)
    off = excess(psi, w.coef, gradient.coef)
    clear = curved.solve(ravel_pytree(Weights(off, gradient.intercept))[0])
    primal = loss + problem.regularizer.value(w)
    gaps = []
    for d, slack in ((shrink, 0.0), (clear, err.coef)):
        Hd = curved.hessian @ d
        square = d @ Hd
        # No entry of a column exceeds sqrt(N) times its spread.
        t = 0 if isinstance(problem.loss, Squared) else jnp.sqrt(null.rows) * jnp.sum(wide * jnp.abs(d))
        grown = square / (2 * jnp.where(t < 0.5, 1 - 2 * t, 1) ** 2)
        value = dual(problem, null, back(g - Hd), v @ g - loss - v @ Hd + grown, loss - g @ d + square / 2, slack)
        gaps.append(jnp.where(t < 0.5, jnp.maximum(primal - value, 0), jnp.inf))
    return jnp.min(jnp.stack(gaps))


def dual(
    problem: Problem, null: Null, gradient: Weights, conjugate_sum: Scalar, half_square: Scalar, slack: Any = 0.0
) -> Scalar:
    """The best dual value along theta, whose mean f* is at most `conjugate_sum`. `half_square` is mean theta^2 / 2 of a
    squared loss, `slack` what an open penalty's domain forgives."""
    psi = of_coefficients(problem)
    g = gradient.coef
    if gradient.intercept is not None:
        tilted = lambda moved: jnp.multiply.outer(null.tilt, moved).reshape(g.shape)  # noqa: E731
        if isinstance(problem.loss, Squared):  # theta less its mean
            mean = gradient.intercept
            g = g - tilted(mean)
            conjugate_sum = conjugate_sum - mean**2 / 2 - mean * null.mean
            half_square = half_square - mean**2 / 2
        else:
            t, part, moved = balance(problem.loss, null, gradient.intercept)
            g = (1 - t) * g + t * (null.gradient.coef + tilted(moved))
            conjugate_sum = (1 - t) * conjugate_sum + t * part
    values = []
    for s in shrinkages(psi, g):
        scaled = s * conjugate_sum
        if isinstance(problem.loss, Squared):
            scaled = scaled - s * (1 - s) * half_square
        values.append(-scaled - conjugate(psi, -s * g, slack))
    return jnp.stack(values).max()


def balance(loss: Any, null: Null, slope: Float[Array, "*k"]) -> tuple[Scalar, Scalar, Float[Array, "*k"]]:
    """The part t of a model without features that makes the mean of theta vanish, its mean f*(theta_i), and how far its
    mean is from that of y.

    These losses are A(z) - y z + const, so a model with the constant prediction b has mean theta A'(b) - mean(y).
    """
    size = jnp.sqrt(jnp.sum(slope**2))
    room = room_of(loss, null)
    mean = null.mean - room * slope / jnp.where(size > 0, size, 1)
    b = inverse_link(loss, mean)
    # Its loss: the best constant's, plus the difference of A(b) - mean(y) b.
    best = inverse_link(loss, null.mean)
    value = null.loss + potential(loss, b) - potential(loss, best) - jnp.sum(null.mean * (b - best))
    return size / (size + room), jnp.sum(b * (mean - null.mean)) - value, mean - null.mean


def room_of(loss: Any, null: Null) -> Scalar:
    """How far the mean may be moved in any direction and stay inside its domain."""
    match loss:
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


def spreads(null: Null, w: Weights) -> Weights:
    """The root mean square of what each parameter is multiplied with."""
    wide = jnp.multiply.outer(null.spread, jnp.ones_like(null.mean))
    intercept = None if w.intercept is None else jnp.ones_like(w.intercept)
    return Weights(wide.reshape(w.coef.shape), intercept)


def sizes(loss: Any, null: Null, w: Weights, value: Scalar) -> tuple[Scalar, Scalar, float, Scalar]:
    """A bound on the predictions' terms (of all classes together, and of the class with the most), one on f'', and the
    root mean square of theta."""
    parts = jax.tree.map(lambda q, v: q * jnp.abs(v), spreads(null, w), w)
    shares = [jnp.sum(leaf.reshape(-1, null.mean.size), axis=0) for leaf in jax.tree.leaves(parts)]
    each = jnp.sum(jnp.stack(shares), axis=0)
    terms, most = jnp.sum(each), jnp.max(each)
    match loss:
        case Squared():
            return terms, most, 1.0, jnp.sqrt(jnp.maximum(2 * value, 0))
        case Logistic():
            return terms, most, 0.25, jnp.sqrt(jnp.minimum(value, 1))
        case Softmax():
            return terms, most, 0.5, jnp.sqrt(jnp.minimum(2 * value, 2))
    return terms, most, 1.0, 1.0 + null.mean  # counts: f'' and theta are unbounded, and 1 in the mean


def gradient_rounding(loss: Any, null: Null, w: Weights, value: Scalar) -> Weights:
    """err: how well the gradient's entries are known."""
    _, most, bent, theta = sizes(loss, null, w, value)
    return jax.tree.map(lambda q: 8 * EPS * q * (bent * most + theta), spreads(null, w))


def gap_rounding(
    loss: Any, null: Null, w: Weights, value: Scalar, objective: Scalar, curved: Curvature | None
) -> Scalar:
    """How well a gap is known."""
    terms, most, bent, theta = sizes(loss, null, w, value)
    if isinstance(loss, Squared):  # prediction = y + theta
        predicted = jnp.sqrt(2 * null.loss) + jnp.abs(null.mean) + theta
    elif curved is None:
        predicted = bent * most
    else:
        v = ravel_pytree(w)[0]
        predicted = jnp.sqrt(jnp.maximum(bent * (v @ curved.hessian @ v), 0))
    return EPS * (16 * jnp.abs(objective) + 8 * terms * (theta + predicted))
