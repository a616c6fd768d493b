"""Meta-analysis: estimates of several sites put together, and whether they are of one and the same number.

With estimates b_m and their variances v_m, the fixed effect weighs each with 1 / v_m: all sites are taken to have one
number in common. The random effect weighs with 1 / (v_m + tau^2): the sites' numbers are taken to vary around a mean
with variance tau^2. Cochran's Q is the weighted sum of squares around the fixed effect, chi-squared where tau is 0.
"""

import dataclasses

import numpy as np
from scipy import optimize, stats


@dataclasses.dataclass(frozen=True)
class CombinedEstimate:
    """The estimates of k sites together.

    Attributes
    ----------
    sites : int
        How many sites have an estimate.
    fixed, fixed_se : float
        The fixed effect and its standard error.
    random, random_se : float
        The mean of random effects with DerSimonian and Laird's variance, and its standard error.
    reml, reml_se : float
        The same with the variance of restricted maximum likelihood.
    q, freedom, p_value : float, int, float
        Cochran's Q, its degrees of freedom, and how likely a larger one is where all sites have one number.
    i2 : float
        The part of the estimates' variation that chance does not explain: max(0, 1 - freedom / Q).
    tau2, tau2_reml : float
        The variance between sites, by DerSimonian and Laird, and by restricted maximum likelihood.
    """

    sites: int
    fixed: float
    fixed_se: float
    random: float
    random_se: float
    reml: float
    reml_se: float
    q: float
    freedom: int
    p_value: float
    i2: float
    tau2: float
    tau2_reml: float


def combined(estimate: np.ndarray, se: np.ndarray) -> CombinedEstimate:
    """Put the estimates of sites together.

    Parameters
    ----------
    estimate, se : array of shape (k,)
        The sites' estimates and their standard errors; a site where one is NaN is left out.

    Returns
    -------
    CombinedEstimate
        The effects and the test of heterogeneity; all NaN where no site has an estimate, and no test of one.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.statistics.meta_analysis import combined
    >>> found = combined(np.array([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0]))
    >>> round(found.fixed, 3), round(found.q, 3), round(found.tau2, 3), round(found.tau2_reml, 3)
    (2.333, 4.667, 1.333, 1.333)
    """
    there = np.isfinite(estimate) & np.isfinite(se) & (se > 0)
    b, v = estimate[there], se[there] ** 2
    k = len(b)
    nan = float("nan")
    if k == 0:
        return CombinedEstimate(0, nan, nan, nan, nan, nan, nan, nan, 0, nan, nan, nan, nan)
    fixed, fixed_se = weighted(b, 1 / v)
    weight = 1 / v
    q = float(weight @ (b - fixed) ** 2)
    freedom = k - 1
    if freedom == 0:
        return CombinedEstimate(1, fixed, fixed_se, fixed, fixed_se, fixed, fixed_se, 0.0, 0, nan, nan, nan, nan)
    spread = float(weight.sum() - (weight**2).sum() / weight.sum())
    tau2 = max(0.0, (q - freedom) / spread)
    tau2_reml = between_sites(b, v)
    return CombinedEstimate(
        k,
        *(fixed, fixed_se),
        *weighted(b, 1 / (v + tau2)),
        *weighted(b, 1 / (v + tau2_reml)),
        *(q, freedom, float(stats.chi2.sf(q, freedom))),
        i2=max(0.0, 1 - freedom / q) if q > 0 else 0.0,
        tau2=tau2,
        tau2_reml=tau2_reml,
    )


def weighted(b: np.ndarray, weight: np.ndarray) -> tuple[float, float]:
    """The weighted mean, and its standard error where weights are inverse variances."""
    return float(weight @ b / weight.sum()), float(1 / np.sqrt(weight.sum()))


def between_sites(b: np.ndarray, v: np.ndarray) -> float:
    """The variance between sites by restricted maximum likelihood: the best of all, 0 included.

    The likelihood can have several peaks, so that a grid is looked at before the best part of it is refined.
    """

    def deviance(tau2: float) -> float:
        weight = 1 / (v + tau2)
        mean = weight @ b / weight.sum()
        return float(np.log(v + tau2).sum() + np.log(weight.sum()) + weight @ (b - mean) ** 2)

    most = float(np.var(b, ddof=1) * len(b) + v.max())
    grid = np.concatenate([[0.0], np.geomspace(1e-10, 1.0, 200) * most])
    place = int(np.argmin([deviance(tau2) for tau2 in grid]))
    low, high = grid[max(place - 1, 0)], grid[min(place + 1, len(grid) - 1)]
    slope = lambda tau2: reml_slope(tau2, b, v)  # noqa: E731
    if slope(low) >= 0:  # the deviance grows from 0 on
        return float(low) if low == 0 else float(grid[place])
    if slope(high) <= 0:
        return float(high)
    return optimize.brentq(slope, low, high, xtol=1e-300, rtol=1e-14, full_output=False)  # type: ignore


def reml_slope(tau2: float, b: np.ndarray, v: np.ndarray) -> float:
    """The derivative of the restricted deviance by the variance between sites."""
    weight = 1 / (v + tau2)
    mean = weight @ b / weight.sum()
    return float(weight.sum() - (weight**2).sum() / weight.sum() - (weight**2) @ (b - mean) ** 2)
