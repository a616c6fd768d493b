"""Compressed uploads beside whole ones on one job, as JSON lines; with --figure also as a picture.

    python -m benchmarks.compression [--rounds N] [--all-rounds N] [--methods M] [--compressors C] [--figure PATH]

The job is that of benchmarks/rounds.py: federated LASSO, 64 clients x 128 samples, d = 1024, one local epoch of batch
10, float32; with 10 clients per round, and with all. The steps are the same with and without compression: client_lr =
0.0005, server_lr = 1. `relative_gap` is how far the last objective is above the one of the same method with whole
uploads after the same number of rounds. CPU seconds include compilation.
"""

import argparse
import json
import time

import numpy as np

from benchmarks.rounds import BATCH, CLIENTS, LAM, LR, PER_ROUND, SAMPLES, SERVER_LR, D, data

METHODS = ("FedDualAvg", "FedDecouple")
BITS, TOP_SHARE, RANDOM_SHARE = 1, 0.032, 0.047  # at most 5 % of the bytes: 33 entries with places, 49 without


def compressors():
    """The compressors by name; None sends whole updates."""
    import cofed

    return {
        "whole": None,
        "quantised": cofed.Quantised(BITS),
        "top-k": cofed.TopK(TOP_SHARE),
        "random-k": cofed.RandomK(RANDOM_SHARE),
    }


def run(method, compressor, per_round, rounds, X, y):
    """One run: its record, and the objective over the megabytes that all clients have sent."""
    import cofed

    federation = cofed.Federation.from_arrays(list(zip(X, y, strict=True)))
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(LAM))
    algorithm = getattr(cofed, method)(client_lr=LR, server_lr=SERVER_LR)
    if compressor is not None:
        algorithm = cofed.Compressed(algorithm, compressor)
    began = time.process_time()
    result = cofed.run(
        problem,
        federation,
        algorithm,
        rounds=rounds,
        local_epochs=1,
        batch_size=BATCH,
        clients_per_round=per_round,
        evaluate_every=max(1, rounds // 40),
        progress=False,
    )
    history = result.history
    record = {
        "job": f"lasso {CLIENTS}x{SAMPLES}, d={D}, {per_round or 'all'} per round, epoch of batch {BATCH}, float32",
        "method": method,
        "compressor": str(compressor),
        "rounds": rounds,
        "client_lr": LR,
        "bytes_up_per_client": result.communication.up_per_client,
        "objective": round(float(history["objective"][-1]), 4),
        "outcome": result.outcome.name,
        "cpu_seconds": round(time.process_time() - began, 1),
    }
    return record, (np.asarray(history["bytes_up"]) / 1e6, np.asarray(history["objective"]))


def draw(curves, path):
    """Objective over megabytes sent, a panel per job and method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    panels = list(dict.fromkeys((per_round, method) for per_round, method, _ in curves))
    figure, axes = plt.subplots(1, len(panels), figsize=(4.2 * len(panels), 3.6), layout="constrained", sharey=True)
    colours = {"whole": "#000000", "quantised": "#009E73", "top-k": "#0072B2", "random-k": "#D55E00"}
    for axis, (per_round, method) in zip(np.atleast_1d(axes), panels, strict=True):
        for (p, m, name), (megabytes, objective) in curves.items():
            if (p, m) == (per_round, method):
                axis.plot(megabytes[1:], objective[1:], label=name, color=colours[name])
        axis.set(xscale="log", yscale="log", xlabel="megabytes sent by all clients", ylim=(45, 1000))
        axis.set_title(f"{method}, {per_round or 'all'} clients per round")
        axis.set_yticks([50, 100, 200, 500, 1000], ["50", "100", "200", "500", "1000"])
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes = np.atleast_1d(axes)
    axes[0].set_ylabel("objective")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=110)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2000, help="rounds with 10 clients each; 0: none")
    parser.add_argument("--all-rounds", type=int, default=600, help="rounds with all clients; 0: none")
    parser.add_argument("--methods", default=",".join(METHODS), help="which, separated by commas")
    parser.add_argument("--compressors", default="quantised,top-k,random-k", help="which, separated by commas")
    parser.add_argument("--figure", help="where to draw the objective over the bytes, as PNG")
    arguments = parser.parse_args()
    X, y = data()
    curves, known = {}, compressors()
    for per_round, rounds in ((PER_ROUND, arguments.rounds), (None, arguments.all_rounds)):
        for method in arguments.methods.split(",") if rounds else ():
            whole = None
            for name in ("whole", *arguments.compressors.split(",")):
                record, curves[per_round, method, name] = run(method, known[name], per_round, rounds, X, y)
                whole = whole or record
                gap = record["objective"] / whole["objective"] - 1
                record["bytes_ratio"] = round(record["bytes_up_per_client"] / whole["bytes_up_per_client"], 4)
                record["relative_gap"] = float(f"{gap:.2g}")
                record["within_1_percent"] = bool(gap <= 0.01)
                print(json.dumps(record), flush=True)
    if arguments.figure:
        draw(curves, arguments.figure)


if __name__ == "__main__":
    main()
