"""How much faster a grid is as vmapped programs than one by one: `python -m benchmarks.tuning` prints JSON.

The grid is that of yuan2021-fig3: four algorithms with 49 pairs of learning rates each, 500 rounds of the paper's
LASSO. Both ways run the same rounds, batches and evaluations, in one process, with `cofed.tune` and `cofed.run`. A grid
leaves behind what has diverged, and a run of its own stops there. Compilation is timed apart, by a first call: a grid
compiles once or twice for each algorithm, runs of their own once.

One by one may be measured on a part of the pairs (`--one-by-one N`, spread evenly over the grid) and is then scaled to
all 49; `seconds` are of the clock, `cpu` of the processor (on a machine with other work, trust the latter).
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable

import jax

import cofed
from cofed.experiments import yuan2021


def timed(work: Callable[[], object]) -> dict[str, float]:
    """How long work takes."""
    clock, processor = time.perf_counter(), time.process_time()
    work()
    return {"seconds": time.perf_counter() - clock, "cpu": time.process_time() - processor}


def main() -> None:
    """Both ways, for each algorithm and in all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--every", type=int, default=100, help="rounds between evaluations")
    parser.add_argument("--algorithms", type=int, default=4, help="how many of the four")
    parser.add_argument("--one-by-one", type=int, default=49, help="how many of the 49 pairs to run one by one")
    options = parser.parse_args()
    warnings.filterwarnings("ignore", message=".* diverged in round")

    numbers = yuan2021.LASSOS[0].numbers("full")
    setup = yuan2021.lasso(numbers, 0)
    given = dict(setup.run) | {
        "rounds": options.rounds,
        "evaluate_every": options.every,
        "metrics": setup.metrics,
        "progress": False,
    }
    rows = []
    for method in yuan2021.four(numbers)[: options.algorithms]:
        grid = method.algorithms()
        part = grid[:: max(1, len(grid) // options.one_by_one)][: options.one_by_one]

        def together(grid=grid):
            cofed.tune(setup.problem, setup.federation, grid, **given)

        def alone(some):
            for algorithm in some:
                cofed.run(setup.problem, setup.federation, algorithm, **given)

        first, again = timed(together), timed(together)
        compiling, each = timed(lambda grid=grid: alone(grid[:1])), timed(lambda part=part: alone(part))
        scale = len(grid) / len(part)
        rows.append(
            {
                "algorithm": method.label,
                "pairs": len(grid),
                "grid": again,
                "grid with compilation": first,
                "pairs run one by one": len(part),
                "one by one": {name: value * scale for name, value in each.items()},
                "first run with compilation": compiling,
                "ratio": {name: each[name] * scale / again[name] for name in each},
            }
        )
        print(json.dumps(rows[-1]), flush=True)
    total = {
        way: {name: sum(row[way][name] for row in rows) for name in ("seconds", "cpu")}
        for way in ("grid", "grid with compilation", "one by one")
    }
    ratio = {name: total["one by one"][name] / total["grid"][name] for name in ("seconds", "cpu")}
    with_compilation = {
        name: total["one by one"][name] / total["grid with compilation"][name] for name in ("seconds", "cpu")
    }
    about = {"rounds": options.rounds, "evaluate every": options.every, "devices": jax.local_device_count()}
    print(json.dumps({"all": about | total | {"ratio": ratio, "ratio with compilation": with_compilation}}, indent=2))


if __name__ == "__main__":
    main()
