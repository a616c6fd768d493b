"""Sparse rows: processor seconds of a path of 100 strengths with 5-fold cross-validation, beside pooled tools'.

    python -m benchmarks.sparse [linear|logistic] [--rows 100000] [--features 500] [--density 0.02] [--dense]

Four sites in one process; the fit is made twice, and the second has its programs compiled. The others get the pooled
rows and cofed's 100 strengths: R's cv.glmnet (needs Rscript with glmnet and Matrix; left out without), once with these
and once with strengths of its own; scikit-learn's LassoCV (it has no path of logistic models); and skglm's path of all
rows and of those without each fold, one after another (it has no cross-validation), to a tolerance of 1e-6. `--dense`
gives every one of them the same rows as an array: R a matrix, in place of a sparse one.
"""

import argparse
import resource
import shutil
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import scipy.sparse
from sklearn.linear_model import LassoCV
from sklearn.model_selection import KFold

from cofed.estimators import FederatedLassoCV, FederatedLogisticRegressionCV

SCRIPT = """
suppressMessages({library(glmnet); library(Matrix)})
asked <- commandArgs(TRUE)
folder <- asked[1]; n <- as.integer(asked[2]); p <- as.integer(asked[3]); stored <- as.integer(asked[4])
numbers <- function(name, what, count) readBin(file.path(folder, name), what, count)
if (stored == 0) {
  X <- matrix(numbers("x", "double", n * p), n)
} else {
  X <- sparseMatrix(i = numbers("i", "integer", stored), j = numbers("j", "integer", stored),
                    x = numbers("x", "double", stored), dims = c(n, p))
}
y <- numbers("y", "double", n); strengths <- numbers("strengths", "double", as.integer(asked[6]))
seconds <- function(...) {
  taken <- system.time(cv.glmnet(X, y, family = asked[5], nfolds = 5, ...))
  sum(taken[c("user.self", "sys.self")])
}
cat(seconds(lambda = strengths), seconds(), as.character(packageVersion("glmnet")))
"""
FOLDS = 5

Rows = np.ndarray | scipy.sparse.csr_array


def by_glmnet(X: Rows, y: np.ndarray, family: str, strengths: np.ndarray) -> str:
    """glmnet's seconds, in words."""
    if shutil.which("Rscript") is None:
        return "glmnet: Rscript is not here"
    with tempfile.TemporaryDirectory() as name:
        folder, stored = Path(name), 0
        if isinstance(X, np.ndarray):
            X.T.astype(np.float64, order="C").tofile(folder / "x")
        else:
            held = scipy.sparse.coo_array(X)
            stored = held.nnz
            (held.row + 1).astype(np.int32).tofile(folder / "i")
            (held.col + 1).astype(np.int32).tofile(folder / "j")
            held.data.tofile(folder / "x")
        np.asarray(y, np.float64).tofile(folder / "y")
        np.asarray(strengths, np.float64).tofile(folder / "strengths")
        (folder / "cv.R").write_text(SCRIPT)
        numbers = [*X.shape, stored, family, len(strengths)]
        words = ["Rscript", str(folder / "cv.R"), name, *map(str, numbers)]
        found = subprocess.run(words, capture_output=True, text=True)
    if found.returncode:
        return f"glmnet: {found.stderr.strip()}"
    given, own, version = found.stdout.split()
    return f"cv.glmnet {version}: {float(given):.1f} s, with strengths of its own {float(own):.1f} s"


def by_sklearn(X: Rows, y: np.ndarray, strengths: np.ndarray) -> str:
    """The seconds of scikit-learn's LassoCV, in words."""
    began = time.process_time()
    LassoCV(alphas=strengths, cv=FOLDS).fit(X, y)
    return f"scikit-learn: {time.process_time() - began:.1f} s"


def by_skglm(X: Rows, y: np.ndarray, family: str, strengths: np.ndarray) -> str:
    """The seconds of skglm's paths of all rows and of those without each fold, in words; without compilation."""
    try:
        from skglm.datafits import Logistic, Quadratic
        from skglm.penalties import L1
        from skglm.solvers import AndersonCD, ProxNewton
    except ImportError:
        return "skglm: it is not here"
    signs = y if family == "gaussian" else np.where(y > 0, 1.0, -1.0)
    solver = AndersonCD if family == "gaussian" else ProxNewton

    def path(rows: np.ndarray, alphas: np.ndarray) -> None:
        own = np.asfortranarray(X[rows]) if isinstance(X, np.ndarray) else scipy.sparse.csc_matrix(X[rows])
        solved = solver(tol=1e-6, fit_intercept=True)
        datafit, penalty = (Quadratic() if family == "gaussian" else Logistic()), L1(1.0)
        if isinstance(solved, AndersonCD):
            solved.path(own, signs[rows], datafit, penalty, alphas)
            return
        w = np.zeros(X.shape[1] + 1)
        for alpha in alphas:
            penalty.alpha = float(alpha)
            w = solved.solve(own, signs[rows], datafit, penalty, w, own @ w[:-1] + w[-1])[0]

    everyone = np.arange(len(y))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path(everyone[:200], strengths)  # compiles
        began = time.process_time()
        for rows in (everyone, *(some for some, _ in KFold(FOLDS).split(everyone))):
            path(rows, strengths)
    return f"skglm: {time.process_time() - began:.1f} s"


def main() -> None:
    """Print a line for every fit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("family", nargs="?", default="linear", choices=("linear", "logistic"))
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--features", type=int, default=500)
    parser.add_argument("--density", type=float, default=0.02)
    parser.add_argument("--dense", action="store_true")
    asked = parser.parse_args()
    rng = np.random.default_rng(0)
    X = scipy.sparse.random_array((asked.rows, asked.features), density=asked.density, rng=rng, format="csr")
    truth = np.where(np.arange(asked.features) < 20, rng.normal(size=asked.features) * 2, 0)
    z, sites = X @ truth, np.arange(asked.rows) % 4
    X = X.toarray() if asked.dense else X
    if asked.family == "linear":
        y, kind, family = z + rng.normal(size=asked.rows), FederatedLassoCV, "gaussian"
    else:
        y, kind, family = z + rng.logistic(size=asked.rows) > 0, FederatedLogisticRegressionCV, "binomial"
    for what in ("cofed, with compilation", "cofed"):
        began = time.process_time()
        model = kind(cv=FOLDS).fit(X, y, clients=sites)
        taken = time.process_time() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{what}: {taken:.1f} s, {model.certificate_.outcome}, {model.n_rounds_} exchanges, peak {peak:.0f} MB",
            flush=True,
        )
    print(by_glmnet(X, y, family, model.alphas_), flush=True)
    if family == "gaussian":
        # The penalty is on standardised features for cofed and glmnet alone.
        print(by_sklearn(X, y, model.alphas_ * np.median(model.path_.scale)), flush=True)
    print(by_skglm(X, y, family, model.alphas_ * np.median(model.path_.scale)), flush=True)


if __name__ == "__main__":
    main()
