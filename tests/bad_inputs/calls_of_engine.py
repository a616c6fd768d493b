"""The table goes on: runs, what they give, and pictures of it."""

import inspect
import itertools

import networkx as nx
import numpy as np
from matplotlib.figure import Figure

import cofed
import cofed.plotting
from tests.bad_inputs import kinds as k
from tests.bad_inputs.calls import COEF, FEDERATION, FOLDER, METHOD, PROBLEM, enrol

RESULT = cofed.run(PROBLEM, FEDERATION, METHOD, rounds=1, progress=False)
BY_CLIENT = cofed.run(PROBLEM, FEDERATION, METHOD, rounds=1, progress=False, per_client=True)
enrol("History.clients", BY_CLIENT.history.clients, {}, column=lambda value: isinstance(value, str) and value == "loss")
enrol("History.to_csv", RESULT.history.to_csv, {"path": FOLDER / "rows.csv"}, path=k.file_to_write)
enrol("History.to_parquet", RESULT.history.to_parquet, {"path": FOLDER / "rows.parquet"}, path=k.file_to_write)
save = {"folder": k.file_to_write, "label": k.optional(k.text)}
SAVED, COUNT = FOLDER / "saved", itertools.count()


def saving(write):
    """Every good folder is a new one: a second result in one is refused."""
    return lambda folder, label=None: write(FOLDER / f"saved-{next(COUNT)}" if folder is SAVED else folder, label)


enrol("Result.save", saving(RESULT.save), {"folder": SAVED}, **save)
enrol("plotting.colour", cofed.plotting.colour, {"label": "FedAvg"}, label=k.any_text)
enrol("plotting.style", cofed.plotting.style, {"label": "FedAvg"}, label=k.any_text)
enrol(
    "plotting.plot_history",
    cofed.plotting.plot_history,
    {"results": {"FedDualAvg": RESULT}},
    (),
    None,
    ("column",),
    results=k.nothing,
    columns=k.nothing,
    x=k.nothing,
    path=k.optional(k.nothing),
    ax=k.optional(k.nothing),
    references=k.optional(lambda v: isinstance(v, dict) and not v),
    title=k.optional(k.any_text),
)
enrol(
    "plotting.save",
    cofed.plotting.save,
    {"figure": Figure(), "path": FOLDER / "a.png"},
    figure=k.nothing,
    path=k.nothing,
)
enrol(
    "plotting.draw_graph",
    cofed.plotting.draw_graph,
    {"graph": nx.path_graph(3), "title": "three"},
    graph=k.nothing,
    title=k.any_text,
    path=k.optional(k.nothing),
)

# The engine.
clock = dict.fromkeys(["spread", "jitter", "staleness"], k.nonnegative)
enrol("Clock", cofed.Clock, {"seconds": 1.0}, seconds=k.either(k.positive, k.one_per(2, low=0)), **clock)
KEPT = FOLDER / "kept"
going = {"problem": PROBLEM, "federation": FEDERATION, "rounds": 1, "evaluate_every": 1}
enrol("run", cofed.run, {**going, "algorithm": METHOD, "progress": False}, checkpoint_every=k.optional(k.nothing))
enrol(
    "forecast",
    cofed.forecast,
    {**going, "algorithm": METHOD, "seconds": 0.01},
    evaluate_every=k.whole(1, 2**31 - 1),
    seconds=k.real(0, 5, strict=True),
)
enrol(
    "tune",
    cofed.tune,
    {**going, "grid": [METHOD], "progress": False},
    grid=k.nothing,
    score=k.optional(k.nothing),
    last=k.whole(),
    maximise=k.optional(k.flag),
    memory=k.whole(1, 10**400),
)
enrol(
    "replicate",
    cofed.replicate,
    {**going, "algorithm": METHOD, "seeds": 1, "progress": False},
    seeds=k.either(k.whole(1, 3), inspect.isgenerator),
    options=k.nothing,
)
SEEDS = cofed.replicate(PROBLEM, FEDERATION, METHOD, rounds=1, seeds=2, progress=False)
enrol("Replicates.save", saving(SEEDS.save), {"folder": SAVED}, **save)
TUNED = cofed.tune(PROBLEM, FEDERATION, [METHOD], rounds=1, progress=False)
enrol("Tuning.save", saving(TUNED.save), {"folder": SAVED}, **save)
enrol("Replicates.bands", SEEDS.bands, {}, column=k.nothing, low=k.real(0, 1), high=k.real(0, 1))
cofed.run(PROBLEM, FEDERATION, METHOD, rounds=1, checkpoint=KEPT, progress=False)
enrol(
    "resume",
    cofed.resume,
    {"checkpoint": KEPT, "progress": False},
    (),
    None,
    ("holds no run",),
    checkpoint=k.nothing,
    rounds=k.optional(k.whole(1, 2**31 - 1)),
    **dict.fromkeys(["problem", "federation", "algorithm"], k.optional(k.nothing)),
)
enrol("mesh", cofed.mesh, {}, devices=k.optional(k.whole(1, 1)))
enrol("solve_pooled", cofed.solve_pooled, {"problem": PROBLEM, "federation": FEDERATION})
enrol(
    "solve_local",
    cofed.solve_local,
    {"problem": PROBLEM, "federation": FEDERATION, "client": "a"},
    client=k.whole(-3, 2),
)
SMOOTH = cofed.Problem(cofed.Linear(intercept=False))
FITS = cofed.Federation.from_arrays(
    [(x := np.random.default_rng(m).normal(size=(16, 2)), x.sum(1) + m) for m in range(3)]
)
enrol("heterogeneity", cofed.heterogeneity, {"problem": SMOOTH, "federation": FITS}, level=k.real(0, 1, strict=True))
enrol(
    "excess_risk",
    cofed.excess_risk,
    {"problem": SMOOTH, "fresh": FITS, "models": COEF, "truth": COEF},
    fresh=k.nothing,
    models=lambda v: isinstance(v, (list, np.ndarray)) and k.one_per(2)(v),
    truth=lambda v: isinstance(v, (list, np.ndarray)) and k.one_per(2)(v),
    weights=k.one_per(3, low=0),
)
AHEAD = cofed.forecast(PROBLEM, FEDERATION, METHOD, rounds=1, seconds=0.01)
enrol("Forecast.seconds_with", AHEAD.seconds_with, {"clients": 10}, clients=k.whole(1, 10**12))
