"""How different the clients' models are, beyond what their samples' size explains.

Quantity    R^2 = sum_i p_i ||w_i - w_avg||^2,  w_avg = sum_i p_i w_i,  w_i client i's best model, p_i = n_i/N
Estimate    S - T: the scatter of the clients' own fits, S = sum_i p_i ||v_i - v_avg||^2, minus its sampling part
            T = sum_i p_i (1 - p_i) tr V_i,  V_i the covariance of the fit v_i; what is below 0 counts as 0
Interval    all R^2 with which a scatter like S is not rare: S is a quadratic form in normal errors, of mean R^2 + T,
            variance 4 sum_i p_i^2 D_i' V_i D_i + 2 tr((QV)^2), D_i = w_i - w_avg and Q = diag(p) - pp', and a third
            moment likewise; its law is taken to be the Pearson III (a shifted gamma) of these moments. They are
            estimated from m clients, so the level's normal quantile gives way to Student's with m - 1 degrees (9 where
            m is below 10: what is uncertain then comes from the samples more than from the clients)
Threshold   T itself. With fits that are about right, own models have the expected error sum_i p_i tr V_i, and the
            average model has R^2 + tr sum_i p_i^2 V_i: sharing is better where R^2 < T, which is of order m/N
Reference   chen2021, Section 3.3 (R^2 against m/N; estimating R is left open there) and Section 5.
"""

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Float

from cofed._util import checks
from cofed._util.types import Given
from cofed.federation import Federation
from cofed.problem import Problem
from cofed.statistics.local_fits import LocalFits, local_fits

FEWEST = 9  # degrees of freedom
NAMED = 5  # clients that are named in a sentence


@dataclasses.dataclass(frozen=True)
class Heterogeneity:
    """How different the clients are, and what that speaks for, as `heterogeneity` returns it.

    Parameters
    ----------
    R_squared : float
        The estimate of R^2.
    interval : tuple of float
        Its confidence interval.
    level : float
        The confidence level of the interval.
    threshold : float
        Below this R^2, one model for all is better than a model each.
    table : DataFrame
        A row per client: samples, distance (of its fit from the average), expected (the distance that sampling alone
        would give), ratio (of their squares).
    left_out : dict
        The clients without a fit, and why.
    """

    R_squared: float
    interval: tuple[float, float]
    level: float
    threshold: float
    table: pd.DataFrame
    left_out: dict[str, str]

    @property
    def verdict(self) -> str:
        """ "share", "separate" or "between": what the interval says of the threshold."""
        if self.interval[1] < self.threshold:
            return "share"
        return "separate" if self.interval[0] > self.threshold else "between"

    @property
    def advice(self) -> str:
        """What to choose, in words."""
        low, high = self.interval
        spread = f"{self.level:.0%} interval {low:.3g} to {high:.3g}"
        against = f"the threshold {self.threshold:.3g}, the error of models that clients fit alone"
        words = {
            "share": f"The clients differ by R² = {self.R_squared:.3g} ({spread}), which is below {against}: "
            "one model for all is better for them than a model each.",
            "separate": f"The clients differ by R² = {self.R_squared:.3g} ({spread}), which is above {against}: "
            "a model each is better than one for all.",
            "between": f"The clients differ by R² = {self.R_squared:.3g} ({spread}), and that does not settle on which "
            f"side of {against}, they are: try both on held-out data (Alternative), or a model each "
            "that is held near a common one (FedProx).",
        }
        named = "; ".join(f"{name} ({why})" for name, why in list(self.left_out.items())[:NAMED])
        more = f" and {len(self.left_out) - NAMED} more" if len(self.left_out) > NAMED else ""
        whole = len(self.table) + len(self.left_out)
        left = f" This rests on {len(self.table)} of {whole} clients. Left out: {named}{more}." * bool(self.left_out)
        return words[self.verdict] + left

    def __str__(self) -> str:
        return self.advice


def heterogeneity(
    problem: Given[Problem],
    federation: Given[Federation],
    level: Given[float] = 0.95,
    groups: Given[Mapping[str, npt.ArrayLike] | Sequence[npt.ArrayLike]] | None = None,
) -> Heterogeneity:
    """Estimate how different the clients' models are, from what they can share: their own fits, and how precise.

    Distances are between coefficients, so bring the features to one scale first. A client with fewer than 5 samples per
    parameter, a single class, or columns that are constant there is left out, and named.

    Parameters
    ----------
    problem : Problem
        A linear, logistic, multinomial or Poisson model; its regularizer plays no part.
    federation : Federation
        The clients' samples.
    level : float, default 0.95
        The confidence level of the interval.
    groups : mapping or sequence of array_like, optional
        Which samples belong together, such as those of one person; as in `Federation.split`.

    Returns
    -------
    Heterogeneity
        R^2 with its interval, and what that speaks for.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> truths = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, -1.0]])
    >>> clients = [(X := rng.normal(size=(200, 2)), X @ w + rng.normal(size=200)) for w in truths]
    >>> found = cofed.heterogeneity(cofed.Problem(cofed.Linear(intercept=False)), cofed.Federation.from_arrays(clients))
    >>> round(found.R_squared, 1), found.verdict
    (1.0, 'separate')
    """
    check_level(level)
    return heterogeneity_of(local_fits(problem, federation, groups), level)


def check_level(level: object) -> float:
    """The level of an interval, checked."""
    inside = checks.is_real(level) and 0 < checks.as_float(level) < 1
    return checks.real("level", level, "between 0 and 1", inside)


def heterogeneity_of(fits: LocalFits, level: float = 0.95) -> Heterogeneity:
    """`heterogeneity`, from fits that clients have made themselves and shared."""
    level = check_level(level)
    if len(fits.names) < 2:
        raise ValueError(f"heterogeneity needs the fits of at least two clients, got {len(fits.names)}")
    arrays = {"samples": fits.samples, "parameters": fits.parameters, "covariances": fits.covariances}
    for name, array in arrays.items():
        if not np.all(np.isfinite(array)):
            raise ValueError(f"the fits' {name} must be finite numbers")
    if not np.all(np.asarray(fits.samples) > 0):
        raise ValueError("every fit must have at least one sample")
    p = fits.samples / fits.samples.sum()
    V = full_covariances(fits)
    gaps = fits.parameters - p @ fits.parameters
    scatter = float(p @ np.sum(gaps**2, axis=1))
    traces = trace(V)
    threshold = float((p * (1 - p)) @ traces)
    estimate = max(scatter - threshold, 0.0)
    law = ScatterLaw(p, gaps, V, estimate, threshold)
    expected = np.sqrt((1 - 2 * p) * traces + p**2 @ traces)
    distance = np.linalg.norm(gaps, axis=1)
    table = pd.DataFrame(
        {
            "samples": fits.samples,
            "distance": distance,
            "expected": expected,
            "ratio": (distance / np.where(expected > 0, expected, np.nan)) ** 2,
        },
        index=pd.Index(fits.names, name="client"),
    )
    return Heterogeneity(estimate, law.interval(scatter, level), level, threshold, table, fits.left_out)


def full_covariances(fits: LocalFits) -> np.ndarray:
    """The covariances; where clients share only the trace, all directions are taken to be alike."""
    if fits.covariances.ndim == 3:
        return fits.covariances
    size = fits.parameters.shape[1]
    return fits.covariances[:, None, None] * np.eye(size) / size


class ScatterLaw:
    """The distribution of the scatter S for a given R^2, by its first three moments."""

    def __init__(self, p: np.ndarray, gaps: np.ndarray, V: np.ndarray, estimate: float, threshold: float):
        squares = V @ V
        inner = np.einsum("m,mab->ab", p**2, V)
        self.clients, self.threshold = len(p), threshold
        # tr((QV)^2) and, its diagonal part, tr((QV)^3)
        self.noise = float((p**2 - 2 * p**3) @ trace(squares) + np.sum(inner * inner))
        self.noise_cubed = float((p * (1 - p)) ** 3 @ trace(squares @ V))
        # sum_i p_i^2 D_i' V_i D_i per unit of R^2: where the clients lie, if that is known, and not below what it is
        # where they lie in no special direction.
        size = gaps.shape[1]
        along = np.einsum("m,ma,mab,mb->", p**2, gaps, V, gaps) - p**2 @ trace(squares)
        along_squared = np.einsum("m,ma,mab,mb->", p**3, gaps, squares, gaps) - p**3 @ trace(squares @ V)
        anywhere, anywhere_squared = p**2 @ trace(V) / size, p**3 @ trace(squares) / size
        self.slope = max(along / estimate, anywhere) if estimate > 0 else anywhere
        self.slope_squared = max(along_squared / estimate, anywhere_squared) if estimate > 0 else anywhere_squared

    def below(self, scatter: float, R_squared: float) -> float:
        """P(S <= scatter) for this R^2."""
        from scipy import stats  # here: it takes as long to load as all of cofed

        variance = 4 * R_squared * self.slope + 2 * self.noise
        third = 24 * R_squared * self.slope_squared + 8 * self.noise_cubed
        if variance == 0:  # fits without any error: the scatter is what it is
            return float(scatter >= R_squared + self.threshold)

        deviation = np.sqrt(variance)
        return float(stats.pearson3.cdf((scatter - R_squared - self.threshold) / deviation, third / deviation**3))

    def interval(self, scatter: float, level: float) -> tuple[float, float]:
        """The R^2 for which the scatter is neither among the rarest small nor the rarest large ones."""
        from scipy import optimize, stats

        # The variance is an estimate from so many clients: the tail is that of Student's distribution.
        tail = float(stats.norm.sf(stats.t.isf((1 - level) / 2, max(self.clients - 1, FEWEST))))

        def solve(probability: float) -> float:
            if self.below(scatter, 0.0) <= probability:
                return 0.0
            high = scatter + self.threshold
            while self.below(scatter, high) > probability:
                high *= 2
            return optimize.brentq(lambda r: self.below(scatter, r) - probability, 0.0, high, full_output=False)  # type: ignore

        return solve(1 - tail), solve(tail)


def trace(matrices: Float[np.ndarray, "m p p"]) -> Float[np.ndarray, " m"]:
    """The trace of each matrix."""
    return np.trace(matrices, axis1=1, axis2=2)
