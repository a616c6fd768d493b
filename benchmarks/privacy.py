"""The error of private fits against epsilon, at 5, 20 and 100 sites, with shared noise and with noise at every site.

    python -m benchmarks.privacy [FIGURE]     a table, and a figure (docs/privacy-error.png)

20,000 rows of 10 features, of which 4 matter, spread evenly over the sites. The error is the distance of the
coefficients to those that made the data, beside their length: the median of some fits, each with new rows and new
noise. Shared: each site adds its share, and the server sees sums only. Local: the server sees each site's answers, so
that each has all of the noise, as in `cofed.flower.ClientPrivacy`. Without: the same estimator without privacy.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import BaseEstimator

from cofed import Privacy
from cofed.estimators import FederatedLasso, FederatedLogisticRegression
from cofed.sites import MemorySites, SiteRows

ROWS, REPEATS = 20_000, 9
TRUTH = np.array([1.0, -1.0, 0.7, 0.5] + [0.0] * 6)
SITES, EPSILONS = (5, 20, 100), (0.1, 0.3, 1.0, 3.0, 10.0)
TICKS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
KINDS = {"lasso": (FederatedLasso, 0.02), "logistic regression": (FederatedLogisticRegression, 0.002)}


def sites_of(kind: str, count: int, seed: int, shared: bool) -> MemorySites:
    """Sites with rows of one of the problems."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(ROWS, len(TRUTH)))
    z = X @ TRUTH
    noisy = z + 1.5 * rng.normal(size=ROWS)
    y = noisy if kind == "lasso" else (rng.random(ROWS) < 1 / (1 + np.exp(-z))).astype(float)
    names = tuple(f"site {m:03}" for m in range(count))
    found = MemorySites(SiteRows.of_sites(names, np.array_split(X, count), np.array_split(y, count)))
    found.sums_only = shared
    return found


def error(model: BaseEstimator, sites: MemorySites) -> float:
    """How far a fit's coefficients are from the truth."""
    coef = np.ravel(model.fit(sites).coef_)
    return float(np.linalg.norm(coef - TRUTH) / np.linalg.norm(TRUTH))


def measured(kind: str, count: int, shared: bool, epsilon: float | None) -> float:
    """The median error of some fits; without privacy where there is no epsilon."""
    made, alpha = KINDS[kind]
    privacy = None if epsilon is None else Privacy(epsilon, 1e-6, label_spread=2.2)
    return float(
        np.median([error(made(alpha, privacy=privacy), sites_of(kind, count, s, shared)) for s in range(REPEATS)])
    )


def main(figure: Path) -> None:
    """Print the table, and draw it."""
    drawing, panels = plt.subplots(1, 2, figsize=(9, 3.8), sharey=True, layout="constrained")
    for panel, kind in zip(panels, KINDS, strict=True):
        plain = measured(kind, 5, True, None)
        print(f"{kind}: without privacy {plain:.3f}")
        panel.axhline(plain, color="black", lw=1, label="without privacy")
        for colour, count in zip(("tab:blue", "tab:orange", "tab:green"), SITES, strict=True):
            for shared, style in ((True, "o-"), (False, "x--")):
                errors = [measured(kind, count, shared, epsilon) for epsilon in EPSILONS]
                name = f"{count} sites, {'shared' if shared else 'local'} noise"
                print(f"  {name:26}" + "".join(f"{one:8.3f}" for one in errors), flush=True)
                panel.loglog(EPSILONS, errors, style, color=colour, ms=4, lw=1.2, label=name)
        panel.set(title=f"{kind}, {ROWS:,} rows, {len(TRUTH)} features", xlabel="epsilon (delta = 1e-6)")
        panel.set_xticks(EPSILONS, [f"{one:g}" for one in EPSILONS])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
    panels[0].set(ylabel="relative error of the coefficients")
    panels[0].set_yticks(TICKS, [f"{one:g}" for one in TICKS])
    panels[1].legend(fontsize=7.5)
    drawing.savefig(figure, dpi=150)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/privacy-error.png"))
