"""Sparse rows: processor seconds of a path of 100 strengths with 5-fold cross-validation, beside pooled tools'.

    python -m benchmarks.sparse [linear|logistic] [--rows 100000] [--features 500] [--density 0.02] [--dense]

Four sites in one process; the fit is made twice, and the second has its programs compiled. On the pooled sparse rows,
glmnet's is cv.glmnet (needs Rscript with glmnet and Matrix; left out without), and scikit-learn's LassoCV (it has no
path of logistic models). `--dense` fits the same rows as an array.
"""

import argparse
import resource
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np
import scipy.sparse
from sklearn.linear_model import LassoCV

from cofed.estimators import FederatedLassoCV, FederatedLogisticRegressionCV

SCRIPT = """
suppressMessages({library(glmnet); library(Matrix)})
asked <- commandArgs(TRUE)
folder <- asked[1]; n <- as.integer(asked[2]); p <- as.integer(asked[3]); stored <- as.integer(asked[4])
numbers <- function(name, what, count) readBin(file.path(folder, name), what, count)
X <- sparseMatrix(i = numbers("i", "integer", stored), j = numbers("j", "integer", stored),
                  x = numbers("x", "double", stored), dims = c(n, p))
y <- numbers("y", "double", n)
taken <- system.time(cv.glmnet(X, y, family = asked[5], nfolds = 5))
cat(sum(taken[c("user.self", "sys.self")]), as.character(packageVersion("glmnet")))
"""


def by_glmnet(held: scipy.sparse.coo_array, y: np.ndarray, family: str) -> str:
    """glmnet's seconds, in words."""
    if shutil.which("Rscript") is None:
        return "glmnet: Rscript is not here"
    features = int(held.col.max()) + 1
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (held.row + 1).astype(np.int32).tofile(folder / "i")
        (held.col + 1).astype(np.int32).tofile(folder / "j")
        held.data.tofile(folder / "x")
        np.asarray(y, np.float64).tofile(folder / "y")
        (folder / "cv.R").write_text(SCRIPT)
        words = ["Rscript", str(folder / "cv.R"), name, str(len(y)), str(features), str(held.nnz), family]
        found = subprocess.run(words, capture_output=True, text=True)
    if found.returncode:
        return f"glmnet: {found.stderr.strip()}"
    seconds, version = found.stdout.split()
    return f"cv.glmnet {version}: {float(seconds):.1f} s"


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
    rows = X.toarray() if asked.dense else X
    if asked.family == "linear":
        y, kind = z + rng.normal(size=asked.rows), FederatedLassoCV
    else:
        y, kind = z + rng.logistic(size=asked.rows) > 0, FederatedLogisticRegressionCV
    for what in ("cofed, with compilation", "cofed"):
        began = time.process_time()
        model = kind(cv=5).fit(rows, y, clients=sites)
        taken = time.process_time() - began
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"{what}: {taken:.1f} s, {model.certificate_.outcome}, {model.n_rounds_} exchanges, peak {peak:.0f} MB",
            flush=True,
        )
    print(by_glmnet(scipy.sparse.coo_array(X), y, "gaussian" if asked.family == "linear" else "binomial"), flush=True)
    if asked.family == "linear":
        began = time.process_time()
        LassoCV(cv=5).fit(X, y)
        print(f"scikit-learn: {time.process_time() - began:.1f} s")


if __name__ == "__main__":
    main()
