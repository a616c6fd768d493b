"""The estimators beside scikit-learn and skglm on the pooled rows, as tables.

    python -m benchmarks.estimators agreement [--data DIR]   coefficients, suboptimality and certificate, rounds, bytes
    python -m benchmarks.estimators path                     a 100-point path: n = 10,000, p = 1,000, 10 sites

DIR holds rand-health.parquet (default: the variable COFED_DATA, or ../shared/data). Times are of a second call
in the same process, so without compilation, which is printed apart.
"""

import argparse
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import ElasticNet, Lasso, LogisticRegression, PoissonRegressor

from cofed.estimators import FederatedElasticNet, FederatedLasso, FederatedLogisticRegression, FederatedPoisson

EXACT = {"tol": 1e-15, "max_iter": 10**6}
ALGORITHMS = ("auto", "fista", "decouple")
MOST_ROUNDS = 5000  # what is not certified by then is said so


def unequal(n, sites, seed=0):
    """Whose each row is: one large site and ever smaller ones."""
    share = 0.5 ** np.arange(sites)
    return np.random.default_rng(seed).permutation(np.searchsorted(np.cumsum(share / share.sum()), np.arange(n) / n))


def synthetic(n, p, rho, seed, shift=1.0, sites=5, equal=False):
    """Features with correlation rho^|i - j| and site-specific means; a sparse truth."""
    rng = np.random.default_rng(seed)
    whose = np.arange(n) % sites if equal else unequal(n, sites)
    X = rng.normal(size=(n, p))
    for j in range(1, p):
        X[:, j] = rho * X[:, j - 1] + np.sqrt(1 - rho**2) * X[:, j]
    X += shift * rng.normal(size=(sites, p))[whose]
    w = np.zeros(p)
    w[: min(10, p)] = rng.normal(size=min(10, p))
    return X, X @ w + rng.normal(size=n), whose


def standardised(X):
    """Columns of mean 0 and variance 1, so that one strength fits all features."""
    return (X - X.mean(axis=0)) / X.std(axis=0)


def lasso_reference(X, y, alpha):
    fit = Lasso(alpha, **EXACT).fit(X, y)
    return fit.coef_, fit.intercept_


def logistic_reference(X, y, alpha):
    from skglm import SparseLogisticRegression

    fit = SparseLogisticRegression(alpha, tol=1e-14, max_iter=1000, max_epochs=100_000).fit(np.asfortranarray(X), y)
    return fit.coef_, fit.intercept_


def problems(data):
    """(name, estimator, X, y, sites, reference coefficients) of every problem; penalties as scikit-learn has them."""
    plain = {"standardize": False}
    X, y, s = synthetic(1000, 50, 0.3, 0, equal=True)
    yield "dense, balanced", FederatedLasso(0.1, **plain), X, y, s, lasso_reference(X, y, 0.1)
    X, y, s = synthetic(1000, 50, 0.3, 1, shift=3.0, sites=8)
    yield "unequal, shifted means", FederatedLasso(0.1, **plain), X, y, s, lasso_reference(X, y, 0.1)
    X, y, s = synthetic(1000, 100, 0.95, 2)
    yield "correlated (0.95)", FederatedLasso(0.05, **plain), X, y, s, lasso_reference(X, y, 0.05)
    X, y, s = synthetic(200, 1000, 0.5, 3, shift=0.3)
    yield "p = 1000 > n = 200", FederatedLasso(0.2, **plain), X, y, s, lasso_reference(X, y, 0.2)
    X, y = load_diabetes(return_X_y=True, scaled=False)
    Z, s = standardised(X), unequal(len(y), 5)
    yield "diabetes", FederatedLasso(1.0, **plain), Z, y, s, lasso_reference(Z, y, 1.0)
    reference = ElasticNet(0.1, l1_ratio=0.5, **EXACT).fit(Z, y)
    net = FederatedElasticNet(0.1, l1_ratio=0.5, **plain)
    yield "diabetes, elastic net", net, Z, y, s, (reference.coef_, reference.intercept_)
    X, y = load_breast_cancer(return_X_y=True)
    Z, s = standardised(X), unequal(len(y), 6)
    logistic = FederatedLogisticRegression(0.005, **plain)
    yield "breast cancer, logistic", logistic, Z, y, s, logistic_reference(Z, y, 0.005)
    X, y = load_digits(return_X_y=True)
    s = unequal(len(y), 5)
    pair = np.isin(y, (3, 8))
    logistic = FederatedLogisticRegression(0.005, **plain)
    reference = logistic_reference(X[pair] / 16, y[pair] == 8, 0.005)
    yield "digits 3 or 8, logistic", logistic, X[pair] / 16, y[pair], s[pair], reference
    ridge = FederatedLogisticRegression(0.01, penalty="elasticnet", l1_ratio=0.0, **plain)
    reference = LogisticRegression(C=1 / (0.01 * len(y)), solver="newton-cg", tol=1e-12, max_iter=10_000).fit(X / 16, y)
    yield "digits, 10 classes, ridge", ridge, X / 16, y, s, (reference.coef_, reference.intercept_)
    health = data / "rand-health.parquet"
    if not health.exists():
        print(f"(without rand-health: there is no {health})")
        return
    df = pd.read_parquet(health)
    yield from rand_health(df)


def rand_health(df):
    """Log spending and any spending, by site; visits to a doctor as counts."""
    drop = {"site", "person", "lnmeddol", "binexp", "mdvis", "meddol"}
    numeric = [c for c in df.columns if c not in drop and pd.api.types.is_numeric_dtype(df[c])]
    numeric = [c for c in numeric if df[c].notna().all() and df[c].std() > 0]
    some = df[df.lnmeddol.notna()]
    Z = standardised(some[numeric].to_numpy(float))
    y = some.lnmeddol.to_numpy(float)
    lasso = FederatedLasso(0.01, standardize=False)
    yield f"rand-health, {len(numeric)} features", lasso, Z, y, some.site.to_numpy(), lasso_reference(Z, y, 0.01)
    Z, y, s = standardised(df[numeric].to_numpy(float)), df.binexp.to_numpy(int), df.site.to_numpy()
    logistic = FederatedLogisticRegression(0.005, standardize=False)
    yield "rand-health, any spending", logistic, Z, y, s, logistic_reference(Z, y, 0.005)
    if "mdvis" in df:
        y = df.mdvis.to_numpy(float)
        reference = PoissonRegressor(alpha=0.01, solver="newton-cholesky", tol=1e-12, max_iter=1000).fit(Z, y)
        poisson = FederatedPoisson(0.01, l1_ratio=0.0, standardize=False)
        yield "rand-health, visits, ridge", poisson, Z, y, s, (reference.coef_, reference.intercept_)


def agreement(data):
    """The table of agreement and of what each algorithm sends for a certified answer."""
    rows = []
    for name, model, X, y, sites, (coef, _) in problems(data):
        least, seen = np.inf, []
        for algorithm in ALGORITHMS:
            began = time.perf_counter()
            model.set_params(algorithm=algorithm, max_rounds=MOST_ROUNDS).fit(X, y, clients=sites)
            least = min(least, model.certificate_.objective)
            error = np.abs(model.coef_ - coef).max() / np.abs(coef).max()
            certificate = model.certificate_
            seen.append((algorithm, model.algorithm_, error, certificate, model.n_rounds_, model.bytes_))
            print(f"  {name}: {algorithm} {time.perf_counter() - began:.1f} s", flush=True)
        for algorithm, used, error, certificate, rounds, sent in seen:
            rows.append(
                {
                    "problem": name,
                    "algorithm": f"{algorithm} ({used})" if algorithm == "auto" else algorithm,
                    "coef. error": f"{error:.1e}",
                    "suboptimality": f"{certificate.objective - least:.1e}",
                    "gap": f"{certificate.gap:.1e}",
                    "certified": "yes" if certificate.converged else "no",
                    "rounds": rounds,
                    "kB": round(sent / 1000, 1),
                }
            )
    print(pd.DataFrame(rows).to_markdown(index=False) if has_tabulate() else pd.DataFrame(rows).to_string(index=False))


def has_tabulate():
    """Whether pandas can write Markdown."""
    try:
        import tabulate  # noqa: F401
    except ImportError:
        return False
    return True


def path():
    """Seconds of a 100-point path, cofed's over 10 sites and skglm's on the pooled rows."""
    from skglm import Lasso as Skglm

    rng = np.random.default_rng(0)
    n, p = 10_000, 1000
    X = rng.normal(size=(n, p))
    y = X[:, :50] @ rng.normal(size=50) + 3 * rng.normal(size=n)
    sites = np.arange(n) % 10
    model = FederatedLasso(standardize=False)
    seconds = []
    for _ in range(2):
        began = time.perf_counter()
        ours = model.path(X, y, sites)
        seconds.append(time.perf_counter() - began)
    solver = Skglm(tol=1e-6)
    solver.path(np.asfortranarray(X[:200]), y[:200], ours.alphas[:5])  # compiles
    began = time.perf_counter()
    theirs = solver.path(np.asfortranarray(X), y, ours.alphas)
    skglm = time.perf_counter() - began
    gap, last = np.max(ours.gaps) / (y.var() / 2), ours.nonzero[-1]
    print(f"cofed   {seconds[1]:6.2f} s (first call {seconds[0]:.2f} s)")
    print(
        f"        {ours.n_rounds} rounds, {ours.bytes / 1e6:.1f} MB, gap <= {gap:.1e} of the null loss, {last} in use"
    )
    print(f"skglm   {skglm:6.2f} s (tol=1e-6)   ratio {seconds[1] / skglm:.2f}")
    difference = np.abs(ours.coefs.T - theirs[1][:p]).max()
    print(f"largest difference of coefficients {difference:.1e}")


def main():
    """One of the two."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["agreement", "path"])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("COFED_DATA", "../shared/data")))
    options = parser.parse_args()
    # What does not reach its precision is in the table; numba's advice to skglm is not ours.
    warnings.simplefilter("ignore", ConvergenceWarning)
    warnings.filterwarnings("ignore", message="'@' is faster on contiguous arrays")
    if options.what == "agreement":
        agreement(options.data)
    else:
        path()


if __name__ == "__main__":
    main()
