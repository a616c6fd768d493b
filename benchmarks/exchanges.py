"""How often a path of 100 strengths with 5-fold cross-validation asks the sites, and what it sends: a table.

    python -m benchmarks.exchanges [WORD ...]               the problems whose names have one of the words; all without
    python -m benchmarks.exchanges --processes [WORD ...]   over real processes, four sites on loopback, over Flower

In this process. Certified: how many of the 100 models of the path have a gap of at most 1e-12 of the null model's loss;
the others are limited by rounding. Largest: the largest gap of the path beside that loss. Seconds are of this process,
with compilation. The last columns are of one fit, at a hundredth of the largest strength.
A second table has analyses that are no paths: mixed models, meta-analyses, curves of survival. Where each site is
asked by itself, an exchange is one question to one site.

Over processes. Megabytes are those of all sites as they are sent, masked. Difference: the largest one between the
coefficients of the path there and in this process, beside the largest coefficient. CPU: of all processes together.
"""

import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

import cofed
from cofed import Gamma, Huber, NegativeBinomial, SmoothQuantile, Tweedie
from cofed.estimators import (
    FederatedCox,
    FederatedCoxCV,
    FederatedGLM,
    FederatedGLMCV,
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedMixedGLM,
    FederatedMixedModel,
    FederatedMultiTaskLasso,
    FederatedMultiTaskLassoCV,
    FederatedPoisson,
    FederatedPoissonCV,
)
from cofed.losses import AbstractLoss
from cofed.sites import ExchangeTotal, totals

SITES = 4
Kinds = tuple[Callable[..., BaseEstimator], Callable[..., BaseEstimator]]  # of a path, and of one fit
LOGISTIC = (FederatedLogisticRegressionCV, FederatedLogisticRegression)
POISSON = (FederatedPoissonCV, FederatedPoisson)
LINEAR = (FederatedLassoCV, FederatedLasso)
BY_SITE = (
    partial(FederatedLogisticRegressionCV, site_effects="fixed"),
    partial(FederatedLogisticRegression, site_effects="fixed"),
)
COX = (FederatedCoxCV, FederatedCox)
RESPONSES = (FederatedMultiTaskLassoCV, FederatedMultiTaskLasso)


def of_family(loss: AbstractLoss) -> Kinds:
    """The estimators of a family."""
    return partial(FederatedGLMCV, loss), partial(FederatedGLM, loss)


def correlated(rng, n, p, rho):
    """Features with correlation rho^|i - j|."""
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    return X


def some(rng, p, used, size=1.0):
    """Coefficients of which a few are not zero."""
    w = np.zeros(p)
    w[:used] = size * rng.normal(size=used)
    return w


def classes(rng, z):
    """Labels with these log odds."""
    return (rng.random(len(z)) < 1 / (1 + np.exp(-z))).astype(int)


def problems(seed=0):
    """(name, estimators, X, y) of every problem."""
    rng = np.random.default_rng(seed)
    X = correlated(rng, 1000, 50, 0.5)
    yield "logistic 1000 x 50", LOGISTIC, X, classes(rng, X @ some(rng, 50, 10))
    X = correlated(rng, 5000, 40, 0.3)
    yield "logistic 5000 x 40, rare class", LOGISTIC, X, classes(rng, 0.8 * X[:, :5].sum(axis=1) - 6)
    X = correlated(rng, 2000, 100, 0.95)
    yield "logistic 2000 x 100, correlation 0.95", LOGISTIC, X, classes(rng, X[:, ::10].sum(axis=1))
    X = correlated(rng, 300, 20, 0.3)
    yield "logistic 300 x 20, separable", LOGISTIC, X, (X[:, :5].sum(axis=1) > 0).astype(int)
    X = correlated(rng, 252, 750, 0.5)
    yield "logistic 252 x 750", LOGISTIC, X, classes(rng, X @ some(rng, 750, 10))
    X = correlated(rng, 1000, 50, 0.3)
    yield "Poisson 1000 x 50", POISSON, X, rng.poisson(np.exp(X @ some(rng, 50, 10, 0.3) + 0.5)).astype(float)
    X = np.exp(correlated(rng, 1000, 30, 0.3))
    mean = np.exp(np.minimum(0.2 * X[:, :5].sum(axis=1) - 1, 6))
    yield "Poisson 1000 x 30, lognormal features", POISSON, X, rng.poisson(mean).astype(float)
    X = correlated(rng, 1000, 20, 0.3)
    score = X[:, :6] @ rng.normal(size=(6, 4)) + rng.gumbel(size=(1000, 4))
    yield "multinomial 1000 x 20, 4 classes", LOGISTIC, X, score.argmax(axis=1)
    for n, p in ((1000, 50), (2000, 500), (4000, 1000), (1000, 5000)):
        X = correlated(rng, n, p, 0.5)
        yield f"linear {n} x {p}", LINEAR, X, X @ some(rng, p, 10) + 3 * rng.normal(size=n)
    X = correlated(rng, 4000, 600, 0.5)
    yield "logistic 4000 x 600", LOGISTIC, X, classes(rng, X @ some(rng, 600, 10))
    yield from problems_of_families()


def problems_of_families(seed=1):
    """Those of other families, all of 1000 x 50 with ten features that matter."""
    rng = np.random.default_rng(seed)
    X = correlated(rng, 1000, 50, 0.3)
    z, site = X @ some(rng, 50, 10, 0.3), np.arange(1000) % SITES
    event, end = rng.exponential(np.exp(-z)), rng.exponential(1.5, 1000)
    yield "Cox 1000 x 50", COX, X, np.column_stack([np.minimum(event, end), event <= end])
    yield "Gamma 1000 x 50", of_family(Gamma()), X, rng.gamma(2.0, np.exp(z) / 2)
    many = rng.poisson(2 * np.exp(z / 2))  # amounts of 2 exp(z / 2): power 1.5
    sums = np.where(many > 0, rng.gamma(np.maximum(many, 1), np.exp(z / 2) / 2), 0.0)
    yield "Tweedie 1000 x 50", of_family(Tweedie(1.5)), X, sums
    counts = rng.poisson(np.exp(0.5 + z) * rng.gamma(2.0, 0.5, 1000)).astype(float)
    yield "negative binomial 1000 x 50, theta estimated", of_family(NegativeBinomial()), X, counts
    heavy = z + rng.standard_t(3, size=1000)
    yield "Huber 1000 x 50", of_family(Huber(1.35)), X, heavy
    yield "smooth quantile 1000 x 50, the median, width 0.3", of_family(SmoothQuantile(0.5, 0.3)), X, heavy
    responses = np.outer(z, [1.0, -2.0, 0.5]) + rng.normal(size=(1000, 3))
    yield "three responses 1000 x 50", RESPONSES, X, responses
    yield "logistic 1000 x 50, an intercept for each site", BY_SITE, X, classes(rng, z + 0.5 * site)


def analyses(seed=2):
    """(name, what does it, and tells its exchanges and what came out) of every analysis that is no path."""
    rng = np.random.default_rng(seed)
    site, X = np.arange(2000) % 20, rng.normal(size=(2000, 10))
    z = 0.3 * X[:, :4].sum(axis=1) + rng.normal(size=20)[site] * 0.5 + 0.3 * rng.normal(size=20)[site] * X[:, 0]
    end = rng.exponential(1.5, 2000)
    event = rng.exponential(np.exp(-z))
    days = pd.DataFrame({"days": np.ceil(50 * np.minimum(event, end)), "dead": (event <= end) * 1})
    labels = {
        "gaussian": z + rng.normal(size=2000),
        "binomial": classes(rng, z),
        "poisson": rng.poisson(np.exp(z)).astype(float),
        "cox": np.column_stack([np.minimum(event, end), event <= end]),
    }
    mixed = (("mixed model", "gaussian"), ("mixed GLM, binomial", "binomial"), ("mixed GLM, Poisson", "poisson"))
    for name, family in mixed:
        for slopes, more in ((None, ""), ([0], ", a slope that varies")):
            kind = FederatedMixedModel if family == "gaussian" else partial(FederatedMixedGLM, family)
            yield f"{name}{more}, 20 sites, 2000 x 10", partial(mixed_fit, kind(slopes=slopes), X, labels[family], site)
    for family, y in labels.items():
        yield f"meta-analysis, {family}, 20 sites, 2000 x 10", partial(combined, family, X, y, site)
    frame = days.assign(site=site, arm=np.where(rng.random(2000) < 0.5, "a", "b"))
    yield "survival curves of two groups with the log-rank tests, 20 sites, 2000 rows", partial(curves, frame)


def mixed_fit(model, X, y, site) -> tuple[tuple[ExchangeTotal, ...], int, str]:
    """Of a mixed model."""
    model.fit(X, y, clients=site)
    return model.exchanges_, len(model.clients_), "at the greatest likelihood" if model.is_settled_ else "not settled"


def combined(family, X, y, site) -> tuple[tuple[ExchangeTotal, ...], int, str]:
    """Of a meta-analysis."""
    found = cofed.meta_analysis(family, X, y, clients=site)
    return found.exchanges, found.sites.site.nunique(), f"{int(found.table.sites.min())} sites with estimates"


def curves(frame) -> tuple[tuple[ExchangeTotal, ...], int, str]:
    """Of Kaplan and Meier's curves."""
    found = cofed.survival_curves(frame, "days", "dead", group="arm", client="site")
    exact = "exact" if found.resolution == 0 else f"rounded by {found.resolution:g}"
    return totals(found.exchanges), len(found.sites), f"{exact}, {len(found.table)} lines"


def analysed(name: str, analysis: Callable[[], tuple[tuple[ExchangeTotal, ...], int, str]]) -> dict[str, object]:
    """The row of an analysis."""
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        asked, sites, outcome = analysis()
    return {
        "analysis": name,
        "exchanges": sum(one.rounds for one in asked),
        "what": ", ".join(f"{one.rounds} {one.what}" for one in asked),
        "MB up, a site": f"{sum(one.up for one in asked) / sites / 1e6:.3f}",
        "seconds": round(time.perf_counter() - began, 1),
        "it is": outcome,
    }


def measured(name: str, kinds: Kinds, X: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """The row of a problem."""
    many, single = kinds
    sites = np.arange(len(y)) % SITES
    model = many(eps=1e-2 if X.shape[1] > len(y) else 1e-3)
    began = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X, y, clients=sites)
        seconds = time.perf_counter() - began
        one = single(alpha=model.alphas_[0] / 100).fit(X, y, clients=sites)
    return {
        "problem": name,
        "exchanges": model.n_rounds_,
        "MB up, a site": round(sum(e.up for e in model.exchanges_) / SITES / 1e6, 1),
        "seconds": round(seconds, 1),
        "certified": int(model.path_.converged.sum()),
        "largest": f"{np.max(model.path_.gaps) / model.certificate_.scale:.0e}",
        "one fit": one.n_rounds_,
        "it is": one.certificate_.outcome,
    }


def over_processes(name: str, kinds: Kinds, X: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """The row of a problem, over sites that are processes of their own."""
    from cofed.flower import ChosenColumns, start_sites

    columns, sites = [f"x{j}" for j in range(X.shape[1])], np.arange(len(y)) % SITES
    model = kinds[0](eps=1e-2 if X.shape[1] > len(y) else 1e-3)
    frames = {f"site{m}": pd.DataFrame(X[sites == m], columns=columns).assign(y=y[sites == m]) for m in range(SITES)}
    before, began = os.times(), time.perf_counter()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        chosen = ChosenColumns("y", tuple(columns))
        with start_sites(frames, Path(folder), chosen, patience=3600.0) as far:
            there, ready = time.perf_counter(), len(far.exchanges)
            found = model.fit(far)
            seconds, asked = time.perf_counter() - there, list(far.exchanges)[ready:]
            coefs, gaps = found.path_.coefs, np.max(found.path_.gaps) / found.certificate_.scale
        used = sum(np.subtract(os.times()[:4], before[:4]))
        near = model.fit(X, y, clients=np.array([f"site{m}" for m in sites])).path_.coefs
    return {
        "problem": name,
        "exchanges": len(asked),
        "MB down": round(sum(one.down for one in asked) / 1e6, 1),
        "MB up": round(sum(one.up for one in asked) / 1e6, 1),
        "until the sites are there, s": round(there - began),
        "the fit, s": round(seconds),
        "an exchange, s (median)": round(float(np.median([one.seconds for one in asked])), 1),
        "CPU, s": round(used),
        "largest gap": f"{gaps:.0e}",
        "difference": f"{np.max(np.abs(coefs - near)) / np.max(np.abs(near)):.0e}",
    }


def tabled(rows: Iterator[dict[str, object]]) -> None:
    """Print a table, row by row."""
    for place, row in enumerate(rows):
        if place == 0:
            print("| " + " | ".join(row) + " |\n|" + " --- |" * len(row))
        print("| " + " | ".join(map(str, row.values())) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    words = [word for word in sys.argv[1:] if word != "--processes"]
    is_far = len(words) < len(sys.argv) - 1
    measure = over_processes if is_far else measured
    is_asked = lambda name: not words or any(word in name for word in words)  # noqa: E731
    tabled(measure(*problem) for problem in problems() if is_asked(problem[0]))
    if not is_far:
        tabled(analysed(*analysis) for analysis in analyses() if is_asked(analysis[0]))


if __name__ == "__main__":
    main()
