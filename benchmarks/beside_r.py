"""Families and options over four sites beside R on the pooled rows: the largest differences, as a table.

    python -m benchmarks.beside_r [WORD ...]    the problems whose names have one of the words; all without

Needs Rscript with jsonlite, glmnet, survival, MASS and lme4 (Debian: r-cran-jsonlite, r-cran-glmnet, r-cran-survival,
r-cran-mass, r-cran-lme4). A difference is the largest of all numbers of a kind, beside the largest of R's.
"""

import dataclasses
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np

from cofed import Gamma, NegativeBinomial
from cofed.estimators import (
    FederatedCox,
    FederatedGLM,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedMixedModel,
    FederatedMultiTaskLasso,
)

Numbers = dict[str, np.ndarray]
N, P, SITES = 400, 6, 4
STRENGTHS = np.geomspace(0.2, 0.01, 8)
FACTORS, LOW, HIGH = [0.0, 0.5, 1.0, 1.5, 1.5, 1.5], [-0.1] * P, [np.inf, 0.4, *[np.inf] * 4]


@dataclasses.dataclass(frozen=True)
class Case:
    """A problem: its labels, what R makes of them (a list of vectors), and what cofed makes of them."""

    name: str
    draw: Callable[[np.ndarray, np.random.Generator], np.ndarray]
    r: str
    ours: Callable[[np.ndarray, np.ndarray, np.ndarray], Numbers]


def features(rng: np.random.Generator) -> np.ndarray:
    """Columns of different sizes and means."""
    return rng.normal(size=(N, P)) * np.linspace(0.5, 2, P) + np.linspace(-1, 1, P)


def without_penalty(model, X, y, sites) -> Numbers:
    """Estimates and standard errors."""
    table = model.fit(X, y, clients=sites).infer(X, y, sites)
    return {"coef": table["debiased"].to_numpy(), "se": table["se"].to_numpy()}


def path(model, X, y, sites, strengths=STRENGTHS) -> np.ndarray:
    """Coefficients by strength."""
    return model.path(X, y, sites, alphas=strengths).coefs


def grouped(X, y, sites) -> Numbers:
    """glmnet's group penalty has no root of the number of classes."""
    found = path(FederatedLogisticRegression(penalty="group"), X, y, sites, STRENGTHS / np.sqrt(3))
    return {"coef": (found - found.mean(axis=1, keepdims=True)).swapaxes(0, 1)}


def mixed(X, y, sites) -> Numbers:
    """A random intercept and a random slope of the first feature."""
    model = FederatedMixedModel(slopes=[0]).fit(X, y, clients=sites)
    random = model.covariance_.to_numpy()
    return {"fixed": model.fixed_effects_.iloc[:, 0].to_numpy(), "random": random[np.triu_indices(2)]}


def counted(X, y, sites) -> Numbers:
    """Counts whose theta is estimated."""
    model = FederatedGLM(NegativeBinomial(), alpha=0.0)
    return without_penalty(model, X, y, sites) | {"theta": np.array([vars(model)["loss_"].theta])}


def times(X, rng):
    """Times in steps, so that there are ties, and events."""
    event, end = rng.exponential(np.exp(-X[:, 0] / 2)), rng.exponential(2.0, N)
    return np.column_stack([np.ceil(20 * np.minimum(event, end)) / 20, event <= end])


def of_sites(X, rng):
    """Labels with intercepts and slopes of the sites' own."""
    site, own = np.arange(N) % SITES, rng.normal(size=(SITES, 2))
    return X[:, 0] + own[site, 0] + own[site, 1] * X[:, 0] + rng.normal(size=N)


EXACT = "thresh = 1e-20, maxit = 1e7"
# Whatever else is given, nloptr stops where a step is 1e-4 of the parameters, unless xtol_rel says otherwise.
TO_THE_END = (
    "optimizer = 'nloptwrap', optCtrl = list(ftol_abs = 0, ftol_rel = 0, xtol_abs = 1e-14, xtol_rel = 0, maxeval = 1e5)"
)
CASES = (
    Case(
        "several responses, path (glmnet, mgaussian)",
        lambda X, rng: np.outer(X[:, 0], [1, -2, 0]) + X[:, [1]] + rng.normal(size=(N, 3)) + [50, 0, 0],
        f"fit <- glmnet(X, y, family = 'mgaussian', lambda = l, {EXACT}); "
        "list(coef = unlist(lapply(fit$beta, function(b) as.vector(as.matrix(b)))))",
        lambda X, y, s: {"coef": path(FederatedMultiTaskLasso(), X, y, s).swapaxes(0, 1)},
    ),
    Case(
        "three classes, grouped, path (glmnet)",
        lambda X, rng: np.argmax(X[:, :3] + rng.gumbel(size=(N, 3)), axis=1),
        f"fit <- glmnet(X, factor(y), family = 'multinomial', type.multinomial = 'grouped', lambda = l, {EXACT}); "
        "b <- lapply(fit$beta, as.matrix); m <- Reduce(`+`, b) / 3; "
        "list(coef = unlist(lapply(b, function(one) as.vector(one - m))))",
        grouped,
    ),
    Case(
        "penalty factors and limits, path (glmnet)",
        lambda X, rng: X @ np.linspace(1, -1, P) + rng.normal(size=N),
        "fit <- glmnet(X, y, lambda = l, penalty.factor = c(0, .5, 1, 1.5, 1.5, 1.5), lower.limits = rep(-.1, 6), "
        f"upper.limits = c(Inf, .4, Inf, Inf, Inf, Inf), {EXACT}); list(coef = as.vector(as.matrix(fit$beta)))",
        lambda X, y, s: {"coef": path(FederatedLasso(penalty_factor=FACTORS, low=LOW, high=HIGH), X, y, s)},
    ),
    Case(
        "Cox by site, path (glmnet, stratifySurv)",
        times,
        "Y <- stratifySurv(Surv(y[, 1], y[, 2]), s); "
        "glmnet.control(epsnr = 1e-14, mxitnr = 1000); "
        "fit <- glmnet(X, Y, family = 'cox', lambda = l, thresh = 1e-14, maxit = 1e6); "
        "list(coef = as.vector(as.matrix(fit$beta)))",
        lambda X, y, s: {"coef": path(FederatedCox(ties="breslow"), X, y, s)},
    ),
    Case(
        "Cox by site (coxph, strata, Efron's ties)",
        times,
        "fit <- coxph(Surv(y[, 1], y[, 2]) ~ X + strata(s), control = coxph.control(eps = 1e-14, iter.max = 50)); "
        "list(coef = coef(fit), se = sqrt(diag(vcov(fit))))",
        lambda X, y, s: without_penalty(FederatedCox(0.0), X, y, s),
    ),
    Case(
        "Gamma (glm)",
        lambda X, rng: rng.gamma(2.0, np.exp(X[:, 0] / 2)),
        "fit <- glm(y ~ X, family = Gamma('log'), control = list(epsilon = 1e-14, maxit = 100)); "
        "list(coef = coef(fit)[-1], se = sqrt(diag(vcov(fit)))[-1])",
        lambda X, y, s: without_penalty(FederatedGLM(Gamma(), alpha=0.0), X, y, s),
    ),
    Case(
        "negative binomial (glm.nb)",
        lambda X, rng: rng.poisson(rng.gamma(1.5, np.exp(X[:, 0] / 2 + 1) / 1.5)),
        "fit <- MASS::glm.nb(y ~ X, control = glm.control(epsilon = 1e-14, maxit = 200)); "
        "list(coef = coef(fit)[-1], se = sqrt(diag(vcov(fit)))[-1], theta = fit$theta)",
        counted,
    ),
    Case(
        "mixed, intercepts and slopes of sites (lmer)",
        of_sites,
        "d <- data.frame(y = y, X, s = factor(s)); names(d) <- c('y', paste0('x', 1:6), 's'); "
        f"control <- lme4::lmerControl({TO_THE_END}); "
        "fit <- lme4::lmer(y ~ x1 + x2 + x3 + x4 + x5 + x6 + (1 + x1 | s), d, control = control); "
        "v <- as.matrix(lme4::VarCorr(fit)$s); "
        "list(fixed = lme4::fixef(fit), random = c(v[1, 1], v[1, 2], v[2, 2]))",
        mixed,
    ),
)
SCRIPT = """
suppressMessages({library(glmnet); library(survival)})
d <- jsonlite::fromJSON("data.json")
X <- d$X; y <- d$y; s <- d$s; l <- d$l
found <- {%s}
writeLines(jsonlite::toJSON(lapply(found, as.numeric), digits = NA), "found.json")
"""


def there(case: Case, X: np.ndarray, y: np.ndarray, sites: np.ndarray) -> Numbers:
    """What R finds."""
    with tempfile.TemporaryDirectory() as folder:
        data = {"X": X.tolist(), "y": y.tolist(), "s": sites.tolist(), "l": STRENGTHS.tolist()}
        (Path(folder) / "data.json").write_text(json.dumps(data))
        (Path(folder) / "fit.R").write_text(SCRIPT % case.r)
        done = subprocess.run(["Rscript", "fit.R"], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{case.name}: R says: {done.stderr}")
        found = json.loads((Path(folder) / "found.json").read_text())
    return {name: np.array(values, float) for name, values in found.items()}


def main() -> None:
    """Print the table, problem by problem."""
    words = sys.argv[1:]
    print("| problem | differences to R |\n| --- | --- |")
    for case in CASES:
        if words and not any(word in case.name for word in words):
            continue
        rng = np.random.default_rng(0)
        X, sites = features(rng), np.arange(N) % SITES
        y = case.draw(X, rng)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = case.ours(X, y, sites)
        theirs = there(case, X, y, sites)
        said = [f"{name}: {np.abs(np.ravel(ours[name]) - r).max() / np.abs(r).max():.0e}" for name, r in theirs.items()]
        print(f"| {case.name} | {', '.join(said)} |", flush=True)


if __name__ == "__main__":
    main()
