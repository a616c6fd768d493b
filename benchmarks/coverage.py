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
import pandas as pd

import cofed
from benchmarks.simulated import (
    Draw,
    around_sites,
    classes,
    clustered,
    counted_times,
    days,
    different_sites,
    exposed,
    factors,
    generalised,
    labels_around_sites,
    precisely_around_sites,
    related_counts,
    related_sites,
    related_times,
    unequal_sites,
    weighted,
)
from cofed import Gamma, Huber, NegativeBinomial, SmoothQuantile, Tweedie
from cofed.estimators import (
    FederatedCox,
    FederatedGLM,
    FederatedGroupLasso,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedMixedGLM,
    FederatedMixedModel,
    FederatedMultiTaskLasso,
    FederatedPoisson,
)
from cofed.estimators.base import FederatedLinearModel

NORMAL = 1.959963984540054  # of the normal distribution, what 2.5 % are above


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
    errors: tuple[str, ...] = ("mixed model", "meta-analysis, random effects", "meta-analysis, fixed effect")

    def limits(self, one: Draw, sites: np.ndarray, asked: list[int]) -> dict[str, np.ndarray]:
        rows = {"clients": sites, "sample_weight": one.weight}
        mixed = self.model.fit(one.X, one.y, **rows).fixed_effects_.iloc[1:]
        table = cofed.meta_analysis("gaussian", one.X, one.y, **rows).table
        fixed = table.fixed.to_numpy() + np.outer([-NORMAL, NORMAL], table.fixed_se)
        found = [mixed[["low", "high"]].to_numpy().T, table[["low", "high"]].to_numpy().T, fixed]
        return {name: limits[:, asked, None] for name, limits in zip(self.errors, found, strict=True)}


@dataclasses.dataclass(frozen=True)
class MixedStudy(Study):
    """A study of a mixed model of classes or counts."""

    model: FederatedMixedGLM

    def limits(self, one: Draw, sites: np.ndarray, asked: list[int]) -> dict[str, np.ndarray]:
        found = self.model.fit(one.X, one.y, clients=sites).fixed_effects_.iloc[1:]
        return {"model": found[["low", "high"]].to_numpy()[asked].T[..., None]}


@dataclasses.dataclass(frozen=True)
class CurveStudy(Study):
    """A study of Kaplan and Meier's curve: the survival of days, and their median at the last place."""

    model: None
    days: tuple[int, ...] = ()

    def limits(self, one: Draw, sites: np.ndarray, asked: list[int]) -> dict[str, np.ndarray]:
        frame = pd.DataFrame({"days": one.y[:, 0], "dead": one.y[:, 1], "site": sites})
        found = cofed.survival_curves(frame, "days", "dead", client="site")
        assert found.resolution == 0
        curve, median = found.curves["all"], found.medians.iloc[0]
        at = np.searchsorted(curve.time, self.days, side="right") - 1
        unreached = np.nan_to_num(median.high, nan=np.inf)  # a limit that is not reached is above all
        limits = np.array([[*curve.low[at], median.low], [*curve.high[at], unreached]])
        return {"model": limits[:, asked, None]}


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
    yield from studies_of_options(few, null, split)


def studies_of_options(few, null, split):
    """Those of options: intercepts of sites, clusters, weights, groups; and of survival."""
    small = {"beta = 0.4": {0: 0.4}, "-0.2": {3: -0.2}, "0": null}
    weak = {0: 0.4, 3: -0.2}
    fixed = (
        ("logistic", "logistic", few, FederatedLogisticRegression(0.02, site_effects="fixed"), split(null), 600),
        ("Poisson", "counts", weak, FederatedPoisson(0.05, site_effects="fixed"), small, 400),
        ("Gamma", "amounts", weak, FederatedGLM(Gamma(), alpha=0.05, site_effects="fixed"), small, 400),
    )
    for name, family, truth, model, groups, n in fixed:
        draw = different_sites(n, 10, truth, family)
        yield Study(f"{name} with an intercept for each site, n = {n}, p = 10", draw, model, groups)
    shared = {"x of the site": {0: 1.0}, "x with unequal errors": {1: -1.0}, "0": {2: 0.0, 3: 0.0}}
    for count, size in ((40, 10), (10, 40)):
        name = f"linear, {count} sites of {size} related rows"
        yield Study(name, related_sites(count, size), FederatedLasso(0.1), shared, ("model", "site"))
    yield Study(
        "Poisson, 40 clusters of 10 rows",
        related_counts(40, 10),
        FederatedPoisson(0.05),
        {"x of the cluster": {0: 0.4}, "another": {1: -0.2}, "0": {2: 0.0, 3: 0.0}},
        ("model", "hc1", "clusters"),
    )
    of_times = {"x of the cluster": {0: 1.0}, "another": {1: -0.5}, "0": {2: 0.0, 3: 0.0}}
    for count in (60, 160):
        yield Study(
            f"Cox, {count} clusters of 5 rows",
            related_times(count, 5),
            FederatedCox(0.02),
            of_times,
            ("model", "hc1", "clusters"),
        )
    yield Study(
        "Cox with weights that say nothing, n = 300, p = 10",
        counted_times(300, 10, few),
        FederatedCox(0.02),
        split(null),
        ("model", "hc1"),
    )
    yield Study(
        "group lasso, two factors of four levels and two numbers, n = 200",
        factors(200, {0: 1.0, 1: -0.5, 6: 0.5}),
        FederatedGroupLasso(0.05, groups=[0, 0, 0, 1, 1, 1, 2, 3]),
        {"of the factor in use": {0: 1.0, 1: -0.5, 2: 0.0}, "of the other": {3: 0.0, 4: 0.0}, "number": {6: 0.5}},
        ("model", "hc3"),
    )
    both = {"beta = 1": {0: 1.0}, "-0.5": {1: -0.5}, "0": {2: 0.0}}
    mixed = FederatedMixedModel()
    yield SiteStudy("intercepts that vary, weights, 20 sites of 20 rows", precisely_around_sites(20, 20), mixed, both)
    yield SiteStudy("intercepts that vary, 10 sites of 100 rows", around_sites(10, 100, 0.0), mixed, both)
    halves = {"beta = 0.5": {0: 0.5}, "-0.25": {1: -0.25}, "0": {2: 0.0}}
    for kind, family, truth in (("logistic", "binomial", both), ("Poisson", "poisson", halves)):
        name = f"mixed {kind}, intercepts that vary, 20 sites of 50 rows"
        yield MixedStudy(name, labels_around_sites(20, 50, kind), FederatedMixedGLM(family), truth)
    at = (10, 70, 200)
    survives = {f"{day} days": {i: float(np.exp(-day / 100))} for i, day in enumerate(at)}
    for n in (100, 400):
        yield CurveStudy(f"survival, n = {n}", days(n), None, survives | {"median": {3: 70.0}}, days=at)


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
