"""Baselines of a federation: the problem solved on the pooled data, or on one client's, to a stated precision."""

import warnings
from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float, Int, PyTree, Scalar

from cofed._util import checks, naming, trees
from cofed._util.programs import keep_programs, program
from cofed._util.types import Given
from cofed.engine import evaluate
from cofed.engine.data import Data, data_of
from cofed.engine.job import traced
from cofed.engine.spec import check_kinds
from cofed.federation import Federation
from cofed.problem import Problem


class Solution(NamedTuple):
    """A solved problem, as `solve_pooled` and `solve_local` return it.

    Parameters
    ----------
    model : PyTree
        The model's parameters, or the user's own module with these parameters.
    objective : float
        The loss plus psi there.
    residual : float
        ||w - prox_t(w - t grad F(w))|| / t at the last step size t.
    iterations : int
        How many there were.
    converged : bool
        Whether the residual met the tolerance.
    """

    model: PyTree
    objective: float
    residual: float
    iterations: int
    converged: bool


class Iterate(NamedTuple):
    w: PyTree  # x_k
    v: PyTree  # y_k, the extrapolated point
    t: Float[Array, ""]  # t_k, the momentum's sequence
    step: Float[Array, ""]  # the step size, 1/L by backtracking
    residual: Float[Array, ""]  # ||x_k - y_{k-1}|| / step
    k: Int[Array, ""]


def solve_pooled(
    problem: Given[Problem],
    federation: Given[Federation],
    *,
    weights: Given[str | npt.ArrayLike] = "uniform",
    w0: Given[PyTree | Mapping[str, npt.ArrayLike]] = None,
    tol: Given[float] = 1e-10,
    max_iterations: Given[int] = 100_000,
) -> Solution:
    """Minimise sum_m pi_m F_m(w) + psi(w) on the gathered data, by accelerated proximal gradient.

    FISTA (Beck and Teboulle 2009) with backtracking and the restarts of O'Donoghue and Candes. A `RuntimeWarning` says
    where it stops short of the tolerance.

    Parameters
    ----------
    problem : Problem
        The problem, with a convex regularizer.
    federation : Federation
        The clients' samples.
    weights : str or array_like, default "uniform"
        pi_m, as in `cofed.run`: "uniform" counts clients alike, "samples" counts samples alike.
    w0 : PyTree or mapping, optional
        Where to begin, as in `cofed.run`.
    tol : float, default 1e-10
        It stops where the norm of the prox-gradient map is at most `tol` times that at the start, or at round-off.
    max_iterations : int, default 100_000
        It stops after so many iterations in any case.

    Returns
    -------
    Solution
        The model, and how good it is.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))])
    >>> problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(1.0))
    >>> cofed.solve_pooled(problem, federation).model.coef.round(6).tolist()
    [0.0, 1.0]
    """
    check_kinds(problem, federation)
    tol, max_iterations = checks.positive("tol", tol), checks.integer("max_iterations", max_iterations)
    keep_programs()
    problem.check(federation)
    dtype, data = federation.dtype, data_of(federation, weights)
    start = problem.start(federation, w0)
    best, converged = fista(traced(problem, dtype), data, start, jnp.asarray(tol, dtype), max_iterations)
    objective = evaluate.smooth(traced(problem, dtype), data, best.w)[0] + problem.regularizer.value(best.w)
    model = problem.ready(jax.tree.map(np.asarray, best.w))
    finite = bool(trees.all_finite(best.w)) and bool(jnp.isfinite(objective))
    found = bool(converged) and finite
    if not found:
        why = (
            f"at a residual of {float(best.residual):.3g}, short of tol={tol:g}"
            if finite
            else f"at an objective of {float(objective):g}: it is not finite, or has no lower bound"
        )
        warnings.warn(
            f"the pooled solver stopped after {int(best.k)} iterations {why}",
            RuntimeWarning,
            stacklevel=2,
        )
    return Solution(model, float(objective), float(best.residual), int(best.k), found)


def solve_local(
    problem: Given[Problem],
    federation: Given[Federation],
    client: Given[str | int],
    *,
    w0: Given[PyTree | Mapping[str, npt.ArrayLike]] = None,
    tol: Given[float] = 1e-10,
    max_iterations: Given[int] = 100_000,
) -> Solution:
    """Minimise F_m(w) + psi(w) of one client alone, as `solve_pooled` does.

    Parameters
    ----------
    problem : Problem
        The problem, with a convex regularizer.
    federation : Federation
        The clients' samples.
    client : str or int
        The client's name or position.
    w0 : PyTree or mapping, optional
        Where to begin, as in `cofed.run`.
    tol : float, default 1e-10
        As in `solve_pooled`.
    max_iterations : int, default 100_000
        As in `solve_pooled`.

    Returns
    -------
    Solution
        The model, and how good it is.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays({"Oslo": (np.eye(2), np.ones(2)), "Rome": (np.eye(2), np.zeros(2))})
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> cofed.solve_local(problem, federation, "Oslo").model.coef.round(6).tolist()
    [1.0, 1.0]
    """
    check_kinds(problem, federation)
    if isinstance(client, bool) or not isinstance(client, (str, int, np.integer)):
        raise TypeError(f"client must be a client's name or position, got {checks.shown(client)}")
    if not isinstance(client, str) and not -federation.n_clients <= client < federation.n_clients:
        raise ValueError(f"client: there is no client at position {client}; there are {federation.n_clients} clients")
    if isinstance(client, str) and client not in federation.names:
        raise ValueError(f"client: there is no client {client!r}; there are {naming.listed(federation.names)}")
    own = federation.select([client])
    return solve_pooled(problem, own, w0=w0, tol=tol, max_iterations=max_iterations)


@program
def fista(
    problem: Problem, data: Data, start: PyTree, tol: Float[Array, ""], most: int
) -> tuple[Iterate, Bool[Array, ""]]:
    """Accelerated proximal gradient steps from the start; the last iterate, and whether it met the tolerance."""
    dtype = data.dtype
    psi = problem.regularizer

    def loss(w: PyTree) -> Scalar:
        return evaluate.by_blocks(lambda X, y, s: problem.mean_loss(w, X, y, s), data)

    def shrink(v, value, gradient, step):
        """The first of step, step/2, step/4, ... that ends below the loss's quadratic bound, and where it ends."""

        def point(step):
            return psi.prox(trees.axpy(-step, gradient, v), step)

        def too_long(step):
            w = point(step)
            d = trees.sub(w, v)
            slack = 10 * jnp.finfo(dtype).eps * jnp.maximum(jnp.abs(value), 1)  # round-off must not shrink the step
            bound = value + trees.dot(gradient, d) + trees.dot(d, d) / (2 * step) + slack
            return ~(loss(w) <= bound)

        least = step * 2.0**-100  # a loss that is not finite would shrink the step for ever
        step = jax.lax.while_loop(lambda s: too_long(s) & (s > least), lambda s: s / 2, step)
        return point(step), step

    def iterate(state: Iterate) -> Iterate:
        value, gradient = evaluate.smooth(problem, data, state.v)
        w, step = shrink(state.v, value, gradient, state.step)
        moved, ahead = trees.sub(w, state.w), trees.sub(w, state.v)
        # Restart where momentum points uphill.
        t = jnp.where(trees.dot(ahead, moved) < 0, 1, state.t)
        following = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
        v = trees.axpy((t - 1) / following, moved, w)
        return Iterate(w, v, following, step, trees.norm(ahead) / step, state.k + 1)

    one = jnp.ones((), dtype)
    gradient = evaluate.smooth(problem, data, start)[1]
    first = Iterate(start, start, one, one, one * jnp.inf, jnp.zeros((), jnp.int32))
    scale = trees.norm(trees.sub(start, psi.prox(trees.sub(start, gradient), 1.0)))

    # ||w|| / step is what one unit of round-off in w amounts to in the residual. Where w runs away, as for an objective
    # without a lower bound, that is no excuse: the residual must have fallen below a tenth of that at the start.
    def target(state: Iterate) -> Float[Array, ""]:
        floor, at_start = (4 * jnp.finfo(dtype).eps * trees.norm(w) / state.step for w in (state.w, start))
        return jnp.maximum(tol * scale, jnp.minimum(floor, jnp.maximum(0.1 * scale, at_start)))

    def more(state: Iterate) -> Bool[Array, ""]:
        return (state.residual > target(state)) & (state.k < most) & trees.all_finite(state.v)

    last = jax.lax.while_loop(more, iterate, first)
    return last, last.residual <= target(last)
