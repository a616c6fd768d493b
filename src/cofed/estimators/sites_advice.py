"""One model for all sites or a model each: how different they are, from each site's own sums.

What `cofed advise` finds on a table with all rows, by cross-validation and by theory, has a second half that needs no
rows: the scatter of the sites' own fits against what chance explains (`cofed.statistics.heterogeneity`). The own fits
are least squares, known from products of columns, or maximum likelihood, by Newton's steps at each site.
"""

import dataclasses

import jax.numpy as jnp
import numpy as np

from cofed._util import checks
from cofed._util.types import Given
from cofed.estimators.checks import named_refusals
from cofed.estimators.meta_analysis import estimator_of
from cofed.estimators.mixed_base import SiteMoments, ask_moments, dependent
from cofed.estimators.mixed_glm import ENDLESS, question
from cofed.losses import AbstractLoss
from cofed.sites import AbstractSites, Scaling
from cofed.sites.intake import Clients, FitFeatures, Labels, feature_names
from cofed.sites.queries import look
from cofed.sites.row_options import row_options
from cofed.solvers.curvature import unpack
from cofed.statistics.heterogeneity import Heterogeneity, heterogeneity_of
from cofed.statistics.local_fits import SAMPLES_PER_PARAMETER, LocalFits

OWNER = "advise_sites"
FAMILIES = ("gaussian", "binomial", "poisson")
ELSEWHERE = {  # families that other functions serve
    "multinomial": "for a table of all rows there is cofed advise TABLE --model multinomial --client COLUMN",
    "cox": "cofed.meta_analysis('cox', ...) compares the sites' own estimates and tests whether they differ",
}
STEPS = 30  # of Newton's method at a site, at most
SETTLED = 1e-8  # half the decrease that a Newton step promises, of the last


@dataclasses.dataclass(frozen=True)
class OwnFit:
    """A site's parameters, of 1 and standardised features, and their covariance; or why there are none."""

    theta: np.ndarray | None
    covariance: np.ndarray | None
    why_not: str = ""


def advise_sites(
    model: Given[str],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    level: Given[float] = 0.95,
) -> Heterogeneity:
    """Say whether sites should share one model, from each site's own sums: their rows may be anywhere.

    The distance of the sites' own models from their average, beyond what chance explains, is compared with the error
    that sites make when they fit alone. Features are decorrelated over all sites, so that the distance of two models is
    that of their predictions. Each site's sums are seen, as in `cofed.meta_analysis` (see the page "site-effects").

    Parameters
    ----------
    model : {"gaussian", "binomial", "poisson"}
        The family.
    X, y, clients
        As in an estimator's `fit`; there must be two clients or more. X may be sites, wherever their rows are.
    level : float, default=0.95
        The confidence level of the interval.

    Returns
    -------
    Heterogeneity
        With `advice`, `verdict`, `table` (a row for each site whose own fit counts) and `left_out`.

    Raises
    ------
    ValueError
        Where fewer than two sites have a fit of their own.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(400, 2)), np.repeat(["Oslo", "Rome", "Bern", "Lyon"], 100)
    >>> y = X[:, 0] * np.where(site == "Rome", -3.0, 1.0) + rng.normal(size=400)
    >>> cofed.advise_sites("gaussian", X, y, clients=site).verdict
    'separate'
    """
    if isinstance(model, str) and model in ELSEWHERE:
        families = ", ".join(map(repr, FAMILIES))
        raise ValueError(f"{OWNER}: sums tell of {families}, and not of {model!r} yet; {ELSEWHERE[model]}")
    checks.one_of(f"{OWNER}: model", model, FAMILIES)
    share = checks.share(f"{OWNER}: level", level)
    given = estimator_of(model)
    sites = given._sites_of(row_options(type(given).__name__, X, None, None), y, clients)
    loss, names = given._loss(), feature_names(given)
    if model == "binomial" and len(vars(given)["classes_"]) > 2:
        raise ValueError(f"{OWNER}: 'binomial' is for two classes, and y has {len(vars(given)['classes_'])}")
    if sites.has_weights or sites.has_offsets:
        raise ValueError(f"{OWNER}: rows take neither weights nor offsets")
    if len(sites.names) < 2:
        raise ValueError(f"{OWNER}: there must be two sites or more, and there is 1; name the rows' sites (clients=)")
    with named_refusals(OWNER):
        doors = [sites.alone(name) for name in sites.names]
    moments = ask_moments(OWNER, sites, loss)
    scaled, turn = standardised(moments, names)
    fits = {}
    for door, products in zip(doors, scaled, strict=True):
        reason = unfit(products)
        if reason:
            fits[door.names[0]] = OwnFit(None, None, reason)
        elif loss.quadratic:
            fits[door.names[0]] = least_squares(products)
        else:
            fits[door.names[0]] = most_likely(door, loss, moments, products)
    return heterogeneity_of(as_local_fits(sites, fits, turn), share)


def standardised(moments: SiteMoments, names: list[str]) -> tuple[np.ndarray, np.ndarray]:
    """The sites' products of features with variance 1, and what takes parameters to those of uncorrelated features."""
    size, n = moments.sizes[:-1], moments.rows.sum()
    flat = np.flatnonzero(size <= 1e-12 * np.abs(moments.centre))
    if len(flat):
        raise ValueError(f"{OWNER}: the column {names[flat[0]]!r} does not vary; leave it out")
    unit = np.r_[1.0, size, 1.0]
    scaled = moments.products / np.outer(unit, unit)
    correlations = scaled.sum(axis=0)[:-1, :-1] / n
    column = dependent(correlations)
    if column is not None:
        raise ValueError(f"{OWNER}: the column {names[column - 1]!r} depends on those before it; leave it out")
    values, vectors = np.linalg.eigh(correlations[1:, 1:])
    turn = np.eye(len(correlations))
    turn[1:, 1:] = (vectors * np.sqrt(values)).T
    return scaled, turn


def unfit(products: np.ndarray) -> str:
    """Why a site has no fit of its own; nothing where it has."""
    rows, count = round(products[0, 0]), len(products) - 1
    if rows < SAMPLES_PER_PARAMETER * count:
        return f"{rows} rows for {count} parameters, at least {SAMPLES_PER_PARAMETER * count} are needed"
    mean = products[0, -1] / rows
    if products[-1, -1] / rows - mean**2 <= 1e-12 * max(products[-1, -1] / rows, 1e-300):
        return "its target has one value"
    own = products[:-1, :-1] / rows
    within = own[1:, 1:] - np.outer(own[0, 1:], own[0, 1:])
    deviations = np.sqrt(np.maximum(np.diag(within), 0))
    if (deviations <= 1e-6).any():  # roots of what is left of differences
        return "a column is constant there"
    if np.linalg.eigvalsh(within / np.outer(deviations, deviations))[0] <= 1e-9:
        return "its columns are linearly dependent"
    return ""


def least_squares(products: np.ndarray) -> OwnFit:
    """A site's least squares."""
    inverse = np.linalg.inv(products[:-1, :-1])
    theta = inverse @ products[:-1, -1]
    rest = max(float(products[-1, -1] - products[:-1, -1] @ theta), 0.0)
    return OwnFit(theta, rest / (products[0, 0] - len(theta)) * inverse)


def most_likely(door: AbstractSites, loss: AbstractLoss, moments: SiteMoments, products: np.ndarray) -> OwnFit:
    """A site's maximum of the likelihood: an exchange for each of Newton's steps."""
    scaling = Scaling(moments.centre, moments.sizes[:-1])
    mean = moments.label_centre + products[0, -1] / products[0, 0]
    theta = np.zeros(len(products) - 1)
    theta[0] = float(np.asarray(loss.link(jnp.asarray(mean))))
    order = np.r_[len(theta) - 1, np.arange(len(theta) - 1)]  # the intercept is the last of a look
    for _ in range(STEPS):
        with named_refusals(OWNER):
            seen = door.ask(look, question(loss, scaling, theta))
        H = unpack(np.asarray(seen.hessian)[0], len(theta))[np.ix_(order, order)]
        g = np.r_[np.asarray(seen.slope)[0, 0], np.asarray(seen.gradient)[0, :, 0]]
        try:
            inverse = np.linalg.inv(H)
        except np.linalg.LinAlgError:
            break
        step = -inverse @ g
        if -0.5 * float(g @ step) <= SETTLED:
            return OwnFit(theta + step, inverse)
        theta = theta + step
        if not np.isfinite(theta).all() or np.abs(theta).max() > ENDLESS:
            break
    return OwnFit(None, None, "its features tell its target with certainty, or its fit did not converge")


def as_local_fits(sites: AbstractSites, fits: dict[str, OwnFit], turn: np.ndarray) -> LocalFits:
    """The fits of those sites that have some, of uncorrelated features."""
    sizes = dict(zip(sites.names, sites.sizes, strict=True))
    left_out = {name: fit.why_not for name, fit in fits.items() if fit.theta is None}
    own = {name: (fit.theta, fit.covariance) for name, fit in fits.items() if fit.theta is not None}
    if len(own) < 2:
        reasons = "; ".join(f"{name}: {why}" for name, why in list(left_out.items())[:5])
        raise ValueError(f"{OWNER}: fewer than two sites have a fit of their own ({reasons})")
    return LocalFits(
        tuple(own),
        np.array([sizes[name] for name in own]),
        np.array([turn @ theta for theta, _ in own.values()]),
        np.array([turn @ covariance @ turn.T for _, covariance in own.values()]),
        left_out,
    )
