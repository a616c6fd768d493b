"""Sparse logistic regression of sites by one or two exchanges, by FedAvg and by cofed: how far from the pooled fit.

    python -m benchmarks.one_shot [WORD ...]     the problems whose names have one of the words; all without

Pooled: the lasso of all rows at one strength, by proximal gradient steps until nothing changes. Beside it, on the same
rows at the same strength (*: at the best of nine strengths around it, judged by the distance to the pooled fit, which
nobody could know):

averaging       each site's own lasso, weighted by its rows: one exchange
surrogate       the second-order surrogate of ADAP (Liu et al.): average, then gradients and Hessians there, then the
                lead site's lasso with what all others' differ from its own: two exchanges
meta-analysis   each site's maximum likelihood without a penalty, combined by precision; used are those with p < 0.05
FedAvg          subgradient steps, 5 per round, 500 rounds, the best of three rates
cofed           FederatedLogisticRegression, as it is

Error: of the coefficients, relative, to the pooled fit. F1: of the features in use, to those of the pooled fit.
Exchanges: messages to each site and back. kB: both ways, of all sites, 8 bytes a number.
"""

import dataclasses
import sys
from collections.abc import Iterator

import jax
import numpy as np
from scipy.special import expit
from scipy.stats import norm

import cofed
from cofed.estimators import FederatedLogisticRegression

STRENGTH = 0.02
AROUND = np.geomspace(0.25, 4, 9)
STEPS, SETTLED = 20_000, 1e-13
ROUNDS, LOCAL = 500, 5


@dataclasses.dataclass(frozen=True)
class Sites:
    """Rows of sites; the first column is 1."""

    name: str
    X: list[np.ndarray]
    y: list[np.ndarray]

    @property
    def sizes(self) -> np.ndarray:
        """The rows of each."""
        return np.array([len(own) for own in self.y])

    @property
    def pooled(self) -> tuple[np.ndarray, np.ndarray]:
        """All rows."""
        return np.concatenate(self.X), np.concatenate(self.y)


@dataclasses.dataclass(frozen=True)
class Smooth:
    """The mean logistic loss of rows, with a linear and a quadratic part around a point."""

    X: np.ndarray
    y: np.ndarray
    slope: np.ndarray  # p + 1
    bend: np.ndarray  # (p + 1) x (p + 1)
    around: np.ndarray  # p + 1

    def gradient(self, w: np.ndarray) -> np.ndarray:
        """Of all of it."""
        return gradient(self.X, self.y, w) + self.slope + self.bend @ (w - self.around)

    @property
    def curvature(self) -> float:
        """At most."""
        own = np.linalg.eigvalsh(self.X.T @ self.X)[-1] / (4 * len(self.y))
        return float(own + max(np.linalg.eigvalsh(self.bend)[-1], 0.0))


def plain(X: np.ndarray, y: np.ndarray) -> Smooth:
    """The logistic loss alone."""
    size = X.shape[1]
    return Smooth(X, y, np.zeros(size), np.zeros((size, size)), np.zeros(size))


def gradient(X: np.ndarray, y: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of the mean logistic loss."""
    return X.T @ (expit(X @ w) - y) / len(y)


def hessian(X: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of the mean logistic loss."""
    mean = expit(X @ w)
    return X.T @ (X * (mean * (1 - mean))[:, None]) / len(X)


def lasso(loss: Smooth, strength: float) -> np.ndarray:
    """The minimiser of a smooth loss and the l1 norm of all but the first, by accelerated steps with restarts."""
    step = 1 / loss.curvature
    w = ahead = np.zeros(loss.X.shape[1])
    speed = 1.0
    for _ in range(STEPS):
        moved = ahead - step * loss.gradient(ahead)
        if np.abs(moved).max() > 1e6:  # a surrogate of few rows need not have a minimum
            return np.full_like(w, np.inf)
        moved[1:] = np.sign(moved[1:]) * np.maximum(np.abs(moved[1:]) - step * strength, 0)
        if (ahead - moved) @ (moved - w) > 0:
            speed = 1.0
        faster = (1 + np.sqrt(1 + 4 * speed**2)) / 2
        change = moved - w
        w, ahead, speed = moved, moved + (speed - 1) / faster * change, faster
        if np.abs(change).max() <= SETTLED * max(1.0, np.abs(w).max()):
            break
    return w


def averaging(sites: Sites, strength: float) -> np.ndarray:
    """The mean of the sites' lassos."""
    own = [lasso(plain(X, y), strength) for X, y in zip(sites.X, sites.y, strict=True)]
    return sites.sizes / sites.sizes.sum() @ np.array(own)


def surrogate(sites: Sites, strength: float) -> np.ndarray:
    """The lasso of the lead site, the first, with the others' derivatives at the average."""
    mean, share = averaging(sites, strength), sites.sizes / sites.sizes.sum()
    both = list(zip(sites.X, sites.y, share, strict=True))
    slope = sum(p * gradient(X, y, mean) for X, y, p in both) - gradient(sites.X[0], sites.y[0], mean)
    bend = sum(p * hessian(X, mean) for X, _, p in both) - hessian(sites.X[0], mean)
    return lasso(Smooth(sites.X[0], sites.y[0], slope, bend, mean), strength)


def meta(sites: Sites) -> np.ndarray | None:
    """Maximum likelihood of each site, combined by precision; None where a site has none."""
    estimates, precisions = [], []
    for X, y in zip(sites.X, sites.y, strict=True):
        if len(y) <= 2 * X.shape[1]:
            return None
        w = np.zeros(X.shape[1])
        for _ in range(50):
            step = np.linalg.solve(hessian(X, w), gradient(X, y, w))
            w = w - step
            if not np.isfinite(w).all() or np.abs(w).max() > 30:
                return None
            if np.abs(step).max() < 1e-10:
                break
        estimates.append(w)
        precisions.append(1 / np.diag(np.linalg.inv(hessian(X, w) * len(y))))
    weight = np.array(precisions)
    w = np.sum(weight * estimates, axis=0) / weight.sum(axis=0)
    used = np.abs(w) * np.sqrt(weight.sum(axis=0)) > norm.ppf(0.975)
    return np.where(used, w, 0)


def fedavg(sites: Sites, strength: float) -> np.ndarray:
    """FedAvg with subgradients; the rate with the least objective."""
    federation = cofed.Federation.from_arrays([(X[:, 1:], y) for X, y in zip(sites.X, sites.y, strict=True)])
    problem = cofed.Problem(cofed.Linear(), cofed.Logistic(), cofed.On(cofed.L1(strength), "coef"))
    found = []
    for rate in (0.03, 0.1, 0.3):
        how = {"rounds": ROUNDS, "local_steps": LOCAL, "weights": "samples", "evaluate_every": ROUNDS}
        done = cofed.run(problem, federation, cofed.FedAvg(client_lr=rate), **how)
        w = np.r_[np.asarray(done.model.intercept).ravel(), np.asarray(done.model.coef).ravel()]
        found.append((objective(sites, w, strength), w))
    return min(found, key=lambda one: one[0])[1]


def objective(sites: Sites, w: np.ndarray, strength: float) -> float:
    """What the pooled fit minimises."""
    X, y = sites.pooled
    z = X @ w
    return float(np.mean(np.logaddexp(0, z) - y * z) + strength * np.abs(w[1:]).sum())


def best_of(method, sites: Sites, pooled: np.ndarray) -> np.ndarray:
    """A method's models at several strengths: the nearest to the pooled fit."""
    found = [method(sites, STRENGTH * factor) for factor in AROUND]
    return min(found, key=lambda w: np.linalg.norm(w[1:] - pooled[1:]))


def rows_of(sites: Sites) -> Iterator[tuple[str, np.ndarray | None, int, float]]:
    """Every method: its name, its model, the exchanges and the bytes."""
    many, size = len(sites.y), sites.X[0].shape[1]
    pooled, number = lasso(plain(*sites.pooled), STRENGTH), 8 * len(sites.y)
    twice = number * (size + size + size + size * (size + 1) // 2)
    yield "averaging", averaging(sites, STRENGTH), 1, number * size
    yield "averaging *", best_of(averaging, sites, pooled), 1, number * size
    yield "surrogate (ADAP)", surrogate(sites, STRENGTH), 2, twice
    yield "surrogate (ADAP) *", best_of(surrogate, sites, pooled), 2, twice
    yield "meta-analysis", meta(sites), 1, number * 2 * size
    yield "FedAvg", fedavg(sites, STRENGTH), ROUNDS, number * 2 * size * ROUNDS
    X, y = sites.pooled
    names = np.repeat(np.arange(many), sites.sizes)
    model = FederatedLogisticRegression(STRENGTH, standardize=False).fit(X[:, 1:], y.astype(int), clients=names)
    yield "cofed", np.r_[model.intercept_, model.coef_.ravel()], model.n_rounds_, model.bytes_


def problems(seed: int = 0) -> Iterator[Sites]:
    """Sites that are alike, that differ, and that have fewer rows than features."""
    for name, p, least, most, shift in (
        ("8 sites of 150 to 600 rows, 30 features, alike", 30, 150, 600, 0.0),
        ("the same, features shifted and slopes varied by site", 30, 150, 600, 1.0),
        ("8 sites of 60 to 150 rows, 200 features, alike", 200, 60, 150, 0.0),
    ):
        rng = np.random.default_rng(seed)
        truth = np.zeros(p)
        truth[:6] = [1.5, -1.0, 0.8, -0.6, 0.5, 0.4]
        X, y = [], []
        for n in rng.integers(least, most, size=8):
            own = rng.normal(size=(n, p)) + shift * rng.normal(size=p) / 2
            slopes = truth * (1 + shift * rng.normal(size=p) / 2)
            X.append(np.column_stack([np.ones(n), own]))
            y.append((rng.uniform(size=n) < expit(own @ slopes - 0.3)).astype(float))
        yield Sites(name, X, y)


def f1(w: np.ndarray, pooled: np.ndarray) -> float:
    """Of the features in use."""
    used, wanted = w[1:] != 0, pooled[1:] != 0
    return float(2 * (used & wanted).sum() / max(used.sum() + wanted.sum(), 1))


def main() -> None:
    """Print a table for each problem."""
    jax.config.update("jax_enable_x64", True)
    chosen = sys.argv[1:]
    for sites in problems():
        if chosen and not any(word in sites.name for word in chosen):
            continue
        pooled = lasso(plain(*sites.pooled), STRENGTH)
        print(f"\n{sites.name}; the pooled lasso uses {(pooled[1:] != 0).sum()}\n")
        print("| | error | F1 | exchanges | kB |\n| --- | --: | --: | --: | --: |")
        for name, w, exchanges, size in rows_of(sites):
            if w is None:
                print(f"| {name} | no estimates | | | |", flush=True)
                continue
            error = np.linalg.norm(w[1:] - pooled[1:]) / np.linalg.norm(pooled[1:])
            print(f"| {name} | {error:.1e} | {f1(w, pooled):.2f} | {exchanges} | {size / 1000:.1f} |", flush=True)


if __name__ == "__main__":
    main()
