"""A call that works for every public callable, and the kind of each of its parameters."""

import functools
import inspect
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd

import cofed
import cofed.plotting
from cofed.regularizers import AbstractRegularizer
from tests.bad_inputs import kinds as k
from tests.bad_inputs.judge import Call
from tests.bad_inputs.kinds import Kind

FOLDER = Path(tempfile.mkdtemp())
FRAME = pd.DataFrame({"site": ["a", "b", "c"] * 4, "age": np.arange(12.0), "cost": np.arange(12.0) ** 2})
FRAME.to_csv(FOLDER / "table.csv", index=False)
FRAME.to_parquet(FOLDER / "table.parquet")
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(12, 2)), np.arange(12) % 2
PAIRS = [(X[m::3], X[m::3] @ [1.0, -1.0]) for m in range(3)]
FEDERATION = cofed.Federation.from_arrays(PAIRS, names=["a", "b", "c"])
DISK = cofed.Federation.from_parquet(
    FOLDER / "table.parquet", target="cost", client="site", on_disk=True, index=FOLDER / "index"
)
PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(0.1))
METHOD = cofed.FedDualAvg(client_lr=0.01)
W = {"coef": jnp.array([[1.0, -2.0], [0.5, 0.0]])}
COEF = {"coef": np.array([0.5, -0.5])}


def whole_numbers(value: Any, count: int) -> bool:
    """So many whole numbers >= 1 in a list."""
    listed = isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim == 1)
    listed = listed and len(value) == count
    return listed and all(k.whole(1, 2**31 - 1)(one) for one in value)


# What a parameter of this name is, wherever it stands; a call may say otherwise.
rate = k.grid_of(k.positive)
NAMES: dict[str, Kind] = {
    "algorithm": k.nothing,
    "client_lr": rate,
    "server_lr": rate,
    "mu": rate,
    "L": rate,
    "eta": rate,
    "prox_step": rate,
    "mirror": k.nothing,
    "client_prox": k.flag,
    "gradient_tracking": k.flag,
    "strength": k.grid_of(k.nonnegative),
    "l1_ratio": k.grid_of(k.real(0, 1)),
    "radius": rate,
    "regularizer": k.nothing,
    "problem": k.nothing,
    "federation": k.nothing,
    "seed": k.whole(0, 2**32 - 1),
    "rounds": k.whole(1, 2**31 - 1),
    "local_steps": k.either(k.optional(k.whole(1, 2**31 - 1)), lambda v: whole_numbers(v, 3)),
    "local_epochs": k.optional(k.whole(1, 2**31 - 1)),
    "batch_size": k.optional(k.whole()),
    "clients_per_round": k.optional(k.whole(1, 3)),
    "weights": k.one_per(3, low=0),
    "topology": k.optional(k.nothing),
    "link_failure": k.real(0, 0),
    "clock": k.optional(k.nothing),
    "start": k.optional(k.nothing),
    "mean": k.optional(k.nothing),
    "mesh": k.optional(k.nothing),
    "cores": k.optional(k.whole(1, 2**31 - 1)),
    "w0": k.either(k.optional(k.nothing), lambda v: isinstance(v, (list, np.ndarray)) and k.one_per(2)(v)),
    "evaluate_every": k.optional(k.whole(1, 2**31 - 1)),
    "keep_models": k.flag,
    "metrics": k.optional(lambda v: v == {} if isinstance(v, dict) else False),
    "evaluation": k.optional(k.nothing),
    "per_client": k.flag,
    "checkpoint": k.optional(k.file_to_write),
    "checkpoint_every": k.optional(k.whole()),
    "keep_checkpoints": k.whole(),
    "progress": k.optional(k.flag),
    "debug": k.flag,
    "callbacks": k.empty_list,
    "clients": k.whole(1, 10**6),
    "samples": k.whole(1, 10**6),
    "d": k.whole(1, 10**6),
    "dtype": k.nothing,
    "nodes": k.whole(1, 10**6),
    "threshold": k.nonnegative,
    "leaf": k.text,
    "folder": lambda v: isinstance(v, str) and Path(v).is_dir(),
    "tol": k.positive,
    "max_iterations": k.whole(1, 2**31 - 1),
    "intercept": k.flag,
    "groups": k.optional(k.nothing),
    "alpha": k.positive,
    "min_size": k.whole(1, 10**6),
}


def tree(value: Any) -> bool:
    """A model: a pytree of floating arrays or numbers, at least one."""
    if isinstance(value, list):
        return bool(value) and all(tree(leaf) for leaf in value)
    return isinstance(value, (float, np.floating)) or (type(value) is np.ndarray and value.dtype.kind == "f")


def leaves_of(kind: Kind) -> Kind:
    """Numbers for each coordinate: what the kind accepts, or a pytree of it."""

    def accepts(value: Any) -> bool:
        parts = list(value.values()) if isinstance(value, dict) else value
        if isinstance(parts, list):
            return bool(parts) and all(accepts(part) for part in parts)
        return kind(value) and np.size(value) > 0

    return accepts


def traced(method: Callable[..., Any]) -> Callable[..., Any]:
    """The method as JAX traces it: what it refuses, it refuses then, and nothing needs to be compiled."""

    @functools.wraps(method)
    def shape(**arguments: Any) -> Any:
        return jax.eval_shape(lambda: method(**arguments))

    return shape


CALLS: dict[str, Callable[[], Call]] = {}


def enrol(
    name: str,
    function: Any,
    arguments: dict[str, Any],
    ends: Any = (),
    spread: str | None = None,
    words: tuple[str, ...] = (),
    /,
    **own: Kind,
) -> None:
    """Put a call into the table; every parameter needs a kind."""

    part = str(inspect.stack()[1].frame.f_globals["__name__"])

    def make() -> Call:
        names = [parameter for parameter in inspect.signature(function).parameters if parameter != "self"]
        missing = [parameter for parameter in names if parameter not in own and parameter not in NAMES]
        if missing:
            raise LookupError(f"{name}: what kind of parameter is {', '.join(missing)}? Say it in {__file__}")
        found = {parameter: own.get(parameter, NAMES.get(parameter, k.nothing)) for parameter in names}
        return Call(function, arguments, found, ends if isinstance(ends, tuple) else (ends,), spread, words)

    if name in CALLS:
        raise LookupError(f"{name} is in the table twice")
    make.__module__ = part
    CALLS[name] = make


# Algorithms, compressors, mirrors.
optional_rate = k.optional(rate)
stages = k.either(
    k.real(0, strict=True), lambda v: isinstance(v, list) and k.numbers(v) and np.ndim(v) == 1 and v != []
)
enrol("FedAvg", cofed.FedAvg, {"client_lr": 0.1})
enrol("FedMiD", cofed.FedMiD, {"client_lr": 0.1})
enrol("FedDualAvg", cofed.FedDualAvg, {"client_lr": 0.1})
weights = {"mu": k.grid_of(k.nonnegative), "growth": k.grid_of(k.nonnegative)}
share = k.grid_of(k.real(0, 1))
enrol("FastFedDA", cofed.FastFedDA, {"mu": 0.1, "L": 1.0}, **weights)
enrol(
    "CFedDA",
    cofed.CFedDA,
    {"mu": 0.1, "L": 1.0},
    **weights,
    last_share=share,
    radius=k.optional(k.grid_of(k.real(0, strict=True, infinite=True))),
    scale=rate,
)
enrol(
    "MCFedDA",
    cofed.MCFedDA,
    {"mu": 0.1, "L": 1.0, "strengths": (0.2, 0.1)},
    **weights,
    last_share=share,
    strengths=k.optional(stages),
    sparsity=optional_rate,
    radii=k.optional(stages),
    stage_rounds=k.optional(k.nothing),
)
enrol("FedDecouple", cofed.FedDecouple, {"client_lr": 0.1})
enrol("FedDR", cofed.FedDR, {"client_lr": 0.1, "eta": 1.0}, alpha=rate)
enrol("FedADMM", cofed.FedADMM, {"client_lr": 0.1, "eta": 1.0})
enrol("Scaffold", cofed.Scaffold, {"client_lr": 0.1})
enrol("FedFISTA", cofed.FedFISTA, {"L": 1.0})
enrol("NormalMap", cofed.NormalMap, {"prox_step": 0.1})
enrol("FedNewton", cofed.FedNewton, {}, working_set=k.optional(k.whole()))
fraction = k.grid_of(lambda value: k.real(0, strict=True)(value) and k.real(high=1)(value))
enrol("FedNL", cofed.FedNL, {"compressor": cofed.TopK(0.5)}, compressor=k.nothing, hessian_lr=fraction)
enrol("Compressed", cofed.Compressed, {"algorithm": METHOD, "compressor": cofed.TopK(0.5)}, compressor=k.nothing)
enrol("PrivateRows", cofed.PrivateRows, {"algorithm": METHOD, "clip": 1.0, "noise": 8.0}, clip=rate, noise=rate)
enrol(
    "ServerOptimizer",
    cofed.ServerOptimizer,
    {"algorithm": cofed.FedAvg(0.1), "optimizer": optax.adam, "options": {"learning_rate": 0.1}},
    optimizer=k.nothing,
    options=k.nothing,
)
falling = {"client_lr": lambda r: 1 / (1 + r)}
enrol("Scheduled", cofed.Scheduled, {"algorithm": METHOD, "schedules": falling}, schedules=k.nothing)
enrol("ProxSkip", cofed.ProxSkip, {"client_lr": 0.1, "probability": 0.3}, probability=fraction)
enrol("SDANE", cofed.SDANE, {"strength": 1.0}, mu=weights["mu"])
enrol("AccSDANE", cofed.AccSDANE, {"strength": 1.0}, mu=weights["mu"])
enrol("NIDS", cofed.NIDS, {"client_lr": 0.1})
enrol("PGExtra", cofed.PGExtra, {"client_lr": 0.1})
enrol("DASM", cofed.DASM, {"step": 0.1}, step=rate)
enrol("DFedDA", cofed.DFedDA, {"client_lr": 0.1})
enrol("DFedMiD", cofed.DFedMiD, {"client_lr": 0.1})
enrol("DScaffold", cofed.DScaffold, {"client_lr": 0.1})
enrol(
    "ReFedDAGT",
    cofed.ReFedDAGT,
    {"client_lr": 0.1},
    radius_squared=k.grid_of(k.real(0, strict=True, infinite=True)),
    sparsity=k.optional(k.whole()),
    mix_start=k.flag,
)
enrol(
    "MReFedDAGT",
    cofed.MReFedDAGT,
    {"client_lr": 0.1, "radius_squared": 1.0, "sparsity": 1},
    radius_squared=rate,
    sparsity=k.whole(),
    stages_count=k.whole(),
    steps_growth=k.whole(),
)
enrol(
    "FedProx",
    cofed.FedProx,
    {"strength": 1.0, "client_lr": 0.1},
    **dict.fromkeys(["client_lr", "server_lr", "mu", "radius"], optional_rate),
)
enrol("PureLocal", cofed.PureLocal, {"client_lr": 0.1}, **dict.fromkeys(["client_lr", "mu", "radius"], optional_rate))
enrol(
    "Alternative",
    cofed.Alternative,
    {"client_lr": 0.1},
    client_lr=optional_rate,
    held_out=k.real(0, 1, strict=True),
    folds=k.optional(k.whole(2)),
    by_client=k.flag,
    shared=k.optional(k.nothing),
    local=k.optional(k.nothing),
)
enrol("TopK", cofed.TopK, {"share": 0.5}, share=k.real(0.01, 1))
enrol("RandomK", cofed.RandomK, {"share": 0.5}, share=k.real(0.01, 1))
enrol("Quantised", cofed.Quantised, {"bits": 2}, bits=k.whole(1, 16))
enrol("PNorm", cofed.PNorm, {"p": 3.0}, p=k.optional(k.grid_of(k.real(2))))
for mirror in (cofed.Entropy(), cofed.Euclidean(), cofed.PNorm()):
    enrol(f"{type(mirror).__name__}.value", traced(mirror.value), {"w": W}, w=tree)
enrol("Euclidean.norm", traced(cofed.Euclidean().norm), {"w": W}, w=tree)
enrol("PNorm.norm", traced(cofed.PNorm().norm), {"w": W}, w=tree)

# Losses, models, regularizers, the problem.
enrol("Huber", cofed.Huber, {}, delta=rate)
enrol("Tweedie", cofed.Tweedie, {}, power=k.grid_of(k.real(1, 2)))
enrol("NegativeBinomial", cofed.NegativeBinomial, {}, theta=k.optional(rate))
enrol("SmoothQuantile", cofed.SmoothQuantile, {}, level=k.grid_of(k.real(0.001, 0.999)), width=rate)
enrol("Softmax", cofed.Softmax, {}, classes=k.optional(k.whole(2, 10**6)))
enrol("Squared", cofed.Squared, {}, half=k.flag, responses=k.optional(k.whole(2, 10**6)))
no_sizes: Kind = lambda v: isinstance(v, (tuple, list)) and not v  # noqa: E731
enrol("MLP", cofed.MLP, {"hidden": (3,)}, hidden=no_sizes, activation=k.function)
enrol(
    "CNN",
    cofed.CNN,
    {"image": (8, 8, 1), "maps": (2,), "hidden": (3,)},
    image=k.nothing,
    maps=no_sizes,
    hidden=no_sizes,
    activation=k.function,
)
enrol("Linear", cofed.Linear, {})
enrol("Trace", cofed.Trace, {"d1": 2, "d2": 2}, d1=k.whole(), d2=k.whole())
per_coordinate = k.optional(leaves_of(k.grid_of(k.nonnegative)))
bound = leaves_of(k.grid_of(k.real(infinite=True)))
enrol("L1", cofed.L1, {"strength": 0.1}, weights=per_coordinate)
enrol("MCP", cofed.MCP, {"strength": 0.1}, gamma=rate)
enrol("SCAD", cofed.SCAD, {"strength": 0.1}, a=k.grid_of(k.real(2, strict=True)))
enrol("Box", cofed.Box, {"low": -1e301, "high": 1e301}, low=bound, high=bound)
enrol("ElasticNet", cofed.ElasticNet, {"strength": 0.1, "l1_ratio": 0.5})
enrol("GroupL1", cofed.GroupL1, {"strength": 0.1}, weights=per_coordinate)
enrol("SparseGroupL1", cofed.SparseGroupL1, {"strength": 0.1, "l1_ratio": 0.5}, weights=per_coordinate)
enrol("L0Ball", cofed.L0Ball, {"k": 2}, k=k.whole(0, 2**31 - 1))
enrol("L1Ball", cofed.L1Ball, {"radius": 1.0}, radius=k.grid_of(k.nonnegative))
enrol("L2Ball", cofed.L2Ball, {"radius": 1.0}, radius=k.grid_of(k.nonnegative))
enrol("Nuclear", cofed.Nuclear, {"strength": 0.1})
enrol("On", cofed.On, {"regularizer": cofed.L1(0.1), "names": ("coef",)}, (), "names", names=k.text)
enrol("Scaled", cofed.Scaled, {"regularizer": cofed.L1(0.1), "factor": 2.0}, factor=rate)
enrol("Simplex", cofed.Simplex, {"radius": 1.0})
enrol("Sum", cofed.Sum, {"parts": (cofed.On(cofed.L1(0.1), "coef"),)}, (), "parts", parts=k.nothing)
enrol("TotalVariation", cofed.TotalVariation, {"strength": 0.1})
enrol(
    "Translated", cofed.Translated, {"regularizer": cofed.L1(0.1), "center": 1.0}, center=leaves_of(k.grid_of(k.finite))
)
REGULARIZERS: list[AbstractRegularizer] = [
    *(cofed.L1(0.1), cofed.MCP(0.1), cofed.SCAD(0.1), cofed.Box(-1.0, 1.0), cofed.ElasticNet(0.1, 0.5)),
    *(cofed.GroupL1(0.1), cofed.SparseGroupL1(0.1, 0.5), cofed.L0Ball(1), cofed.L1Ball(1.0), cofed.L2Ball(1.0)),
    *(cofed.NonNegative(), cofed.Nuclear(0.1), cofed.On(cofed.L1(0.1), "coef"), cofed.Scaled(cofed.L1(0.1), 2.0)),
    *(cofed.Simplex(), cofed.Sum(cofed.On(cofed.L1(0.1), "coef")), cofed.TotalVariation(0.1)),
    *(cofed.Translated(cofed.L1(0.1), 1.0), cofed.Zero()),
]
for psi in REGULARIZERS:
    methods = {
        "value": {"w": W},
        "prox": {"v": W, "step": 1.0},
        "subgradient": {"w": W},
        "dual_norm": {"z": W},
        "prox_in_ball": {"v": W, "step": 1.0, "anchor": W, "radius": 1.0},
    }
    for method, arguments in methods.items():
        offered = {"prox_in_ball": psi.is_norm, "dual_norm": psi.has_dual_norm}.get(method, True)
        if offered:  # others have no ball, or no dual norm
            ends = TypeError if method == "subgradient" and psi.is_indicator else ()
            enrol(
                f"{type(psi).__name__}.{method}",
                traced(getattr(psi, method)),
                arguments,
                ends,
                None,
                ("leaf", "model"),
                **dict.fromkeys(["w", "v", "z", "anchor"], tree),
                step=k.nonnegative,
                radius=k.nonnegative,
            )
enrol(
    "Privacy",
    cofed.Privacy,
    {"epsilon": 1.0},
    epsilon=k.positive,
    delta=k.real(1e-300, 0.999),
    centre=k.guess(k.finite),
    spread=k.guess(k.positive),
    label_centre=k.finite,
    label_spread=k.positive,
    colluding=k.whole(0, 10_000),
    rounds=k.whole(1, 10_000),
)
enrol(
    "Problem",
    cofed.Problem,
    {},
    model=k.nothing,
    loss=lambda v: callable(v) and not isinstance(v, type),
)
enrol("Problem.check", PROBLEM.check, {"federation": FEDERATION})
enrol("Problem.start", PROBLEM.start, {"federation": FEDERATION, "w0": COEF})
batch = {"w": PROBLEM.start(FEDERATION, COEF), "X": jnp.asarray(X), "y": jnp.asarray(X[:, 0])}
enrol("Problem.predict", PROBLEM.predict, {"w": batch["w"], "X": batch["X"]}, w=k.nothing, X=k.nothing)
