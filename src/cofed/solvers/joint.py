"""FedProx's problem solved exactly, for every strength from 0 to infinity: what each choice would give.

Problem     min over w, w_1..w_M  sum_i p_i (F_i(w_i) + rho/2 ||coef_i||^2 + lambda/2 ||w_i - w||^2)
Method      Newton's method on all w_i and w together, w = sum_i p_i w_i. With B_i = (H_i + lambda I)^-1 and r_i the
            gradient of client i's part over p_i, the steps are (sum_i p_i B_i H_i) d = -sum_i p_i B_i r_i and
            d_i = B_i (lambda d - r_i). lambda = 0 leaves the clients alone; lambda = infinity is one model for all.
Reference   chen2021, (3.7) and (4.8). Clients share d numbers and a d x d matrix per step.
"""

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Float

from cofed._util.programs import keep_programs, program
from cofed._util.scalars import require_nonnegative
from cofed._util.types import Given
from cofed.federation import Federation
from cofed.models import Weights
from cofed.problem import Problem
from cofed.solvers import glm
from cofed.solvers.glm import ClientStacks, Glm, has_intercept, over_stack
from cofed.solvers.newton import Limits, damped_newton

Models = Float[Array, "m q"]  # theta of every client
LIMITS = Limits(steps=100, halvings=40, tolerance=1e-10, slack=1e-13)


@dataclasses.dataclass(frozen=True)
class JointPath:
    """The clients' models for each strength."""

    problem: Problem
    strengths: tuple[float, ...]
    theta: Float[np.ndarray, "strengths clients parameters"]
    basis: Float[np.ndarray, "k r"]

    def models(self, place: int) -> Weights:
        """The clients' models, stacked, for the strength at this place."""
        return glm.as_model(self.problem, self.theta[place], self.basis)

    def losses(self, federation: Federation) -> list[np.ndarray]:
        """The loss of each sample, an array of shape (strengths, samples) for each client.

        The federation's clients must be those that the path was made for."""
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
    strengths: Given[Sequence[float] | np.ndarray],
    weights: Given[str | npt.ArrayLike] = "samples",
    ridge: float = 0.0,
    counted: Sequence[np.ndarray] | np.ndarray | None = None,
) -> JointPath:
    """Solve FedProx's problem for each strength; 0 is local training, `inf` one model for all.

    For linear, logistic, multinomial and Poisson models; the problem's regularizer plays no part.

    Parameters
    ----------
    problem : Problem
        A linear model with a squared, logistic, softmax or Poisson loss.
    federation : Federation
        The clients' samples.
    strengths : sequence of float
        lambda >= 0, each solved for.
    weights : str or array_like, default "samples"
        p_i, as in `cofed.run`.
    ridge : float, default 0.0
        rho; a small one keeps models finite where classes are separated.
    counted : sequence of bool arrays, optional
        Marks the samples of each client that count, or all in the shape of `federation.mask()`; by default all do.

    Returns
    -------
    JointPath
        The clients' models for each strength.

    Raises
    ------
    ValueError
        Where a client has no finite model.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> from cofed.solvers.joint import joint_path
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
        # From one model for all to a model each, every solution is the start of the next.
        for strength in sorted(set(strengths), reverse=True):
            solve = solve_shared if np.isinf(strength) else solve_joint if strength > 0 else solve_alone
            theta = solve(data, share, jnp.asarray(rho.ravel()), jnp.asarray(strength, jnp.float64), theta)
            found[strength] = np.asarray(theta)
            lost = np.flatnonzero(~np.isfinite(found[strength]).all(axis=1))
            if lost.size:
                raise ValueError(
                    f"joint_path: with strength {strength:g} client {federation.names[lost[0]]!r} has no finite model: "
                    "its classes are separated, a column is constant there, or no sample counts; give a small ridge"
                )
    return JointPath(problem, tuple(strengths), np.stack([found[strength] for strength in strengths]), basis)


@dataclasses.dataclass(frozen=True)
class JointFolds:
    """How the samples are split for cross-validation, as `Federation.fold_of` takes it."""

    count: int = 5
    seed: int = 0
    groups: Given[Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike]] | None = None


def cross_validate(
    problem: Problem,
    federation: Federation,
    strengths: Sequence[float],
    folds: JointFolds,
    ridge: float = 0.0,
    after_fold: Callable[[int], None] = lambda fold: None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The losses of every sample under models that have not seen it, by `joint_path`.

    Returns
    -------
    losses : list of arrays of shape (strengths, samples)
        One for each client.
    seen : list of bool arrays
        Which of a client's samples these are: a client with a single sample (or group) has none that is held out.
    """
    fold_of = federation.fold_of(folds.count, folds.seed, folds.groups)
    found = [np.full((len(strengths), len(fold)), np.nan) for fold in fold_of]
    for k in range(folds.count):
        path = joint_path(problem, federation, strengths, ridge=ridge, counted=[fold != k for fold in fold_of])
        for own, fold, losses in zip(found, fold_of, path.losses(federation), strict=True):
            own[:, fold == k] = losses[:, fold == k]
        after_fold(k)
    return [own[:, fold >= 0] for own, fold in zip(found, fold_of, strict=True)], [fold >= 0 for fold in fold_of]


@program
def sample_losses(data: Glm, theta: Float[Array, "s m q"]) -> Float[Array, "s m n"]:
    """The loss of every sample of a stack of clients, for every strength."""
    found = over_stack(lambda own, mine: jax.vmap(own.losses)(mine), data, jnp.swapaxes(theta, 0, 1))
    return jnp.swapaxes(found, 0, 1)


def derivatives(data: ClientStacks, rho: Float[Array, " q"], theta: Models) -> tuple[Array, Array]:
    """The gradient and the Hessian of each client's mean loss, with its ridge."""

    def one(own: Glm, w):
        n = own.w.sum()
        return own.scores(w).sum(axis=0) / n + rho * w, own.information(w) / n + jnp.diag(rho)

    return data.each(one, theta)


def values(data: ClientStacks, rho: Float[Array, " q"], theta: Models) -> Float[Array, " m"]:
    """Each client's mean loss, with its ridge."""
    return data.each(lambda own, w: own.total(w) / own.w.sum() + (rho * w) @ w / 2, theta)


@program
def solve_joint(data: ClientStacks, p: Array, rho: Array, strength: Array, start: Models) -> Models:
    """0 < lambda < infinity: the common model, eliminated, is the weighted mean of the clients'."""

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

    return damped_newton(value, step, start, LIMITS)[0]


@program
def solve_alone(data: ClientStacks, p: Array, rho: Array, strength: Array, start: Models) -> Models:
    """lambda = 0: every client's own problem, one after another, each with steps of its own length."""

    def one(own: Glm, w):
        alone = ClientStacks([Glm(own.X[None], own.y[None], own.w[None], own.basis, own.loss)], [])

        def step(theta):
            gradient, hessian = derivatives(alone, rho, theta)
            move = -jnp.linalg.solve(hessian[0], gradient[0])
            return move[None], gradient[0] @ move

        return damped_newton(lambda theta: values(alone, rho, theta)[0], step, w[None], LIMITS)[0][0]

    return data.each(one, start)


@program
def solve_shared(data: ClientStacks, p: Array, rho: Array, strength: Array, start: Models) -> Models:
    """lambda = infinity: one model for all."""
    everywhere = lambda w: jnp.broadcast_to(w, start.shape)  # noqa: E731

    def step(theta):
        gradient, hessian = derivatives(data, rho, everywhere(theta))
        g = p @ gradient
        move = -jnp.linalg.solve(jnp.einsum("m,mab->ab", p, hessian), g)
        return move[None], g @ move

    best, _ = damped_newton(lambda theta: p @ values(data, rho, everywhere(theta)), step, (p @ start)[None], LIMITS)
    return everywhere(best)
