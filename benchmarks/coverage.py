"""How often 95 % intervals hold the truth, over simulations of studies whose truth is known, as a table.

    python -m benchmarks.coverage [--reps N] [--only WORD]

Every study has four unequal sites. Each column is a group of coefficients; each row a kind of standard errors. With N
simulations a true 95 % shows as 0.95 give or take twice sqrt(0.95 * 0.05 / N).
"""

import argparse
import dataclasses
import time
import warnings
from collections.abc import Callable

import numpy as np

import cofed
from cofed import Gamma, Huber, NegativeBinomial, SmoothQuantile, Tweedie
from cofed.estimators import (
    FederatedCox,
    FederatedGLM,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedMixedModel,
    FederatedMultiTaskLasso,
    FederatedPoisson,
)
from cofed.estimators.base import FederatedLinearModel


@dataclasses.dataclass(frozen=True)
class Draw:
    """One simulated study."""

    X: np.ndarray
    y: np.ndarray
    clusters: np.ndarray | None = None
    weight: np.ndarray | None = None
    offset: np.ndarray | None = None
    sites: np.ndarray | None = None


@dataclasses.dataclass(frozen=True)
class Study:
    """What is simulated, and what is asked of it."""

    name: str
    draw: Callable[[np.random.Generator], Draw]
    model: FederatedLinearModel
    truth: dict[str, dict[int, float]]  # groups of coefficients, by position
    errors: tuple[str, ...] = ("model",)
    outputs: int = 1  # the intervals that each feature has

    def limits(self, one: Draw, sites: np.ndarray, asked: list[int]) -> dict[str, np.ndarray]:
        """The lower and the upper limits of these features, by the kind of standard errors."""
        rows = {"sample_weight": one.weight, "offset": one.offset}
        self.model.fit(one.X, one.y, clients=sites, **rows)
        found = {}
        for errors in self.errors:
            kind = one.clusters if errors == "clusters" else errors
            table = self.model.infer(one.X, one.y, sites, coefficients=asked, errors=kind, **rows)
            found[errors] = table[["low", "high"]].to_numpy().T.reshape(2, len(asked), self.outputs)
        return found


@dataclasses.dataclass(frozen=True)
class SiteStudy(Study):
    """A study of effects of sites: a mixed model, and the sites' own estimates combined."""

    model: FederatedMixedModel
    errors: tuple[str, ...] = ("mixed model", "meta-analysis, random effects")

    def limits(self, one: Draw, sites: np.ndarray, asked: list[int]) -> dict[str, np.ndarray]:
        mixed = self.model.fit(one.X, one.y, clients=sites).fixed_effects_.iloc[1:]
        tables = (mixed, cofed.meta_analysis("gaussian", one.X, one.y, clients=sites).table)
        found = [table[["low", "high"]].to_numpy()[asked].T[..., None] for table in tables]
        return dict(zip(self.errors, found, strict=True))


def correlated(rng, n, p, rho=0.5):
    """Rows whose features have the correlation rho^|i - j|."""
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X


def followed(z, rng):
    """Times to an event, of which about 40 % are not seen."""
    event, end = rng.exponential(np.exp(-z)), rng.exponential(1.5, len(z))
    return np.column_stack([np.minimum(event, end), event <= end])


OTHERS = {
    "responses": lambda z, rng: np.outer(z, [1.0, -2.0]) + rng.normal(size=(len(z), 2)) * [1.0, 3.0],
    "of sites": lambda z, rng: z + 3.0 * unequal_sites(len(z)) + rng.normal(size=len(z)),
    "times": followed,
    "amounts": lambda z, rng: rng.gamma(2.0, np.exp(z) / 2),
    "sums": lambda z, rng: tweedie(z, rng),
    "heavy": lambda z, rng: z + rng.standard_t(3, size=len(z)),
}


def generalised(n, p, truth, family, extra=0.0):
    """Labels whose mean depends on some features; `extra` is the variance of counts beyond Poisson's."""
    w = np.zeros(p)
    for at, value in truth.items():
        w[at] = value

    def draw(rng):
        X = correlated(rng, n, p)
        z = X @ w
        if family == "linear":
            return Draw(X, z + rng.normal(size=n))
        if family in OTHERS:
            return Draw(X, OTHERS[family](z, rng))
        if family == "logistic":
            return Draw(X, (rng.uniform(size=n) < 1 / (1 + np.exp(-z))).astype(int))
        more = rng.gamma(1 / extra, extra, n) if extra else 1.0
        return Draw(X, rng.poisson(np.exp(0.5 + z) * more).astype(float))

    return draw


def weighted(n, p, truth):
    """Numbers whose weights are their precisions."""

    def draw(rng):
        drawn, weight = generalised(n, p, truth, "linear")(rng), rng.uniform(0.2, 5.0, n)
        z = drawn.X @ [truth.get(at, 0.0) for at in range(p)]
        return dataclasses.replace(drawn, y=z + rng.normal(size=n) / np.sqrt(weight), weight=weight)

    return draw


def exposed(n, p, truth):
    """Counts of unequal times."""

    def draw(rng):
        X, offset = correlated(rng, n, p), np.log(rng.uniform(0.2, 5.0, n))
        z = X @ [truth.get(at, 0.0) for at in range(p)]
        return Draw(X, rng.poisson(np.exp(z + offset)).astype(float), offset=offset)

    return draw


def tweedie(z, rng):
    """Sums of a few amounts, of which there may be none: Tweedie's power 1.5 and dispersion 1."""
    mean = np.exp(0.5 + z)
    count = rng.poisson(2 * np.sqrt(mean))  # mean^(2 - power) / (2 - power)
    return np.where(count > 0, rng.gamma(np.maximum(count, 1), np.sqrt(mean) / 2), 0.0)


def around_sites(count, size, varies):
    """Sites with intercepts of their own, and with slopes of the first feature that vary so much."""

    def draw(rng):
        sites = np.repeat(np.arange(count), size)
        X = rng.normal(size=(len(sites), 3))
        own, slope = rng.normal(size=count), 1 + varies * rng.normal(size=count)
        return Draw(X, own[sites] + slope[sites] * X[:, 0] - 0.5 * X[:, 1] + rng.normal(size=len(sites)), sites=sites)

    return draw


def unequal_sites(n):
    """The site of each row."""
    return np.repeat(range(4), [n // 2, n // 4, n // 8, n - n // 2 - n // 4 - n // 8])


def classes(n, p, truth):
    """Three classes; the truth is of the log odds of the second and the third against the first."""
    w = np.zeros((p, 3))
    for at, value in truth.items():
        w[at // 2, 1 + at % 2] = value

    def draw(rng):
        X = correlated(rng, n, p)
        return Draw(X, (X @ w + rng.gumbel(size=(n, 3))).argmax(axis=1))

    return draw


def clustered(n_clusters, size):
    """A feature that clusters share, one whose size makes the errors larger, and two more; errors of clusters."""

    def draw(rng):
        whose = np.repeat(np.arange(n_clusters), size)
        n = len(whose)
        X = rng.normal(size=(n, 4))
        X[:, 0] = rng.normal(size=n_clusters)[whose]
        noise = rng.normal(size=n) * np.sqrt(0.3 + X[:, 1] ** 2)
        return Draw(X, X[:, 0] - X[:, 1] + rng.normal(size=n_clusters)[whose] * 0.5 + noise, whose)

    return draw


def studies():
    """The studies of docs/estimators-measured.md."""
    few = {0: 1.0, 3: -0.5, 6: 0.25}
    null = {1: 0.0, 9: 0.0}
    split = lambda zeros: {"beta = 1": {0: 1.0}, "-0.5": {3: -0.5}, "0": zeros}  # noqa: E731
    yield Study(
        "logistic, n = 400, p = 10, strong penalty",
        generalised(400, 10, few, "logistic"),
        FederatedLogisticRegression(0.05),
        split(null),
        ("model", "hc1", "hc3"),
    )
    yield Study(
        "logistic, n = 400, p = 30 (6 events per parameter)",
        generalised(400, 30, few, "logistic"),
        FederatedLogisticRegression(0.02),
        split({1: 0.0, 29: 0.0}),
    )
    yield Study(
        "logistic, n = 200, p = 300",
        generalised(200, 300, {0: 1.0, 3: -0.5}, "logistic"),
        FederatedLogisticRegression(0.05),
        split({1: 0.0, 299: 0.0}),
    )
    yield Study(
        "Poisson, n = 400, p = 10",
        generalised(400, 10, {0: 0.4, 3: -0.2}, "counts"),
        FederatedPoisson(0.05),
        {"beta = 0.4": {0: 0.4}, "-0.2": {3: -0.2}, "0": null},
        ("model", "hc1"),
    )
    yield Study(
        "counts with twice Poisson's variance and more, n = 400, p = 10",
        generalised(400, 10, {0: 0.4, 3: -0.2}, "counts", extra=0.5),
        FederatedPoisson(0.05),
        {"beta = 0.4": {0: 0.4}, "-0.2": {3: -0.2}, "0": null},
        ("model", "hc1", "hc3"),
    )
    yield Study(
        "negative binomial counts (theta = 2, estimated), n = 400, p = 10",
        generalised(400, 10, {0: 0.4, 3: -0.2}, "counts", extra=0.5),
        FederatedGLM(NegativeBinomial(), alpha=0.05),
        {"beta = 0.4": {0: 0.4}, "-0.2": {3: -0.2}, "0": null},
        ("model", "hc1"),
    )
    yield Study(
        "three classes, n = 600, p = 6",
        classes(600, 6, {0: 0.8, 1: -0.4, 6: 0.5}),
        FederatedLogisticRegression(0.02),
        {"not 0": {0: 0.8, 1: -0.4, 6: 0.5}, "0": {3: 0.0, 11: 0.0}},
        ("model", "hc1"),
        outputs=2,
    )
    yield Study(
        "linear, n = 200, p = 40",
        generalised(200, 40, few, "linear"),
        FederatedLasso(0.1),
        split({1: 0.0, 39: 0.0}),
        ("model", "hc3"),
    )
    yield Study(
        "linear, n = 200, p = 300",
        generalised(200, 300, few, "linear"),
        FederatedLasso(0.12),
        split({1: 0.0, 299: 0.0}),
    )
    yield Study(
        "linear, 40 clusters of 10 rows",
        clustered(40, 10),
        FederatedLasso(0.1),
        {"x of the cluster": {0: 1.0}, "x with unequal errors": {1: -1.0}, "0": {2: 0.0, 3: 0.0}},
        ("model", "hc3", "clusters"),
    )
    yield from studies_of_families(few, null, split)


def studies_of_families(few, null, split):
    """Those of other families, and of other parameters."""
    yield Study(
        "two responses of different variance, n = 200, p = 10",
        generalised(200, 10, few, "responses"),
        FederatedMultiTaskLasso(0.1),
        {"of the first": {0: 1.0, 6: -0.5}, "of the second": {1: -2.0, 7: 1.0}, "0": {2: 0.0, 19: 0.0}},
        ("model", "hc3"),
        outputs=2,
    )
    yield Study(
        "linear with an intercept for each site, n = 200, p = 10",
        generalised(200, 10, few, "of sites"),
        FederatedLasso(0.1, site_effects="fixed"),
        split(null),
    )
    yield Study(
        "Cox, n = 300 with 40 % censored, p = 10",
        generalised(300, 10, few, "times"),
        FederatedCox(0.02),
        split(null),
    )
    yield Study(
        "Gamma, n = 300, p = 10",
        generalised(300, 10, {0: 0.4, 3: -0.2}, "amounts"),
        FederatedGLM(Gamma(), alpha=0.05),
        {"beta = 0.4": {0: 0.4}, "-0.2": {3: -0.2}, "0": null},
        ("model", "hc1"),
    )
    small = {"beta = 0.4": {0: 0.4}, "-0.2": {3: -0.2}, "0": null}
    yield Study(
        "Tweedie (power 1.5), n = 400, p = 10",
        generalised(400, 10, {0: 0.4, 3: -0.2}, "sums"),
        FederatedGLM(Tweedie(1.5), alpha=0.05),
        small,
        ("model", "hc1"),
    )
    yield Study(
        "linear with weights, n = 200, p = 10", weighted(200, 10, few), FederatedLasso(0.1), split(null), ("model",)
    )
    yield Study(
        "Poisson with an offset, n = 400, p = 10",
        exposed(400, 10, {0: 0.4, 3: -0.2}),
        FederatedPoisson(0.05),
        small,
        ("model", "hc1"),
    )
    both = {"beta = 1": {0: 1.0}, "-0.5": {1: -0.5}, "0": {2: 0.0}}
    yield SiteStudy("intercepts that vary, 20 sites of 20 rows", around_sites(20, 20, 0.0), FederatedMixedModel(), both)
    yield SiteStudy(
        "intercepts and a slope that vary, 20 sites of 20 rows",
        around_sites(20, 20, 0.5),
        FederatedMixedModel(slopes=[0]),
        both,
    )
    yield Study(
        "Huber, errors of Student's t with 3 degrees of freedom, n = 300, p = 10",
        generalised(300, 10, few, "heavy"),
        FederatedGLM(Huber(1.35), alpha=0.05),
        split(null),
        ("hc1", "hc3"),
    )
    yield Study(
        "the median (width 0.3), errors of Student's t with 3 degrees of freedom, n = 300, p = 10",
        generalised(300, 10, few, "heavy"),
        FederatedGLM(SmoothQuantile(0.5, 0.3), alpha=0.05),
        split(null),
        ("hc1", "hc3"),
    )


def coverage(study, reps):
    """The share of simulations in which the interval of each group of coefficients holds the truth."""
    rng = np.random.default_rng(0)
    places = {at: value for group in study.truth.values() for at, value in group.items()}
    hits = {errors: dict.fromkeys(places, 0) for errors in study.errors}
    outputs = study.outputs
    asked = sorted({at // outputs for at in places})
    for _ in range(reps):
        one = study.draw(rng)
        sites = unequal_sites(len(one.y)) if one.sites is None else one.sites
        if one.clusters is not None:  # a cluster lies within a site
            sites = one.clusters % 4
        for errors, (low, high) in study.limits(one, sites, asked).items():
            for at, value in places.items():
                row, column = asked.index(at // outputs), at % outputs
                hits[errors][at] += low[row, column] <= value <= high[row, column]
    return {
        errors: {name: np.mean([found[at] for at in group]) / reps for name, group in study.truth.items()}
        for errors, found in hits.items()
    }


def main():
    """Print the table, study by study."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reps", type=int, default=40)
    parser.add_argument("--only", default="", help="studies whose name contains this")
    options = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    print("| study | standard errors | coverage of 95 % intervals |\n| --- | --- | --- |")
    for study in studies():
        if options.only not in study.name:
            continue
        began = time.perf_counter()
        for errors, found in coverage(study, options.reps).items():
            shares = ", ".join(f"{name}: {share:.3f}" for name, share in found.items())
            print(f"| {study.name} | {errors} | {shares} |", flush=True)
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
