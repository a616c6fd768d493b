"""The server's side of FedNewton and FedFISTA, whose clients' side is a question to the sites."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from cofed._util import trees
from cofed._util.programs import program
from cofed.algorithms import FedFISTA, FedNewton, fedfista, fednewton
from cofed.estimators.certificate import FirstOrder, NullModel, duality_gap
from cofed.estimators.progress import FitProgress
from cofed.models import Weights
from cofed.problem import Problem
from cofed.sites.queries import ProductMessage, product
from cofed.solvers.curvature import pack

HUGE = float(np.finfo(np.float64).max) / 4  # stands for a loss that overflows: the step was too long


def newton_rounds(
    fit: FitProgress, algorithm: FedNewton, begin: tuple[Weights, Weights], enough: float, most: int
) -> Weights:
    """Rounds from a model and its gradient until a whole step promises a decrease of no more than `enough`."""
    problem = fit.problem.problem(fit.psi)
    server = start(algorithm, problem, *begin)
    for _ in range(most):
        if newton_settled(algorithm, server, enough):
            break
        down = algorithm.broadcast(server)
        where = None if down.where is None else np.asarray(down.where)
        at, hessian = fit.problem.second_order(down.w, where)
        fit.rounds_left -= 1
        server = newton_step(algorithm, problem, server, fednewton.Up(at.loss, at.gradient, pack(hessian)))
    return server.w


def newton_settled(algorithm: FedNewton, server: fednewton.Server, enough: float) -> bool:
    """Whether the last step was a whole one, and the next promises little."""
    whole = bool(server.known == 1) and float(server.t) == float(algorithm.server_lr)
    return whole and float(server.promise) >= -enough


@program
def start(algorithm: FedNewton, problem: Problem, w: Weights, gradient: Weights) -> fednewton.Server:
    """FedNewton's state before its first round, from the gradient at w."""
    return algorithm.start(problem, w, gradient)


@program
def newton_step(algorithm: FedNewton, problem: Problem, server: fednewton.Server, up: fednewton.Up) -> fednewton.Server:
    """The server's step. A step so long that the loss overflows is shortened."""
    nothing = jax.tree.map(jnp.zeros_like, up)._replace(loss=jnp.full_like(up.loss, HUGE))
    up = trees.where(jnp.isfinite(up.loss) & trees.all_finite(up.hessian), up, nothing)
    return algorithm.aggregate(problem, server, up, jnp.ones_like(up.loss))


def fista_rounds(fit: FitProgress, algorithm: FedFISTA, server: fedfista.Server, target: float) -> fedfista.Server:
    """Rounds until the gap, bounded by what the server knows, is at most the target."""
    problem = fit.problem.problem(fit.psi)
    while fit.rounds_left > 0 and bool(fista_open(problem, fit.problem.null, server, jnp.asarray(target))):
        server = fista_round(fit, algorithm, server)
    return server


def fista_round(fit: FitProgress, algorithm: FedFISTA, server: fedfista.Server) -> fedfista.Server:
    """One round."""
    at = fit.problem.first_order(algorithm.broadcast(server))
    fit.rounds_left -= 1
    return fista_step(algorithm, fit.problem.problem(fit.psi), server, fedfista.Up(at.loss, at.gradient))


@program
def fista_step(algorithm: FedFISTA, problem: Problem, server: fedfista.Server, up: fedfista.Up) -> fedfista.Server:
    """The server's step."""
    return algorithm.aggregate(problem, server, up, jnp.ones_like(up.loss))


@program
def fista_open(problem: Problem, null: NullModel, server: fedfista.Server, target: Array) -> Array:
    """Whether the bound on the gap is still above the target, and the model still moves."""
    moved = jax.tree.map(jnp.subtract, server.w, server.at)
    square = trees.dot(moved, moved)
    bound = server.loss + trees.dot(server.gradient, moved) + server.L / 2 * square
    gap = duality_gap(problem, null, server.w, bound, FirstOrder(server.at, server.loss, server.gradient))
    still = (server.L * jnp.sqrt(square)) > 1e-15 * server.L
    return (server.known == 0) | ((gap > target) & still)


def largest_curvature(fit: FitProgress, w: Weights, rounds: int = 12) -> float:
    """The largest eigenvalue of the mean loss's Hessian at w, slightly from below, by power iteration."""
    problem = fit.problem
    shape = len(problem.units.mean), np.size(problem.null.mean)
    rng = np.random.default_rng(0)
    v, b = rng.normal(size=shape), rng.normal(size=shape[1]) * (w.intercept is not None)
    intercept = np.zeros(shape[1]) if w.intercept is None else np.reshape(w.intercept, -1)
    at = {"coef": np.reshape(np.asarray(w.coef), shape), "intercept": np.asarray(intercept, np.float64)}
    about = {"scaling": problem.units.scaling, "folds": problem.survey.folds, "loss": problem.asked_loss}
    size = 1.0
    for _ in range(rounds):
        length = np.sqrt(np.sum(v**2) + np.sum(b**2))
        v, b = v / length, b / length
        message = ProductMessage(**at, direction=v[None], direction_intercept=b[None], **about)
        found = problem.sites.ask(product, message)
        fit.rounds_left -= 1
        v, b = found.coef[0] / problem.weight, found.intercept[0] / problem.weight * (w.intercept is not None)
        size = float(np.sqrt(np.sum(v**2) + np.sum(b**2)))
        if size == 0:
            return 1.0
    return size
