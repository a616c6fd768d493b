"""l2 logistic regression by FedNewton and FedNL at the sizes of unlocked FedNL's paper (arXiv 2410.08760): a table.

    python -m benchmarks.second_order [W8A|A9A|PHISHING ...] [--data DIR] [--rounds 400]

142 clients, the penalty 0.001/2 ||w||^2, an intercept as a column of ones, FedNL with the 8 d largest entries of a
triangle: the paper's settings. `--data` is a folder with LIBSVM's files w8a, a9a, phishing, whose rows are shuffled and
dealt out. Without it rows are drawn, binary with the same number of features, rows and share of ones, labels from a
logistic model with a tenth of the features. Rounds until the norm of the gradient
of the whole objective is at most 1e-9, in float64, bytes as counted by the run (up: of all clients), processor seconds
with compilation and of a second run without.
"""

import argparse
import time
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from sklearn.datasets import load_svmlight_file

import cofed
from cofed.callbacks import AbstractCallback

CLIENTS, RIDGE, ENOUGH = 142, 1e-3, 1e-9


class Shape(NamedTuple):
    """A data set of the paper, without its rows."""

    d: int  # with the intercept
    rows: int  # of a client
    ones: float  # the share of features that are 1


SHAPES = {"W8A": Shape(301, 350, 0.039), "A9A": Shape(124, 229, 0.113), "PHISHING": Shape(69, 77, 0.44)}


class Enough(AbstractCallback):
    """Ends a run whose gradient is small enough."""

    def on_row(self, row: dict[str, float]) -> bool | None:
        """Whether to go on."""
        return gradient(row) > ENOUGH


def gradient(row: dict[str, float]) -> float:
    """The norm of the gradient: a proximal step of length 1 for a ridge is 1 + its strength shorter."""
    return row["prox_gradient"] * (1 + RIDGE)


def read(path: Path, shape: Shape, seed: int = 0) -> cofed.Federation:
    """The rows of a LIBSVM file, shuffled and dealt out; the few that are left over are left out."""
    X, y = load_svmlight_file(str(path), n_features=shape.d - 1)
    order = np.random.default_rng(seed).permutation(len(y))[: CLIENTS * shape.rows]
    X, y = np.hstack([X.toarray(), np.ones((len(y), 1))])[order], (y > y.min()).astype(int)[order]
    return cofed.Federation.from_arrays(list(zip(np.split(X, CLIENTS), np.split(y, CLIENTS), strict=True)))


def drawn(shape: Shape, seed: int = 0) -> cofed.Federation:
    """Rows of the shape."""
    rng = np.random.default_rng(seed)
    truth = np.where(rng.random(shape.d) < 0.1, 2 * rng.normal(size=shape.d), 0)
    clients = []
    for _ in range(CLIENTS):
        X = (rng.random((shape.rows, shape.d)) < shape.ones).astype(float)
        X[:, -1] = 1
        clients.append((X, (X @ truth + rng.logistic(size=shape.rows) > 0).astype(int)))
    return cofed.Federation.from_arrays(clients)


def measured(
    name: str, held: cofed.Federation, algorithm: cofed.AbstractServerAlgorithm, rounds: int
) -> dict[str, object]:
    """The row of a data set and a method."""
    shape = SHAPES[name]
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic(), cofed.ElasticNet(RIDGE, 0.0))

    def run() -> tuple[cofed.Result, float]:
        began = time.process_time()
        options = {"rounds": rounds, "local_steps": 1, "evaluate_every": 1, "callbacks": [Enough()], "cores": 1}
        return cofed.run(problem, held, algorithm, progress=False, **options), time.process_time() - began

    (result, first), (_, second) = run(), run()
    last, sent = result.history.rows[-1], result.communication
    return {
        "shape": f"{name}, d = {shape.d}, {CLIENTS} x {shape.rows} rows",
        "method": type(algorithm).__name__,
        "rounds": int(last["round"]),
        "gradient": f"{gradient(last):.0e}",
        "MB up": round(sent.up / 1e6, 1),
        "MB down": round(sent.down / 1e6, 1),
        "CPU s": round(first, 1),
        "without compilation": round(second, 1),
    }


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--data", type=Path, help="a folder with LIBSVM's files; without it rows are drawn")
    parser.add_argument("--rounds", type=int, default=400)
    asked = parser.parse_args()
    jax.config.update("jax_enable_x64", True)
    heading = True
    for name in asked.names:
        shape = SHAPES[name]
        held = drawn(shape) if asked.data is None else read(asked.data / name.lower(), shape)
        for algorithm in (cofed.FedNewton(), cofed.FedNL(cofed.TopK(min(1.0, 16 / (shape.d + 1))))):
            row = measured(name, held, algorithm, asked.rounds)
            if heading:
                print("| " + " | ".join(row) + " |\n|" + " --- |" * len(row))
                heading = False
            print("| " + " | ".join(map(str, row.values())) + " |", flush=True)


if __name__ == "__main__":
    main()
