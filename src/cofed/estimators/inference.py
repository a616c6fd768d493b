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

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, Int
from scipy.stats import norm

from cofed.estimators.sites import Sites, is_list
from cofed.estimators.solver import LARGEST
from cofed.estimators.standardized_problem import Posed
from cofed.losses import Logistic, Squared
from cofed.solvers.quadratic import VectorPenalty, minimise

PENALTY = 0.3
BURSTS = 20  # every theta_j is valid, so that of a badly conditioned problem need not be exact to round-off
ROWS = 4  # rows per feature from which on the inverse itself serves


def infer(model: Any, posed: Posed, sites: Sites, coefficients: Any, level: Any) -> pd.DataFrame:
    """The table of `FederatedLinearModel.infer`."""
    name = type(model).__name__
    if not isinstance(posed.loss, (Squared, Logistic)) or np.ndim(posed.start.coef) != 1:
        raise ValueError(f"{name}: intervals are for linear models and for the logistic model of two classes")
    if len(posed.units.mean) > LARGEST:
        raise ValueError(
            f"{name}: intervals need the Hessian of all features, at most {LARGEST}, and there are "
            f"{len(posed.units.mean)}"
        )
    if isinstance(level, bool) or not isinstance(level, (int, float, np.number)) or not 0 < level < 1:
        raise ValueError(f"{name}: level must be a number between 0 and 1, got {level!r}")
    names = feature_names(model)
    chosen = positions(name, names, coefficients)
    coef = np.asarray(model.coef_).reshape(-1)
    intercept = float(np.asarray(model.intercept_).reshape(-1)[0])
    w, unit = posed.solved(coef, intercept), posed.units.coef
    loss, gradient, hessian = posed.second_order(w)
    H, g = np.asarray(hessian), np.append(np.asarray(gradient.coef), np.asarray(gradient.intercept or 0.0))
    p, n = len(coef), posed.n
    if posed.start.intercept is not None:  # eliminated, as one eliminates a block of equations
        share = H[:p, p] / H[p, p]
        H, g = H[:p, :p] - np.outer(share, H[p, :p]), g[:p] - share * g[p]
    free = n - np.count_nonzero(coef) - 1
    if n >= ROWS * p:  # what least squares leaves over, whatever was selected
        loss, free = float(loss) - g[:p] @ np.linalg.lstsq(H, g[:p])[0] / 2, n - p - 1
    phi = 2 * float(loss) * n / max(free, 1) if isinstance(posed.loss, Squared) else 1.0
    rate = jnp.asarray(np.log(max(p, 2)) / n if n < ROWS * p else 0.0)
    rows = []
    for j in chosen:
        theta = np.asarray(nodewise(jnp.asarray(H), jnp.asarray(j, jnp.int32), rate))
        debiased = coef[j] / unit[j] - theta @ g[:p]
        se = np.sqrt(phi * theta @ H @ theta / n)
        rows.append((coef[j], debiased * unit[j], se * unit[j]))
    table = pd.DataFrame(rows, columns=["coef", "debiased", "se"], index=pd.Index([names[j] for j in chosen]))
    width = norm.ppf(0.5 + level / 2)
    table["low"], table["high"] = table.debiased - width * table.se, table.debiased + width * table.se
    table["z"] = table.debiased / table.se
    table["p_value"] = 2 * norm.sf(np.abs(table.z))
    return table


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


def feature_names(model: Any) -> list[str]:
    """The features' names, x0, x1, ... where they have none."""
    names = getattr(model, "feature_names_in_", None)
    return [f"x{j}" for j in range(model.n_features_in_)] if names is None else [str(name) for name in names]


def positions(owner: str, names: list[str], coefficients: Any) -> list[int]:
    """Where the asked-for coefficients are; None is all."""
    if coefficients is None:
        return list(range(len(names)))
    found = []
    for one in coefficients if is_list(coefficients) else [coefficients]:
        if isinstance(one, (int, np.integer)) and not isinstance(one, bool) and 0 <= one < len(names):
            found.append(int(one))
        elif isinstance(one, str) and one in names:
            found.append(names.index(one))
        else:
            raise ValueError(f"{owner}: there is no feature {one!r}; give names or positions of {len(names)} features")
    return found
