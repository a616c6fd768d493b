"""FedProx's problem solved exactly, for every strength from 0 to infinity: what each choice would give.

Problem     min over w, w_1..w_M  sum_i p_i (F_i(w_i) + rho/2 ||coef_i||^2 + lambda/2 ||w_i - w||^2)
Method      Newton's method on all w_i and w together, w = sum_i p_i w_i. With B_i = (H_i + lambda I)^-1 and r_i the
            gradient of client i's part over p_i, the steps are (sum_i p_i B_i H_i) d = -sum_i p_i B_i r_i and
            d_i = B_i (lambda d - r_i). lambda = 0 leaves the clients alone; lambda = infinity is one model for all.
Reference   chen2021, (3.7) and (4.8). Clients share d numbers and a d x d matrix per step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cofed._util.programs import keep_programs
from cofed._util.scalars import require_nonnegative
from cofed.federation import Federation
from cofed.models import Weights
from cofed.problem import Problem
from cofed.solvers import glm
from cofed.solvers.glm import Glm, Tiers, has_intercept, over_stack

STEPS, HALVINGS, TOLERANCE = 100, 40, 1e-10


class Path:
    """The clients' models for each strength: `theta` of shape (strengths, clients, parameters)."""

    def __init__(self, problem: Problem, strengths: tuple[float, ...], theta: np.ndarray, basis: np.ndarray):
        self.problem, self.strengths, self.theta, self.basis = problem, strengths, theta, basis

    def models(self, place: int) -> Weights:
        """The clients' models, stacked, for the strength at this place."""
        return glm.as_model(self.problem, self.theta[place], self.basis)

    def losses(self, federation: Federation) -> list[np.ndarray]:
        """The loss of each sample of each client (of those the path was made for), an array (strengths, samples) per
        client."""
        with jax.enable_x64(True):
            data = glm.of_clients(self.problem, federation, self.basis)
            sizes, found = np.asarray(federation.sizes), [np.zeros(0)] * federation.n_clients
            for stack, places in zip(data.stacks, map(np.asarray, data.places), strict=True):
                losses = np.asarray(sample_losses(stack, jnp.asarray(self.theta[:, places])))
                for row, m in enumerate(places):
                    found[m] = losses[:, row, : sizes[m]]
        return found


def joint_path(
    problem: Problem,
    federation: Federation,
    strengths: Any,
    weights: Any = "samples",
    ridge: float = 0.0,
    counted: Sequence[np.ndarray] | np.ndarray | None = None,
) -> Path:
    """Solve FedProx's problem for each strength; 0 is local training, `inf` one model for all.

    For linear, logistic, multinomial and Poisson models; the problem's regularizer plays no part. `ridge` is rho, a
    small one keeps models finite where classes are separated. `counted` marks the samples that count, an array for each
    client (or all in the shape of `federation.mask()`); without it all do.

    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.ones(2)), (np.eye(2), np.zeros(2))])
    >>> path = joint_path(cofed.Problem(cofed.Linear(intercept=False)), federation, [0, 0.5, np.inf])
    >>> [path.models(place).coef[0].round(6).tolist() for place in range(3)]
    [[1.0, 1.0], [0.75, 0.75], [0.5, 0.5]]
    """
    glm.check("joint_path", problem, federation)
    require_nonnegative("joint_path", ridge=ridge)
    if not isinstance(strengths, (Sequence, np.ndarray)) or len(strengths) == 0 or isinstance(strengths, str):
        raise ValueError(f"joint_path: strengths must be a list of numbers >= 0, got {strengths!r}")
    for strength in strengths:
        if not isinstance(strength, (int, float, np.number)) or not strength >= 0:
            raise ValueError(f"joint_path: strengths must be >= 0, got {strength!r}")
    keep_programs()
    strengths = [float(strength) for strength in strengths]
    basis = glm.directions(problem, federation)
    p = np.asarray(federation.weights(weights), np.float64)
    with jax.enable_x64(True):
        data, share = glm.of_clients(problem, federation, basis, counted), jnp.asarray(p / p.sum())
        rho = np.full((data.size // basis.shape[1], basis.shape[1]), float(ridge))
        if has_intercept(problem):
            rho[-1] = 0
        found = {}
        theta = jnp.zeros((federation.n_clients, data.size))
        for strength in sorted(
            set(strengths), reverse=True
        ):  # from one model for all to none: each starts from the last
            solve = solve_shared if np.isinf(strength) else solve_joint if strength > 0 else solve_alone
            theta = solve(data, share, jnp.asarray(rho.ravel()), jnp.asarray(strength, jnp.float64), theta)
            found[strength] = np.asarray(theta)
            lost = np.flatnonzero(~np.isfinite(found[strength]).all(axis=1))
            if lost.size:
                raise ValueError(
                    f"joint_path: with strength {strength:g} client {federation.names[lost[0]]!r} has no finite model: "
                    "its classes are separated, a column is constant there, or no sample counts; give a small ridge"
                )
    return Path(problem, tuple(strengths), np.stack([found[strength] for strength in strengths]), basis)


def cross_validate(
    problem: Problem,
    federation: Federation,
    strengths: Sequence[Any],
    folds: int = 5,
    seed: int = 0,
    groups: Any = None,
    weights: Any = "samples",
    ridge: float = 0.0,
    after_fold: Callable[[int], None] = lambda fold: None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The loss of every sample by models that have not seen it, (strengths, samples) per client; and which samples
    these are: a client with a single sample (or group) has none. `after_fold(k)` is called after each fold."""
    fold_of = federation.fold_of(folds, seed, groups)
    found = [np.full((len(strengths), len(fold)), np.nan) for fold in fold_of]
    for k in range(folds):
        path = joint_path(problem, federation, strengths, weights, ridge, counted=[fold != k for fold in fold_of])
        for own, fold, losses in zip(found, fold_of, path.losses(federation), strict=True):
            own[:, fold == k] = losses[:, fold == k]
        after_fold(k)
    return [own[:, fold >= 0] for own, fold in zip(found, fold_of, strict=True)], [fold >= 0 for fold in fold_of]


@eqx.filter_jit
def sample_losses(data: Glm, theta: Float[Array, "s m q"]) -> Float[Array, "s m n"]:
    """The loss of every sample of a stack of clients for every strength."""
    found = over_stack(lambda own, mine: jax.vmap(own.losses)(mine), data, jnp.swapaxes(theta, 0, 1))
    return jnp.swapaxes(found, 0, 1)


def derivatives(data: Tiers, rho: Float[Array, " q"], theta: Float[Array, "m q"]) -> tuple[Array, Array]:
    """The gradient and the Hessian of each client's mean loss, with its ridge."""

    def one(own: Glm, w):
        n = own.w.sum()
        return own.scores(w).sum(axis=0) / n + rho * w, own.information(w) / n + jnp.diag(rho)

    return data.each(one, theta)


def values(data: Tiers, rho: Float[Array, " q"], theta: Float[Array, "m q"]) -> Float[Array, " m"]:
    """Each client's mean loss, with its ridge."""
    return data.each(lambda own, w: own.total(w) / own.w.sum() + (rho * w) @ w / 2, theta)


def newton(value: Any, step: Any, start: Float[Array, "m q"]) -> Float[Array, "m q"]:
    """theta <- theta + t step(theta), t halved until value falls, until the steps are at round-off."""

    def body(state):
        theta, _, k = state
        now, move, slope = value(theta), *step(theta)

        def too_long(t):
            new = value(theta + t * move)
            return ~(new <= now + 1e-4 * t * slope + 1e-13 * jnp.abs(now)) & (t > 2.0**-HALVINGS)

        t = jax.lax.while_loop(too_long, lambda t: t / 2, jnp.ones((), theta.dtype))
        return theta + t * move, jnp.linalg.norm(t * move), k + 1

    def more(state):
        theta, moved, k = state
        return (moved > TOLERANCE * (1 + jnp.linalg.norm(theta))) & (k < STEPS)

    first = (start, jnp.asarray(jnp.inf, start.dtype), jnp.zeros((), jnp.int32))
    return jax.lax.while_loop(more, body, first)[0]


@eqx.filter_jit
def solve_joint(data: Tiers, p: Array, rho: Array, strength: Array, start: Float[Array, "m q"]) -> Float[Array, "m q"]:
    """0 < lambda < infinity. The common model is always at its best, the weighted mean of the clients'."""

    def spread(theta):
        return theta - (p @ theta)[None, :]

    def value(theta):
        return p @ (values(data, rho, theta) + strength / 2 * jnp.sum(spread(theta) ** 2, axis=1))

    def step(theta):
        gradient, hessian = derivatives(data, rho, theta)
        r = gradient + strength * spread(theta)
        B = jnp.linalg.inv(hessian + (strength * jnp.eye(theta.shape[1]))[None])
        Br = jnp.einsum("mab,mb->ma", B, r)
        matrix = jnp.einsum("m,mab,mbc->ac", p, B, hessian)
        d = jnp.linalg.solve(matrix, -(p @ Br))
        move = strength * jnp.einsum("mab,b->ma", B, d) - Br
        return move, jnp.einsum("m,ma,ma->", p, r, move)

    return newton(value, step, start)


@eqx.filter_jit
def solve_alone(data: Tiers, p: Array, rho: Array, strength: Array, start: Float[Array, "m q"]) -> Float[Array, "m q"]:
    """lambda = 0: every client's own problem, one after another, each with steps of its own length."""

    def one(own: Glm, w):
        alone = Tiers([Glm(own.X[None], own.y[None], own.w[None], own.basis, own.loss)], [])

        def step(theta):
            gradient, hessian = derivatives(alone, rho, theta)
            move = -jnp.linalg.solve(hessian[0], gradient[0])
            return move[None], gradient[0] @ move

        return newton(lambda theta: values(alone, rho, theta)[0], step, w[None])[0]

    return data.each(one, start)


@eqx.filter_jit
def solve_shared(data: Tiers, p: Array, rho: Array, strength: Array, start: Float[Array, "m q"]) -> Float[Array, "m q"]:
    """lambda = infinity: one model for all."""
    everywhere = lambda w: jnp.broadcast_to(w, start.shape)  # noqa: E731

    def step(theta):
        gradient, hessian = derivatives(data, rho, everywhere(theta))
        g = p @ gradient
        move = -jnp.linalg.solve(jnp.einsum("m,mab->ab", p, hessian), g)
        return move[None], g @ move

    best = newton(lambda theta: p @ values(data, rho, everywhere(theta)), step, (p @ start)[None])
    return everywhere(best)
