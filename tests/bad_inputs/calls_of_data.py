"""The table goes on: federations, partitions, data sets, metrics, loggers, topologies."""

import networkx as nx
import numpy as np

import cofed
from tests.bad_inputs import kinds as k
from tests.bad_inputs.calls import DISK, FEDERATION, FOLDER, FRAME, PAIRS, X, Y, enrol

# Federations.
column = k.word("age", "cost")
columns = k.optional(k.nothing)
enrol(
    "Federation.from_arrays",
    cofed.Federation.from_arrays,
    {"clients": PAIRS},
    clients=k.nothing,
    names=k.optional(k.nothing),
    feature_names=k.optional(k.names),
    dtype=k.optional(k.nothing),
)
table = {"target": "cost", "client": "site"}
tabled = {
    "target": k.nothing,
    "client": column,
    "features": columns,
    "clients": k.optional(lambda v: k.texts(v) and list(v) == ["a", "b"]),
    "dtype": k.optional(k.nothing),
}
enrol("Federation.from_frame", cofed.Federation.from_frame, {"df": FRAME, **table}, df=k.nothing, **tabled)
enrol(
    "Federation.from_csv", cofed.Federation.from_csv, {"path": FOLDER / "table.csv", **table}, path=k.nothing, **tabled
)
enrol(
    "Federation.from_parquet",
    cofed.Federation.from_parquet,
    {"path": FOLDER / "table.parquet", **table},
    path=k.nothing,
    on_disk=k.flag,
    index=k.optional(k.nothing),
    **tabled,
)


def draw(key, client, size):
    """A stream's samples."""
    import jax

    features = jax.random.normal(key, (size, 2))
    return features, features.sum(axis=1)


enrol(
    "Federation.from_stream",
    cofed.Federation.from_stream,
    {"draw": draw, "clients": 2, "samples": 3},
    draw=k.nothing,
    names=k.optional(k.names),
)
enrol("Federation.check_labels", FEDERATION.check_labels, {"refuses": lambda y: None}, refuses=k.function)
enrol("Federation.client", FEDERATION.client, {"which": "a"}, which=k.whole(-3, 2))
enrol("Federation.position", FEDERATION.position, {"which": "a"}, which=k.whole(-3, 2), given=k.anything)
enrol("Federation.select", FEDERATION.select, {"names": ["a"]}, names=k.names)
split = {"test": k.real(0, 1, strict=True), "count": k.whole(2), "seed": k.whole(0)}
enrol("Federation.split", FEDERATION.split, {}, test=split["test"], seed=split["seed"])
enrol("Federation.folds", FEDERATION.folds, {"count": 2}, count=split["count"], seed=split["seed"])
enrol("Federation.fold_of", FEDERATION.fold_of, {"count": 2}, count=split["count"], seed=split["seed"])
enrol("Federation.groups", FEDERATION.groups, {"groups": [np.arange(4)] * 3})
enrol("Federation.weights", FEDERATION.weights, {"kind": "samples"}, (), None, ("weights",), kind=k.one_per(3, low=0))
enrol("disk.DiskFederation.client", DISK.client, {"which": "a"}, which=k.whole(-3, 2))
enrol(
    "disk.DiskFederation.position",
    DISK.position,
    {"which": "a"},
    which=k.whole(-3, 2),
    given=k.anything,
)
enrol("disk.DiskFederation.select", DISK.select, {"names": ["a"]}, names=k.names)
enrol("disk.DiskFederation.measured_on", DISK.measured_on, {"clients": 2}, clients=k.whole(1, 3), seed=split["seed"])
enrol(
    "disk.DiskFederation.weights", DISK.weights, {"kind": "samples"}, (), None, ("weights",), kind=k.one_per(3, low=0)
)
enrol("disk.DiskFederation.check_labels", DISK.check_labels, {"refuses": lambda y: None}, refuses=k.function)

# Partitions of pooled data.
pooled = {"X": X, "y": Y}
either = {"X": k.nothing, "y": k.nothing, "clients": k.whole(1, 12), "seed": split["seed"]}
enrol("partition.iid", cofed.partition.iid, {**pooled, "clients": 3}, **either)
enrol(
    "partition.by_label",
    cofed.partition.by_label,
    {**pooled, "clients": 3},
    labels_per_client=k.whole(1, 2),
    **either,
)
enrol("partition.dirichlet", cofed.partition.dirichlet, {**pooled, "clients": 3, "alpha": 1.0}, **either)
enrol("partition.by_column", cofed.partition.by_column, {**pooled, "column": Y}, column=k.nothing, **either)

# Data sets.
small = {"clients": 2, "samples": 3, "d": 4}
few = {"clients": 2, "samples": 3, "d": 4, "s": 2}
of = cofed.datasets
part = {"nonzeros": k.whole(0, 4), "rank": k.whole(0, 4), "test_clients": k.whole(0, 10**6), "s": k.whole(1, 4)}
loose = {"heterogeneity": k.nonnegative, "noise": k.nonnegative, "seed": split["seed"]}
enrol("datasets.bao_low_rank", of.bao_low_rank, {**small, "rank": 2}, rank=part["rank"], seed=split["seed"])
enrol(
    "datasets.bao_sparse",
    of.bao_sparse,
    {**small, "nonzeros": 2},
    nonzeros=part["nonzeros"],
    correlation=k.real(-1, 1, strict=True),
    seed=split["seed"],
)
enrol(
    "datasets.chen_logistic",
    of.chen_logistic,
    small,
    norm=k.nonnegative,
    test_samples=k.whole(0, 10**6),
    **{name: loose[name] for name in ("heterogeneity", "seed")},
)
for name in ("liang_linear", "liang_linear_stream"):
    enrol(f"datasets.{name}", getattr(of, name), few, s=k.whole(0, 4), **loose)
enrol(
    "datasets.liang_logistic",
    of.liang_logistic,
    few,
    s=part["s"],
    test_samples=k.whole(0, 10**6),
    heterogeneity=k.nonnegative,
    seed=split["seed"],
)
enrol(
    "datasets.liang_logistic_stream",
    of.liang_logistic_stream,
    few,
    s=part["s"],
    heterogeneity=k.nonnegative,
    seed=split["seed"],
)
enrol(
    "datasets.yuan_fmri_like",
    of.yuan_fmri_like,
    {**small, "d": 40, "regions": 2, "region_size": 3, "smoothness": 3, "test_clients": 1},
    regions=k.whole(1, 13),
    region_size=k.whole(1, 20),
    smoothness=k.whole(1, 40),
    signal=k.nonnegative,
    test_clients=part["test_clients"],
    seed=split["seed"],
)
enrol(
    "datasets.yuan_lasso",
    of.yuan_lasso,
    {**small, "nonzeros": 2, "test_clients": 1},
    nonzeros=part["nonzeros"],
    test_clients=part["test_clients"],
    scale=k.nonnegative,
    seed=split["seed"],
)
enrol(
    "datasets.yuan_low_rank",
    of.yuan_low_rank,
    {**small, "rank": 2, "test_clients": 1},
    rank=part["rank"],
    test_clients=part["test_clients"],
    scale=k.nonnegative,
    seed=split["seed"],
)
enrol(
    "datasets.zhang_logistic",
    of.zhang_logistic,
    small,
    alpha=k.nonnegative,
    beta=k.nonnegative,
    normalize=k.flag,
    by_coordinate=k.flag,
    seed=split["seed"],
)
enrol("datasets.digits", of.digits, {}, parts=k.whole(1, 122), flat=k.flag)
images = of.Images(np.zeros((20, 28, 28), "float32"), np.arange(20) % 10, np.zeros((1, 28, 28)), np.zeros(1))
enrol(
    "datasets.mnist_by_writer",
    of.mnist_by_writer,
    {"images": images, "writers": 2, "min_size": 2},
    images=k.nothing,
    writers=k.whole(1, 20),
    seed=split["seed"],
)
# Loaders find no data here; what is given to them is checked before they look.
absent = {"folder": str(FOLDER)}
enrol("datasets.data_folder", of.data_folder, {"given": str(FOLDER)}, (), None, ("folder",), given=k.nothing)
enrol("datasets.mnist", of.mnist, absent, FileNotFoundError, folder=k.nothing, download=k.word())
enrol(
    "datasets.femnist",
    of.femnist,
    absent,
    FileNotFoundError,
    folder=k.nothing,
    **dict.fromkeys(["test", "digits_only", "flat"], k.flag),
    writers=k.optional(k.either(k.whole(), k.texts)),
)
scans = {
    "folder": k.nothing,
    "classes": k.optional(k.texts),
    "mask": k.text,
    "standardize": k.flag,
}
enrol("datasets.haxby", of.haxby, absent, FileNotFoundError, subjects=k.whole(0), parts=k.whole(), **scans)
enrol("datasets.haxby_split", of.haxby_split, absent, FileNotFoundError, **scans)

# Metrics, loggers, topologies, pictures.
leaf = {"threshold": k.nonnegative}
enrol("metrics.density", cofed.metrics.density, {}, leaf=k.optional(k.text))
enrol("metrics.rank", cofed.metrics.rank, {})
truth = k.either(k.finite, k.flag, lambda v: type(v) in (list, np.ndarray) and k.numbers(v) and np.size(v) > 0)
enrol("metrics.support", cofed.metrics.support, {"truth": X[0]}, truth=truth)
enrol("metrics.f1", cofed.metrics.f1, {"truth": X[0]}, truth=truth)
enrol("metrics.distance", cofed.metrics.distance, {"truth": X[0]}, truth=truth, order=k.whole(1, 2))
enrol("metrics.on_samples", cofed.metrics.on_samples, {"measure": lambda p, y: p - y}, measure=k.function)
enrol("metrics.higher_is_better", cofed.metrics.higher_is_better, {"metric": lambda w: 0.0}, metric=k.function)
enrol("loggers.CSV", cofed.loggers.CSV, {"path": FOLDER / "rows.csv"}, path=k.file_to_write)
enrol("loggers.TensorBoard", cofed.loggers.TensorBoard, {"folder": FOLDER / "events"}, folder=k.file_to_write)
enrol(
    "loggers.MLflow",
    cofed.loggers.MLflow,
    {},
    experiment=k.text,
    **dict.fromkeys(["run_name", "tracking_uri", "run_id"], k.optional(k.text)),
)
judged = {"column": k.text, "maximise": k.optional(k.flag)}
enrol("callbacks.KeepBest", cofed.callbacks.KeepBest, {}, **judged)
stopping = judged | {"patience": k.whole(), "min_delta": k.nonnegative}
enrol("callbacks.EarlyStopping", cofed.callbacks.EarlyStopping, {}, **stopping)
for name in ("Uniform", "Cyclic"):
    enrol(f"samplers.{name}", getattr(cofed.samplers, name), {"clients": 3}, clients=k.whole())
enrol("batches.Shuffled", cofed.batches.Shuffled, {"samples": 3}, samples=k.whole())
enrol("batches.Weighted", cofed.batches.Weighted, {"samples": 3}, samples=k.whole(), weight=k.function)
hours = {"day": k.positive, "awake": lambda v: k.positive(v) and k.real(0, 1)(v), "dropout": k.real(0, 1)}
enrol("means.Trimmed", cofed.means.Trimmed, {"share": 0.1}, share=k.real(0, 0.499))
clipping = {"norm": k.real(0, strict=True, infinite=True), "noise": k.nonnegative}
enrol("means.Clipped", cofed.means.Clipped, {"norm": 1.0}, **clipping)
enrol("means.Geometric", cofed.means.Geometric, {}, iterations=k.whole(), smoothing=k.positive)
enrol("samplers.Availability", cofed.samplers.Availability, {"clients": 3}, clients=k.whole(), **hours)
enrol(
    "samplers.Importance",
    cofed.samplers.Importance,
    {"clients": 1, "sizes": [1.0, 2.0, 3.0]},
    clients=k.whole(1, 1),
    sizes=lambda v: type(v) in (list, np.ndarray) and k.numbers(v) and np.ndim(v) == 1 and np.size(v) > 0,
)
for name in ("chain", "ring", "star", "complete"):
    enrol(f"topologies.{name}", getattr(cofed.topologies, name), {"nodes": 4})
for name in ("grid", "torus"):
    enrol(
        f"topologies.{name}",
        getattr(cofed.topologies, name),
        {"rows": 2, "columns": 3},
        rows=k.whole(1, 10**6),
        columns=k.whole(1, 10**6),
    )
enrol(
    "topologies.erdos_renyi",
    cofed.topologies.erdos_renyi,
    {"nodes": 4, "probability": 0.9},
    probability=k.real(0, 1),
    seed=split["seed"],
    tries=k.whole(),
)
enrol("topologies.from_graph", cofed.topologies.from_graph, {"graph": nx.path_graph(3)}, graph=k.nothing, name=k.text)
enrol(
    "topologies.from_matrix",
    cofed.topologies.from_matrix,
    {"matrix": np.full((2, 2), 0.5)},
    matrix=k.nothing,
    name=k.text,
)
enrol("topologies.Topology.draw", cofed.topologies.ring(4).draw, {}, path=k.optional(k.nothing))

# Descriptions.
enrol(
    "describe",
    cofed.describe,
    {"sites": FRAME, "client": "site"},
    (),
    None,
    ("path", "site", "client"),
    sites=k.nothing,
    client=column,
)
enrol(
    "Description.to_csv",
    cofed.describe(FRAME, "site").to_csv,
    {"path": FOLDER / "described.csv"},
    path=k.file_to_write,
)

# Meta-analysis. Its rows are taken in by estimators, which have a table of their own.
many = np.arange(48.0).reshape(24, 2) ** 2 % 7, np.arange(24.0) % 5, ["a", "b", "c"] * 8


def combining(model, sample_weight=None, offset=None, method="reml", level=0.95, small_sites="refuse"):
    """A meta-analysis of these rows."""
    options = {"method": method, "level": level, "small_sites": small_sites}
    return cofed.meta_analysis(model, *many, sample_weight=sample_weight, offset=offset, **options)


enrol(
    "meta_analysis",
    combining,
    {"model": "gaussian"},
    model=k.nothing,
    sample_weight=k.optional(k.one_per(24, low=0)),
    offset=k.optional(k.one_per(24)),
    method=k.word("reml", "dl"),
    level=k.real(0, 1, strict=True),
    small_sites=k.word("refuse", "drop"),
)
twice = np.tile(many[0], (2, 1)) + np.arange(48)[:, None] % 7 / 10, np.tile(many[1], 2)
enrol(
    "advise_sites",
    lambda model, level=0.95: cofed.advise_sites(model, *twice, ["a"] * 24 + ["b"] * 24, level=level),
    {"model": "gaussian"},
    model=k.word("gaussian", "binomial", "poisson"),
    level=k.real(0, 1, strict=True),
)
enrol(
    "MetaAnalysis.plot",
    combining("gaussian").plot,
    {},
    path=k.optional(k.nothing),
    coefficients=k.optional(k.whole(0, 1)),
)
