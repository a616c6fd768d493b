"""Families and options over four sites beside R on the pooled rows: the largest differences, as a table.

    python -m benchmarks.beside_r [WORD ...]    the problems whose names have one of the words; all without

Needs Rscript with jsonlite, glmnet, survival, MASS and lme4. Where they are missing they are installed, if there is
apt-get and root (or sudo) is given: on Debian and Ubuntu it is

    apt-get install r-base-core r-cran-jsonlite r-cran-glmnet r-cran-survival r-cran-mass r-cran-lme4

and elsewhere `install.packages(c("jsonlite", "glmnet", "survival", "MASS", "lme4"))` within R. A difference is the
largest of all numbers of a kind, beside the largest of R's.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

import cofed
from cofed import Gamma, NegativeBinomial
from cofed.estimators import (
    FederatedCox,
    FederatedGLM,
    FederatedLasso,
    FederatedLogisticRegression,
    FederatedMixedModel,
    FederatedMultiTaskLasso,
    FederatedPoisson,
)

Numbers = dict[str, np.ndarray]
N, P, SITES = 400, 6, 4
STRENGTHS = np.geomspace(0.2, 0.01, 8)
FACTORS, LOW, HIGH = [0.0, 0.5, 1.0, 1.5, 1.5, 1.5], [-0.1] * P, [np.inf, 0.4, *[np.inf] * 4]
OTHERS = np.random.default_rng(1)
WEIGHT, OFFSET = OTHERS.uniform(0.2, 3.0, N), 0.3 * OTHERS.normal(size=N)
PERSON = np.arange(N) % 80  # five rows each, of one site
ROWS = {"sample_weight": WEIGHT, "offset": OFFSET}
PACKAGES = ("jsonlite", "glmnet", "survival", "MASS", "lme4")
DAYS = [5, 10, 20, 40, 80]


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


def path(model, X, y, sites, strengths=STRENGTHS, **rows) -> np.ndarray:
    """Coefficients by strength."""
    return model.path(X, y, sites, alphas=strengths, **rows).coefs


def cox(X, y, sites, ties="efron", **rows) -> Numbers:
    """A Cox model with standard errors of three kinds and its concordance."""
    model = FederatedCox(0.0, ties=ties).fit(X, y, clients=sites, **rows)
    of = lambda errors: model.infer(X, y, sites, errors=errors, **rows)["se"].to_numpy()  # noqa: E731
    value = model.infer(X, y, sites, **rows)["debiased"].to_numpy()
    concordance = np.array([model.score(X, y, clients=sites, **rows)])
    return {
        "coef": value,
        "se": of("model"),
        "robust": of("hc1"),
        "clusters": of(PERSON),
        "concordance": concordance,
    }


def curves(X, y, sites) -> Numbers:
    """Curves of two groups, and the tests between them."""
    held = {"site": sites, "arm": np.where(X[:, 1] > 0, "b", "a"), "time": y[:, -2], "dead": y[:, -1]}
    entry = {"entry": y[:, 0]} if y.shape[1] == 3 else {}
    found = cofed.survival_curves(
        pd.DataFrame(held | entry), "time", "dead", group="arm", entry="entry" if entry else None, client="site"
    )
    at = {arm: np.searchsorted(curve.time, DAYS, side="right") - 1 for arm, curve in found.curves.items()}
    parts = ("survival", "se", "low", "high")
    numbers = {part: np.concatenate([vars(found.curves[arm])[part][at[arm]] for arm in at]) for part in parts}
    return numbers | {
        "log-rank": np.array([found.log_rank.statistic]),
        "by site": np.array([found.by_site.statistic]),
    }


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


def days(X, rng):
    """Whole days to an event, and events."""
    event, end = np.ceil(rng.exponential(60 * np.exp(-X[:, 0] / 2))), np.ceil(rng.exponential(150.0, N))
    return np.column_stack([np.minimum(event, end), event <= end])


def late(X, rng):
    """Whole days of rows of which half are at risk from a later day on, before they leave."""
    found = days(X, rng)
    entry = np.floor(found[:, 0] * rng.uniform(size=N) * (rng.uniform(size=N) < 0.5))
    return np.column_stack([np.minimum(entry, found[:, 0] - 1), found])


def of_sites(X, rng):
    """Labels with intercepts and slopes of the sites' own."""
    site, own = np.arange(N) % SITES, rng.normal(size=(SITES, 2))
    return X[:, 0] + own[site, 0] + own[site, 1] * X[:, 0] + rng.normal(size=N)


EXACT = "thresh = 1e-20, maxit = 1e7"
# Whatever else is given, nloptr stops where a step is 1e-4 of the parameters, unless xtol_rel says otherwise.
TO_THE_END = (
    "optimizer = 'nloptwrap', optCtrl = list(ftol_abs = 0, ftol_rel = 0, xtol_abs = 1e-14, xtol_rel = 0, maxeval = 1e5)"
)
CONTROL = "control = coxph.control(eps = 1e-14, iter.max = 50)"
COXPH = """
one <- function(...) coxph(%s ~ X + strata(s) + offset(%s), weights = %s, ties = "%s", CONTROL, ...)
row <- seq_along(s); fit <- one(cluster = row); by <- one(cluster = id)
list(coef = coef(fit), se = sqrt(diag(fit$naive.var)), robust = sqrt(diag(vcov(fit))), clusters = sqrt(diag(vcov(by))),
     concordance = concordance(fit)$concordance)
""".replace("CONTROL", CONTROL)
SURVFIT = """
arm <- ifelse(X[, 2] > 0, "b", "a"); Y <- %s
fit <- summary(survfit(Y ~ arm, conf.type = "log-log"), times = c(DAYS))
list(survival = fit$surv, se = fit$std.err, low = fit$lower, high = fit$upper, %s)
""".replace("DAYS", str(DAYS)[1:-1])
TESTS = "`log-rank` = survdiff(Y ~ arm)$chisq, `by site` = survdiff(Y ~ arm + strata(s))$chisq"
# survdiff takes no rows that enter late. The test is Mantel and Haenszel's, with a table for each time of an event.
LATE_TESTS = "`log-rank` = mh(0 * s), `by site` = mh(s)"
MANTEL_HAENSZEL = """
mh <- function(g) {
  found <- list()
  for (k in unique(g)) for (t in unique(y[g == k & y[, 3] == 1, 2])) {
    at <- g == k & y[, 1] < t & y[, 2] >= t
    if (sum(at) > 1) found <- c(found, list(table(
      factor(arm[at], c("a", "b")), factor(y[at, 2] == t & y[at, 3] == 1, c(FALSE, TRUE)))))
  }
  mantelhaen.test(simplify2array(found), correct = FALSE)$statistic
}
"""
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
    Case(
        "weights and offsets, path (glmnet, gaussian)",
        lambda X, rng: X @ np.linspace(1, -1, P) + rng.normal(size=N),
        f"fit <- glmnet(X, y, weights = w, offset = o, lambda = l, {EXACT}); "
        "list(coef = as.vector(as.matrix(fit$beta)))",
        lambda X, y, s: {"coef": path(FederatedLasso(), X, y, s, **ROWS)},
    ),
    Case(
        "weights and offsets, path (glmnet, binomial)",
        lambda X, rng: (rng.random(N) < 1 / (1 + np.exp(-X[:, 0] + X[:, 1] / 2))).astype(int),
        f"fit <- glmnet(X, y, family = 'binomial', weights = w, offset = o, lambda = l, {EXACT}); "
        "list(coef = as.vector(as.matrix(fit$beta)))",
        lambda X, y, s: {"coef": path(FederatedLogisticRegression(), X, y, s, **ROWS)},
    ),
    Case(
        "weights and offsets, path (glmnet, poisson)",
        lambda X, rng: rng.poisson(np.exp(X[:, 0] / 2 + OFFSET)).astype(float),
        f"fit <- glmnet(X, y, family = 'poisson', weights = w, offset = o, lambda = l, {EXACT}); "
        "list(coef = as.vector(as.matrix(fit$beta)))",
        lambda X, y, s: {"coef": path(FederatedPoisson(), X, y, s, **ROWS)},
    ),
    Case(
        "Cox by site with weights and offsets, path (glmnet, stratifySurv)",
        times,
        "Y <- stratifySurv(Surv(y[, 1], y[, 2]), s); glmnet.control(epsnr = 1e-14, mxitnr = 1000); "
        "fit <- glmnet(X, Y, family = 'cox', weights = w, offset = o, lambda = l, thresh = 1e-14, maxit = 1e6); "
        "list(coef = as.vector(as.matrix(fit$beta)))",
        lambda X, y, s: {"coef": path(FederatedCox(ties="breslow"), X, y, s, **ROWS)},
    ),
    Case(
        "Cox by site, robust errors and concordance (coxph, Efron's ties)",
        times,
        COXPH % ("Surv(y[, 1], y[, 2])", "0 * o", "0 * w + 1", "efron"),
        cox,
    ),
    Case(
        "Cox by site with weights and offsets, robust errors and concordance (coxph, Efron's ties)",
        times,
        COXPH % ("Surv(y[, 1], y[, 2])", "o", "w", "efron"),
        lambda X, y, s: cox(X, y, s, **ROWS),
    ),
    Case(
        "the same (coxph, Breslow's ties)",
        times,
        COXPH % ("Surv(y[, 1], y[, 2])", "o", "w", "breslow"),
        lambda X, y, s: cox(X, y, s, "breslow", **ROWS),
    ),
    Case(
        "Cox by site of rows that enter late, with weights and offsets (coxph, Efron's ties)",
        late,
        COXPH % ("Surv(y[, 1], y[, 2], y[, 3])", "o", "w", "efron"),
        lambda X, y, s: cox(X, y, s, **ROWS),
    ),
    Case(
        "curves and tests (survfit, survdiff)",
        days,
        SURVFIT % ("Surv(y[, 1], y[, 2])", TESTS),
        curves,
    ),
    Case(
        "curves and tests of rows that enter late (survfit, mantelhaen.test)",
        late,
        MANTEL_HAENSZEL + SURVFIT % ("Surv(y[, 1], y[, 2], y[, 3])", LATE_TESTS),
        curves,
    ),
)
SCRIPT = """
suppressMessages({library(glmnet); library(survival)})
d <- jsonlite::fromJSON("data.json")
X <- d$X; y <- d$y; s <- d$s; l <- d$l; w <- d$w; o <- d$o; id <- d$id
found <- {%s}
writeLines(jsonlite::toJSON(lapply(found, as.numeric), digits = NA), "found.json")
"""


def there(case: Case, X: np.ndarray, y: np.ndarray, sites: np.ndarray) -> Numbers:
    """What R finds."""
    with tempfile.TemporaryDirectory() as folder:
        data = {"X": X, "y": y, "s": sites, "l": STRENGTHS, "w": WEIGHT, "o": OFFSET, "id": PERSON}
        (Path(folder) / "data.json").write_text(json.dumps({name: one.tolist() for name, one in data.items()}))
        (Path(folder) / "fit.R").write_text(SCRIPT % case.r)
        done = subprocess.run(["Rscript", "fit.R"], cwd=folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{case.name}: R says: {done.stderr}")
        found = json.loads((Path(folder) / "found.json").read_text())
    return {name: np.array(values, float) for name, values in found.items()}


def missing() -> list[str]:
    """Debian's packages of what is not there."""
    if shutil.which("Rscript") is None:
        return ["r-base-core", *(f"r-cran-{name.lower()}" for name in PACKAGES)]
    asked = f"for (name in {tuple(PACKAGES)}) if (!requireNamespace(name, quietly = TRUE)) cat(name, '')"
    asked = asked.replace("in (", "in c(")
    done = subprocess.run(["Rscript", "-e", asked], capture_output=True, text=True, check=True)
    return [f"r-cran-{name.lower()}" for name in done.stdout.split()]


def install() -> None:
    """Install what is missing, where that is possible."""
    packages = missing()
    if not packages:
        return
    root = [] if os.getuid() == 0 else ["sudo"]
    if shutil.which("apt-get") is None or (root and shutil.which("sudo") is None):
        sys.exit(
            f"beside_r: these are not here, and there is no apt-get or no root to install them: {' '.join(packages)}. "
            f"On Debian and Ubuntu `apt-get install {' '.join(packages)}` does it, elsewhere R's `install.packages`"
        )
    print(f"installing {' '.join(packages)}", file=sys.stderr)
    subprocess.run([*root, "apt-get", "update"], check=True, stdout=subprocess.DEVNULL, timeout=300)
    given = ["env", "DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "--yes", "--no-install-recommends"]
    subprocess.run([*root, *given, *packages], check=True, stdout=subprocess.DEVNULL, timeout=900)


def main() -> None:
    """Print the table, problem by problem."""
    words = sys.argv[1:]
    install()
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
