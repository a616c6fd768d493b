"""The elastic net of scikit-learn and glmnet."""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util.scalars import number, require_between, require_nonnegative
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.leaves import cast, checked, each, total
from cofed.regularizers.thresholds import soft


class ElasticNet(AbstractRegularizer):
    """psi(w) = strength * (l1_ratio * |w|_1 + (1 - l1_ratio)/2 * ||w||^2), as in scikit-learn.

    - `strength` (lambda; scikit-learn's alpha) >= 0.
    - `l1_ratio` in [0, 1]: 1 is the lasso, 0 is ridge.

    >>> import jax.numpy as jnp
    >>> ElasticNet(2.0, 0.5).prox(jnp.array([3.0, -0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    strength: Any = eqx.field(converter=number)
    l1_ratio: Any = eqx.field(converter=number)

    convex = True
    separable = True
    structure = "density"

    def __check_init__(self):
        require_nonnegative("ElasticNet", strength=self.strength)
        require_ratio("ElasticNet", self.l1_ratio)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """strength * (l1_ratio * |w|_1 + (1 - l1_ratio)/2 * ||w||^2)"""

        def leaf(x: Any) -> Any:
            ratio = cast(self.l1_ratio, x)
            return jnp.sum(ratio * jnp.abs(x) + (1 - ratio) / 2 * x**2)

        amount = total(leaf, w)
        return cast(self.strength, amount) * amount

    @checked
    def prox(self, v: PyTree, step: Any) -> PyTree:
        """Soft thresholding, then shrinking by 1 + step * strength * (1 - l1_ratio)."""

        def leaf(x: Any) -> Any:
            amount, ratio = cast(step, x) * cast(self.strength, x), cast(self.l1_ratio, x)
            return soft(x, amount * ratio) / (1 + amount * (1 - ratio))

        return each(leaf, v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """strength * (l1_ratio * sign(w) + (1 - l1_ratio) * w), with sign(0) = 0"""

        def leaf(x: Any) -> Any:
            ratio = cast(self.l1_ratio, x)
            return cast(self.strength, x) * (ratio * jnp.sign(x) + (1 - ratio) * x)

        return each(leaf, w)


def require_ratio(owner: str, ratio: Any) -> None:
    """Refuse a mixing ratio outside [0, 1]."""
    require_between(owner, 0.0, 1.0, l1_ratio=ratio)
