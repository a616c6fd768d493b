"""Stability selection: how often each feature is chosen in halves of the rows, which every site draws for itself.

References: Meinshausen and Buehlmann 2010, Stability selection, JRSS B; in complementary pairs as Shah and Samworth
2013, Variable selection with error control, JRSS B.

Every site splits its own rows into two halves, by a seed and its name, and a path is solved on each: two subsamples,
whose means, models and penalties are their own. This is repeated with other seeds.
"""

import copy
import dataclasses
import warnings
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util.figure_types import Figure, blank
from cofed._util.types import Given
from cofed.estimators import lock_step
from cofed.estimators.base import FederatedLinearModel
from cofed.estimators.checks import check_count, check_number
from cofed.estimators.fitted_state import refuse_privacy
from cofed.estimators.path import MOST, by_grid, one_by_one, ordered, strengths, warn
from cofed.estimators.plots import COLOURS, GREY, NAMED
from cofed.estimators.progress import CertifiedFit
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.plotting import save
from cofed.plotting.styles import LARGE, SMALL
from cofed.sites import Folds, spent
from cofed.sites.intake import Clients, FitFeatures, Labels, feature_names
from cofed.sites.row_options import RowNumbers, row_options

OWNER = "stability_selection"
THRESHOLD = 0.75
MOST_PAIRS = 1000


@dataclasses.dataclass(frozen=True)
class StabilitySelection:
    """How often features are chosen in subsamples.

    Attributes
    ----------
    alphas : ndarray
        The strengths.
    probabilities : ndarray of shape (strengths, features)
        In which part of the subsamples each feature is in use.
    feature_names : tuple of str
        The features.
    n_subsamples : int
        How many subsamples there were.
    mean_used : float
        How many features a subsample uses at one strength or another, in the mean.
    n_rounds : int
        The exchanges.
    bytes : int
        Their size, both ways, of all clients.
    """

    alphas: np.ndarray
    probabilities: np.ndarray
    feature_names: tuple[str, ...]
    n_subsamples: int
    mean_used: float
    n_rounds: int
    bytes: int

    @property
    def table(self) -> pd.DataFrame:
        """A row per feature, the most stable first: its largest probability, and at which strength."""
        best = self.probabilities.argmax(axis=0)
        most = self.probabilities.max(axis=0)
        found = pd.DataFrame({"probability": most, "alpha": self.alphas[best]}, index=list(self.feature_names))
        return found.iloc[np.argsort(-most, kind="stable")]

    def selected(self, threshold: Given[float] = THRESHOLD) -> list[str]:
        """The features that are chosen in at least this part of the subsamples, at some strength.

        Parameters
        ----------
        threshold : float, default=0.75
            Above 0.5; usual are 0.6 to 0.9, which change little.

        Returns
        -------
        list of str
            The names.
        """
        least = above_half(threshold)
        chosen = self.probabilities.max(axis=0) >= least
        return [name for name, one in zip(self.feature_names, chosen, strict=True) if one]

    def false_selections(self, threshold: Given[float] = THRESHOLD) -> float:
        """Meinshausen and Buehlmann's bound on the expected number of features that are chosen wrongly.

        Parameters
        ----------
        threshold : float, default=0.75
            As of `selected`.

        Returns
        -------
        float
            q^2 / ((2 threshold - 1) p), q the features that a subsample uses in the mean. It assumes that features
            which do not matter are chosen with one probability. A path that goes less far down has a smaller one.
        """
        return self.mean_used**2 / ((2 * above_half(threshold) - 1) * len(self.feature_names))

    def plot(self, path: str | Path | None = None, threshold: Given[float] = THRESHOLD) -> Figure:
        """The probabilities by strength, those above a threshold in colour.

        Parameters
        ----------
        path : str or Path, optional
            A file to write the figure to.
        threshold : float, default=0.75
            As of `selected`.

        Returns
        -------
        matplotlib.figure.Figure
            The figure.
        """
        least, names = above_half(threshold), self.selected(threshold)
        figure = blank(7.2, 4.6)
        panel = figure.subplots()
        shades = {name: COLOURS[rank % len(COLOURS)] for rank, name in enumerate(names)}
        for column, name in enumerate(self.feature_names):
            shade = shades.get(name, "#C8C8C8")
            label = name if name in names[:NAMED] else None
            width, above = (1.6, 2) if name in shades else (0.9, 1)
            panel.plot(
                self.alphas, self.probabilities[:, column], color=shade, linewidth=width, zorder=above, label=label
            )
        panel.axhline(least, color=GREY, linestyle=":", linewidth=1.2)
        panel.set_xscale("log")
        panel.set_xlim(self.alphas[0] * 1.05, self.alphas[-1] / 1.05)
        panel.set_ylim(-0.02, 1.02)
        panel.set_xlabel("alpha", fontsize=LARGE)
        panel.set_ylabel(f"part of {self.n_subsamples} subsamples", fontsize=LARGE)
        panel.tick_params(labelsize=SMALL)
        panel.grid(True, color="#E9E9E9", linewidth=0.6)
        panel.set_axisbelow(True)
        if names:
            panel.legend(fontsize=SMALL, frameon=False, loc="upper left")
        if path is not None:
            save(figure, path)
        return figure


def stability_selection(
    estimator: Given[FederatedLinearModel],
    X: FitFeatures,
    y: Labels = None,
    clients: Clients = None,
    *,
    sample_weight: RowNumbers = None,
    offset: RowNumbers = None,
    pairs: Given[int] = 50,
    alphas: Given[npt.ArrayLike | None] = None,
    n_alphas: Given[int] = 20,
    eps: Given[float] = 0.1,
    random_state: Given[int] = 0,
) -> StabilitySelection:
    """How often each feature is chosen in halves of the rows, by strength.

    Parameters
    ----------
    estimator : FederatedLinearModel
        An estimator with a parameter `alpha`, whose value does not matter, and with an l1 norm.
    X, y, clients, sample_weight, offset
        As in the estimator's `fit`.
    pairs : int, default=50
        How often the rows are split into two halves: twice as many subsamples.
    alphas : array-like, optional
        The strengths; None takes `n_alphas` from alpha_max of all rows down to eps times it.
    n_alphas : int, default=20
        How many strengths.
    eps : float, default=0.1
        The last strength as a part of the first.
    random_state : int, default=0
        The first seed of the halves; every pair has the next one.

    Returns
    -------
    StabilitySelection
        The probabilities. Interrupted (Ctrl-C), those of the pairs so far, with a warning.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.estimators import FederatedLasso, stability_selection
    >>> rng = np.random.default_rng(0)
    >>> X, site = rng.normal(size=(120, 6)), np.arange(120) % 3
    >>> found = stability_selection(FederatedLasso(), X, X[:, 0] - X[:, 4] + rng.normal(size=120), site, pairs=10)
    >>> found.selected(), found.n_subsamples
    (['x0', 'x4'], 20)
    """
    if not isinstance(estimator, FederatedLinearModel) or "alpha" not in estimator.get_params():
        raise ValueError(f"{OWNER}: {type(estimator).__name__} has no strength alpha, and so no path")
    own = copy.copy(estimator)
    own._check_parameters()
    refuse_privacy(own, "subsamples", "each would cost")
    check_count(OWNER, "pairs", pairs, high=MOST_PAIRS)
    check_count(OWNER, "n_alphas", n_alphas, high=MOST)
    check_number(OWNER, "eps", eps, low=0, high=1, strict=True)
    check_count(OWNER, "random_state", random_state, low=0, high=2**62)
    given = None if alphas is None else ordered(OWNER, alphas)
    if given is not None and given[-1] == 0:
        raise ValueError(f"{OWNER}: alphas must be above 0, where features are left out")
    sites = own._sites_of(row_options(OWNER, X, sample_weight, offset), y, clients)
    begun, seeds = len(sites.exchanges), [int(random_state) + k for k in range(int(pairs))]
    used: list[np.ndarray] = []
    fits: list[CertifiedFit] = []
    try:
        for seed in seeds:
            problem = own._standardized(sites, Folds(2, seed, own._classifies))
            if not np.isfinite(own._penalty(problem, 1.0).zeroing_factor(problem.null.gradient.coef)):
                raise ValueError(f"{OWNER}: {type(own).__name__} has no l1 norm here, and leaves no feature out")
            if given is None:
                given = strengths(own, problem, int(n_alphas), float(eps))
            for answers in of_halves(own, problem, given):
                fits += answers
                used.append(np.stack([np.any(np.atleast_2d(np.asarray(fit.w.coef).T) != 0, axis=0) for fit in answers]))
    except KeyboardInterrupt:
        if not used:
            raise
        warnings.warn(f"{OWNER} was interrupted: {len(used)} of {2 * len(seeds)} subsamples are done", stacklevel=2)
    assert given is not None
    warn(fits, "models of subsamples")
    taken = spent(sites.exchanges[begun:])
    return StabilitySelection(
        alphas=given,
        probabilities=np.mean(used, axis=0),
        feature_names=tuple(feature_names(own)),
        n_subsamples=len(used),
        mean_used=float(np.mean([one.any(axis=0).sum() for one in used])),
        n_rounds=taken.rounds,
        bytes=taken.bytes,
    )


def of_halves(
    estimator: FederatedLinearModel, problem: StandardizedProblem, alphas: np.ndarray
) -> list[list[CertifiedFit]]:
    """The models of all strengths on both halves: looked at together where a grid serves."""
    halves, tol, most = problem.parts, float(estimator.tol), int(estimator.max_rounds)
    if not by_grid(estimator, problem):
        return [one_by_one(estimator, half, alphas, []) for half in halves]
    return lock_step.solve_parts(halves, estimator._penalty, alphas, tol, most)


def above_half(threshold: Given[float]) -> float:
    """A threshold of probabilities."""
    check_number(OWNER, "threshold", threshold, low=0.5, high=1)
    if float(threshold) == 0.5:
        raise ValueError(f"{OWNER}: threshold must be above 0.5, got {threshold!r}")
    return float(threshold)
