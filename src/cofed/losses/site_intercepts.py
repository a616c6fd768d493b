"""The loss of a site's rows where every site has an intercept of its own, the best for its rows.

    F(z) = min over a of sum_i w_i f(z_i + a, y_i)

for the rows i of a site, f a convex loss A(z) - y B(z) + c(y) with a link function. It is a convex function of all
predictions z together, at least 0 where f is, and does not change where all predictions change by a constant. Its
minimiser a(z)
makes the slopes w_i f'(z_i + a, y_i) add up to 0; they are F's gradient, and with the bends h_i = w_i f''(z_i + a) its
Hessian along d is sum_i h_i (d_i - mean of d by h)^2. Its third derivative along d is sum_i w_i f''' (d_i - mean)^3: at
most the range of d times the second where |f'''| <= f''.

Where all labels of a site are on the edge of what can be expected (one class, no count above 0), the best a is infinite
and F is 0 whatever the predictions: such a site tells nothing of the coefficients.
"""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Num, Scalar

from cofed.losses.base import AbstractLoss, Label, Prediction
from cofed.losses.site_loss import AbstractSiteLoss

Values = Float[Array, "n m"]

STEPS = 60  # of Newton's method, or halvings
STILL = 4  # units of rounding: a shorter step is the last


class SiteTerms(NamedTuple):
    """What the loss of m models is made of, for n rows of several sites."""

    value: Values  # the loss of every row, times its weight
    slope: Values  # its derivatives by the predictions
    bend: Values  # the second derivatives by each row's own prediction
    intercept: Values  # the intercept of the row's site; infinite where the labels are on the edge
    finite: Bool[Array, "n m"]  # whether it is finite


class SiteIntercepts(AbstractSiteLoss):
    """The loss of all rows of a site, whose intercept is the best one for them, and no parameter of the model.

    Parameters
    ----------
    loss : AbstractLoss
        The loss of a row: one with a link function, such as Squared, Logistic, Poisson or Gamma. Of `Reweighted`, the
        intercepts are those of the loss that it judges.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> from cofed.losses.site_intercepts import SiteIntercepts
    >>> float(SiteIntercepts(cofed.Squared())(jnp.zeros(2), jnp.array([1.0, 3.0])))  # 2 suits both best
    1.0
    """

    site_parameters: ClassVar[int] = 1

    def __check_init__(self):
        reason = unfit_for_sites(self.loss.fitted_by)
        if reason is not None:
            raise TypeError(reason)

    def __call__(self, prediction: Prediction, y: Label) -> Scalar:
        """The loss of the rows of one site."""
        z = jnp.ravel(prediction)[:, None]
        return jnp.sum(self.terms(z, jnp.ravel(y), jnp.ones_like(z), jnp.zeros(len(z), int)).value)

    def terms(self, z: Values, y: Num[Array, " n"], weight: Values, site: Int[Array, " n"]) -> SiteTerms:
        """The loss of m models and its parts. `weight` is 0 where a model does not learn from a row."""
        a, finite = self.intercepts(z, y, weight, site)
        at, counts = z + jnp.where(finite, a, 0), finite & (weight > 0)
        functions = (self.loss, jax.grad(self.loss), jax.grad(jax.grad(self.loss)))
        value, slope, bend = (jnp.where(counts, weight * of_each(one, at, y), 0) for one in functions)
        return SiteTerms(value, slope, bend, a, finite)

    def held(
        self, z: Values, y: Num[Array, " n"], weights: tuple[Values, Values], site: Int[Array, " n"]
    ) -> Float[Array, " m"]:
        """The loss of rows held out, by the intercepts of the rows that models learn from: `weights` are of both.

        Where the rows of a site that a model learns from tell none, it is that of all rows of the site; where those
        tell none either, the loss is 0.
        """
        own, others = weights
        a, finite = self.intercepts(z, y, own, site)
        of_all, any_finite = self.intercepts(z, y, own + others, site)
        at = z + jnp.where(finite, a, jnp.where(any_finite, of_all, 0))
        counts = (finite | any_finite) & (others > 0)
        return jnp.sum(jnp.where(counts, others * of_each(self.loss, at, y), 0), axis=0)

    def intercepts(
        self, z: Values, y: Num[Array, " n"], weight: Values, site: Int[Array, " n"]
    ) -> tuple[Values, Bool[Array, "n m"]]:
        """The best intercept of each row's site, and whether it is finite.

        It is between the link of the mean label less the largest prediction and the same less the least, since slopes
        grow with predictions. On the scale of the link the expected mean is nearly linear in it (for squares and counts
        exactly); so is, of a link that is not canonical, the difference of the logarithms of sum w A' and sum w y B',
        which are positive. So Newton's steps are few; one that leaves the interval is replaced by its middle.
        """
        fitted = self.loss.fitted_by
        count, label = z.shape[0], y.astype(z.dtype)[:, None]
        there = weight > 0
        total = by_site(weight, site, count)
        mean = by_site(weight * label, site, count) / jnp.where(total > 0, total, 1)
        goal = fitted.link(jnp.where(total > 0, mean, jnp.nan))
        finite = jnp.isfinite(goal)
        goal_there = jnp.where(finite, goal, fitted.link(jnp.full_like(goal, 0.5)))
        most = jax.ops.segment_max(jnp.where(there, z, -jnp.inf), site, count)[site]
        least = jax.ops.segment_min(jnp.where(there, z, jnp.inf), site, count)[site]
        good = finite & jnp.isfinite(most) & jnp.isfinite(least)
        low, high = (jnp.where(good, goal_there - end, 0) for end in (most, least))
        shares = jnp.where(good, weight / jnp.where(total > 0, total, 1), 0)
        expected, natural = (jnp.vectorize(jax.grad(one)) for one in (fitted.cumulant, fitted.natural))
        link_slope = jnp.vectorize(jax.grad(fitted.link))
        start = goal_there - by_site(shares * jnp.where(good, z, 0), site, count)

        def off(a: Values) -> tuple[Values, Values]:
            at = jnp.where(good, z + a, 0)
            mean_at, bend = (
                by_site(shares * part, site, count) for part in (expected(at), jnp.vectorize(jax.grad(expected))(at))
            )
            if fitted.is_canonical:
                return fitted.link(mean_at) - goal_there, link_slope(mean_at) * bend
            told, bent = (
                by_site(shares * label * part, site, count)
                for part in (natural(at), jnp.vectorize(jax.grad(natural))(at))
            )
            up, down = (jnp.where(good, one, 1) for one in (mean_at, told))
            return jnp.log(up) - jnp.log(down), bend / up - bent / down

        def step(state: tuple) -> tuple:
            taken, a, low, high, _ = state
            far, steep = off(a)
            low, high = jnp.where(far <= 0, a, low), jnp.where(far >= 0, a, high)
            new = a - far / steep
            inside = (new > low) & (new < high)
            new = jnp.where(far == 0, a, jnp.where(inside, new, (low + high) / 2))
            new = jnp.where(good, new, 0)
            size = 1 + jnp.abs(new) + jnp.where(good, jnp.maximum(jnp.abs(most), jnp.abs(least)), 0)
            moving = jnp.any(jnp.abs(new - a) > STILL * jnp.finfo(z.dtype).eps * size)
            return taken + 1, new, low, high, moving

        begin = (jnp.zeros((), int), jnp.where(good, jnp.clip(start, low, high), 0), low, high, jnp.ones((), bool))
        a = jax.lax.while_loop(lambda state: (state[0] < STEPS) & state[4], step, begin)[1]
        return jnp.where(finite, jnp.where(good, a, jnp.nan), goal), finite


def unfit_for_sites(loss: AbstractLoss) -> str | None:
    """Why a loss of a row takes no intercepts of sites, in a sentence; None where it does."""
    bound = loss.self_concordance
    # Of a link that is not canonical, labels from 0 on make both sums positive whose logarithms are compared.
    linked = loss.has_link and (loss.is_canonical or loss.least_label == 0)
    if linked and not loss.outputs(np.zeros(1, int)) and bound is not None and bound <= 1:
        return None
    return (
        f"{type(loss).__name__} takes no intercepts of sites: that needs one prediction per row, a link that is "
        "canonical or of labels from 0 on, and third derivatives that do not exceed the second"
    )


def of_each(function: Callable[[Array, Array], Array], z: Values, y: Num[Array, " n"]) -> Values:
    """A function of prediction and label, of every row and model."""
    return jax.vmap(jax.vmap(function, in_axes=(0, None)))(z, y)


def by_site(values: Values, site: Int[Array, " n"], count: int) -> Values:
    """The sum over the rows of each row's site."""
    return jax.ops.segment_sum(values, site, count)[site]
