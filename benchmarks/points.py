"""What a cross-validated grid tells of single rows, and how the budget of points counts it: see docs/policy.md.

    python -m benchmarks.points            the points and directions of grids
    python -m benchmarks.points attack     an attack on the gradients of a grid of 1,000 x 50
    python -m benchmarks.points hessians   the same on the gradients and Hessians of its first look (minutes)

The attack: of a person, all values but one and the class are known, and none of the other rows. From its knowledge of
the models and of the distribution, the attacker makes the combination of gradients that is 1 for the person and as
small as possible for everybody else, with coefficients of a limited size, and reads the missing value from the sums.
"""

import sys

import numpy as np

from cofed.estimators import FederatedLogisticRegressionCV, FederatedPoissonCV
from cofed.sites import MemorySites, SiteRows
from cofed.sites.policy import points
from cofed.sites.queries import LookMessage

SITES = 4
TARGETS = 200  # persons that are attacked
SIZES = (1e-1, 1e-2, 1e-3, 1e-4, 1e-6, 1e-8)  # how much a unit of a coefficient costs


class Listening(MemorySites):
    """Sites that keep the looks that they are asked for."""

    def __init__(self, rows, feature_names=None):
        super().__init__(rows, feature_names)
        self.looks: list[LookMessage] = []

    def exchange(self, query, message):
        if isinstance(message, LookMessage):
            self.looks.append(message)
        return super().exchange(query, message)

    def with_labels(self, y):
        other = Listening(self.rows.with_labels(y), self.feature_names)
        other.exchanges, other.looks = self.exchanges, self.looks
        return other


def problem(n, p, poisson, seed=0):
    """Normal features, a fifth of which matter, and labels."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, p))
    z = X @ np.where(np.arange(p) < max(2, p // 5), 0.7 * rng.normal(size=p), 0)
    y = rng.poisson(np.exp(np.clip(0.4 * z, -4, 3))).astype(float) if poisson else rng.random(n) < 1 / (1 + np.exp(-z))
    return X, y.astype(float)


def grid(n, p, poisson=False):
    """The rows of all sites, in the units of the grid, and the looks of a fit."""
    X, y = problem(n, p, poisson)
    own = [np.arange(n) % SITES == m for m in range(SITES)]
    sites = Listening(SiteRows.of_sites(tuple("abcd"), [X[m] for m in own], [y[m] for m in own]))
    (FederatedPoissonCV if poisson else FederatedLogisticRegressionCV)(cv=5).fit(sites)
    first = sites.looks[0]
    return first.scaling.rows(sites.rows.X), sites.rows.y, sites.rows.folds(first.folds), sites.looks


def independent(columns, least):
    """How many columns of size 1 are independent, up to this."""
    sizes = np.linalg.svd(columns / np.linalg.norm(columns, axis=0), compute_uv=False)
    return int((sizes > least * sizes[0]).sum())


def count(n, p, poisson=False):
    """A line of the table."""
    X, y, fold, looks = grid(n, p, poisson)
    columns = np.hstack([points.multipliers(one, X, y, fold) for one in looks])
    public = None
    for one in looks:
        public = points.joined(public, points.reference_multipliers(one, tuple(map(str, range(p))), n))
    real = points.directions(points.joined(None, columns))
    told = points.directions(public)
    name = f"{n:,} x {p}{', Poisson' if poisson else ''}"
    print(
        f"| {name} | {columns.shape[1]:,} | {real} | {told} | {real / n:.2f} | {independent(columns, 1e-9)} |",
        flush=True,
    )


def multipliers(message, rows, classes, folds, hessians):
    """What sums of a value of all rows the attacker knows: those of a gradient, and of each column of a Hessian."""
    found, models = points.multipliers(message, rows, classes, folds), len(message.coef)
    parts = [found[:, :models]]
    if hessians:
        wide = np.column_stack([rows, np.ones(len(rows))])
        bends = zip(found[:, models:].T, message.where, strict=True)
        parts += [bend[:, None] * wide[:, np.unique(where)] for bend, where in bends]
    return np.hstack(parts)


def attack(looks, references, hessians=False, target=0):
    """What part of the variance of an unknown value the attacker explains, by the size of the combinations."""
    n, p = 1000, 50
    X, y, fold, asked = grid(n, p)
    asked = asked[:looks]
    rng = np.random.default_rng(7)
    far = rng.normal(size=(references, p))
    odds = far @ asked[-1].coef[-1, :, 0] + asked[-1].intercept[-1, 0]
    labels = (rng.random(references) < 1 / (1 + np.exp(-odds))).astype(float)

    def slopes(rows, classes, folds):
        return np.hstack([multipliers(one, rows, classes, folds, hessians) for one in asked])

    known = slopes(far, labels, np.arange(references) % 5)
    size = np.linalg.norm(known, axis=0) / np.sqrt(references)
    _, spread, turn = np.linalg.svd(known / size / np.sqrt(references), full_matrices=False)
    sums = (slopes(X, y, fold) / size).T @ X[:, target]  # what the sites answer
    chosen = rng.choice(n, TARGETS, replace=False)
    person = X[chosen].copy()
    person[:, target] = 0  # what is not known
    own = slopes(person, y[chosen], fold[chosen]) / size
    for cost in SIZES:
        weights = (own @ turn.T / (spread**2 + (cost * spread[0]) ** 2 / n)) @ turn
        weights /= (weights * own).sum(axis=1)[:, None]
        explained = np.corrcoef(weights @ sums, X[chosen, target])[0, 1] ** 2
        print(f"| {np.median(np.linalg.norm(weights, axis=1)):.0f} | {explained:.2f} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:]:
        print("| size of combinations | variance explained |")
        attack(1, 6_000, hessians=True) if "hessians" in sys.argv[1:] else attack(2, 14_000)
    else:
        print("| rows x features | points | directions | on reference rows | per row | independent at 1e-9 |")
        for shape in ((60, 5), (250, 20), (1000, 50)):
            count(*shape)
        count(1000, 50, poisson=True)
