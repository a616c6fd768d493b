"""Batch samplers: which of a client's samples a local step sees, as pure functions of (seed, round, client, step).

`cofed.run(..., local_steps=5, batch_size=20)` draws twenty distinct samples afresh for each step; a sampler in place of
the number draws in another way.
"""

from abc import abstractmethod
from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key, Num, PRNGKeyArray, Scalar

from cofed._util import checks
from cofed._util.draws import shuffled
from cofed._util.types import Given

__all__ = ["AbstractBatches", "Batch", "ClientRound", "Shuffled", "SquaredNorm", "Weighted"]


class ClientRound(eqx.Module):
    """A client's round, as its batches may depend on it.

    Parameters
    ----------
    key : jax.random.key
        By (seed, round, client).
    step_keys : jax.random.key array of shape (steps,)
        One for each local step: by (seed, round, client, step).
    number : int array
        The round, counted from the start of the stage.
    samples : int array
        n, how many samples the client has.
    X, y : arrays
        Them, padded at the end to as many as the largest client has.
    """

    key: PRNGKeyArray
    step_keys: Key[Array, " steps"]
    number: Int[Array, ""]
    samples: Int[Array, ""]
    X: Float[Array, "most ..."]
    y: Num[Array, "most ..."]

    @property
    def steps(self) -> int:
        """How many local steps the round has."""
        return self.step_keys.shape[0]

    @property
    def most(self) -> int:
        """How many samples the largest client has."""
        return self.X.shape[0]


class Batch(eqx.Module):
    """The samples of each local step of a round.

    Parameters
    ----------
    rows : int array of shape (steps, size)
        Which of the client's samples, counted from 0; one may be there more than once.
    share : float array of shape (steps, size), optional
        What each counts in the sum that makes loss and gradient, 0 where a place is empty. None is the mean over all
        places of a step. Where samples are not drawn alike, `1 / (n size chance)` makes the sum unbiased.
    """

    rows: Int[Array, "steps size"]
    share: Float[Array, "steps size"] | None = None


class AbstractBatches(eqx.Module):
    """Which samples local steps see. A sampler of your own derives from this class and gives `size` and `draw`.

    Its numbers are fields, so that another value compiles nothing.

    Examples
    --------
    One sample after another, in the order in which they lie:

    >>> import jax.numpy as jnp, numpy as np, cofed
    >>> class InOrder(cofed.batches.AbstractBatches):
    ...     def size(self, most):
    ...         return 1
    ...
    ...     def draw(self, round):
    ...         rows = jnp.arange(round.steps, dtype=jnp.int32) % round.samples
    ...         return cofed.batches.Batch(rows[:, None])
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))])
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> result = cofed.run(problem, federation, cofed.FedAvg(1.0), rounds=1, local_steps=2, batch_size=InOrder())
    >>> result.model.coef.tolist()
    [1.0, 3.0]
    """

    @abstractmethod
    def size(self, most: int) -> int:
        """How many places a batch has.

        Parameters
        ----------
        most : int
            How many samples the largest client has.

        Returns
        -------
        int
            The same for every client and step.
        """

    @abstractmethod
    def draw(self, round: ClientRound) -> Batch:
        """The batches of a client's round, by JAX.

        Parameters
        ----------
        round : ClientRound
            The client's samples, and the keys to draw by.

        Returns
        -------
        Batch
            For each of `round.steps` steps, `size` rows below `round.samples`. A row that is not there makes the
            client's update NaN, so that it is left out and the history says so.
        """


def number_of_samples(value: object) -> int:
    """How many samples a batch has."""
    return checks.integer("a batch's samples", value)


class Shuffled(AbstractBatches):
    """Passes over a client's samples, each in a new random order, cut into batches: nothing comes twice in a pass.

    A round begins a new pass; its last batch may be short. With `local_epochs` and a plain `batch_size` clients take as
    many steps as a pass has; here all of them take `local_steps`.

    Parameters
    ----------
    samples : int
        How many samples a batch has.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(4), np.ones(4))])
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> once_each = {"local_steps": 2, "batch_size": cofed.batches.Shuffled(2)}
    >>> cofed.run(problem, federation, cofed.FedAvg(2.0), rounds=1, **once_each).model.coef.tolist()
    [1.0, 1.0, 1.0, 1.0]
    """

    samples: int = eqx.field(static=True, converter=number_of_samples)

    def size(self, most: int) -> int:
        return min(self.samples, most)

    def draw(self, round: ClientRound) -> Batch:
        size, n, dtype = self.size(round.most), round.samples, round.X.dtype
        each = (n + size - 1) // size  # steps of a pass
        step = jnp.arange(round.steps, dtype=jnp.int32)
        place = (step % each * size)[:, None] + jnp.arange(size, dtype=jnp.int32)[None, :]
        there = place < n
        place = jnp.minimum(place, n - 1)

        def one_pass(p, rows):
            order = shuffled(jax.random.fold_in(round.key, p), n, round.most)
            return jnp.where((step // each == p)[:, None], order[place], rows)

        rows = jax.lax.fori_loop(0, (round.steps + each - 1) // each, one_pass, jnp.zeros_like(place))
        return Batch(rows, there.astype(dtype) / jnp.sum(there, axis=1, keepdims=True).astype(dtype))


class SquaredNorm(eqx.Module):
    """||x||^2, to which the smoothness of a sample's loss is proportional for linear models."""

    def __call__(self, x: Array, y: Array) -> Scalar:
        return jnp.sum(x**2)


Weight = Callable[[Array, Array], Scalar]  # of one sample, (x, y)


def weighing(given: Given[Weight]) -> Weight:
    """A function of a sample."""
    if not callable(given) or isinstance(given, type):
        raise TypeError(f"Weighted: weight must be a function of a sample (x, y), got {checks.shown(given)}")
    return given


class Weighted(AbstractBatches):
    """Importance sampling: independent draws with chances p_i that are proportional to a weight of each sample.

    A sample counts 1 / (n p_i) of the mean over the batch, so that gradients are unbiased. Weights are computed from
    the client's own samples, once in a round.

    Parameters
    ----------
    samples : int
        How many samples a batch has.
    weight : callable, optional
        A JAX function of one sample, `weight(x, y)`, that gives a number above 0; None is the squared norm of x. A
        sample of the weight 0 is never drawn: that is only right where its gradient is 0 too.

    Examples
    --------
    Two samples, one of them with a weight of 9 in 10, whose gradients are drawn without bias:

    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.array([[1.0], [3.0]]), np.array([1.0, 3.0]))])
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> draws = {"local_steps": 40, "batch_size": cofed.batches.Weighted(1)}
    >>> cofed.run(problem, federation, cofed.FedAvg(0.1), rounds=1, **draws).model.coef.round(4).tolist()
    [1.0]
    """

    samples: int = eqx.field(static=True, converter=number_of_samples)
    weight: Given[Weight] = eqx.field(converter=weighing, default=SquaredNorm())

    def size(self, most: int) -> int:
        return self.samples

    def draw(self, round: ClientRound) -> Batch:
        dtype, place = round.X.dtype, jnp.arange(round.most, dtype=jnp.int32)
        given = jax.vmap(self.weight)(round.X, round.y).astype(dtype)
        weights = jnp.where(place < round.samples, jnp.where(given >= 0, given, jnp.nan), 0)
        sums = jnp.cumsum(weights)
        last = jnp.max(jnp.where(weights > 0, place, 0))  # of positive weight: a draw may be rounded to the very end
        draws = jax.vmap(lambda key: jax.random.uniform(key, (self.samples,), dtype))(round.step_keys) * sums[-1]
        rows = jnp.minimum(jnp.searchsorted(sums, draws, side="right").astype(jnp.int32), last)
        return Batch(rows, sums[-1] / (weights[rows] * round.samples.astype(dtype) * self.samples))
