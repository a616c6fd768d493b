"""What the experiments on sparse logistic regression share: data, problem, and what is measured."""

import numpy as np

import cofed
from cofed._util.pandas_types import Frame, Series
from cofed.experiments.measurements import Measurements
from cofed.experiments.specification import Numbers, Setup
from cofed.federation import Federation

NORM = 0.5  # of the rows (see the head of the package)
FLOOR = 1e-12  # 64-bit rounding of a model of size 20 is 4e-15, the first gradient mapping is 0.02 or more: times five
PRECISE = (
    "64-bit rounding of the model, relative to the first gradient mapping, is at most 2e-13 here; 1e-12 leaves a "
    "factor of five."
)
READING = f"""The paper takes its data from another one's method, whose clients' means have two readings, and these data
follow one of them: a mean for every coordinate. With it and rows of norm {NORM} the printed steps of figure 2 converge
with both tau on all five data sets of zhang2025-scale; with the other, one mean for all coordinates, on none of them
(on 80 % at norm 0.25, 40 % at 0.3, 20 % at 0.35)."""
ONE, TEN = "tau = 1", "tau = 10"


def clients(samples: int, norm: float, seed: int, by_coordinate: bool = True) -> Federation:
    """Thirty clients with 20 features, (alpha, beta) = (50, 50), all rows of one norm, in 64 bits."""
    drawn = cofed.datasets.zhang_logistic(
        clients=30, samples=samples, d=20, normalize=True, by_coordinate=by_coordinate, seed=seed
    ).federation
    return Federation.from_arrays([(norm * X, y) for X, y in map(drawn.client, range(drawn.n_clients))])


def sparse_logistic(strength: float) -> cofed.Problem:
    """l1 logistic regression without an intercept."""
    return cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic(), cofed.L1(strength))


def logistic(n: Numbers, seed: int) -> Setup:
    """The problem of figures 2 and 3."""
    run = {
        "rounds": n.rounds,
        "local_steps": n.local_steps,
        "batch_size": n.batch,
        "evaluate_every": n.evaluate_every,
    }
    words = f"zhang_logistic(50, 50) by coordinate, {n.samples} samples per client, rows of norm {NORM}, seed {seed}"
    return Setup(sparse_logistic(n.strength), clients(n.samples, NORM, seed), run, data=words)


def optimality(table: Frame) -> Series:
    """The norm of the gradient mapping relative to the start's."""
    return table["prox_gradient"] / table["prox_gradient"].iloc[0]


def fifths(seen: Measurements, label: str, panel: str) -> tuple[float, float]:
    """The mean optimality over the last fifth of the rounds, and over the fifth before it."""
    curve = seen.curve(label, "optimality", panel)
    last = np.array_split(curve.to_numpy()[1:], 5)[-2:]
    return float(last[1].mean()), float(last[0].mean())
