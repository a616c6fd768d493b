"""Means that a few wrong updates cannot pull far, or that tell little of any one: in place of the weighted mean.

`cofed.run(..., mean=cofed.means.Trimmed(0.1))`. They need the single updates, so they are for rounds in process, where
no sum hides what a client sent; and for methods whose clients keep nothing, since what others keep follows the plain
mean.
"""

import math
from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cofed._util import checks
from cofed._util.scalars import number, require_nonnegative, require_number, require_positive
from cofed._util.types import Given, Hyperparameter

__all__ = ["AbstractMean", "Clipped", "Geometric", "Median", "Trimmed"]

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

    def drawn(self, updates: PyTree, weights: Float[Array, " m"], key: PRNGKeyArray) -> PyTree:
        """The mean of a round, where it draws something; else `of`.

        Parameters
        ----------
        updates : pytree
            What clients sent, stacked along the first axis.
        weights : array of shape (m,)
            What each counts.
        key : PRNGKeyArray
            Folded by (seed, round), and used for nothing else.

        Returns
        -------
        pytree
            One update.
        """
        return self.of(updates, weights)

    def fitted(self, method: str, w0: PyTree, sent: Callable[[float], PyTree]) -> "AbstractMean":
        """The mean for what clients of a method send, asked for before a run; it may refuse the method.

        Parameters
        ----------
        method : str
            Its name.
        w0 : pytree
            A model that is nowhere zero.
        sent : callable
            The update of a client, from `w0` and without a penalty, whose gradients have a given value in every entry.

        Returns
        -------
        AbstractMean
            What `drawn` is called of.

        Raises
        ------
        ValueError
            Where such updates cannot be taken.
        """
        return self


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


class Clipped(AbstractMean):
    """The mean by the weights of updates that are cut to a norm, with Gaussian noise: client-level privacy, simulated.

    Of m clients that count alike the noise of every entry has the standard deviation noise * norm / m; of others,
    noise * norm times the largest weight. It is drawn from the run's seed and the round. For methods whose clients send
    a change of the model, such as FedAvg, FedMiD and FedDualAvg; what they send that no gradient moves, as the elapsed
    time of dual averaging, stays as it is.

    Parameters
    ----------
    norm : float
        The largest Euclidean norm of an update, over all parameters together; inf cuts nothing.
    noise : float, default 0
        The noise of the sum of m updates, in units of `norm`.

    Examples
    --------
    >>> import jax.numpy as jnp, cofed
    >>> cofed.means.Clipped(5.0).of(jnp.array([[3.0, 4.0], [30.0, 40.0]]), jnp.full(2, 0.5)).tolist()
    [3.0, 4.0]
    """

    norm: Hyperparameter = eqx.field(converter=number)
    noise: Hyperparameter = eqx.field(converter=number, default=0.0)

    def __check_init__(self):
        require_nonnegative("Clipped", noise=self.noise)
        require_number("Clipped", "norm", self.norm)
        for name, value in (("norm", self.norm), ("noise", self.noise)):
            if np.ndim(value):
                raise ValueError(f"Clipped: {name} must be one number, got {checks.shown(value)}")
        if isinstance(self.norm, Tracer) or isinstance(self.noise, Tracer):
            return
        if not self.norm > 0:
            raise ValueError(f"Clipped: norm must be > 0, got {checks.shown(self.norm)}")
        if self.noise > 0 and math.isinf(self.norm):
            raise ValueError("Clipped: noise is in units of norm, so norm must be finite where there is any, got inf")

    def of(self, updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
        lengths = jax.vmap(length)(updates)
        norm = jnp.asarray(self.norm, lengths.dtype)
        # The length of what is all zero is no divisor, and where nothing is cut, an infinite norm is no dividend.
        scales = jnp.where(lengths > norm, norm / jnp.where(lengths > norm, lengths, 1), 1)
        cut = jax.vmap(lambda scale, update: jax.tree.map(lambda leaf: scale * leaf, update))(scales, updates)
        return plain(cut, weights)

    def drawn(self, updates: PyTree, weights: Float[Array, " m"], key: PRNGKeyArray) -> PyTree:
        leaves, form = jax.tree.flatten(self.of(updates, weights))
        noise, norm = jnp.asarray(self.noise, weights.dtype), jnp.asarray(self.norm, weights.dtype)
        spread = jnp.where(noise > 0, noise * norm * jnp.max(weights), 0)
        keys = jax.random.split(key, len(leaves))
        pairs = zip(keys, leaves, strict=True)
        return jax.tree.unflatten(
            form, [leaf + spread.astype(leaf.dtype) * jax.random.normal(k, leaf.shape, leaf.dtype) for k, leaf in pairs]
        )

    def fitted(self, method: str, w0: PyTree, sent: Callable[[float], PyTree]) -> AbstractMean:
        before, after = jax.tree.leaves(sent(0.0)), jax.tree.leaves(sent(1.0))
        moved = tuple(not np.array_equal(a, b) for a, b in zip(before, after, strict=True))
        changes = [leaf for leaf, moves in zip(before, moved, strict=True) if moves]
        like_the_model = [leaf.shape for leaf in changes] == [leaf.shape for leaf in jax.tree.leaves(w0)]
        if not like_the_model or any(np.any(leaf) for leaf in changes):
            raise ValueError(
                f"mean=Clipped is for methods whose clients send a change of the model, which is zero where their "
                f"gradients are, such as FedAvg, FedMiD or FedDualAvg; what clients of {method} send is no such change"
            )
        return ClippedLeaves(self, moved)


class ClippedLeaves(AbstractMean):
    """`Clipped` of those leaves of an update that gradients move, and the mean by the weights of the others."""

    clipped: Clipped
    moved: tuple[bool, ...] = eqx.field(static=True)

    def of(self, updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
        return self.merged(updates, weights, lambda moved: self.clipped.of(moved, weights))

    def drawn(self, updates: PyTree, weights: Float[Array, " m"], key: PRNGKeyArray) -> PyTree:
        return self.merged(updates, weights, lambda moved: self.clipped.drawn(moved, weights, key))

    def merged(
        self, updates: PyTree, weights: Float[Array, " m"], mean: Callable[[list[Array]], list[Array]]
    ) -> PyTree:
        """This mean of the leaves that are moved, and the plain one of the others."""
        leaves, form = jax.tree.flatten(updates)
        found = iter(mean([leaf for leaf, moves in zip(leaves, self.moved, strict=True) if moves]))
        pairs = zip(leaves, self.moved, strict=True)
        return jax.tree.unflatten(form, [next(found) if moves else plain(leaf, weights) for leaf, moves in pairs])


def plain(updates: PyTree, weights: Float[Array, " m"]) -> PyTree:
    """The mean by the weights."""
    return jax.tree.map(lambda leaf: jnp.tensordot(weights, leaf, axes=1), updates)


def length(update: PyTree) -> Float[Array, ""]:
    """The Euclidean norm of all leaves together, also where its square is no floating-point number."""
    leaves = jax.tree.leaves(update)
    largest = jnp.max(jnp.stack([jnp.max(jnp.abs(leaf), initial=0) for leaf in leaves]))
    unit = jnp.where(largest > 0, largest, 1)
    return largest * jnp.sqrt(sum(jnp.sum((leaf / unit) ** 2) for leaf in leaves))
