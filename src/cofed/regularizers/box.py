"""Bounds on every coordinate."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree, Scalar

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer, PiecewiseQuadratic
from cofed.regularizers.leaves import (
    checked,
    concrete,
    coordinates,
    each,
    indicator,
    require_numbers,
    spread,
    tolerance,
    total,
)


class Box(AbstractRegularizer):
    """psi(w) = 0 if low <= w <= high in every coordinate, else inf.

    `value` forgives a round-off of 64 units in the last place of the bound (of 1 for a bound near 0).

    Parameters
    ----------
    low, high : float, array or pytree
        Numbers, arrays of the model's shape, or pytrees like the model; infinite bounds are allowed.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Box(-1.0, 2.0).prox(jnp.array([3.0, -4.0, 0.5]), 1.0).tolist()
    [2.0, -1.0, 0.5]
    """

    low: PyTree = eqx.field(converter=coordinates)
    high: PyTree = eqx.field(converter=coordinates)

    convex = True
    separable = True
    is_indicator = True

    def __check_init__(self):
        for field, value in (("low", self.low), ("high", self.high)):
            require_numbers("Box", field, value)
            if any(np.isnan(leaf).any() for leaf in concrete(value)):
                raise ValueError(f"Box: {field} must be a number or numbers, got {shown(value)}")
        low, high = concrete(self.low), concrete(self.high)
        # One number against a tree is compared with each leaf; tracers and mismatched trees are seen by the
        # prox.
        low, high = low * (len(high) if len(low) == 1 else 1), high * (len(low) if len(high) == 1 else 1)
        for below, above in zip(low, high, strict=False):
            if (below.shape == above.shape or () in (below.shape, above.shape)) and (below > above).any():
                raise ValueError(f"Box: low must not exceed high, got low={below} and high={above}")

    @checked
    def value(self, w: PyTree) -> Scalar:
        """0 within the bounds, inf outside"""

        def inside(x: Array, low: Array, high: Array) -> Array:
            room = tolerance(x.dtype)
            above = x >= low - room * jnp.maximum(jnp.abs(low), 1.0)
            return jnp.all(above & (x <= high + room * jnp.maximum(jnp.abs(high), 1.0)))

        fits = jax.tree.leaves(each(inside, w, *self._bounds(w)))
        return indicator(jnp.all(jnp.stack(fits)), trees.dtype(w))

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The nearest point within the bounds."""
        return each(jnp.clip, v, *self._bounds(v))

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """sum_j max(low_j u_j, high_j u_j)"""

        def leaf(x: Array, low: Array, high: Array) -> Array:
            low, high = (jnp.broadcast_to(bound, x.shape) for bound in (low, high))
            at = jnp.where(x > 0, high, low)
            inside = (x == 0) | (jnp.isinf(at) & (jnp.abs(x) <= slack))
            return jnp.sum(jnp.where(inside, 0, jnp.where(inside, 1, at) * x))

        return total(leaf, u, *self._bounds(u))

    @checked
    def excess(self, w: PyTree, gradient: PyTree) -> PyTree:
        """The part that pulls towards a bound that is infinite."""

        def leaf(g: Array, low: Array, high: Array) -> Array:
            low, high = (jnp.broadcast_to(bound, g.shape) for bound in (low, high))
            return jnp.clip(g, jnp.where(jnp.isposinf(high), -jnp.inf, 0), jnp.where(jnp.isneginf(low), jnp.inf, 0))

        return each(leaf, gradient, *self._bounds(gradient))

    @property
    def coercive(self) -> bool:
        """Whether all bounds are finite."""
        return all(np.isfinite(bound).all() for bound in (*concrete(self.low), *concrete(self.high)))

    def piecewise_quadratic(self) -> PiecewiseQuadratic | None:
        """The bounds, for a model that is one array."""
        if not all(isinstance(bound, (float, np.ndarray, jax.Array)) for bound in (self.low, self.high)):
            return None
        return PiecewiseQuadratic(low=np.asarray(self.low), high=np.asarray(self.high))

    def _bounds(self, tree: PyTree) -> tuple[PyTree, PyTree]:
        return spread("Box", "low", self.low, tree), spread("Box", "high", self.high, tree)
