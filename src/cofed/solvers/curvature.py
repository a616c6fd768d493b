"""Second derivatives of a client's loss, on chosen coordinates of the model's parameters.

Coordinates are positions in the parameters laid out as one vector (`jax.flatten_util.ravel_pytree`).
"""

from typing import TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float, Int, Num, PyTree

from cofed.models import Linear, Trace
from cofed.problem import Problem

Rows = Float[Array, "n ..."]
Numbers = TypeVar("Numbers", np.ndarray, Array)


def mean_hessian(
    problem: Problem, w: PyTree, X: Rows, y: Num[Array, "n ..."], share: Float[Array, " n"], where: Int[Array, " s"]
) -> Float[Array, "s s"]:
    """The Hessian of `problem.mean_loss` at w, rows and columns `where` of it.

    >>> import cofed, jax, jax.numpy as jnp
    >>> from cofed.solvers.curvature import mean_hessian
    >>> X, y, share = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.ones(2), jnp.full(2, 0.5)
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> w = problem.model.init(jax.random.key(0), X[0], None)
    >>> mean_hessian(problem, w, X, y, share, jnp.arange(2, dtype=jnp.int32)).tolist()
    [[5.0, 7.0], [7.0, 10.0]]
    """
    if isinstance(problem.model, (Linear, Trace)):
        return of_linear(problem, w, X, y, share, where)
    flat, back = ravel_pytree(w)
    gradient = jax.grad(lambda v: problem.mean_loss(back(v), X, y, share))
    directions = jnp.zeros((where.size, flat.size), flat.dtype).at[jnp.arange(where.size), where].set(1)
    columns = jax.vmap(lambda e: jax.jvp(gradient, (flat,), (e,))[1])(directions)
    return columns[:, where]


def of_linear(
    problem: Problem, w: PyTree, X: Rows, y: Num[Array, "n ..."], share: Float[Array, " n"], where: Int[Array, " s"]
) -> Float[Array, "s s"]:
    """X' D X on the chosen columns, D the second derivatives of the samples' losses by their predictions."""
    X = X.reshape(X.shape[0], -1)
    d = X.shape[1]
    prediction = problem.predict(w, X)
    k = 1 if prediction.ndim == 1 else prediction.shape[1]
    feature, output = where // k, where % k
    # The intercept is the feature after the last, 1 for every sample.
    A = jnp.where(feature[None, :] < d, X[:, jnp.minimum(feature, d - 1)], 1)
    second = jax.vmap(jax.hessian(problem.loss))(prediction, y)
    if prediction.ndim == 1:
        return A.T @ (A * (second * share)[:, None])

    def columns_of(total, one):
        scaled = A * second[:, :, one][:, output] * share[:, None]
        return jnp.where((output == one)[None, :], scaled.T @ A, total), None

    start = jnp.zeros((where.size, where.size), X.dtype)
    return jax.lax.scan(columns_of, start, jnp.arange(k, dtype=where.dtype))[0]


def pack(H: Float[Array, "s s"]) -> Float[Array, " packed"]:
    """The upper triangle of a symmetric matrix, row by row: what goes over the wire.

    >>> import jax.numpy as jnp
    >>> from cofed.solvers.curvature import pack
    >>> pack(jnp.array([[1.0, 2.0], [2.0, 3.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    return H[np.triu_indices(H.shape[0])]


def unpack(packed: Numbers, size: int) -> Numbers:
    """The symmetric matrix of an upper triangle, in JAX or in NumPy as the triangle is.

    >>> import jax.numpy as jnp
    >>> from cofed.solvers.curvature import unpack
    >>> unpack(jnp.array([1.0, 2.0, 3.0]), 2).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    places = np.zeros((size, size), np.int32)
    places[np.triu_indices(size)] = np.arange(size * (size + 1) // 2)
    return packed[np.maximum(places, places.T)]
