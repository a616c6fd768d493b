"""The loss of a site's rows of several classes, where every site has an intercept of its own for each class.

    F(z) = min over a of sum_i w_i (log sum_k exp(z_ik + a_k) - z_iy - a_y)

for the rows i of a site, y the class of row i, k the classes that the site has rows of. (A class without a row there
has an infinite intercept, and no part in F; a site with rows of one class has F = 0 whatever the predictions.) F is a
convex function of all predictions together, at least 0, and does not change where the predictions of a class change by
a constant. Its gradient is that of the rows at the best a, and with p_i the probabilities there its Hessian along d is

    sum_i w_i sum_(k<l) p_ik p_il (v_ik - v_il)^2,     v_i = d_i - b,  b the vector for which that is least.

So b is the potential of an electrical network between the classes: the wire from k to l has the conductance
c_kl = sum_i w_i p_ik p_il and a battery e_kl, the mean of d_ik - d_il by these weights. Two consequences:

- Networks are solved by star-mesh steps (`potentials`), which add and divide positive numbers only: nothing cancels,
  even where predictions are nearly certain and all conductances tiny.
- No two neighbours among the sorted potentials are farther apart than the strongest battery: else every wire across
  that gap would carry current in the same direction, and the currents across it add up to 0. With R the largest range
  of d_ik over the classes k of a row, b has a range of at most (K - 1) R for K classes, and v_i one of at most K R. The
  third derivative of F along d is sum_i w_i times the third central moment of v_i by p_i (what a moves by in second
  order has no part in it, as the slopes by a vanish): at most K R times the second. That is `range_factor`.

The best a is found by Newton's steps: along one of the range r the second derivative grows by at most exp(r t), so that
log(1 + r) / r of the step lowers the loss, from anywhere.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, Scalar

from cofed.losses.base import Label, Prediction
from cofed.losses.site_loss import AbstractSiteLoss

Values = Float[Array, "n m"]
Scores = Float[Array, "n m k"]
Present = Bool[Array, "n m k"]

STEPS = 100  # the most of Newton's method
NEAR = 1e-9  # a step of this range is followed by one more, and that is the last
NOT_THERE = -jnp.inf  # the score of a class without rows


class ClassTerms(NamedTuple):
    """What the loss of m models of k classes is made of, for n rows of several sites."""

    value: Values  # the loss of every row, times its weight
    slope: Scores  # its derivatives by the predictions
    share: Scores  # the probabilities of the classes, times the weight
    intercept: Scores  # the intercepts of the row's site, their mean 0; -inf of classes without rows
    finite: Bool[Array, "n m"]  # whether all are finite


class SiteClassIntercepts(AbstractSiteLoss):
    """The loss of all rows of a site, whose intercepts for the classes are the best ones for them.

    Parameters
    ----------
    loss : Softmax
        The loss of a row: of classes whose number is known.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> from cofed.losses.site_class_intercepts import SiteClassIntercepts
    >>> y = jnp.array([0, 1, 1, 2])  # shares of 1/4, 1/2 and 1/4 suit them best
    >>> round(float(SiteClassIntercepts(cofed.Softmax(3))(jnp.zeros((4, 3)), y) / jnp.log(2)), 12)
    6.0
    """

    def __check_init__(self):
        if not self.loss.any_shift or self.classes < 2:
            raise TypeError(
                f"{type(self.loss).__name__} takes no intercepts of sites for classes: that needs a prediction for "
                "each class, as of Softmax(3)"
            )

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        """The loss of the rows of one site."""
        z = prediction[:, None, :]
        return jnp.sum(self.terms(z, jnp.ravel(y), jnp.ones(z.shape[:2]), jnp.zeros(len(z), int)).value)

    @property
    def classes(self) -> int:
        """How many classes there are."""
        return self.loss.outputs(np.zeros(1, int)) or 1

    @property
    def site_parameters(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The intercepts of all classes but one: the same number added to all changes nothing."""
        return self.classes - 1

    @property
    def range_factor(self) -> float:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The number of classes: see the file's head."""
        return float(self.classes)

    def terms(self, z: Scores, y: Num[Array, " n"], weight: Values, site: Int[Array, " n"]) -> ClassTerms:
        """The loss of m models and its parts. `weight` is 0 where a model does not learn from a row."""
        there = self.present(y, weight, site)
        a = best_intercepts(jnp.where(there, z, NOT_THERE), self.hot(y), weight, site)
        value, slope, share = at_scores(jnp.where(there, z + a, NOT_THERE), self.hot(y), weight)
        count = jnp.maximum(jnp.sum(there, axis=2, keepdims=True, dtype=a.dtype), 1)
        middle = a - jnp.sum(jnp.where(there, a, 0), axis=2, keepdims=True) / count
        return ClassTerms(value, slope, share, jnp.where(there, middle, NOT_THERE), jnp.all(there, axis=2))

    def held(
        self, z: Scores, y: Num[Array, " n"], weights: tuple[Values, Values], site: Int[Array, " n"]
    ) -> Float[Array, " m"]:
        """The loss of rows held out, by the intercepts of the rows that models learn from: `weights` are of both.

        Where those lack a class that the site has, the intercepts are those of all rows of the site.
        """
        own, others = weights
        known, there = self.present(y, own, site), self.present(y, own + others, site)
        enough = jnp.all(known == there, axis=2, keepdims=True)
        scores = jnp.where(there, z, NOT_THERE)
        learnt, of_all = (best_intercepts(scores, self.hot(y), weight, site) for weight in (own, own + others))
        at = jnp.where(there, z + jnp.where(enough, learnt, of_all), NOT_THERE)
        return jnp.sum(at_scores(at, self.hot(y), others)[0], axis=0)

    def hot(self, y: Num[Array, " n"]) -> Float[Array, "n 1 k"]:
        """1 for the class of a row."""
        return jax.nn.one_hot(y.astype(jnp.int32), self.classes, dtype=float)[:, None, :]

    def present(self, y: Num[Array, " n"], weight: Values, site: Int[Array, " n"]) -> Present:
        """Which classes the rows of each row's site have, that count."""
        return by_site(weight[..., None] * self.hot(y), site) > 0


def at_scores(z: Scores, hot: Float[Array, "n 1 k"], weight: Values) -> tuple[Values, Scores, Scores]:
    """The losses of rows with such scores, their slopes, and the probabilities, all times the weights.

    A slope of the row's own class is minus the sum of the other probabilities, so that nothing cancels.
    """
    counts = (weight > 0)[..., None] & jnp.any(jnp.isfinite(z), axis=2, keepdims=True)
    safe = jnp.where(counts, z, 0)
    p = jax.nn.softmax(safe, axis=2)
    others = jnp.sum(p * (1 - hot), axis=2, keepdims=True)
    value = jax.nn.logsumexp(safe, axis=2) - jnp.sum(jnp.where(hot > 0, safe, 0), axis=2)
    slope = jnp.where(hot > 0, -others, p)
    parts = jnp.where(counts[..., 0], value, 0), jnp.where(counts, slope, 0), jnp.where(counts, p, 0)
    return weight * parts[0], weight[..., None] * parts[1], weight[..., None] * parts[2]


def best_intercepts(z: Scores, hot: Float[Array, "n 1 k"], weight: Values, site: Int[Array, " n"]) -> Scores:
    """The best intercepts of each row's site; 0 of classes without rows that count."""
    target = by_site(weight[..., None] * hot, site)
    expected = by_site(at_scores(z, hot, weight)[2], site)
    known = (target > 0) & (expected > 0)
    start = jnp.where(known, jnp.log(jnp.where(known, target, 1)) - jnp.log(jnp.where(known, expected, 1)), 0)
    scores = jnp.where(target > 0, z, NOT_THERE)

    def step(state: tuple) -> tuple:
        taken, a, near, _ = state
        _, slope, share = at_scores(scores + a, hot, weight)
        d = -solved(share, weight, site, slope[..., None])[..., 0]
        r = jnp.max(d, axis=2, keepdims=True) - jnp.min(d, axis=2, keepdims=True)
        t = jnp.where(r > 0, jnp.log1p(r) / jnp.where(r > 0, r, 1), 1)
        return taken + 1, a + t * d, jnp.max(r, initial=0.0), near

    far = jnp.full((), jnp.inf, z.dtype)
    begin = (jnp.zeros((), int), start, far, far)
    return jax.lax.while_loop(lambda state: (state[0] < STEPS) & (state[3] > NEAR), step, begin)[1]


def solved(
    share: Scores, weight: Values, site: Int[Array, " n"], pull: Float[Array, "n m k c"]
) -> Float[Array, "n m k c"]:
    """How the intercepts of each row's site must move so that its slopes, which add up to the sum of `pull`, change by
    that: the potentials of its network, one of several for each c."""
    p = share / jnp.where(weight > 0, weight, 1)[..., None]
    wires = jax.ops.segment_sum(share[..., :, None] * p[..., None, :], site, len(site))
    return potentials(wires, jax.ops.segment_sum(pull, site, len(site)))[site]


def potentials(wires: Float[Array, "*s k k"], current: Float[Array, "*s k c"]) -> Float[Array, "*s k c"]:
    """The potentials of networks whose nodes take in these currents, the first node's being 0.

    The last node is taken out (its wires become a mesh between the others), until one is left. The diagonal is not
    read, and a node without wires has the potential 0.

    >>> import jax.numpy as jnp
    >>> from cofed.losses.site_class_intercepts import potentials
    >>> chain = jnp.array([[0.0, 2.0, 0.0], [2.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    >>> potentials(chain, jnp.array([[-1.0], [0.0], [1.0]]))[:, 0].tolist()
    [0.0, 0.5, 1.5]
    """
    taken = []
    for j in range(wires.shape[-1] - 1, 0, -1):
        row = wires[..., j, :j]
        total = jnp.sum(row, axis=-1, keepdims=True)
        part = jnp.where(total > 0, row / jnp.where(total > 0, total, 1), 0)
        own = current[..., j, :]
        taken.append((part, jnp.where(total > 0, own / jnp.where(total > 0, total, 1), 0)))
        wires = wires[..., :j, :j] + row[..., :, None] * part[..., None, :]
        current = current[..., :j, :] + part[..., None] * own[..., None, :]
    found = jnp.zeros_like(current)
    for part, own in reversed(taken):
        found = jnp.concatenate([found, (own + jnp.sum(part[..., None] * found, axis=-2))[..., None, :]], axis=-2)
    return found


def by_site(values: Scores, site: Int[Array, " n"]) -> Scores:
    """The sum over the rows of each row's site."""
    return jax.ops.segment_sum(values, site, len(site))[site]
