"""How much faster a grid is as one vmapped program than one by one: `python -m benchmarks.tuning`.

The grid is that of yuan2021-fig3: 49 pairs of learning rates for each of four algorithms, on the paper's LASSO. Both
ways run the same rounds, batches and evaluations, in one process; compilation is timed apart, by a call of one round.
"""

import argparse
import time
import warnings

import jax

import cofed
from cofed.experiments import yuan2021
from cofed.experiments.declare import Experiment


def main() -> None:
    """Both ways, and their ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--every", type=int, default=100, help="rounds between evaluations")
    parser.add_argument("--algorithms", type=int, default=4, help="how many of the four")
    parser.add_argument("--one-by-one", type=int, default=49, help="how many of the 49 to run one by one")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".* diverged in round")

    figure: Experiment = yuan2021.LASSOS[0]
    numbers = figure.numbers("full")
    setup = yuan2021.lasso(numbers, 0)
    schedule = dict(setup.run) | {"evaluate_every": options.every, "metrics": setup.metrics, "progress": False}
    totals = {"compile": 0.0, "together": 0.0, "compile alone": 0.0, "alone": 0.0}
    print(f"{options.rounds} rounds, evaluated every {options.every}; {jax.local_device_count()} device")
    print(f"{'':16} {'grid, compile':>14} {'grid':>8} {'one, compile':>14} {'one by one':>11} {'ratio':>6}")
    for method in yuan2021.four(numbers)[: options.algorithms]:
        grid = method.algorithms()

        def together(rounds: int, grid=grid) -> float:
            began = time.perf_counter()
            cofed.tune(setup.problem, setup.federation, grid, **(schedule | {"rounds": rounds}))
            return time.perf_counter() - began

        def alone(rounds: int, some: list) -> float:
            began = time.perf_counter()
            for algorithm in some:
                cofed.run(setup.problem, setup.federation, algorithm, **(schedule | {"rounds": rounds}))
            return time.perf_counter() - began

        first, whole = together(1), together(options.rounds)
        part = grid[:: max(1, len(grid) // options.one_by_one)][: options.one_by_one]
        first_alone, each = alone(1, grid[:1]), alone(options.rounds, part) * len(grid) / len(part)
        for name, value in zip(totals, (first, whole, first_alone, each), strict=True):
            totals[name] += value
        print(
            f"{method.label:16} {first:12.1f} s {whole:6.1f} s {first_alone:12.1f} s {each:9.1f} s {each / whole:6.1f}"
        )
    print(
        f"{'all':16} {totals['compile']:12.1f} s {totals['together']:6.1f} s {totals['compile alone']:12.1f} s "
        f"{totals['alone']:9.1f} s {totals['alone'] / totals['together']:6.1f}"
    )


if __name__ == "__main__":
    main()
