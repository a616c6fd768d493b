"""`FedDecouple("auto", "auto")` beside the best of a grid: rounds to a small gap, on twelve problems, as a table.

    python -m benchmarks.auto [--rounds N]

FedDecouple with 5 local steps and full gradients. The grid has 49 points: client_lr 0.001 to 1, server_lr 0.25 to 4. A
run is done where its objective has fallen to within 1/1000 of the way from the start to the lowest that any run has
seen (1/100 for the network, whose lowest is no minimum). Fixed before any run: "auto" is good where it takes at most
twice the rounds of the best grid point; it is to be good in at least 10 of 12, and must never diverge.
"""

import argparse
import warnings

import numpy as np

import cofed

CLIENTS, D, K = 8, 12, 5
CLIENT_LRS, SERVER_LRS = np.logspace(-3, 0, 7), (0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0)


def features(rng, heterogeneous):
    """A table per client; heterogeneous clients differ in size, scale of the features and direction of the truth."""
    truth = np.r_[np.ones(4), -np.ones(2), np.zeros(D - 6)]
    for m in range(CLIENTS):
        n = 40 + 20 * m * heterogeneous
        scale = rng.uniform(0.5, 2.0, size=D) if heterogeneous else np.ones(D)
        yield rng.normal(size=(n, D)) * scale, truth + heterogeneous * rng.normal(size=D)


def federation(kind, heterogeneous):
    """The clients of a kind of problem."""
    rng = np.random.default_rng(1)
    clients = []
    for X, truth in features(rng, heterogeneous):
        signal = X @ truth
        noise = rng.normal(size=len(X))
        if kind == "labels":
            y = (signal + noise > 0).astype(int)
        elif kind == "classes":
            y = np.digitize(signal + noise, [-1.5, 1.5])
        else:
            y = signal + noise
        clients.append((X.reshape(len(X), 3, 4) if kind == "matrices" else X, y))
    return cofed.Federation.from_arrays(clients)


def problems():
    """Name, problem, federation and the part of the way that may be left."""
    linear = cofed.Linear(intercept=False)
    groups = tuple(np.repeat(np.arange(4), 3).tolist())
    kinds = {
        "least squares": ("numbers", linear, cofed.Squared(), cofed.L1(0.05)),
        "logistic": ("labels", linear, cofed.Logistic(), cofed.L1(0.01)),
        "multinomial": ("classes", linear, cofed.Softmax(3), cofed.L1(0.01)),
        "group": ("numbers", linear, cofed.Squared(), cofed.GroupL1(0.05, groups)),
        "ball": ("numbers", linear, cofed.Squared(), cofed.L2Ball(1.5)),
        "nuclear": ("matrices", cofed.Trace(3, 4, intercept=False), cofed.Squared(), cofed.Nuclear(0.05)),
        "MLP": ("numbers", cofed.MLP(hidden=(8,)), cofed.Squared(), cofed.L1(0.001)),
    }
    for name, (data, model, loss, psi) in kinds.items():
        for heterogeneous in (False, True)[: 1 if name in ("nuclear", "MLP") else 2]:
            words = f"{name}, {'heterogeneous' if heterogeneous else 'balanced'}"
            yield (
                words,
                cofed.Problem(model, loss, psi),
                federation(data, heterogeneous),
                1e-2 if name == "MLP" else 1e-3,
            )


def first(curve, target):
    """The round in which a curve reaches a target; infinity where it does not."""
    reached = np.flatnonzero(curve <= target)
    return reached[0] if reached.size else np.inf


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    options = {"rounds": rounds, "local_steps": K, "progress": False}
    grid = [cofed.FedDecouple(float(c), float(s)) for c in CLIENT_LRS for s in SERVER_LRS]
    good = 0
    print("| problem | auto | rounds | best of grid | rounds | ratio | diverged in the grid |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, problem, clients, gap in problems():
        result = cofed.run(problem, clients, cofed.FedDecouple("auto", "auto"), **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the grid's points that diverge
            curves = cofed.tune(problem, clients, grid, evaluate_every=1, **options).curves["objective"]
        ours = np.asarray(result.history["objective"])
        lowest = min(np.nanmin(np.where(np.isfinite(curves), curves, np.inf)), ours.min())
        target = lowest + gap * (ours[0] - lowest)
        taken = np.array([1 + first(curve, target) for curve in curves])  # a grid's curves begin after round 1
        best, auto = grid[int(taken.argmin())], first(ours, target)
        diverged = int(np.sum(~np.isfinite(curves[:, -1]) | (curves[:, -1] > 2 * ours[0])))
        good += auto <= 2 * taken.min() and result.outcome is cofed.Outcome.COMPLETED
        print(
            f"| {name} | {result.algorithm.client_lr:.3g}, {result.algorithm.server_lr:.3g} | {auto} | "
            f"{best.client_lr:.3g}, {best.server_lr:g} | "
            f"{taken.min()} | {auto / taken.min():.2g} | {diverged} of {len(grid)} |",
            flush=True,
        )
        assert result.outcome is cofed.Outcome.COMPLETED, result.outcome
    print(f"\nwithin twice the rounds of the best: {good} of 12")


if __name__ == "__main__":
    main()
