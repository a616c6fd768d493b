"""Estimate what each choice would give, and recommend one."""

import dataclasses
from collections.abc import Callable

import numpy as np
from scipy import stats

from cofed.advise.table import Prepared
from cofed.federation import Federation
from cofed.solvers.joint import JointFolds, cross_validate
from cofed.statistics.heterogeneity import Heterogeneity, heterogeneity
from cofed.statistics.paired_comparison import PairedComparison, compare

STRENGTHS = (0.0, *(float(s) for s in np.geomspace(1e-3, 1e2, 11)), float("inf"))
RIDGE = 1e-4  # keeps the model of a site with separable classes finite; negligible elsewhere
CLEAR = 2.0  # FedProx is recommended where it is better by more than this many standard errors


@dataclasses.dataclass(frozen=True)
class Advice:
    """Held-out losses of every choice, overall and per site, and the recommendation.

    Parameters
    ----------
    prepared
        The data.
    different
        The estimated heterogeneity of the sites, or why it could not be estimated. It is measured on decorrelated
        features, where the distance between two models is the distance between their predictions.
    strengths
        FedProx's strengths that were tried; 0 is a model for each site, infinity one model for all.
    risks
        The weighted mean held-out loss at each strength.
    errors
        Standard errors of `risks` minus the risk of one model for all.
    baseline
        The loss of a model without features.
    by_site
        The held-out loss per site and strength.
    apart
        Compares one model for all (first) with a model each (second).
    held_near
        Compares the better of these two with FedProx at its best strength.
    best
        The index of FedProx's best strength.
    folds
        The folds of the cross-validation.
    """

    prepared: Prepared
    different: Heterogeneity | str
    strengths: tuple[float, ...]
    risks: np.ndarray
    errors: np.ndarray
    baseline: float
    by_site: np.ndarray
    apart: PairedComparison
    held_near: PairedComparison
    best: int
    folds: int

    @property
    def better(self) -> str:
        """The better of the two extremes; within one standard error it is a tie, which goes to the model for all."""
        return "local" if self.apart.difference > self.apart.standard_error else "shared"

    @property
    def recommendation(self) -> str:
        """What to do: "shared", "local", or "prox" where FedProx is clearly better than both extremes."""
        gain = self.held_near.difference
        return "prox" if gain > CLEAR * self.held_near.standard_error and gain > 0 else self.better

    @property
    def sure(self) -> float:
        """The probability, from 0.5 to 1, that the recommended choice beats the one it is compared with."""
        against = self.held_near if self.recommendation == "prox" else self.apart
        size = abs(against.difference)
        return float(stats.norm.cdf(size / against.standard_error)) if against.standard_error > 0 else 1.0


def advise(
    prepared: Prepared, folds: int = 5, seed: int = 0, after: Callable[[int, int], None] = lambda done, total: None
) -> Advice:
    """Cross-validate every choice inside the sites.

    Parameters
    ----------
    prepared
        The data, from `cofed.advise.table.prepare`.
    folds
        JointFolds of the cross-validation.
    seed
        Seed of the folds.
    after
        Called with the steps done and the steps in all, to show progress.

    Returns
    -------
    Advice
        The held-out losses and the recommendation.

    Examples
    --------
    >>> import numpy as np
    >>> import pandas as pd
    >>> from cofed.advise.advice import advise
    >>> from cofed.advise.table import Columns, prepare
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=400)
    >>> site = np.repeat(["a", "b"], 200)
    >>> y = np.where(site == "a", 2 * x, -2 * x) + rng.normal(size=400)
    >>> found = advise(prepare(pd.DataFrame({"site": site, "x": x, "y": y}), Columns("y", "site")))
    >>> found.recommendation, found.sure > 0.99
    ('local', True)
    """
    federation, problem, groups = prepared.federation, prepared.problem, prepared.groups
    total = folds + 1
    after(0, total)
    losses, seen = cross_validate(
        problem, federation, STRENGTHS, JointFolds(folds, seed, groups), RIDGE, after_fold=lambda k: after(k + 1, total)
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
    """The same rows with features rotated and scaled to be uncorrelated over all sites, with variance 1."""
    X, _ = federation.pooled()
    values, vectors = np.linalg.eigh(np.cov(X.T, ddof=0).reshape(X.shape[1], X.shape[1]))
    turn = vectors / np.sqrt(values)
    pairs = {name: federation.client(name) for name in federation.names}
    return Federation.from_arrays({name: (own @ turn, y) for name, (own, y) in pairs.items()})


def baseline(prepared: Prepared, p: np.ndarray) -> float:
    """The mean loss of the best constant prediction: that of a model without features."""
    parts = [np.asarray(prepared.federation.client(name)[1]) for name in prepared.federation.names]
    y = np.concatenate(parts)
    if prepared.kind == "linear":
        return float(p @ [np.mean((part - y.mean()) ** 2) / 2 for part in parts])
    if prepared.kind == "poisson":
        return float(y.mean() - y.mean() * np.log(y.mean()))
    shares = np.bincount(y.astype(int)) / len(y)
    return float(-np.sum(shares[shares > 0] * np.log(shares[shares > 0])))
