"""Meta-analysis of the sites' own estimates, beside the estimates of all rows together.

Every site is asked for itself, by the questions of any fit, until its own least squares or maximum likelihood is
known; then the estimates of each coefficient are combined (`cofed.statistics.meta_analysis`).
"""

import copy
import dataclasses
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import norm

from cofed._util import checks, naming
from cofed._util.figure_types import Figure
from cofed._util.pandas_types import Frame
from cofed._util.types import Given
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import named_refusals
from cofed.estimators.cox import FederatedCox
from cofed.estimators.elastic_net import FederatedLasso
from cofed.estimators.fitted_state import refuse_privacy
from cofed.estimators.forest_plot import plot_forest
from cofed.estimators.inference.errors import spread
from cofed.estimators.inference.likelihood import Likelihood
from cofed.estimators.inference.table import check_possible, positions, tabulated, without_penalty
from cofed.estimators.inference.unpenalised import Separated
from cofed.estimators.logistic import FederatedLogisticRegression
from cofed.estimators.poisson import FederatedPoisson
from cofed.losses import NegativeBinomial
from cofed.sites import AbstractSites, ExchangeTotal, SiteRefused, totals
from cofed.sites.intake import Clients, FitFeatures, Labels, feature_names
from cofed.sites.row_options import RowNumbers, row_options
from cofed.statistics.meta_analysis import combined

OWNER = "meta_analysis"
EXPLAINED = 1e-13  # the part of a constant's loss from which on the rest is rounding
MOST = 12  # coefficients that are drawn where none are named
WORDS = {"reml": "restricted maximum likelihood", "dl": "DerSimonian and Laird"}
FAMILIES: dict[str, type[FederatedLinearModel]] = {
    "gaussian": FederatedLasso,
    "binomial": FederatedLogisticRegression,
    "poisson": FederatedPoisson,
    "cox": FederatedCox,
}


@dataclasses.dataclass(frozen=True)
class MetaAnalysis:
    """The sites' estimates, one by one and together; `cofed.meta_analysis` makes it.

    Attributes
    ----------
    table : pandas.DataFrame
        A row for each coefficient: how many sites have an estimate, the estimate of all rows together (pooled,
        pooled_se), the fixed effect (fixed, fixed_se), the mean of random effects with its limits (random, se, low,
        high), and the test whether the sites have one coefficient: Cochran's Q, p_value, I2, and the variance between
        sites, tau2.
    sites : pandas.DataFrame
        A row for each site and coefficient: site, rows, coefficient, estimate, se. NaN where a site has none.
    left_out : dict of str to str
        Sites without estimates of their own, and why.
    method : str
        How the variance between sites was estimated.
    level : float
        The coverage of the limits.
    exchanges : tuple of ExchangeTotal
        What was asked.
    """

    table: Frame
    sites: Frame
    left_out: dict[str, str]
    method: str
    level: float
    exchanges: tuple[ExchangeTotal, ...]

    def summary(self) -> str:
        """The table as text, with what it rests on.

        Returns
        -------
        str
            A line for each coefficient, and for each site that has no estimates.
        """
        each = self.sites.drop_duplicates("site")
        rows, many = int(each.rows.sum()), len(each)
        shown = self.table.to_string(float_format=lambda value: f"{value:.4g}", na_rep="-")
        lines = [f"{rows} rows at {many} sites; without a penalty", "", shown, ""]
        lines.append(
            f"se, low and high are those of the random effect ({100 * self.level:g} %, tau2 by {WORDS[self.method]})."
        )
        lines += [f"Without the site {name}: {why}." for name, why in self.left_out.items()]
        return "\n".join(lines)

    def plot(
        self,
        path: Given[str | Path | None] = None,
        coefficients: Given[list[str] | list[int] | str | int | None] = None,
    ) -> Figure:
        """Draw a forest plot: every site's estimate with its limits, and below them what they are together.

        Parameters
        ----------
        path : str or Path, optional
            A file for it, .png, .svg or .pdf.
        coefficients : list of str or int, optional
            Names or positions of coefficients; None is the first twelve.

        Returns
        -------
        matplotlib.figure.Figure
            The figure, a panel for each coefficient.
        """
        names = [str(name) for name in self.table.index]
        chosen = [names[place] for place in positions("coefficients", names, coefficients)]
        chosen = chosen[:MOST] if coefficients is None else chosen
        if not chosen:
            raise ValueError(f"coefficients must name one at least, got {checks.shown(coefficients)}")
        return plot_forest(self.table, self.sites, chosen, self.level, path)


def meta_analysis(
    model: Given[FederatedLinearModel | str],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
    method: Given[str] = "reml",
    level: Given[float] = 0.95,
    small_sites: Given[str] = "refuse",
) -> MetaAnalysis:
    """Combine the sites' own estimates, and test whether they are of the same coefficients.

    Every site's coefficients are those of its own rows alone, by least squares or maximum likelihood without a
    penalty; beside them stand those of all rows together. Each site's sums are seen: over a network whose answers
    are masked it is refused (see the page "site-effects").

    Parameters
    ----------
    model : {"gaussian", "binomial", "poisson", "cox"} or estimator
        The family; or an estimator, whose family, intercept and `exclude` count, not its penalty. With
        `site_effects="fixed"` the pooled estimate has an intercept for each site, as the sites' own have.
    X, y, clients, sample_weight, offset
        As in an estimator's `fit`; there must be two clients or more. X may be sites, wherever their rows are.
    method : {"reml", "dl"}, default="reml"
        How the variance between sites is estimated: restricted maximum likelihood, or DerSimonian and Laird's moments.
    level : float, default=0.95
        The coverage of the limits.
    small_sites : {"refuse", "drop"}, default="refuse"
        What is done where a site has too few rows or events for estimates of its own: all is refused, or the site is
        in the pooled estimate alone.

    Returns
    -------
    MetaAnalysis
        The estimates, with `table`, `sites`, `plot` and `summary`.

    Raises
    ------
    ValueError
        Where there is one site, or one without estimates; the sentence says why.

    Examples
    --------
    >>> import numpy as np
    >>> import cofed
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(120, 2)), np.repeat(["Oslo", "Rome", "Bern"], 40)
    >>> y = X[:, 0] * np.where(site == "Rome", 3.0, 1.0) + rng.normal(size=120)
    >>> found = cofed.meta_analysis("gaussian", X, y, clients=site)
    >>> (found.table.p_value < 0.001).tolist(), found.table.sites.tolist()
    ([True, False], [3, 3])
    """
    given = estimator_of(model)
    checks.one_of("method", method, WORDS)
    checks.one_of("small_sites", small_sites, ("refuse", "drop"))
    share = checks.share("level", level)
    sites = given._sites_of(row_options(type(given).__name__, X, sample_weight, offset), y, clients)
    loss = given._loss()
    if isinstance(loss, NegativeBinomial) and loss.is_open:
        raise ValueError(f"{OWNER}: NegativeBinomial needs a theta here, such as that of a fit (loss_)")
    if len(sites.names) < 2:
        raise ValueError(f"{OWNER}: there must be two sites or more, and there is 1; name the rows' sites (clients=)")
    if isinstance(model, str) and model == "binomial" and len(vars(given)["classes_"]) > 2:
        raise ValueError(
            f"{OWNER}: 'binomial' is for two classes, and y has {len(vars(given)['classes_'])}; give "
            "FederatedLogisticRegression() for more"
        )
    before = len(sites.exchanges)
    with named_refusals(OWNER):
        doors = {name: sites.alone(name) for name in sites.names}
    pooled = estimates(given, sites)
    own, left_out = each_estimates(given, doors, small_sites == "drop")
    if len(own) < 2:
        raise ValueError(f"{OWNER}: fewer than two sites have estimates of their own: {next(iter(left_out.values()))}")
    listed = sites_table(sites, own, list(pooled.index))
    table = combined_table(pooled, listed, str(method), share)
    return MetaAnalysis(table, listed, left_out, str(method), share, totals(sites.exchanges[before:]))


def estimator_of(model: object) -> FederatedLinearModel:
    """An estimator of the family, which is not fitted."""
    if isinstance(model, str) and model in FAMILIES:
        return FAMILIES[model]()
    if not isinstance(model, FederatedLinearModel):
        raise ValueError(
            f"{OWNER}: model must be one of {naming.listed(FAMILIES)} or an estimator, such as "
            f"FederatedGLM(cofed.Gamma()) of another family, got {checks.shown(model)}"
        )
    given = type(model)(**model.get_params(deep=False))
    given._check_parameters()
    refuse_privacy(given, "meta-analyses", "the sites' sums would not be noised")
    if vars(given).get("class_weight") is not None:
        raise ValueError(f"{OWNER}: with class_weight the model does not know the variances of its coefficients")
    return given


def each_estimates(
    model: FederatedLinearModel, doors: dict[str, AbstractSites], drop: bool
) -> tuple[dict[str, pd.DataFrame], dict[str, str]]:
    """The estimates of the sites that have some, and why others have none, which is refused unless they may drop."""
    own, left_out = {}, {}
    for name, door in doors.items():
        try:
            own[name] = estimates(copy.copy(model), door)
        except SiteRefused:
            raise
        except ValueError as error:
            if not drop:
                raise ValueError(
                    f"{OWNER}: the site {name!r} has no estimates of its own: {error}; small_sites='drop' leaves it out"
                ) from None
            left_out[name] = str(error)
    return own, left_out


def estimates(model: FederatedLinearModel, sites: AbstractSites) -> pd.DataFrame:
    """Coefficients of these sites' rows without a penalty, and standard errors: `debiased` and `se` of a table."""
    names, rows = feature_names(model), sum(sites.sizes)
    options = model._feature_options()
    if options is not None and options.is_bounded:
        raise ValueError(f"{OWNER}: there are no standard errors for coefficients with limits (low, high)")
    excluded = np.zeros(len(names), bool) if options is None else options.excluded
    chosen = np.flatnonzero(~excluded).tolist()
    if rows <= len(chosen) + 1:
        raise ValueError(f"there are {rows} rows for {len(chosen)} coefficients")
    problem = model._standardized(sites)
    check_possible(OWNER, problem, 0.95, "model")
    likelihood = Likelihood(problem, excluded, True)
    parameters = len(likelihood.used) + likelihood.at_sites
    if not likelihood.is_linear and likelihood.events < parameters:
        raise ValueError(
            f"there are {likelihood.events:g} events (rows of the rarest class) for {parameters} parameters"
        )
    start = problem.start
    begin = np.concatenate([np.ravel(part) for part in (start.coef, start.intercept) if part is not None])
    table = begin.reshape(-1, likelihood.outputs)
    try:
        found = without_penalty(likelihood, (table - table[:, :1] if likelihood.outputs > 1 else table).ravel(), chosen)
    except Separated as error:
        raise ValueError(
            f"the coefficients grow without end, most of all that of {names[error.column]!r}, as where features tell "
            "labels with certainty (separation)"
        ) from None
    constant = likelihood.weight * float(problem.null.loss)
    if likelihood.is_linear and np.max(found.dispersion) <= EXPLAINED * constant:
        raise ValueError("the features tell y wholly, or it does not vary, so that there are no standard errors")
    errors = spread(OWNER, likelihood, found, "model")
    return tabulated(model, likelihood, chosen, found.theta, found, errors)


def sites_table(sites: AbstractSites, own: dict[str, pd.DataFrame], coefficients: list[str]) -> Frame:
    """All sites' estimates, in one table; NaN where there are none."""
    parts = []
    for name, rows in zip(sites.names, sites.sizes, strict=True):
        found = own[name] if name in own else pd.DataFrame({"debiased": np.nan, "se": np.nan}, index=coefficients)
        about = {"site": name, "rows": rows, "coefficient": coefficients}
        parts.append(pd.DataFrame({**about, "estimate": found.debiased.to_numpy(), "se": found.se.to_numpy()}))
    return pd.concat(parts, ignore_index=True)


def combined_table(pooled: pd.DataFrame, sites: Frame, method: str, level: float) -> Frame:
    """The estimates of each coefficient put together."""
    width, rows = float(norm.ppf(0.5 + level / 2)), []
    for place, name in enumerate(pooled.index):
        own = sites[sites.coefficient == name]
        found = combined(own.estimate.to_numpy(), own.se.to_numpy())
        both = {"reml": (found.reml, found.reml_se, found.tau2_reml), "dl": (found.random, found.random_se, found.tau2)}
        mean, se, tau2 = both[method]
        rows.append(
            {
                "sites": found.sites,
                "pooled": pooled.debiased.iloc[place],
                "pooled_se": pooled.se.iloc[place],
                "fixed": found.fixed,
                "fixed_se": found.fixed_se,
                "random": mean,
                "se": se,
                "low": mean - width * se,
                "high": mean + width * se,
                "Q": found.q,
                "p_value": found.p_value,
                "I2": found.i2,
                "tau2": tau2,
            }
        )
    return pd.DataFrame(rows, index=pooled.index)
