"""Means that a few wrong updates cannot pull far: what the server takes in place of the weighted mean.

`cofed.run(..., mean=cofed.means.Trimmed(0.1))`. They need the single updates, so they are for rounds in process, where
no sum hides what a client sent; and for methods whose clients keep nothing, since what others keep follows the plain
mean.
"""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PyTree

from cofed._util import checks
from cofed._util.scalars import number, require_nonnegative, require_positive
from cofed._util.types import Given, Hyperparameter

__all__ = ["AbstractMean", "Geometric", "Median", "Trimmed"]

HALF_WIDTH = 1e-6  # so much may rounding move a sum of weights that is one half


class AbstractMean(eqx.Module):
    """What the server makes of its clients' updates. One of your own derives from this class and gives `of`.

    Examples
    --------
    The midpoint of the smallest and the largest, entry by entry:

    >>> import jax, jax.numpy as jnp, numpy as np, cofed
    >>> class Midrange(cofed.means.AbstractMean):
    ...     def of(self, updates, weights):
    ...         return jax.tree.map(lambda leaf: (leaf.min(0) + leaf.max(0)) / 2, updates)
    >>> clients = [(np.eye(1), np.array([y])) for y in (1.0, 2.0, 9.0)]
    >>> federation, problem = cofed.Federation.from_arrays(clients), cofed.Problem(cofed.Linear(intercept=False))
    >>> result = cofed.run(problem, federation, cofed.FedAvg(1.0), rounds=1, mean=Midrange())
    >>> result.model.coef.tolist()
    [5.0]
    """

    @abstractmethod
    def of(self, updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
        """The mean, by JAX.

        Parameters
        ----------
        updates : pytree
            What clients sent, stacked along the first axis.
        weights : array of shape (m,)
            What each counts: >= 0, and 1 together. An update that is not to count has the weight 0.

        Returns
        -------
        pytree
            One update.
        """


def ordered(leaf: Float[Array, "m ..."], weights: Float[Array, " m"]) -> tuple[Array, Array]:
    """The values in their order, entry by entry, and the sums of the weights up to each."""
    order = jnp.argsort(leaf, axis=0)
    return jnp.take_along_axis(leaf, order, axis=0), jnp.cumsum(weights[order], axis=0)


class Median(AbstractMean):
    """The median of each entry, by the weights of the clients.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> cofed.means.Median().of(jnp.array([1.0, 2.0, 90.0, 4.0]), jnp.full(4, 0.25)).tolist()
    3.0
    """

    def of(self, updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
        def median(leaf):
            values, sums = ordered(leaf, weights)
            low, high = jnp.argmax(sums >= 0.5 - HALF_WIDTH, axis=0), jnp.argmax(sums > 0.5 + HALF_WIDTH, axis=0)
            pick = lambda place: jnp.take_along_axis(values, place[None], axis=0)[0]  # noqa: E731
            return (pick(low) + pick(high)) / 2

        return jax.tree.map(median, updates)


class Trimmed(AbstractMean):
    """The mean of each entry without its smallest and its largest part.

    Parameters
    ----------
    share : float
        The part of the weight that is left out at each end, in [0, 0.5); 0 is the plain mean.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> cofed.means.Trimmed(0.25).of(jnp.array([1.0, 2.0, 90.0, 4.0]), jnp.full(4, 0.25)).tolist()
    3.0
    """

    share: Hyperparameter = eqx.field(converter=number)

    def __check_init__(self):
        require_nonnegative("Trimmed", share=self.share)
        if np.ndim(self.share) or (not isinstance(self.share, Tracer) and self.share >= 0.5):
            raise ValueError(f"Trimmed: share must be a number in [0, 0.5), got {checks.shown(self.share)}")

    def of(self, updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
        share = jnp.asarray(self.share, weights.dtype)

        def trimmed(leaf):
            values, sums = ordered(leaf, weights)
            inside = jnp.clip(sums, share, 1 - share)
            counts = jnp.diff(inside, axis=0, prepend=jnp.broadcast_to(share, (1, *leaf.shape[1:])))
            return jnp.sum(counts * values, axis=0) / (1 - 2 * share)

        return jax.tree.map(trimmed, updates)


def iterations_of(value: Given[int]) -> int:
    """How many iterations."""
    return checks.integer("Geometric: iterations", value)


class Geometric(AbstractMean):
    """The geometric median: the point with the least weighted sum of distances to the updates (Weiszfeld's iterations).

    All parameters of the model together are one point, so an update counts as a whole or hardly at all (Pillutla,
    Kakade, Harchaoui 2022).

    Parameters
    ----------
    iterations : int, default 32
        How many of Weiszfeld's iterations, from the plain mean.
    smoothing : float, default 1e-6
        Distances below this part of the mean distance count as so long.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> updates = jnp.array([[0.0, 1.0], [0.0, -1.0], [1.0, 0.0], [-1.0, 0.0], [0.0, 500.0]])
    >>> bool(abs(cofed.means.Geometric().of(updates, jnp.full(5, 0.2))).max() < 1)
    True
    """

    iterations: int = eqx.field(static=True, converter=iterations_of, default=32)
    smoothing: Hyperparameter = eqx.field(converter=number, default=1e-6)

    def __check_init__(self):
        require_positive("Geometric", smoothing=self.smoothing)
        if np.ndim(self.smoothing):
            raise ValueError(f"Geometric: smoothing must be one number, got {checks.shown(self.smoothing)}")

    def of(self, updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
        leaves, form = jax.tree.flatten(updates)
        rows = jnp.concatenate([leaf.reshape(leaf.shape[0], -1) for leaf in leaves], axis=1)
        tiny = jnp.asarray(self.smoothing, rows.dtype)

        def step(_, centre):
            far = jnp.linalg.norm(rows - centre[None], axis=1)
            typical = weights @ far
            counts = weights / jnp.maximum(far, jnp.where(typical > 0, tiny * typical, 1))
            return counts @ rows / jnp.sum(counts)

        found = jax.lax.fori_loop(0, self.iterations, step, weights @ rows)
        sizes = np.cumsum([leaf[0].size for leaf in leaves])[:-1]
        parts = [part.reshape(leaf.shape[1:]) for part, leaf in zip(jnp.split(found, sizes), leaves, strict=True)]
        return jax.tree.unflatten(form, parts)
