"""What PureLocal and FedProx share: a client's projected proximal steps on its own problem."""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from cofed._util import trees
from cofed._util.scalars import require_positive
from cofed.algorithms.base import LocalSteps
from cofed.problem import Problem


def check_steps(owner: str, client_lr: Any, mu: Any, radius: Any) -> None:
    """A step size or what it follows from must be given."""
    if client_lr is None and mu is None:
        raise ValueError(f"{owner}: give client_lr, a constant step, or mu, from which the paper's steps follow")
    given = {"client_lr": client_lr, "mu": mu, "radius": radius}
    require_positive(owner, **{name: value for name, value in given.items() if value is not None})


def proximal_steps(
    problem: Problem, steps: LocalSteps, gradient: Callable, w: PyTree, step_size: Callable, radius: Any
) -> PyTree:
    """w <- P(prox_{eta_k psi}(w - eta_k gradient(w, k))) for k = 0..K-1, P the projection on the ball where there is
    one."""

    def step(k, w):
        eta = step_size(k)
        w = problem.regularizer.prox(trees.axpy(-eta, gradient(w, k), w), eta)
        if radius is None:
            return w
        length = trees.norm(w)
        return trees.scale(jnp.where(length > radius, radius / jnp.where(length > 0, length, 1), 1), w)

    return steps.run(step, w)
