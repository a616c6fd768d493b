"""Each client's own fit, and how far it is to be trusted: all that `heterogeneity` asks a client to share.

Fit         theta_i = argmin  F_i(theta) - log det(n_i H_i(theta)) / (2 n_i),  H_i the Hessian of the mean loss F_i
            (Firth's bias-reduced estimate: finite where classes are separated, and without the maximum-likelihood
            estimate's first-order bias, which clients have in common and which grows as they get smaller)
Covariance  V_i = A^-1 (sum_j s_j s_j' / (1 - h_j)) A^-1,  A the Hessian of n_i times the fit's objective, s_j the
            centred scores and h_j the leverages (the sandwich of type HC2, which does not rely on the model); scores
            of one group, such as one person, are summed first
Reference   Firth 1993, Biometrika 80; MacKinnon and White 1985, Journal of Econometrics 29.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jaxtyping import Array, Bool, Float, Int, Num

from cofed._util.programs import keep_programs
from cofed._util.types import Given
from cofed.federation import Federation
from cofed.problem import Problem
from cofed.solvers import glm
from cofed.solvers.glm import Glm, has_intercept, over_stack
from cofed.solvers.newton import Limits, damped_newton

SAMPLES_PER_PARAMETER = 5  # below this a client's own fit says next to nothing
PARAMETERS = 300  # the fit works with the third derivatives of the loss: beyond this it takes too long
LIMITS = Limits(steps=100, halvings=30, tolerance=1e-9, slack=1e-12)


@dataclasses.dataclass(frozen=True)
class LocalFits:
    """What clients share of their own fits.

    The distance between two clients' `parameters` is that between their coefficients. Those of a multinomial model
    leave out what no data can tell, a constant added to all classes.
    """

    names: tuple[str, ...]
    samples: Num[np.ndarray, " clients"]  # n_i
    parameters: Float[np.ndarray, "clients p"]  # theta_i
    covariances: Float[np.ndarray, "clients p p"] | Float[np.ndarray, " clients"]  # V_i, or tr V_i
    left_out: dict[str, str]  # clients without a fit, and why


def local_fits(
    problem: Given[Problem],
    federation: Given[Federation],
    groups: Given[Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike]] | None = None,
) -> LocalFits:
    """Fit every client alone, and say how precise each fit is. The regularizer plays no part.

    Parameters
    ----------
    problem : Problem
        A linear, logistic, multinomial or Poisson model.
    federation : Federation
        The clients' samples.
    groups : mapping or sequence of array_like, optional
        Which samples belong together, such as those of one person; as in `Federation.split`.

    Returns
    -------
    LocalFits
        The fits of the clients that can be fitted alone, and why the others cannot.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> from cofed.statistics.local_fits import local_fits
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(n, 2)), X @ [1.0, 2.0] + rng.normal(size=n)) for n in (100, 200, 5)]
    >>> fits = local_fits(cofed.Problem(), cofed.Federation.from_arrays(clients, names=["Oslo", "Rome", "Bonn"]))
    >>> fits.names, fits.left_out
    (('Oslo', 'Rome'), {'Bonn': '5 samples for 3 parameters, at least 15 are needed'})
    """
    glm.check("heterogeneity", problem, federation)
    keep_programs()
    basis = glm.directions(problem, federation)
    count = (federation.n_features + has_intercept(problem)) * basis.shape[1]
    if count > PARAMETERS:
        raise ValueError(
            f"the local fits have {count} parameters, and heterogeneity works with up to {PARAMETERS}; "
            "choose fewer features"
        )
    by_client = federation.groups(groups)
    left_out, kept = {}, []
    for name in federation.names:
        draws = None if by_client is None else len(np.unique(by_client[federation.names.index(name)]))
        reason = unfit(problem, federation, *federation.client(name), count, draws)
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
    theta, covariance = np.empty((len(kept), count)), np.empty((len(kept), count, count))
    converged = np.empty(len(kept), bool)
    with jax.enable_x64(True):
        data = glm.of_clients(problem, part, basis)
        for stack, places in zip(data.stacks, map(np.asarray, data.places), strict=True):
            shape = stack.y.shape
            labels = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape).copy()
            if by_client is not None:
                for row, place in zip(labels, places, strict=True):
                    own = np.unique(by_client[federation.names.index(kept[place])], return_inverse=True)[1]
                    row[: len(own)] = own
            theta[places], covariance[places], converged[places] = fit_all(stack, jnp.asarray(labels))
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


def unfit(
    problem: Problem, federation: Federation, X: np.ndarray, y: np.ndarray, count: int, groups: int | None
) -> str | None:
    """Why this client cannot be fitted alone; None where it can. `groups` is the number of its groups of samples, if
    any."""
    least = SAMPLES_PER_PARAMETER * count
    if (len(y) if groups is None else groups) < least:
        what = f"{len(y)} samples" if groups is None else f"{groups} groups of samples"
        return f"{what} for {count} parameters, at least {least} are needed"
    if len(np.unique(y)) == 1:
        return f"its target has the one value {y[0]:g}"
    columns = np.column_stack([X, np.ones(len(X))]) if has_intercept(problem) else X
    scale = np.abs(columns).max(axis=0)
    if np.linalg.matrix_rank(columns / np.where(scale > 0, scale, 1)) == columns.shape[1]:
        return None
    constant = np.flatnonzero(np.ptp(X, axis=0) == 0)
    if len(constant) and (has_intercept(problem) or not X[0, constant].any()):
        names = federation.feature_names
        return f"column {names[constant[0]] if names else int(constant[0])!r} is constant there"
    return "its columns are linearly dependent"


@eqx.filter_jit
def fit_all(
    data: Glm, groups: Int[Array, "m n"]
) -> tuple[Float[Array, "m q"], Float[Array, "m q q"], Bool[Array, " m"]]:
    """The fits of the clients of a stack."""
    return over_stack(fit_one, data, groups)


def fit_one(data: Glm, group: Int[Array, " n"]) -> tuple[Float[Array, " q"], Float[Array, "q q"], Bool[Array, ""]]:
    """One client's fit, its covariance, and whether Newton's method converged."""

    def objective(theta):
        return data.total(theta) - jnp.linalg.slogdet(data.information(theta))[1] / 2

    def direction(theta):
        gradient = jax.grad(objective)(theta)
        move = -jnp.linalg.solve(data.information(theta), gradient)
        return move, gradient @ move

    theta, converged = damped_newton(objective, direction, jnp.zeros(data.size, data.X.dtype), LIMITS)

    s = data.scores(theta)
    towards = jnp.linalg.solve(data.information(theta), s.T).T  # I^-1 s_j
    along = jnp.einsum("np,npr->nr", data.X, towards.reshape(len(s), data.X.shape[1], -1))
    # The leverage in the score's own direction: that of the hat matrix where there is one output.
    size = jnp.einsum("nq,nq->n", s, towards)
    leverage = jnp.einsum("na,nab,nb->n", along, data.curvatures(theta), along) / jnp.where(size > 0, size, 1)
    centred = (s - data.w[:, None] * (s.sum(axis=0) / data.w.sum())[None, :]) / jnp.sqrt(
        1 - jnp.minimum(leverage, 0.99)
    )[:, None]
    by_group = jax.ops.segment_sum(centred, group, num_segments=len(s))
    A = jax.jacfwd(jax.grad(objective))(theta)
    spread = jnp.linalg.solve(A, by_group.T)
    return theta, spread @ spread.T, converged
