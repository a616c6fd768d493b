"""What one question to all sites costs over Flower: seconds and bytes, from real processes on loopback.

    python -m benchmarks.exchange --sites 4 --p 100 --exchanges 10

Each exchange is a `look` at 50 logistic models, the kind that a fit asks most. The first includes compiling.
"""

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd

from cofed.flower import start_sites
from cofed.losses import Logistic
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.queries import LookMessage, look

ROWS, MODELS = 500, 50


def tables(sites: int, p: int) -> dict[str, pd.DataFrame]:
    """Rows of sites, with a target of two classes."""
    rng, found = np.random.default_rng(0), {}
    for number in range(sites):
        X = rng.normal(size=(ROWS, p))
        ill = X[:, 0] + rng.normal(size=ROWS) > 0
        found[f"site{number}"] = pd.DataFrame(X, columns=[f"x{j}" for j in range(p)]).assign(ill=ill)
    return found


def measure(sites: int, p: int, exchanges: int, folder: Path) -> dict[str, float]:
    """Seconds until the sites are there, of the first exchange and of a later one, and the bytes of a site."""
    rng, began = np.random.default_rng(1), time.perf_counter()
    with start_sites(tables(sites, p), folder, ChosenColumns(target="ill")) as start:
        ready, asked = time.perf_counter() - began, start.of_numbers()
        for _ in range(exchanges):
            some = np.zeros((0, 1), np.int32)
            coef, without = rng.normal(size=(MODELS, p, 1)) / p, np.full(MODELS, -1, np.int32)
            asked.ask(look, LookMessage(coef, np.zeros((MODELS, 1)), without, some[:, 0], some, loss=Logistic()))
        done = [one for one in asked.exchanges if one.what == "look"]
    later = [one.seconds for one in done[1:]] or [float("nan")]
    return {
        "sites": sites,
        "p": p,
        "until the sites are there, s": round(ready, 2),
        "first exchange, s": round(done[0].seconds, 2),
        "a later exchange, s (median)": round(float(np.median(later)), 2),
        "bytes down, per site": done[-1].down // sites,
        "bytes up, per site": done[-1].up // sites,
        "load of the machine": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What one question to all sites costs.")
    parser.add_argument("--sites", type=int, default=4)
    parser.add_argument("--p", type=int, action="append", help="features; may be repeated")
    parser.add_argument("--exchanges", type=int, default=10)
    given = parser.parse_args()
    for size in given.p or [100, 1_000]:
        with tempfile.TemporaryDirectory() as where:
            print(json.dumps(measure(given.sites, size, given.exchanges, Path(where))), flush=True)
