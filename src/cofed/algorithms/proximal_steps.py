"""What PureLocal and FedProx share: a client's projected proximal steps on its own problem."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.scalars import require_positive
from cofed._util.types import Hyperparameter
from cofed.algorithms.base import LocalSteps
from cofed.problem import Problem


def check_steps(
    owner: str, client_lr: Hyperparameter | None, mu: Hyperparameter | None, radius: Hyperparameter | None
) -> None:
    """Refuse numbers that are not positive, and a method without a step size or the `mu` that one follows from."""
    if client_lr is None and mu is None:
        raise ValueError(f"{owner}: give client_lr, a constant step, or mu, from which the paper's steps follow")
    given = {"client_lr": client_lr, "mu": mu, "radius": radius}
    require_positive(owner, **{name: value for name, value in given.items() if value is not None})


def proximal_steps(
    problem: Problem,
    steps: LocalSteps,
    gradient: Callable[[PyTree, Float[Array, ""]], PyTree],
    w: PyTree,
    step_size: Callable[[Float[Array, ""]], Hyperparameter],
    radius: Hyperparameter | None,
) -> PyTree:
    """w <- P(prox_{eta_k psi}(w - eta_k gradient(w, k))) for k = 0..K-1; P projects on the ball, if any."""

    def step(k, w):
        eta = step_size(k)
        w = problem.regularizer.prox(trees.axpy(-eta, gradient(w, k), w), eta)
        if radius is None:
            return w
        length = trees.norm(w)
        return trees.scale(jnp.where(length > radius, radius / jnp.where(length > 0, length, 1), 1), w)

    return steps.run(step, w)
