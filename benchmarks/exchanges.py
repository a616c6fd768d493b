"""How often a path of 100 strengths with 5-fold cross-validation asks the sites, and what it sends: a table.

    python -m benchmarks.exchanges [WORD ...]               the problems whose names have one of the words; all without
    python -m benchmarks.exchanges --processes [WORD ...]   over real processes, four sites on loopback, over Flower

In this process. Certified: how many of the 100 models of the path have a gap of at most 1e-12 of the null model's loss;
the others are limited by rounding. Largest: the largest gap of the path beside that loss. Seconds are of this process,
with compilation. The last columns are of one fit, at a hundredth of the largest strength.

Over processes. Megabytes are those of all sites as they are sent, masked. Difference: the largest one between the
coefficients of the path there and in this process, beside the largest coefficient. CPU: of all processes together.
"""

import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.base import BaseEstimator

from cofed.estimators import (
    FederatedLasso,
    FederatedLassoCV,
    FederatedLogisticRegression,
    FederatedLogisticRegressionCV,
    FederatedPoisson,
    FederatedPoissonCV,
)

SITES = 4
LOGISTIC = (FederatedLogisticRegressionCV, FederatedLogisticRegression)
POISSON = (FederatedPoissonCV, FederatedPoisson)
LINEAR = (FederatedLassoCV, FederatedLasso)


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


def measured(name: str, kinds: tuple[type[BaseEstimator], ...], X: np.ndarray, y: np.ndarray) -> dict[str, object]:
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


def over_processes(
    name: str, kinds: tuple[type[BaseEstimator], ...], X: np.ndarray, y: np.ndarray
) -> dict[str, object]:
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


def main() -> None:
    """Print the table, row by row."""
    words = [word for word in sys.argv[1:] if word != "--processes"]
    measure = over_processes if len(words) < len(sys.argv) - 1 else measured
    heading = True
    for name, kinds, X, y in problems():
        if words and not any(word in name for word in words):
            continue
        row = measure(name, kinds, X, y)
        if heading:
            print("| " + " | ".join(row) + " |\n|" + " --- |" * len(row))
            heading = False
        print("| " + " | ".join(map(str, row.values())) + " |", flush=True)


if __name__ == "__main__":
    main()
