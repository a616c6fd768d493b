"""Linear models: of vectors, and of matrices."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from cofed._util import checks
from cofed._util.scalars import zeros
from cofed.models.base import AbstractModel, Sample


class Weights(eqx.Module):
    """Parameters of a linear model: `coef`, and `intercept` (None where the model has none)."""

    # Arrays, or what stands for them in a pytree: shapes, flags, specifications of how they are sharded.
    coef: PyTree
    intercept: PyTree = None


class Linear(AbstractModel):
    """x . coef + intercept, with `coef` of shape (d,), or (d, k) where the loss needs k outputs.

    Parameters
    ----------
    intercept : bool, default True
        Whether there is an intercept.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import cofed
    >>> w = cofed.Linear().init(jax.random.key(0), jnp.ones(3), None)
    >>> w.coef.shape, w.intercept.shape
    ((3,), ())
    """

    intercept: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        checks.flag("Linear: intercept", self.intercept)

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> Weights:
        """All zero."""
        if x.ndim != 1:
            raise ValueError(
                f"Linear expects each sample to be a vector, got samples of shape {x.shape}; "
                "use Trace(d1, d2) for matrices or flatten them"
            )
        tail = () if outputs is None else (outputs,)
        return Weights(zeros(x.shape + tail, x.dtype), zeros(tail, x.dtype) if self.intercept else None)

    def __call__(self, w: Weights, x: Sample) -> Float[Array, "..."]:
        if x.ndim != 1:  # a product with an array of higher rank would be something else
            raise ValueError(f"Linear predicts from one sample X[i], a vector, got one of shape {x.shape}")
        prediction = x @ (w.coef if w.coef.ndim == 1 else by_output(jnp.asarray(w.coef)))
        return prediction if w.intercept is None else prediction + w.intercept


def by_output(coef: Float[Array, "d k"]) -> Float[Array, "d k"]:
    """The same matrix, in memory one output after another.

    Products with it, and those of its gradient, then go along rows of d numbers, and not of a few outputs. The barrier
    keeps XLA from taking the two transpositions for nothing.
    """
    return jax.lax.optimization_barrier(coef.T).T


class Trace(AbstractModel):
    """<x, coef> + intercept with matrix covariates x and a matrix `coef` of shape (d1, d2).

    Parameters
    ----------
    d1, d2 : int
        The numbers of rows and columns.
    intercept : bool, default False
        Whether there is an intercept.

    Examples
    --------
    >>> import jax, jax.numpy as jnp
    >>> import cofed
    >>> cofed.Trace(2, 3).init(jax.random.key(0), jnp.ones((2, 3)), None).coef.shape
    (2, 3)
    """

    d1: int = eqx.field(static=True)
    d2: int = eqx.field(static=True)
    intercept: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        for name, size in (("d1", self.d1), ("d2", self.d2)):
            checks.integer(f"Trace: {name}", size)
        checks.flag("Trace: intercept", self.intercept)

    def init(self, key: PRNGKeyArray, x: Sample, outputs: int | None) -> Weights:
        """All zero."""
        if outputs is not None or math.prod(x.shape) != self.d1 * self.d2:
            raise ValueError(
                f"Trace({self.d1}, {self.d2}) expects samples of shape ({self.d1}, {self.d2}) and a loss of one "
                f"output, got samples of shape {x.shape} and {outputs or 1} outputs"
            )
        intercept = zeros((), x.dtype) if self.intercept else None
        return Weights(zeros((self.d1, self.d2), x.dtype), intercept)

    def __call__(self, w: Weights, x: Sample) -> Float[Array, ""]:
        # Flattened, so that a batch of predictions is one matrix-vector product.
        prediction = jnp.ravel(x) @ jnp.ravel(w.coef)
        return prediction if w.intercept is None else prediction + w.intercept
