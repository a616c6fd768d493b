"""Where the time of a round goes: the jobs of `benchmarks.peers` with parts taken away, `python -m benchmarks.parts`.

A job runs as it is, without the clients' proximal steps, without any, and so with a single local step; differences are
the parts. Processor milliseconds of a round on one device, turn by turn, the median of the turns; a line of JSON for
each job. What is left ("rest") is drawing clients and batches, the first step, the mean, and what is recorded. Random
pixels and labels stand for MNIST's, as in `benchmarks.versions`.
"""

import argparse
import json
import os
import statistics
import time

from benchmarks.peers.contenders.with_cofed import LOSSES, MODELS, REGULARIZERS
from benchmarks.peers.jobs import JOBS, Job
from benchmarks.versions import numbers

KEYS = [key for key, job in JOBS.items() if not job.ring]


def variants(job: Job) -> dict:
    """The job whole and with parts taken away: problem, algorithm and local steps of each."""
    import cofed

    kind = type(job.model)
    model, loss = MODELS[kind](job.model), LOSSES[kind](job.model)
    whole = cofed.Problem(model, loss, REGULARIZERS[type(job.regularizer)](job.regularizer))
    smooth = cofed.Problem(model, loss, cofed.Zero())
    return {
        "whole": (whole, cofed.FedMiD(job.lr), job.steps),
        "server's prox only": (whole, cofed.FedMiD(job.lr, client_prox=False), job.steps),
        "no prox": (smooth, cofed.FedMiD(job.lr), job.steps),
        "one step, no prox": (smooth, cofed.FedMiD(job.lr), 1),
    }


def measured(job: Job, seconds: float, turns: int) -> dict[str, float]:
    """Processor milliseconds of a round of every variant, each timed for about so many seconds in a turn."""
    import cofed

    X, y = numbers(job)
    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    w0, programs = job.model.start(), {}

    def cost(name: str, rounds: int) -> float:
        problem, algorithm, steps = programs[name]
        began = time.process_time()
        cofed.run(
            problem,
            federation,
            algorithm,
            rounds=rounds,
            local_steps=steps,
            batch_size=job.batch,
            clients_per_round=job.per_round,
            w0=w0,
            evaluate_every=rounds,
        )
        return time.process_time() - began

    programs.update(variants(job))
    took: dict[str, list[float]] = {name: [] for name in programs}
    count = {}
    for name in programs:
        cost(name, 2)  # compiles
        count[name] = 1 + max(2, round(seconds / max(1e-4, (cost(name, 6) - cost(name, 1)) / 5)))
    for _ in range(turns):
        for name, of in took.items():
            of.append(1000 * (cost(name, count[name]) - cost(name, 1)) / (count[name] - 1))
    return {name: statistics.median(of) for name, of in took.items()}


def parts(job: Job, found: dict[str, float]) -> dict[str, float]:
    """The milliseconds of each part of a round."""
    further = found["no prox"] - found["one step, no prox"]
    return {
        "a round": found["whole"],
        "clients' proximal steps": found["whole"] - found["server's prox only"],
        "the server's": found["server's prox only"] - found["no prox"],
        f"gradients of {job.steps - 1} further steps": further,
        "rest": found["one step, no prox"],
    }


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs", nargs="*", help=f"of {', '.join(KEYS)}; all of them by default")
    parser.add_argument("--seconds", type=float, default=2.0, help="of a variant in a turn")
    parser.add_argument("--turns", type=int, default=3)
    given = parser.parse_args()
    if unknown := set(given.jobs) - set(KEYS):
        parser.error(f"there is no job {', '.join(sorted(unknown))}; take of {', '.join(KEYS)}")
    os.environ["COFED_CORES"] = "1"
    for key in given.jobs or KEYS:
        found = parts(JOBS[key], measured(JOBS[key], given.seconds, given.turns))
        shown = {name: round(value, 3) for name, value in found.items()}
        print(json.dumps({"job": key, "cpu_ms": shown, "load": os.getloadavg()[0]}), flush=True)


if __name__ == "__main__":
    main()
