"""Every public function of `cofed.flower`, each of its parameters, and values of the wrong kind, sign, shape or size.

`python -m tests.flower.bad_inputs` prints what came of each as lines of JSON: without the tests' checks of types, as
a user meets it.
"""

import contextlib
import json
import math
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import cofed
from cofed.flower import Privacy, client_app, read_saved, serve, server_app
from cofed.flower.certificates import make
from cofed.sites.policy import TRIAL
from tests.flower.loopback import network

VALUES: dict[str, Any] = {
    "a text": "abc",
    "an empty text": "",
    "a text with a zero byte": "a\0b",
    "bytes": b"abc",
    "nothing": None,
    "true": True,
    "zero": 0,
    "one": 1,
    "two and a half": 2.5,
    "minus one": -1,
    "huge": 10**30,
    "NaN": math.nan,
    "infinite": math.inf,
    "complex": 1j,
    "an empty list": [],
    "a list of numbers": [1.0, 2.0],
    "a list of a NaN": [math.nan, 1.0],
    "a list of negatives": [-1.0, 1.0],
    "a list of texts": ["oslo", "rome"],
    "a text twice": ["oslo", "oslo"],
    "an empty mapping": {},
    "a mapping of NaN": {"oslo": math.nan, "rome": 1.0},
    "an array": np.ones(3),
    "an empty array": np.ones((0, 2)),
    "a function": len,
    "a class": cofed.FedAvg,
    "an object": object(),
}
RNG = np.random.default_rng(0)
DATA = {site: (RNG.normal(size=(n, 3)), RNG.normal(size=n)) for site, n in (("oslo", 5), ("rome", 7))}
FEDERATION = cofed.Federation.from_arrays(DATA)
PROBLEM, METHOD = cofed.Problem(), cofed.FedAvg(0.1)


class Call(NamedTuple):
    """A function, what is right for its parameters, and for each the values above that are right too."""

    function: Callable[..., Any]
    right: Callable[[Path], dict[str, Any]]
    allowed: dict[str, set[str]]


def served(**given: Any) -> Any:
    """A run over two sites in this process."""
    grid = given.pop("grid")
    return serve(network(PROBLEM, METHOD, FEDERATION)[0] if grid is HERE else grid, **given)


HERE = object()  # stands for a grid with the two sites
RUN = {"grid": HERE, "problem": PROBLEM, "algorithm": METHOD, "rounds": 1, "clients": 2, "plain": True}
CALLS = {
    "serve": Call(
        served,
        lambda folder: (
            RUN
            | {
                "quorum": None,
                "checkpoint": None,
                "local_steps": 1,
                "local_epochs": None,
                "batch_size": None,
                "clients_per_round": None,
                "weights": "uniform",
                "w0": None,
                "seed": 0,
                "evaluate_every": 1,
                "privacy": None,
                "cohorts": None,
                "deadline": 2.0,
                "patience": 2.0,
            }
        ),
        {
            "grid": set(),
            "problem": set(),
            "algorithm": set(),
            "rounds": {"one"},
            "clients": {"a list of texts", "one"},
            "quorum": {"nothing", "one"},
            "deadline": {"one", "two and a half"},
            "patience": {"one", "two and a half"},
            "checkpoint": {"nothing", "a text"},
            "local_steps": {"nothing", "one"},
            "local_epochs": {"nothing"},
            "batch_size": {"nothing", "one"},
            "clients_per_round": {"nothing", "one"},
            "weights": {"a list of numbers"},
            "w0": {"nothing"},
            "seed": {"zero", "one"},
            "evaluate_every": {"nothing", "one"},
            "privacy": {"nothing"},
            "plain": {"true"},
            "cohorts": {"nothing"},
        },
    ),
    "server_app": Call(
        server_app,
        lambda folder: {
            "problem": PROBLEM,
            "algorithm": METHOD,
            "rounds": 1,
            "clients": 2,
            "quorum": 1,
            "deadline": 1.0,
            "weights": "uniform",
            "seed": 0,
            "privacy": None,
            "w0": None,
            "checkpoint": None,
            "plain": True,
        },
        {
            "problem": {"a function"},
            "algorithm": {"a function"},
            "rounds": {"one"},
            "clients": {"nothing", "one", "a text", "a list of texts"},
            "quorum": {"nothing", "one"},
            "deadline": {"one", "two and a half"},
            "weights": {"a list of numbers", "an array"},
            "seed": {"zero", "one"},
            "privacy": {"nothing"},
            "w0": set(VALUES),  # whose shape the sites' data decide
            "checkpoint": {"nothing", "a text"},
            "plain": {"true"},
        },
    ),
    "client_app": Call(
        client_app,
        lambda folder: {
            "problem": PROBLEM,
            "algorithm": METHOD,
            "load": lambda node: DATA["oslo"],
            "keep": None,
            "privacy": None,
            "plain": False,
            "roster": None,
            "policy": TRIAL,
            "mods": None,
        },
        {
            "problem": {"a function"},
            "algorithm": {"a function"},
            "load": {"a function"},
            "keep": {"nothing", "a function"},
            "privacy": {"nothing"},
            "plain": {"true"},
            "roster": {"nothing", "a function"},
            "policy": {"a function"},
            "mods": {"nothing", "an empty list"},
        },
    ),
    "Privacy": Call(
        Privacy,
        lambda folder: {"clip": 1.0, "noise": 8.0, "delta": 1e-5},
        {"clip": {"one", "two and a half", "huge"}, "noise": {"one", "two and a half", "huge"}, "delta": set()},
    ),
    "Privacy.epsilon": Call(
        lambda rounds: Privacy(1.0, 8.0).epsilon(rounds), lambda folder: {"rounds": 3}, {"rounds": {"zero", "one"}}
    ),
    "read_saved": Call(read_saved, lambda folder: {"folder": folder / "run"}, {"folder": set()}),
    "certificates.make": Call(
        make,
        lambda folder: {"folder": folder / "certificates", "hosts": ["localhost"], "sites": ["oslo"]},
        {
            "folder": {"a text"},
            "hosts": {"a list of texts", "a text twice"},
            "sites": {"a list of texts", "an empty list"},
        },
    ),
}


def cases() -> Iterator[tuple[str, str, str]]:
    """Function, parameter, value."""
    for name, call in CALLS.items():
        for parameter in call.allowed:
            for value in VALUES:
                yield name, parameter, value


def tried(name: str, parameter: str, value: str) -> dict[str, Any]:
    """What came of it."""
    call = CALLS[name]
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder), warnings.catch_warnings(record=True):
        given = call.right(Path(folder)) | {parameter: VALUES[value]}
        if parameter in ("checkpoint", "folder") and value == "a text":
            given[parameter] = str(Path(folder) / "abc")
        try:
            call.function(**given)
            kind, words = "", ""
        except Exception as error:
            kind, words = type(error).__name__, str(error)
    allowed = value in call.allowed.get(parameter, set())
    return {"call": name, "parameter": parameter, "value": value, "allowed": allowed, "kind": kind, "words": words}


if __name__ == "__main__":
    chosen = sys.argv[1:]
    for case in cases():
        if not chosen or case[0] in chosen:
            print(json.dumps(tried(*case)), flush=True)
