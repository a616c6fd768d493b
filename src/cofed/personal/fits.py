"""Each client's own fit, and how far it is to be trusted: all that `heterogeneity` asks a client to share.

Fit         theta_i = argmin  F_i(theta) - log det(n_i H_i(theta)) / (2 n_i),  H_i the Hessian of the mean loss F_i
            (Firth's bias-reduced estimate: finite where classes are separated, and without the maximum-likelihood
            estimate's first-order bias, which clients have in common and which grows as they get smaller)
Covariance  V_i = A^-1 (sum_j s_j s_j' / (1 - h_j)) A^-1,  A the Hessian of n_i times the fit's objective, s_j the
            centred scores and h_j the leverages (the sandwich of type HC2, which does not rely on the model)
Reference   Firth 1993, Biometrika 80; MacKinnon and White 1985, Journal of Econometrics 29.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Num

from cofed.federation import Federation
from cofed.models import Linear
from cofed.problem import Problem

SAMPLES_PER_PARAMETER = 5  # below this a client's own fit says next to nothing
PARAMETERS = 300  # the fit works with the third derivatives of the loss: beyond this it takes too long
STEPS, HALVINGS = 100, 30  # of Newton's method
TOLERANCE = 1e-9  # of its last step, relative to the fit


@dataclasses.dataclass(frozen=True)
class LocalFits:
    """What clients share of their own fits. `covariances` are theirs, or only the traces of these.

    `parameters` are in coordinates in which the distance of two models is that of their coefficients; of a
    multinomial model these leave out what no data can tell (a constant added to all classes).
    """

    names: tuple[str, ...]
    samples: Num[np.ndarray, " clients"]  # n_i
    parameters: Float[np.ndarray, "clients p"]  # theta_i
    covariances: Float[np.ndarray, "clients p p"] | Float[np.ndarray, " clients"]  # V_i, or tr V_i
    left_out: dict[str, str]  # clients without a fit, and why


def local_fits(problem: Problem, federation: Federation) -> LocalFits:
    """Fit every client alone, and say how precise each fit is. The regularizer plays no part.

    For linear, logistic, multinomial and Poisson models.

    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(n, 2)), X @ [1.0, 2.0] + rng.normal(size=n)) for n in (100, 200, 5)]
    >>> fits = local_fits(cofed.Problem(), cofed.Federation.from_arrays(clients, names=["Oslo", "Rome", "Bonn"]))
    >>> fits.names, fits.left_out
    (('Oslo', 'Rome'), {'Bonn': '5 samples for 3 parameters, at least 15 are needed'})
    """
    check(problem, federation)
    basis = contrasts(problem, federation)
    count = (federation.n_features + problem.model.intercept) * basis.shape[1]
    if count > PARAMETERS:
        raise ValueError(
            f"the local fits have {count} parameters, and heterogeneity works with up to {PARAMETERS}; "
            "choose fewer features"
        )
    left_out, kept = {}, []
    for name in federation.names:
        X, y = federation.client(name)
        reason = unfit(problem, federation, X, y, count)
        if reason:
            left_out[name] = reason
        else:
            kept.append(name)
    if len(kept) < 2:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(left_out.items())[:5])
        raise ValueError(
            f"heterogeneity needs at least two clients that can be fitted alone, got {len(kept)}"
            + (f" ({reasons})" if reasons else "")
        )
    part = federation.select(kept)
    X = np.asarray(part.X, np.float64)
    if problem.model.intercept:
        X = np.concatenate([X, np.ones((*X.shape[:2], 1))], axis=2)
    with jax.enable_x64(True):
        y = jnp.asarray(np.asarray(part.y), jnp.float64) if np.asarray(part.y).dtype.kind == "f" else part.y
        fits = fit_all(problem.loss, jnp.asarray(basis), jnp.asarray(X), y, part.mask())
        theta, covariance, converged = (np.asarray(each) for each in fits)
    fine = converged & np.isfinite(covariance).all(axis=(1, 2))
    left_out |= {name: "its fit did not converge" for name, good in zip(kept, fine, strict=True) if not good}
    if fine.sum() < 2:
        raise ValueError(f"the fits of {len(kept) - int(fine.sum())} of {len(kept)} clients did not converge")
    return LocalFits(
        tuple(name for name, good in zip(kept, fine, strict=True) if good),
        np.asarray(part.sizes)[fine],
        theta[fine],
        covariance[fine],
        left_out,
    )


def check(problem: Problem, federation: Federation) -> None:
    """Refuse what has no such fit."""
    if not isinstance(problem.model, Linear) or not getattr(problem.loss, "likelihood", False):
        raise ValueError(
            "heterogeneity is for Linear() with Squared(), Logistic(), Softmax() or Poisson(), got "
            f"{type(problem.model).__name__} with {type(problem.loss).__name__}"
        )
    if federation.draw is not None:
        raise ValueError("heterogeneity needs fixed samples, and this federation is a stream")
    if federation.y.ndim > 2:
        raise ValueError("heterogeneity is for one target, got several")
    problem.check(federation)


def contrasts(problem: Problem, federation: Federation) -> np.ndarray:
    """Orthonormal directions in the outputs that data can tell apart: all of one output, k - 1 of k classes."""
    if not hasattr(problem.loss, "outputs"):
        return np.ones((1, 1))
    k = problem.loss.outputs(np.asarray(federation.y))
    # The columns of Q that are orthogonal to the vector of ones.
    return np.linalg.qr(np.column_stack([np.ones(k), np.eye(k)[:, : k - 1]]))[0][:, 1:]


def unfit(problem: Problem, federation: Federation, X: np.ndarray, y: np.ndarray, count: int) -> str | None:
    """Why this client cannot be fitted alone."""
    if len(y) < SAMPLES_PER_PARAMETER * count:
        return f"{len(y)} samples for {count} parameters, at least {SAMPLES_PER_PARAMETER * count} are needed"
    if len(np.unique(y)) == 1:
        return f"its target has the one value {y[0]:g}"
    columns = np.column_stack([X, np.ones(len(X))]) if problem.model.intercept else X
    scale = np.abs(columns).max(axis=0)
    if np.linalg.matrix_rank(columns / np.where(scale > 0, scale, 1)) == columns.shape[1]:
        return None
    constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
    if len(constant) and (problem.model.intercept or not X[0, constant].any()):
        names = federation.feature_names
        return f"column {names[constant[0]] if names else int(constant[0])!r} is constant there"
    return "its columns are linearly dependent"


@eqx.filter_jit
def fit_all(
    loss: Any, basis: Float[Array, "k r"], X: Float[Array, "m n p"], y: Num[Array, "m n"], real: Bool[Array, "m n"]
) -> tuple[Float[Array, "m q"], Float[Array, "m q q"], Bool[Array, " m"]]:
    """The fits of all clients, one after another: a client's own arrays stay small."""
    return jax.lax.map(lambda one: fit_one(loss, basis, *one), (X, y, real))


def fit_one(
    loss: Any, basis: Float[Array, "k r"], X: Float[Array, "n p"], y: Num[Array, " n"], real: Bool[Array, " n"]
) -> tuple[Float[Array, " q"], Float[Array, "q q"], Bool[Array, ""]]:
    """One client's fit, its covariance, and whether Newton's method converged."""
    rank, width = basis.shape[1], X.shape[1] * basis.shape[1]
    w = real.astype(X.dtype)

    def outcome(u: Float[Array, " r"], label: Num[Array, ""]) -> Float[Array, ""]:
        z = basis @ u
        return loss(z if hasattr(loss, "outputs") else z[0], label)

    def linear(theta):
        return X @ theta.reshape(X.shape[1], rank)

    def total(theta):
        return jax.vmap(outcome)(linear(theta), y) @ w

    def scores(theta):
        slopes = jax.vmap(jax.grad(outcome))(linear(theta), y)
        return (X[:, :, None] * slopes[:, None, :]).reshape(-1, width) * w[:, None]

    def information(theta):
        curvature = jax.vmap(jax.hessian(outcome))(linear(theta), y) * w[:, None, None]
        return jnp.einsum("np,nq,nab->paqb", X, X, curvature, optimize=True).reshape(width, width)

    def objective(theta):
        return total(theta) - jnp.linalg.slogdet(information(theta))[1] / 2

    def newton(state):
        theta, _, k = state
        gradient = jax.grad(objective)(theta)
        direction = jnp.linalg.solve(information(theta), gradient)
        value, slope = objective(theta), gradient @ direction

        def too_long(t):
            new = objective(theta - t * direction)
            return ~(new <= value - 1e-4 * t * slope + 1e-12 * jnp.abs(value)) & (t > 2.0**-HALVINGS)

        t = jax.lax.while_loop(too_long, lambda t: t / 2, jnp.ones((), X.dtype))
        return theta - t * direction, jnp.linalg.norm(t * direction), k + 1

    def more(state):
        theta, moved, k = state
        return (moved > TOLERANCE * (1 + jnp.linalg.norm(theta))) & (k < STEPS)

    start = (jnp.zeros(width, X.dtype), jnp.asarray(jnp.inf, X.dtype), jnp.zeros((), jnp.int32))
    theta, moved, _ = jax.lax.while_loop(more, newton, start)

    A = jax.jacfwd(jax.grad(objective))(theta)
    info = information(theta)
    s = scores(theta)
    towards = jnp.linalg.solve(info, s.T).T  # I^-1 s_j
    curvature = jax.vmap(jax.hessian(outcome))(linear(theta), y) * w[:, None, None]
    along = jnp.einsum("np,npr->nr", X, towards.reshape(-1, X.shape[1], rank))
    # The leverage in the score's own direction: that of the hat matrix where there is one output.
    size = jnp.einsum("nq,nq->n", s, towards)
    leverage = jnp.einsum("na,nab,nb->n", along, curvature, along) / jnp.where(size > 0, size, 1)
    centred = (s - w[:, None] * (s.sum(axis=0) / w.sum())[None, :]) / jnp.sqrt(1 - jnp.minimum(leverage, 0.99))[:, None]
    spread = jnp.linalg.solve(A, centred.T)
    return theta, spread @ spread.T, moved <= TOLERANCE * (1 + jnp.linalg.norm(theta))
