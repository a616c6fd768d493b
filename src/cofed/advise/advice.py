"""What each choice would give, and which to take."""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import stats

from cofed.advise.table import Prepared
from cofed.federation import Federation
from cofed.solvers.joint import cross_validate
from cofed.statistics.heterogeneity import Heterogeneity, heterogeneity
from cofed.statistics.paired_comparison import PairedComparison, compare

STRENGTHS = (0.0, *(float(s) for s in np.geomspace(1e-3, 1e2, 11)), float("inf"))
RIDGE = 1e-4  # keeps the models of sites with separated classes finite; next to nothing elsewhere
CLEAR = 2.0  # standard errors


@dataclasses.dataclass(frozen=True)
class Advice:
    """Held-out losses of every choice, overall and per site, and the recommendation.

    `risks` is the weighted mean held-out loss for each of `strengths` (0 is a model each, infinity one for all), and
    `baseline` that of a model without features. `apart` compares one model for all (first) with a model each (second),
    `held_near` the better of these two with FedProx at its best strength. `by_site` has the losses per site and
    strength. `different` is measured on decorrelated features: there a distance of models is one of predictions.
    """

    prepared: Prepared
    different: Heterogeneity | str  # or why it could not be estimated
    strengths: tuple[float, ...]
    risks: np.ndarray
    errors: np.ndarray  # standard errors of risks minus the risk of one model for all
    baseline: float
    by_site: np.ndarray
    apart: PairedComparison
    held_near: PairedComparison
    best: int  # the place of FedProx's best strength
    folds: int

    @property
    def better(self) -> str:
        """The better of the two extremes; a difference within a standard error is a tie, for the model for all."""
        return "local" if self.apart.difference > self.apart.standard_error else "shared"

    @property
    def recommendation(self) -> str:
        """ "shared", "local" or "prox": FedProx only where it is clearly better than both extremes."""
        gain = self.held_near.difference
        return "prox" if gain > CLEAR * self.held_near.standard_error and gain > 0 else self.better

    @property
    def sure(self) -> float:
        """How sure it is that the recommended choice beats the one it is compared with, from 0.5 to 1."""
        against = self.held_near if self.recommendation == "prox" else self.apart
        size = abs(against.difference)
        return float(stats.norm.cdf(size / against.standard_error)) if against.standard_error > 0 else 1.0


def advise(
    prepared: Prepared, folds: int = 5, seed: int = 0, after: Callable[[int, int], None] = lambda done, total: None
) -> Advice:
    """Cross-validate every choice inside the sites. `after(done, total)` is told of progress.

    >>> import pandas as pd
    >>> from cofed.advise.table import prepare
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=400)
    >>> site = np.repeat(["a", "b"], 200)
    >>> y = np.where(site == "a", 2 * x, -2 * x) + rng.normal(size=400)
    >>> found = advise(prepare(pd.DataFrame({"site": site, "x": x, "y": y}), "y", "site"))
    >>> found.recommendation, found.sure > 0.99
    ('local', True)
    """
    federation, problem, groups = prepared.federation, prepared.problem, prepared.groups
    total = folds + 1
    after(0, total)
    losses, seen = cross_validate(
        problem, federation, STRENGTHS, folds, seed, groups, ridge=RIDGE, after_fold=lambda k: after(k + 1, total)
    )
    labels = None if groups is None else [g[kept] for g, kept in zip(groups, seen, strict=True)]
    weights = np.asarray(federation.sizes, float)
    p = weights / weights.sum()
    names = federation.names
    by_site = np.stack([own.mean(axis=1) for own in losses])
    risks = p @ by_site
    one, each = len(STRENGTHS) - 1, 0

    def against(first: int, second: int) -> PairedComparison:
        return compare(names, [own[first] for own in losses], [own[second] for own in losses], weights, labels)

    best = 1 + int(np.argmin(risks[1:-1]))
    apart = against(one, each)
    errors = np.array([against(place, one).standard_error if place != one else 0.0 for place in range(len(STRENGTHS))])
    held_near = against(each if apart.difference > 0 else one, best)
    try:
        different: Heterogeneity | str = heterogeneity(problem, decorrelated(federation), groups=groups)
    except ValueError as error:
        different = str(error)
    after(total, total)
    base = baseline(prepared, p)
    return Advice(prepared, different, STRENGTHS, risks, errors, base, by_site, apart, held_near, best, folds)


def decorrelated(federation: Federation) -> Federation:
    """The same rows with features that are uncorrelated over all sites, of variance 1."""
    X, _ = federation.pooled()
    values, vectors = np.linalg.eigh(np.cov(X.T, ddof=0).reshape(X.shape[1], X.shape[1]))
    turn = vectors / np.sqrt(values)
    pairs = {name: federation.client(name) for name in federation.names}
    return Federation.from_arrays({name: (own @ turn, y) for name, (own, y) in pairs.items()})


def baseline(prepared: Prepared, p: np.ndarray) -> float:
    """The mean loss of one model without features: what knowing nothing of a row would give."""
    parts = [np.asarray(prepared.federation.client(name)[1]) for name in prepared.federation.names]
    y = np.concatenate(parts)
    if prepared.kind == "linear":
        return float(p @ [np.mean((part - y.mean()) ** 2) / 2 for part in parts])
    if prepared.kind == "poisson":
        return float(y.mean() - y.mean() * np.log(y.mean()))
    shares = np.bincount(y.astype(int)) / len(y)
    return float(-np.sum(shares[shares > 0] * np.log(shares[shares > 0])))
