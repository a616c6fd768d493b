"""The linear mixed model of sites, from the products of each site's columns alone.

    y_i = X_i beta + Z_i b_i + e_i,    b_i ~ N(0, s2 D),    e_i ~ N(0, s2 I),

where the columns of Z_i are some of those of X_i. With V_i = I + Z_i D Z_i', the deviance at the best beta (and s2) is
a function of D alone, and of Z_i'Z_i, Z_i'[X_i, y_i] and the sum of [X_i, y_i]'[X_i, y_i]: no row is needed. It is
minimised over factors D = L L', with L lower triangular, where a variance of 0 is no boundary.

References: Bates, Mächler, Bolker and Walker (2015), Fitting linear mixed-effects models using lme4; Luo et al. (2022),
DLMM as a lossless one-shot algorithm for collaborative multi-site distributed linear mixed models.
"""

import dataclasses

import numpy as np
from scipy import linalg, optimize

STARTS = np.geomspace(1e-3, 1e3, 25)  # sizes of D's factor that are looked at first, in units of the residuals
NEWTON = 30  # the most of Newton's steps at the end
STEP = 1e-4  # of the differences from which the Hessian comes
SETTLED = 1e-12  # a Newton step of that size, relative to the factor, is the last
ESCAPES = 5  # how often a direction with a variance of 0 is tried again
LEAST = 1e-15  # a residual variance below it is rounding, of labels of size 1
NEGLIGIBLE = 1e-9  # a part of the deviance, per row, that is none


@dataclasses.dataclass(frozen=True)
class SiteProducts:
    """Products of the columns of m sites, [X_i, y_i]; y is the last of p + 1 columns.

    Attributes
    ----------
    rows : array of shape (m,)
        The sites' rows.
    products : array of shape (m, p + 1, p + 1)
        [X_i, y_i]'[X_i, y_i].
    random : array of shape (q,)
        The positions of the columns of Z_i.
    scale : float or None
        The residual variance s2 where it is known; None where it is estimated.
    """

    rows: np.ndarray
    products: np.ndarray
    random: np.ndarray
    scale: float | None = None

    @property
    def fixed(self) -> int:
        """p, how many fixed effects there are."""
        return self.products.shape[1] - 1

    @property
    def n(self) -> int:
        """All rows."""
        return int(self.rows.sum())


@dataclasses.dataclass(frozen=True)
class Profile:
    """The deviance at a factor of D, with all that follows from it.

    Attributes
    ----------
    deviance : float
        -2 times the (restricted) log likelihood.
    slope : array of shape (q, q)
        Its derivative by D, which is symmetric.
    beta : array of shape (p,)
        The fixed effects.
    information : array of shape (p, p)
        The sum of X_i' V_i^-1 X_i.
    scale : float
        The residual variance.
    effects : array of shape (m, q)
        The best predictions of b_i.
    effect_covariances : array of shape (m, q, q)
        The covariances of b_i, given the rows and the parameters.
    """

    deviance: float
    slope: np.ndarray
    beta: np.ndarray
    information: np.ndarray
    scale: float
    effects: np.ndarray
    effect_covariances: np.ndarray


@dataclasses.dataclass(frozen=True)
class MixedFit:
    """The best factor of D.

    Attributes
    ----------
    factor : array of shape (q, q)
        L, lower triangular, of D = L L'.
    profile : Profile
        What follows from it.
    is_settled : bool
        Whether the deviance has no slope there, and grows in every direction that D does not have yet.
    """

    factor: np.ndarray
    profile: Profile
    is_settled: bool


def profile(sites: SiteProducts, factor: np.ndarray, reml: bool) -> Profile:
    """The deviance of D = L L' and its derivative.

    Parameters
    ----------
    sites : SiteProducts
        The sites.
    factor : array of shape (q, q)
        L.
    reml : bool
        Whether the likelihood is the restricted one.

    Returns
    -------
    Profile
        The deviance, and what follows from it.
    """
    p, freedom = sites.fixed, sites.n - (sites.fixed if reml else 0)
    ZZ = sites.products[:, sites.random[:, None], sites.random[None, :]]
    ZA = sites.products[:, sites.random, :]
    inner = np.eye(len(factor)) + factor.T @ ZZ @ factor  # |V_i| = |I + L'Z'Z L|
    shrink = factor @ np.linalg.solve(inner, np.broadcast_to(factor.T, inner.shape))  # L (I + L'Z'Z L)^-1 L'
    whole = sites.products.sum(axis=0) - np.einsum("mqa,mqr,mrb->ab", ZA, shrink, ZA)  # [X, y]' V^-1 [X, y]
    root = linalg.cholesky(whole[:p, :p], lower=True)
    beta = linalg.cho_solve((root, True), whole[:p, p])
    ZVA, ZVZ = ZA - ZZ @ shrink @ ZA, ZZ - ZZ @ shrink @ ZZ  # Z'V^-1[X, y] and Z'V^-1 Z
    residual = float(whole[p, p] - whole[:p, p] @ beta)
    scale = max(residual / freedom, LEAST) if sites.scale is None else sites.scale
    pull = ZVA[:, :, p] - ZVA[:, :, :p] @ beta  # Z'V^-1 (y - X beta)
    slope = ZVZ.sum(axis=0) - pull.T @ pull / scale
    deviance = float(np.linalg.slogdet(inner)[1].sum()) + freedom * np.log(2 * np.pi * scale) + residual / scale
    if reml:
        deviance += 2 * float(np.log(np.diag(root)).sum())
        across = linalg.solve_triangular(root, np.moveaxis(ZVA[:, :, :p], 2, 0).reshape(p, -1), lower=True)
        across = across.reshape(p, len(sites.rows), -1)
        slope = slope - np.einsum("amq,amr->qr", across, across)
    effects = np.einsum("mqr,mr->mq", shrink, ZA[:, :, p] - ZA[:, :, :p] @ beta)
    return Profile(deviance, slope, beta, whole[:p, :p], scale, effects, scale * shrink)


def fit_mixed_model(sites: SiteProducts, reml: bool) -> MixedFit:
    """The best D: of a grid of sizes, by a quasi-Newton method, then by Newton's until the slope is gone.

    A point without a slope at which D lacks a direction, and the deviance falls in it, is left in that direction.

    Parameters
    ----------
    sites : SiteProducts
        The sites; columns should be of similar size.
    reml : bool
        Whether the likelihood is the restricted one.

    Returns
    -------
    MixedFit
        The factor, and what follows from it.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.statistics.mixed_model import SiteProducts, fit_mixed_model
    >>> y = [np.array([1.0, 2.0, 3.0]), np.array([5.0, 6.0, 7.0])]
    >>> products = np.array([[[3.0, one.sum()], [one.sum(), one @ one]] for one in y])
    >>> found = fit_mixed_model(SiteProducts(np.array([3, 3]), products, np.array([0])), True)
    >>> round(found.profile.scale, 6), round(float(found.profile.scale * found.factor[0, 0] ** 2), 6)
    (1.0, 7.666667)
    """
    q = len(sites.random)
    grid = [size * np.eye(q) for size in STARTS]
    deviances = [profile(sites, factor, reml).deviance for factor in grid]
    factor = descended(sites, grid[int(np.argmin(deviances))], reml)
    for _ in range(ESCAPES):
        found = profile(sites, factor, reml)
        value, direction = linalg.eigh(found.slope)
        tolerance = NEGLIGIBLE * np.abs(value).max(initial=1.0) + 1e-7
        if value[0] >= -tolerance or np.linalg.norm(factor.T @ direction[:, 0]) > 1e-3:
            break
        wider = factor @ factor.T + 1e-2 * np.outer(direction[:, 0], direction[:, 0])
        factor = descended(sites, linalg.cholesky(wider + 1e-12 * np.eye(q), lower=True), reml)
    factor = cleaned(sites, factor, reml)
    found = profile(sites, factor, reml)
    flat = float(np.abs(found.slope @ factor).max(initial=0))
    growing = float(linalg.eigvalsh(found.slope)[0])
    is_settled = flat <= 1e-6 * max(1.0, sites.n) and growing >= -1e-6 * max(1.0, sites.n)
    return MixedFit(factor * np.where(np.diag(factor) < 0, -1.0, 1.0)[None, :], found, is_settled)


def descended(sites: SiteProducts, factor: np.ndarray, reml: bool) -> np.ndarray:
    """The factor at the bottom of the valley that this one is in."""
    lower = np.tril_indices(len(factor))

    def of(theta: np.ndarray) -> np.ndarray:
        made = np.zeros_like(factor)
        made[lower] = theta
        return made

    def slope(theta: np.ndarray) -> np.ndarray:
        return (2 * profile(sites, of(theta), reml).slope @ of(theta))[lower]

    def both(theta: np.ndarray) -> tuple[float, np.ndarray]:
        found = profile(sites, of(theta), reml)
        return found.deviance, (2 * found.slope @ of(theta))[lower]

    theta = optimize.minimize(both, factor[lower], jac=True, method="BFGS", options={"gtol": 1e-7}).x
    value, pull = both(theta)
    for _ in range(NEWTON):
        widths = STEP * np.maximum(np.abs(theta), 1e-2)
        bend = [(slope(theta + h) - slope(theta - h)) / (2 * h.max()) for h in np.diag(widths)]
        values, basis = linalg.eigh((np.array(bend) + np.array(bend).T) / 2)
        curved = values > 1e-10 * np.abs(values).max(initial=1e-300)  # none along a turn of D's factor
        step = -(basis[:, curved] / values[curved]) @ (basis[:, curved].T @ pull)
        after, pull_after = both(theta + step)
        if not after <= value + NEGLIGIBLE * 1e-3 * sites.n or np.linalg.norm(pull_after) > np.linalg.norm(pull):
            break
        theta, value, pull = theta + step, after, pull_after
        if np.abs(step).max() <= SETTLED * np.abs(theta).max():
            break
    return of(theta)


def cleaned(sites: SiteProducts, factor: np.ndarray, reml: bool) -> np.ndarray:
    """The factor with exact zeros where the deviance does not tell them from what was found."""
    best = profile(sites, factor, reml).deviance
    for place in range(len(factor))[::-1]:
        if abs(factor[place, place]) > 1e-4:
            continue
        flat = factor.copy()
        flat[place, place] = 0.0
        if np.abs(factor[place:, place]).max() <= 1e-4:
            flat[place:, place] = 0.0
        if profile(sites, flat, reml).deviance <= best + NEGLIGIBLE:
            factor = flat
    return factor
