"""How exact a fit is: its duality gap, from sums over the clients alone.

    P(w) = F(w) + psi(w),  F(w) = mean_i f(x_i w + b, y_i);     D(theta) = -mean_i f*(theta_i) - psi*(-X' theta / N)

with mean_i theta_i = 0 where there is a free intercept. Weak duality, P(w) - min P <= P(w) - D(theta), holds for every
such theta. Here theta_i = f'(prediction_i) at a point v, so that X' theta / N is the gradient g of F at v and, by
Fenchel and Young's equality, mean f*(theta_i) = <v, grad F(v)> - F(v): nothing but what the clients send anyway. Then

- where the Hessian H at v is known too, theta may be moved by -W_i x_i' d for any d, W_i = f''(prediction_i): the
  gradient becomes g - H d, and mean f* grows by at most -<v, H d> + <d, H d> / (2 (1 - 2 t)^2), with t = M max_i
  |x_i' d| below 1/2, M the loss's `self_concordance` (0 for a squared loss). That brings a gradient which is infeasible
  by no more than rounding into psi*'s domain at the price of a rounding squared. Two d are tried: one that shrinks g,
  and one that takes off what is not optimal. A loss may know better (`dual_room`): the conjugate of Huber's is a
  quadratic on [-delta, delta], into which theta is scaled afterwards, by convexity as below.
- where the intercept's gradient is not 0, theta is mixed with that of a model without features, chosen such that the
  mean vanishes. f* is convex, so the mixture of the two values is an upper bound on it. A loss with a link function
  gives that model by itself; for others, and where rows have offsets, two constants, one too low and one too high, are
  looked at beforehand.
- where -g is outside psi*'s domain (a norm's dual ball), theta is scaled by s in [0, 1]; again by convexity
  mean f*(s theta_i) <= s mean f*(theta_i), as inf f(., y_i) = 0 for all i; for a squared loss it is known exactly.

The proof of the first: |f'''| <= M f'', so f* has the second derivative 1/W at theta, and at most 1/(W (1 - 2t)^2) on
the way to theta - W x'd; its first derivative is the prediction, so the first-order term is -<v, H d> after summation.

A loss that is no sum over rows (Cox's partial likelihood) is a convex function of all predictions together and at least
0, so that all but the first item hold for it as they are. In place of the first there is a bound from the primal side.
Along any direction delta its third derivative is at most R times the second, R the range of x_i' delta among rows that
are at risk together (a third central moment beside a variance). So F(v + delta) >= F(v) + <g, delta> + h(R) delta' H
delta with h(R) = (exp(-R) + R - 1) / R^2, h(1) = 1/e. Let e be what violates optimality at v, D^2 = e' H^-1 e, a =
sqrt(delta' H delta) for the way delta to the minimum, and C such that R <= C a. P is convex, so for every t in (0, 1]
the gap is at most D a - t h(t C a) a^2. If C a <= 1, t = 1 gives D a - a^2/e <= (e/4) D^2; else t = 1/(C a) gives
a (D - 1/(e C)). So where C D <= 1/e the gap is at most (e/4) D^2: the rounding of a gradient, squared. The same holds
of a loss with intercepts of the sites' own, with the range among the rows of a site (`losses/site_intercepts.py`), and
of several classes with so many times the range among the classes of a row (`losses/site_class_intercepts.py`).

Rounding. The gradient's j-th entry is known to err_j = 8 eps q_j (curvature * sum_k q_k |v_k| + rms theta), q the root
mean squares of the columns, and the gap to `rounding`, a like expression in the sizes of its terms: never 1/alpha.
"""

import contextlib
import dataclasses
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Float

from cofed._util import trees
from cofed._util.rounding import EPS
from cofed._util.threads import one_thread
from cofed._util.types import Hyperparameter
from cofed.losses import AbstractLoss
from cofed.models import Weights
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer, On

Scalar = Float[Array, ""]

ONE_THREAD = 1024  # parameters up to which a Hessian is taken apart on one thread


@dataclasses.dataclass(frozen=True)
class Certificate:
    """How far from optimal a fit can be, on the documented objective.

    The objective of the coefficients exceeds its minimum by at most `gap` + `rounding`, whatever the outcome.

    Attributes
    ----------
    objective : float
        The objective of the coefficients.
    gap : float
        Its difference to a dual value, which no model can be below; infinite where none is known.
    prox_gradient : float
        ||w - prox(w - gradient)|| in the units of the solver, zero exactly at a minimum.
    scale : float
        The loss of the model without features.
    tol : float
        The estimator's `tol`.
    converged : bool
        Whether gap + rounding <= tol * scale, and the data are not separable without a penalty.
    rounding : float
        The allowance for what float64 does to the gap.
    limited_by_rounding : bool
        Whether the conditions of optimality hold in every coordinate to within the rounding of the gradient, or gap <=
        tol * scale and only the allowance for rounding exceeds it. More rounds bring nothing; `gap` says what is known.
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
        """ "converged", "limited by rounding" or "not converged"; of the last a warning has said why."""
        if self.converged:
            return "converged"
        return "limited by rounding" if self.limited_by_rounding else "not converged"


class FirstOrder(eqx.Module):
    """A model, with the mean loss and its gradient there."""

    w: Weights
    loss: Scalar
    gradient: Weights

    @property
    def conjugate(self) -> Scalar:
        """mean f*(theta_i) with theta_i the derivatives of the losses: Fenchel and Young's equality."""
        return trees.dot(self.w, self.gradient) - self.loss


class NullModel(eqx.Module):
    """What is known of the model without features, whose intercept is free, and of the columns."""

    gradient: Weights  # of its loss
    mean: Float[Array, "*k"]  # the mean of y (for classes: their shares)
    loss: Scalar  # its loss
    tilt: Float[Array, " p"]  # the columns' means, zero to round-off where there is an intercept
    spread: Float[Array, " p"]  # the columns' root mean squares
    reach: Float[Array, " p"]  # what no entry of the columns exceeds
    offset: Scalar  # the root mean square of what is added to predictions
    rows: Scalar  # N
    weight: Scalar  # what the rows count, all together: N where they count alike
    # Constants below and above the best one, of a model with an intercept whose best constant no sums tell.
    bracket: tuple[FirstOrder, FirstOrder] | None = None


class Assessment(NamedTuple):
    """What one exchange tells of a model w: the loss and its gradient, and so how far from optimal w can be.

    In a grid's books the numbers are NumPy's: thousands of them are read one at a time.
    """

    loss: Scalar
    gradient: Weights
    objective: Scalar
    gap: Scalar
    prox_gradient: Scalar
    rounding: Scalar
    settled: Bool[Array, ""]  # optimal to within the rounding of the gradient


class DualPoint(eqx.Module):
    """A dual variable theta, by the sums over all rows that a dual value needs."""

    gradient: Float[Array, "..."]  # X' theta / N
    conjugate: Scalar  # at least mean f*(theta_i)
    half_square: Scalar  # mean theta_i^2 / (2 curvature), of a quadratic loss


class FactoredHessian(eqx.Module):
    """A Hessian H of the parameters laid out as one vector, ready to be solved with."""

    hessian: Float[Array, "d d"]
    root: Float[Array, "d d"]  # root root' is its inverse, where it is not flat

    def solve(self, e: Float[Array, " d"]) -> Float[Array, " d"]:
        """The least d with H d = e, as far as e is in H's range."""
        return self.root @ (self.root.T @ e)


def spectrum(H: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Eigenvalues and eigenvectors of a symmetric matrix. On one thread up to so many parameters: several wait for one
    another longer than they work, with 400 parameters 30 times longer on a busy machine."""
    with one_thread() if len(H) <= ONE_THREAD else contextlib.nullcontext():
        values, vectors = np.linalg.eigh(H)
    return values, vectors


def factored(hessian: Float[Array, "d d"]) -> FactoredHessian:
    """The factors of a Hessian. Directions whose curvature is rounding count as flat."""
    H = np.asarray(hessian)
    values, vectors = spectrum(H)
    flat = values <= 4 * EPS * values.size * np.abs(values).max(initial=0)
    return FactoredHessian(jnp.asarray(H), jnp.asarray(vectors / np.where(flat, np.inf, np.sqrt(np.abs(values)))))


def factored_beside(hessian: Float[Array, "d d"], first: FactoredHessian) -> tuple[FactoredHessian, float]:
    """The factors of a Hessian that is flat only where `first` (at the model without features) is.

    Also the least curvature by comparison with `first`, which vanishes where predictions run off to infinity: for
    separable data.
    """
    H, root = np.asarray(hessian), np.asarray(first.root)
    basis = root[:, np.any(root != 0, axis=0)]
    values, vectors = spectrum(basis.T @ H @ basis)
    least = float(values.min(initial=np.inf))
    seen = basis @ (vectors / np.where(values > 0, np.sqrt(np.abs(values)), np.inf))
    whole = np.zeros_like(root)
    whole[:, : seen.shape[1]] = seen
    return FactoredHessian(jnp.asarray(H), jnp.asarray(whole)), least


def assess(problem: Problem, null: NullModel, at: FirstOrder, curved: FactoredHessian | None = None) -> Assessment:
    """The certificate of a model from its loss and gradient, a sharper one with its Hessian."""
    psi, w, loss = problem.regularizer, at.w, at.loss
    residual = trees.sub(w, psi.prox(trees.sub(w, at.gradient), 1.0))
    err = gradient_rounding(problem.loss, null, w, loss)
    within = [jnp.all(jnp.abs(r) <= 8 * e) for r, e in zip(*map(jax.tree.leaves, (residual, err)), strict=True)]
    value = loss + psi.value(w)
    gap = duality_gap(problem, null, w, loss, at)
    if curved is not None and not problem.loss.rowwise:
        gap = jnp.minimum(gap, decrement_gap(problem, null, at, curved, err))
    elif curved is not None:
        gap = jnp.minimum(gap, sharper_gap(problem, null, at, curved, err))
    rounding = gap_rounding(problem.loss, null, at, value, curved)
    return Assessment(loss, at.gradient, value, gap, trees.norm(residual), rounding, jnp.all(jnp.stack(within)))


def duality_gap(problem: Problem, null: NullModel, w: Weights, bound: Scalar, at: FirstOrder) -> Scalar:
    """P(w) - D(theta) with a bound on F(w) and the theta of another model; inf where the dual is not finite."""
    primal = bound + problem.regularizer.value(w)
    theta = DualPoint(at.gradient.coef, at.conjugate, at.loss)
    return jnp.maximum(primal - best_dual(problem, null, theta, at.gradient.intercept), 0)


def of_coefficients(problem: Problem) -> AbstractRegularizer:
    """psi of On(psi, "coef"): the intercept is free."""
    assert isinstance(problem.regularizer, On)
    return problem.regularizer.regularizer


def sharper_gap(problem: Problem, null: NullModel, at: FirstOrder, curved: FactoredHessian, err: Weights) -> Scalar:
    """The gap at a model, its theta moved by the Hessian as the file's head says."""
    psi, loss, gradient = of_coefficients(problem), at.loss, at.gradient
    v, g = ravel_pytree(at.w)[0], ravel_pytree(gradient)[0]
    back = ravel_pytree(gradient)[1]
    far = ravel_pytree(per_parameter(null.reach, null, at.w))[0]
    shrink = curved.solve((1 - psi.dual_scaling(-gradient.coef)) * g)
    off = psi.excess(at.w.coef, gradient.coef)
    clear = curved.solve(ravel_pytree(Weights(off, gradient.intercept))[0])
    primal = loss + problem.regularizer.value(at.w)
    gaps = [jnp.full((), jnp.inf, v.dtype)]
    for d, slack in ((shrink, 0.0), (clear, err.coef)):
        Hd = curved.hessian @ d
        square = d @ Hd
        room = problem.loss.dual_room(jnp.sum(far * jnp.abs(d)))
        if room is None:
            break
        moved = back(room.shrink * (g - Hd))
        conjugate = room.shrink * (v @ g - loss - v @ Hd + room.growth * square / 2)
        theta = DualPoint(moved.coef, conjugate, loss - g @ d + square / 2)
        value = best_dual(problem, null, theta, moved.intercept, slack)
        gaps.append(jnp.where(room.known, jnp.maximum(primal - value, 0), jnp.inf))
    return jnp.min(jnp.stack(gaps))


def decrement_gap(problem: Problem, null: NullModel, at: FirstOrder, curved: FactoredHessian, err: Weights) -> Scalar:
    """The gap of a model without an intercept by Newton's decrement: see the file's head; inf where that is large."""
    off = of_coefficients(problem).excess(at.w.coef, at.gradient.coef).ravel()
    d = curved.solve(off)
    Hd = curved.hessian @ d
    square = jnp.maximum(d @ Hd, 0)
    # No |delta_j| exceeds its share of the length in H.
    most = jnp.sqrt(jnp.sum(curved.root**2, axis=1)).reshape(len(null.reach), -1)
    reach = problem.loss.range_factor * 2 * jnp.max(jnp.sum(null.reach[:, None] * most, axis=0))
    known = jnp.all(jnp.abs(off - Hd) <= err.coef.ravel()) & (reach * jnp.sqrt(square) <= jnp.exp(-1))
    return jnp.where(known, jnp.e / 4 * square, jnp.inf)


def best_dual(
    problem: Problem,
    null: NullModel,
    theta: DualPoint,
    slope: Float[Array, "*k"] | None,
    slack: Float[Array, "..."] | float = 0.0,
) -> Scalar:
    """The best dual value along theta, whose mean is `slope` where there is a free intercept.

    `slack` is what the domain of the penalty's conjugate forgives where the penalty does not grow.
    """
    psi = of_coefficients(problem)
    if not psi.has_conjugate:
        return jnp.full((), -jnp.inf, theta.gradient.dtype)
    if slope is not None:
        theta = balanced(problem.loss, null, theta, slope)
    one, zero = jnp.ones((), theta.gradient.dtype), jnp.zeros((), theta.gradient.dtype)
    values = []
    for s in (one, psi.dual_scaling(-theta.gradient), zero):
        conjugate = s * theta.conjugate
        if problem.loss.quadratic:
            conjugate = conjugate - s * (1 - s) * theta.half_square
        values.append(-conjugate - psi.conjugate(-s * theta.gradient, slack))
    return jnp.stack(values).max()


def balanced(loss: AbstractLoss, null: NullModel, theta: DualPoint, slope: Float[Array, "*k"]) -> DualPoint:
    """A theta with the mean 0, as a free intercept needs it, near one whose mean is `slope`."""
    g = theta.gradient

    def tilted(moved: Array) -> Array:
        return jnp.multiply.outer(null.tilt, moved).reshape(g.shape)

    def spread_out(factor: Array) -> Array:
        return jnp.multiply.outer(jnp.ones_like(null.tilt), factor).reshape(g.shape)

    if loss.quadratic:  # theta less its mean
        half = jnp.sum(slope**2) / (2 * curvature_of(loss))
        conjugate = theta.conjugate - half - jnp.sum(slope * null.mean)
        return DualPoint(g - tilted(slope), conjugate, theta.half_square - half)
    if null.bracket is None:
        t, part, moved, bent = opposite(loss, null, slope)
        other = null.gradient.coef * spread_out(bent) + tilted(moved)
    else:
        low, high = null.bracket
        end = trees.where(slope > 0, low, high)  # whose slope has the other sign
        t = slope / (slope - end.gradient.intercept)
        part, other = end.conjugate, end.gradient.coef
    return DualPoint((1 - t) * g + t * other, (1 - t) * theta.conjugate + t * part, theta.half_square)


def opposite(
    loss: AbstractLoss, null: NullModel, slope: Float[Array, "*k"]
) -> tuple[Scalar, Scalar, Float[Array, "*k"], Float[Array, "*k"]]:
    """The part t of a model without features that makes the mean of theta vanish, its mean f*(theta_i), its mean theta,
    and how many times steeper it is than the best constant.

    A loss with a link function is A(z) - y B(z) + const with A' = mean B', so a model with the constant prediction b
    has the mean theta (mean(b) - mean(y)) B'(b).
    """
    size = jnp.sqrt(jnp.sum(slope**2))
    room = loss.mean_margin(null.mean)
    mean = null.mean - room * slope / jnp.where(size > 0, size, 1)
    b = loss.link(mean)
    # Its loss: the best constant's, plus the difference of A(b) - mean(y) B(b).
    best = loss.link(null.mean)
    way = loss.natural(b) - loss.natural(best)
    value = null.loss + loss.cumulant(b) - loss.cumulant(best) - jnp.sum(null.mean * way)
    steep, before = (jax.grad(lambda z: jnp.sum(loss.natural(z)))(z) for z in (b, best))
    theta = (mean - null.mean) * steep
    length = jnp.where(size > 0, jnp.sqrt(jnp.sum(theta**2)), room)
    return size / (size + length), jnp.sum(b * theta) - value, theta, steep / before


def curvature_of(loss: AbstractLoss) -> Hyperparameter:
    """The loss's curvature; a fit of a loss without one was refused."""
    assert loss.curvature is not None
    return loss.curvature


def spreads(null: NullModel, w: Weights) -> Weights:
    """The root mean square of what each parameter is multiplied with."""
    return per_parameter(null.spread, null, w)


def per_parameter(columns: Float[Array, " p"], null: NullModel, w: Weights) -> Weights:
    """Numbers of the columns, for each parameter; the intercept's is 1."""
    wide = jnp.multiply.outer(columns, jnp.ones_like(null.mean))
    intercept = None if w.intercept is None else jnp.ones_like(w.intercept)
    return Weights(wide.reshape(w.coef.shape), intercept)


def terms_of_predictions(null: NullModel, w: Weights) -> tuple[Scalar, Scalar]:
    """A bound on the sizes of the predictions' terms: of all outputs together, and of the output with the most."""
    parts = jax.tree.map(lambda q, v: q * jnp.abs(v), spreads(null, w), w)
    outputs = [jnp.sum(leaf.reshape(-1, null.mean.size), axis=0) for leaf in jax.tree.leaves(parts)]
    each = jnp.sum(jnp.stack(outputs), axis=0) + null.offset
    return jnp.sum(each), jnp.max(each)


def gradient_rounding(loss: AbstractLoss, null: NullModel, w: Weights, value: Scalar) -> Weights:
    """err: how well the gradient's entries are known."""
    _, most = terms_of_predictions(null, w)
    theta = loss.residual_scale(value, null.mean)
    return jax.tree.map(lambda q: 8 * EPS * q * (curvature_of(loss) * most + theta), spreads(null, w))


def gap_rounding(
    loss: AbstractLoss, null: NullModel, at: FirstOrder, objective: Scalar, curved: FactoredHessian | None
) -> Scalar:
    """How well a gap is known."""
    terms, most = terms_of_predictions(null, at.w)
    theta = loss.residual_scale(at.loss, null.mean)
    if loss.quadratic:  # prediction = y + theta / curvature
        mean = jnp.max(jnp.abs(null.mean))
        predicted = jnp.sqrt(2 * null.loss / curvature_of(loss)) + mean + theta / curvature_of(loss)
    elif curved is None:
        predicted = curvature_of(loss) * most
    else:
        v = ravel_pytree(at.w)[0]
        predicted = jnp.sqrt(jnp.maximum(curvature_of(loss) * (v @ curved.hessian @ v), 0))
    return EPS * (16 * jnp.abs(objective) + 8 * terms * (theta + predicted))
