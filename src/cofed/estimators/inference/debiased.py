"""The debiased (desparsified) lasso: estimates of single coefficients where there are too many for all at once.

    b_j = w_j - theta_j' g(w),    var b_j = phi theta_j' H theta_j / N,    theta_j = (1, -gamma_j) / tau_j^2

with a sparse model w, the gradient g and the Hessian H of the mean loss at w (one exchange; the intercept eliminated),
gamma_j the lasso of feature j on the others in H's geometry (solved by the server), tau_j^2 = H_jj - H_j' gamma_j.
References: van de Geer, Buhlmann, Ritov, Dezeure 2014; Zhang and Zhang 2014.

The penalty of gamma_j is 0.3 sqrt(H_jj log p / N): small, for little bias at the price of slightly wider intervals.
With four rows per feature or more it is 0, and theta_j is a row of H's inverse.

For a squared loss w is the fit, and phi the variance of its residuals. A penalised fit of another likelihood has a
Hessian that is not that of the truth: there w is the model without a penalty on the features that a lasso of a strength
that noise alone does not pass, sqrt(2 log p / N) on features with a unit of information per row, leaves in use.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from cofed._util.programs import program
from cofed.estimators.inference.errors import Estimates
from cofed.estimators.inference.independence import independence
from cofed.estimators.inference.likelihood import Likelihood
from cofed.estimators.inference.unpenalised import unpenalised
from cofed.estimators.penalty import WeightedElasticNet
from cofed.estimators.solver import solve
from cofed.solvers.quadratic import VectorPenalty, minimise

PENALTY = 0.3
BURSTS = 20  # every theta_j is valid, so that of a badly conditioned problem need not be exact to round-off
ROWS = 4  # rows per feature from which on the inverse itself serves
EVENTS = 10  # a model without a penalty needs so many per parameter
APART = 0.99  # a feature is not told apart from another that takes more than this share of its change
PRECISION = 1e-6  # of the lasso that chooses features


def debiased(likelihood: Likelihood, fitted: np.ndarray, chosen: list[int]) -> Estimates:
    """Estimates of chosen coefficients, from the parameters of the fit."""
    theta = fitted if likelihood.is_linear else sparse(likelihood)
    at = likelihood.scored(theta, np.arange(len(theta)))
    p, n = likelihood.features, likelihood.n
    drop = eliminate_intercept(at.information, p)
    H, g = drop @ at.information @ drop.T, drop @ at.gradient
    if likelihood.within:
        H = np.where(np.diag(likelihood.own_products) > 0, H, 0)
        H = np.where(np.diag(H)[:, None] > 0, H, 0)
    used, inverse = int(np.count_nonzero(theta[:p])), None
    phi = likelihood.problem.survey.loss.dispersion(at.loss / n, n, n - used - max(likelihood.at_sites, 1))
    if n >= ROWS * p:
        found = independence(H, np.arange(p))
        kept, unknown, used = np.flatnonzero(found.kept), found.dependent, int(found.kept.sum())
        own = np.zeros((p, p))
        own[np.ix_(kept, kept)] = np.linalg.inv(H[np.ix_(kept, kept)])
        rows, inverse = own[chosen], drop.T @ own @ drop
        coef = np.zeros(p)
        coef[kept] = found.shares @ theta[:p]  # the same predictions, from the kept columns
        if len(inverse) > p:
            inverse[p, p] += 1 / at.information[p, p]
    else:
        coef, (rows, unknown) = theta[:p], approximate_inverse(H, chosen, n)
    return Estimates(
        value=coef[chosen] - rows @ g,
        influence=rows @ drop,
        theta=theta,
        where=at.where,
        information=at.information,
        inverse=inverse,
        dispersion=phi,
        rank=used + max(likelihood.at_sites, 1),
        freedom=np.inf,
        how="debiased lasso",
        unknown=unknown,
        within=likelihood.within,
    )


def eliminate_intercept(information: np.ndarray, p: int) -> np.ndarray:
    """The matrix that takes gradients of all parameters to those of the coefficients, the intercept being free."""
    if len(information) == p:
        return np.eye(p)
    return np.column_stack([np.eye(p), -information[:p, p] / information[p, p]])


def sparse(likelihood: Likelihood) -> np.ndarray:
    """The model without a penalty on the few features that a strong lasso leaves in use."""
    problem, p = likelihood.problem, likelihood.features
    spread = np.asarray(problem.null.spread)
    # What a row tells, at the model without features: of the time to an event, an event tells what a row does.
    bend = float(problem.null.mean)
    if not problem.loss.of_times:
        row, prediction = problem.loss.of_rows, problem.start.intercept
        if prediction is None:
            prediction = row.link(problem.null.mean) if likelihood.at_sites else jnp.zeros(())
        bend = float(jax.grad(jax.grad(row))(prediction, problem.null.mean))
    noise = spread * np.sqrt(
        bend * likelihood.rough_dispersion / (problem.weight * likelihood.weight)
    )  # of the gradient
    strength = np.sqrt(2 * np.log(max(p, 2))) * np.where(noise > 0, noise, 1.0)
    psi = WeightedElasticNet(jnp.asarray(strength), jnp.zeros(p))
    found = solve(problem, psi, "auto", PRECISION, 1000)
    coef = np.asarray(found.w.coef)
    most = max(1, int(likelihood.events // EVENTS))
    largest = np.argsort(-np.abs(coef) * spread)[:most]
    columns = np.append(largest[coef[largest] != 0], np.arange(p, likelihood.columns))
    begin = np.concatenate([coef, np.ravel(found.w.intercept)]) if likelihood.columns > p else coef
    return unpenalised(likelihood, begin, columns).theta


def approximate_inverse(H: np.ndarray, chosen: list[int], n: int) -> tuple[np.ndarray, dict[int, list[int]]]:
    """Rows of an approximate inverse of H, and the features that cannot be told apart from others."""
    p = len(H)
    rate, size = jnp.asarray(np.log(max(p, 2)) / n), np.sqrt(np.diag(H))
    rows, unknown = np.zeros((len(chosen), p)), {}
    for place, j in enumerate(chosen):
        if size[j] == 0:
            unknown[j] = []
            continue
        rows[place] = np.asarray(nodewise(jnp.asarray(H), jnp.asarray(j, jnp.int32), rate))
        others = np.flatnonzero((size > 0) & (np.arange(p) != j))
        taken = np.abs(H[others] @ rows[place]) * size[j] / size[others]
        if np.any(taken > APART):
            unknown[j] = others[taken > APART].tolist()
    return rows, unknown


@program
def nodewise(H: Float[Array, "p p"], j: Int[Array, ""], rate: Float[Array, ""]) -> Float[Array, " p"]:
    """theta_j, a sparse approximation of row j of the inverse of H."""
    others = (jnp.arange(H.shape[0], dtype=jnp.int32) != j).astype(H.dtype)
    column = H[:, j]
    # Each feature is penalised on its own scale.
    strength = PENALTY * jnp.sqrt(rate * column[j] * jnp.diagonal(H))

    def prox(v, step):
        return others * jnp.sign(v) * jnp.maximum(jnp.abs(v) - step * strength, 0)

    def value(v):
        return jnp.sum(strength * jnp.abs(v))

    gamma = minimise(H, -column, jnp.zeros_like(column), VectorPenalty(prox, value, separable=True), BURSTS)
    return (1 - others - gamma) / (column[j] - column @ gamma)
