"""Standard errors, intervals and p-values after selection: the debiased (desparsified) lasso.

    b_j = w_j - theta_j' g(w),    se_j^2 = phi theta_j' H theta_j / N,    theta_j = (1, -gamma_j) / tau_j^2

with the fitted w, the gradient g and the Hessian H of the mean loss at w (one exchange; the intercept eliminated),
gamma_j the lasso of feature j on the others in H's geometry (solved by the server), tau_j^2 = H_jj - H_j' gamma_j,
and phi the variance of the errors: the residuals' own with N - (coefficients in use) degrees of freedom for a squared
loss, 1 for the logistic one. References: van de Geer, Buhlmann, Ritov, Dezeure 2014; Zhang and Zhang 2014.

The penalty of gamma_j is 0.3 sqrt(H_jj log p / N): small, for little bias at the price of slightly wider intervals.
With four rows per feature or more no penalty is needed, and theta_j is a row of H's inverse: for a squared loss that is
the ordinary interval of least squares, whatever was selected.
"""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int
from scipy.stats import norm

from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.progress import LARGEST
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.models import Weights
from cofed.sites.intake import feature_names, is_list
from cofed.solvers.quadratic import VectorPenalty, minimise

PENALTY = 0.3
BURSTS = 20  # every theta_j is valid, so that of a badly conditioned problem need not be exact to round-off
ROWS = 4  # rows per feature from which on the inverse itself serves


Chosen = Given[list[str] | list[int] | str | int | None]


def infer(
    model: FederatedLinearModel, problem: StandardizedProblem, coefficients: Chosen, level: Given[float]
) -> pd.DataFrame:
    """The table of `FederatedLinearModel.infer`."""
    name = type(model).__name__
    check_possible(name, problem, level)
    names = feature_names(model)
    chosen = positions(name, names, coefficients)
    coef = np.asarray(model.coef_).reshape(-1)
    intercept = float(np.asarray(model.intercept_).reshape(-1)[0])
    w, unit = problem.solved(coef, intercept), problem.units.coef
    at, hessian = problem.second_order(w)
    p, n = len(coef), problem.n
    H, g = without_intercept(np.asarray(hessian), at.gradient, p)
    loss, free = float(at.loss), n - int(np.count_nonzero(coef)) - 1
    if n >= ROWS * p:  # what least squares leaves over, whatever was selected
        loss, free = float(loss - g @ np.linalg.lstsq(H, g)[0] / 2), n - p - 1
    phi = problem.loss.dispersion(loss, n, free)
    rate = jnp.asarray(np.log(max(p, 2)) / n if n < ROWS * p else 0.0)
    rows = []
    for j in chosen:
        theta = np.asarray(nodewise(jnp.asarray(H), jnp.asarray(j, jnp.int32), rate))
        debiased = coef[j] / unit[j] - theta @ g
        se = np.sqrt(phi * theta @ H @ theta / n)
        rows.append((coef[j], debiased * unit[j], se * unit[j]))
    table = pd.DataFrame(rows, columns=["coef", "debiased", "se"], index=pd.Index([names[j] for j in chosen]))
    width = norm.ppf(0.5 + level / 2)
    table["low"], table["high"] = table.debiased - width * table.se, table.debiased + width * table.se
    table["z"] = table.debiased / table.se
    table["p_value"] = 2 * norm.sf(np.abs(table.z))
    return table


def check_possible(owner: str, problem: StandardizedProblem, level: Given[float]) -> None:
    """Refuse what no interval is known for."""
    features = len(problem.units.mean)
    if not problem.loss.has_dispersion or np.ndim(problem.start.coef) != 1:
        raise ValueError(f"{owner}: intervals are for linear models and for the logistic model of two classes")
    if features > LARGEST:
        raise ValueError(
            f"{owner}: intervals need the Hessian of all features, at most {LARGEST}, and there are {features}"
        )
    if isinstance(level, bool) or not isinstance(level, (int, float, np.number)) or not 0 < level < 1:
        raise ValueError(f"{owner}: level must be a number between 0 and 1, got {level!r}")


def without_intercept(H: np.ndarray, gradient: Weights, p: int) -> tuple[np.ndarray, np.ndarray]:
    """The Hessian and gradient of the p coefficients, with the intercept eliminated like a block of equations."""
    g = np.asarray(gradient.coef)
    if gradient.intercept is None:
        return H, g
    share = H[:p, p] / H[p, p]
    return H[:p, :p] - np.outer(share, H[p, :p]), g - share * np.asarray(gradient.intercept)


@eqx.filter_jit
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


def positions(owner: str, names: list[str], coefficients: Chosen) -> list[int]:
    """Where the asked-for coefficients are; None is all."""
    if coefficients is None:
        return list(range(len(names)))
    found = []
    for one in np.asarray(coefficients, object) if is_list(coefficients) else [coefficients]:
        if isinstance(one, (int, np.integer)) and not isinstance(one, bool) and 0 <= one < len(names):
            found.append(int(one))
        elif isinstance(one, str) and one in names:
            found.append(names.index(one))
        else:
            raise ValueError(f"{owner}: there is no feature {one!r}; give names or positions of {len(names)} features")
    return found
