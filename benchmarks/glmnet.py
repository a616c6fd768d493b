"""The estimators over four sites beside R's glmnet on the pooled rows, as a table.

    python -m benchmarks.glmnet [WORD ...]    the problems whose names have one of the words; all without

Needs Rscript with the package glmnet (Debian: r-cran-glmnet). Both fit the same path of 100 strengths, cofed's, with
5-fold cross-validation. A fold is not the same on both sides, so that what is compared are the paths: the largest
difference of coefficients over all strengths, beside the largest coefficient, once with glmnet's own threshold and once
with `thresh = 1e-20`. Seconds are processor time: cofed's of a new process without kept programs, with and without
compilation (a second fit); R's of `cv.glmnet` as it comes, and with that threshold. Ratios are without compilation.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np

from benchmarks.exchanges import SITES, problems

R = r"""
suppressMessages(library(glmnet))
args <- commandArgs(TRUE)
about <- jsonlite::fromJSON(file.path(args[1], "about.json"))
numbers <- function(name, n) readBin(file.path(args[1], name), "double", n)
X <- matrix(numbers("X", about$n * about$p), about$n)
y <- numbers("y", about$n)
alphas <- numbers("alphas", about$strengths)
if (about$family == "multinomial") y <- factor(y)
spent <- function(thresh) {
  given <- list(X, y, family = about$family, lambda = alphas, nfolds = 5, thresh = thresh, maxit = 1e7)
  taken <- system.time(do.call(cv.glmnet, given))
  sum(taken[c("user.self", "sys.self")])
}
for (name in c("usual", "exact")) {
  thresh <- if (name == "exact") 1e-20 else 1e-7
  fit <- glmnet(X, y, family = about$family, lambda = alphas, thresh = thresh, maxit = 1e7)
  beta <- if (about$family == "multinomial") do.call(rbind, lapply(fit$beta, as.matrix)) else as.matrix(fit$beta)
  writeBin(as.vector(beta), file.path(args[1], name))
}
cat(spent(1e-7), spent(1e-20), as.character(packageVersion("glmnet")))
"""
# How a problem's name begins, and what glmnet calls its family.
FAMILIES = {"logistic": "binomial", "Poisson": "poisson", "multinomial": "multinomial", "linear": "gaussian"}
CLASSES = 4  # of the multinomial problem


def here(name: str) -> dict[str, object]:
    """A fit in this process, which should be new: seconds with compilation and without, strengths and the path."""
    found = next(one for one in problems() if one[0] == name)
    _, (kind, _), X, y = found
    seconds = []
    for _ in range(2):
        model, began = kind(eps=1e-2 if X.shape[1] > len(y) else 1e-3), time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X, y, clients=np.arange(len(y)) % SITES)
        seconds.append(time.process_time() - began)
    return {"seconds": seconds, "alphas": model.alphas_.tolist(), "coefs": model.path_.coefs.tolist()}


def there(
    X: np.ndarray, y: np.ndarray, family: str, alphas: np.ndarray
) -> tuple[tuple[float, float], str, dict[str, np.ndarray]]:
    """glmnet's seconds with both thresholds, its version, and its paths (strengths, then coefficients by class)."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        about = {"n": len(y), "p": X.shape[1], "strengths": len(alphas), "family": family}
        (folder / "about.json").write_text(json.dumps(about))
        (folder / "fit.R").write_text(R)
        for file, values in {"X": X.T, "y": y, "alphas": alphas}.items():
            (folder / file).write_bytes(np.ascontiguousarray(values, float).tobytes())
        command = ["Rscript", str(folder / "fit.R"), name]
        usual, exact, version = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        paths = {one: np.fromfile(folder / one).reshape(len(alphas), -1) for one in ("usual", "exact")}
    return (float(usual), float(exact)), version, paths


def row(name: str, X: np.ndarray, y: np.ndarray) -> dict[str, object]:
    """The row of a problem."""
    command = [sys.executable, "-m", "benchmarks.glmnet", "--fit", name]
    said = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, env={**os.environ, "COFED_CACHE": "off"}
    )
    ours = json.loads(said.stdout)
    alphas, coefs = np.array(ours["alphas"]), np.array(ours["coefs"])
    family = FAMILIES[name.split()[0]]
    (usual, exact), version, paths = there(X, y, family, alphas)
    coefs = coefs.reshape(len(alphas), -1)
    if family == "multinomial":  # coefficients of all classes may be moved together: the l1 norm takes their median
        coefs, paths = centred(coefs), {one: centred(path) for one, path in paths.items()}
    apart = {one: np.max(np.abs(path - coefs)) / np.max(np.abs(coefs)) for one, path in paths.items()}
    first, again = ours["seconds"]
    return {
        "problem": name,
        "difference to glmnet": f"{apart['usual']:.0e}",
        "with thresh = 1e-20": f"{apart['exact']:.0e}",
        "cofed, s": round(first, 1),
        "without compilation, s": round(again, 1),
        f"cv.glmnet {version}, s": round(usual, 2),
        "ratio": round(again / usual, 1),
        "cv.glmnet, thresh = 1e-20, s": round(exact, 2),
        "that ratio": round(again / exact, 1),
    }


def centred(coefs: np.ndarray) -> np.ndarray:
    """Coefficients by strength, class and feature, with a mean of 0 over the classes."""
    by_class = coefs.reshape(len(coefs), CLASSES, -1)
    return (by_class - by_class.mean(axis=1, keepdims=True)).reshape(len(coefs), -1)


def main() -> None:
    """Print the table, row by row."""
    if sys.argv[1:2] == ["--fit"]:
        print(json.dumps(here(sys.argv[2])))
        return
    words, heading = sys.argv[1:], True
    for name, _, X, y in problems():
        if words and not any(word in name for word in words):
            continue
        found = row(name, X, y)
        if heading:
            print("| " + " | ".join(found) + " |\n|" + " --- |" * len(found))
            heading = False
        print("| " + " | ".join(map(str, found.values())) + " |", flush=True)


if __name__ == "__main__":
    main()
