"""The index of clients on disk: every sample in its place, whatever the order of the files; whole, or not there."""

import fcntl
import json
import os
import re

import numpy as np
import pandas as pd
import pyarrow.feather as feather
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import cofed
from cofed._util import naming
from cofed.federation.disk import build, source
from tests.disk import worlds


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    """Blocks of a few rows and parts of a few samples, as with data that do not fit."""
    monkeypatch.setattr(source, "ROWS", 5)
    monkeypatch.setattr(build, "PART", 200)
    monkeypatch.setattr(build, "TALLY", 3)


def on_disk(df, folder, **options):
    df.to_parquet(folder / "all.parquet", index=False)
    asked = {"target": "y", "client": "site", **options}
    return cofed.Federation.from_parquet(folder / "all.parquet", on_disk=True, **asked)


def assert_same_clients(disk, memory):
    assert list(disk.names) == list(memory.names)
    assert disk.sizes.tolist() == memory.sizes.tolist()
    assert disk.dtype == memory.dtype
    assert disk.feature_names == memory.feature_names
    for name in memory.names:
        for found, wanted in zip(disk.client(name), memory.client(name), strict=True):
            np.testing.assert_array_equal(found, wanted)
            assert found.dtype == wanted.dtype
    np.testing.assert_array_equal(disk.weights("samples"), memory.weights("samples"))
    ids = np.arange(len(memory.names))[::2]
    for found, wanted in zip(disk.stack(ids), (memory.X, memory.y), strict=True):
        np.testing.assert_array_equal(found, np.asarray(wanted)[ids])  # padding too


sites = st.sampled_from(
    [["1", "2", "10", "01", "a", "a2", "a10"], [7, 100, 3], [-5, 3, -12, 10], [2.5, -1.0], [True, False]]
)
numbers = st.floats(-1e6, 1e6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_every_client_has_the_samples_that_a_frame_gives_it(tmp_path_factory, data):
    names = data.draw(sites)
    rows = data.draw(st.integers(1, 25))
    column = lambda values: data.draw(st.lists(values, min_size=rows, max_size=rows))  # noqa: E731
    df = pd.DataFrame({"site": column(st.sampled_from(names)), "x0": column(numbers), "x1": column(st.integers(0, 9))})
    df["y"] = column(data.draw(st.sampled_from([numbers, st.integers(-5, 5), st.booleans()])))
    if data.draw(st.booleans()):
        df = df.sort_values("site", kind="stable")
    dtype = data.draw(st.sampled_from([None, "float32"]))
    folder = tmp_path_factory.mktemp("frames")
    memory = cofed.Federation.from_frame(df, target="y", client="site", dtype=dtype)
    assert_same_clients(on_disk(df, folder, dtype=dtype), memory)
    assert not [name for name in os.listdir(folder) if name.startswith(".")]


@pytest.mark.parametrize("shuffled", [False, True])
def test_files_in_any_order_and_in_several_parts(shuffled, tmp_path):
    memory, disk = worlds.both(worlds.table(40, shuffled=shuffled), tmp_path)
    assert_same_clients(disk, memory)
    assert list(disk.names)[8:12] == ["site 8", "site 9", "site 10", "site 11"]


def test_two_targets_folders_as_clients_and_names_of_other_kinds(tmp_path):
    df = pd.DataFrame({"x": [1.0, 2, 3, 4], "a": [1, 2, 3, 4], "b": [5, 6, 7, 8], "flag": [True, False, True, True]})
    kinds = {
        "kind": pd.Categorical(["u", "v", "u", "v"]),
        "day": pd.to_datetime(["2020-01-02", "2020-01-01", "2020-01-01", "2020-01-02"]),
    }
    for name, site in kinds.items():
        (tmp_path / name).mkdir()
        table, asked = df.assign(site=site), {"target": ["a", "b"], "client": "site", "features": ["flag", "x"]}
        memory = cofed.Federation.from_frame(table, **asked)
        assert_same_clients(on_disk(table, tmp_path / name, **asked), memory)
    df.assign(site=["p", "q", "q", "p"]).to_parquet(tmp_path / "hive", partition_cols=["site"], index=False)
    hive = {"target": "a", "client": "site", "features": ["x"]}
    memory = cofed.Federation.from_parquet(tmp_path / "hive", **hive)
    assert_same_clients(cofed.Federation.from_parquet(tmp_path / "hive", on_disk=True, **hive), memory)


@given(st.lists(st.text(alphabet="0129ab\x00é", max_size=6), min_size=2, max_size=8, unique=True))
def test_names_sort_by_bytes_as_by_texts_and_numbers(names):
    def definition(name):
        parts = re.split(r"([0-9]+)", name)
        return [(len(p.lstrip("0")), p.lstrip("0")) if i % 2 else (0, p) for i, p in enumerate(parts)], name

    assert sorted(names, key=naming.natural) == sorted(names, key=definition)


def test_an_index_is_used_again_and_built_again_when_the_files_change(tmp_path, monkeypatch):
    df = worlds.table(6)
    on_disk(df, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("cofed.federation.disk.federation.build", lambda *_: pytest.fail("built again"))
        asked = {"target": "y", "client": "site", "on_disk": True}
        assert cofed.Federation.from_parquet(tmp_path / "all.parquet", **asked).n_clients == 6
    with pytest.warns(
        UserWarning, match="was made of other files or columns than those asked for now: it is built again"
    ):
        changed = on_disk(worlds.table(9, seed=1), tmp_path)
    assert changed.n_clients == 9
    with pytest.warns(UserWarning, match="it is built again"):
        fewer = cofed.Federation.from_parquet(tmp_path / "all.parquet", features=["x1"], **asked)
    assert fewer.feature_names == ("x1",)
    assert sorted(os.listdir(tmp_path)) == ["all.parquet", "all.parquet.cofed"]


def test_the_index_is_readable_without_cofed(tmp_path):
    df = worlds.table(6, labels=True)
    disk = on_disk(df, tmp_path)
    folder = tmp_path / "all.parquet.cofed"
    assert sorted(os.listdir(folder)) == ["index.json", "names.arrow", "offsets.npy", "samples.npy"]
    samples, offsets = np.load(folder / "samples.npy"), np.load(folder / "offsets.npy")
    names = feather.read_feather(folder / "names.arrow")["client"].tolist()
    here = samples[offsets[names.index("site 3")] : offsets[names.index("site 3") + 1]]
    wanted = df[df["site"] == "site 3"]
    np.testing.assert_array_equal(here["X"], wanted[["x0", "x1", "x2", "x3"]])
    np.testing.assert_array_equal(here["y"], wanted["y"])
    meta = json.loads((folder / "index.json").read_text())
    assert meta["labels"] == [0, 1]
    assert (meta["clients"], meta["samples"]) == (6, len(df))
    assert disk.labels().dtype == np.int32


def test_many_labels_are_told_by_their_extremes(tmp_path):
    df = pd.DataFrame({"site": np.arange(3000) % 7, "x": 1.0, "y": np.random.default_rng(0).permutation(3000) + 0.5})
    df.loc[1500:, "y"] += 0.5
    found = on_disk(df, tmp_path).labels()
    assert len(found) < 100
    assert (found.min(), found.max()) == (df["y"].min(), df["y"].max())
    assert (found != np.round(found)).any()


BAD = {
    "missing client": (
        {"site": ["a", None, "b"]},
        "column 'site' names the client, but 1 of 3 rows have no value there",
    ),
    "missing feature": ({"x": [1.0, np.nan, 2.0]}, "client 'b' has missing values in column 'x'; drop these rows"),
    "missing whole number": ({"x": pd.array([1, None, 2], "Int64")}, "client 'b' has missing values in column 'x'"),
    "missing target": ({"y": [1.0, 2.0, np.nan]}, "client 'c' has missing values in column 'y'"),
    "infinite": ({"x": [np.inf, 1.0, 2.0]}, "client 'a': X, column 'x' holds an infinite number"),
    "text": ({"x": ["u", "v", "w"]}, "column 'x' holds .*string values, and only numbers can be used"),
    "too large": ({"x": [1.0, 1e300, 2.0]}, "client 'b': X holds numbers too large for float32"),
    "beyond 32 bits": ({"y": [1, 2, 2**40]}, "client 'c': y holds whole numbers beyond 32 bits"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_tables_get_a_sentence_and_leave_nothing_behind(what, tmp_path):
    columns, words = BAD[what]
    df = pd.DataFrame({"site": ["a", "b", "c"], "x": [1.0, 2.0, 3.0], "y": [1.0, 2.0, 3.0]} | columns)
    with pytest.raises((ValueError, TypeError), match=words):
        on_disk(df, tmp_path, dtype="float32")
    assert os.listdir(tmp_path) == ["all.parquet"]


def test_bad_arguments_get_a_sentence(tmp_path):
    df = worlds.table(3)
    disk = on_disk(df, tmp_path)
    path, asked = tmp_path / "all.parquet", {"target": "y", "client": "site", "on_disk": True}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("dear")
    (tmp_path / "wrong.parquet").write_text("no parquet")
    (tmp_path / "empty").mkdir()
    df[:0].to_parquet(tmp_path / "none.parquet")
    refused = [
        (
            lambda: cofed.Federation.from_parquet(path, index=tmp_path / "mine", **asked),
            "mine is not an index of cofed",
        ),
        (lambda: cofed.Federation.from_parquet(path, clients=["a"], **asked), "clients= is for federations in memory"),
        (lambda: cofed.Federation.from_parquet(path, "y", "site", index="here"), "index= is for on_disk=True"),
        (lambda: cofed.Federation.from_parquet(tmp_path / "wrong.parquet", **asked), "could not be read as parquet"),
        (lambda: cofed.Federation.from_parquet(tmp_path / "empty", **asked), "holds no file that ends in .parquet"),
        (lambda: cofed.Federation.from_parquet(tmp_path / "none.parquet", **asked), "has no rows"),
        (lambda: cofed.Federation.from_parquet(path, "z", "site", on_disk=True), "there is no target column 'z'"),
        (lambda: disk.client("nobody"), "there is no client 'nobody' among the 3 on disk"),
        (lambda: disk.client(3), "there is no client at position 3"),
        (lambda: disk.client(1.5), "given by its name or position"),
        (lambda: disk.select("site 1"), "expects a list of client names"),
        (lambda: disk.weights([1.0, 2.0]), "one number per client"),
    ]
    for ask, words in refused:
        with pytest.raises((ValueError, TypeError), match=words):
            ask()
    with pytest.raises(FileNotFoundError, match="there is no file or folder"):
        cofed.Federation.from_parquet(tmp_path / "gone.parquet", **asked)
    assert (tmp_path / "mine" / "thesis.txt").read_text() == "dear"
    assert disk.select(["site 2", "site 0"]).names == ("site 2", "site 0")


def test_a_damaged_index_gets_a_sentence(tmp_path):
    df = worlds.table(3)
    on_disk(df, tmp_path)
    folder = tmp_path / "all.parquet.cofed"
    whole = (folder / "samples.npy").read_bytes()
    for name, content in {"samples.npy": whole[:-1], "offsets.npy": b"", "index.json": b"{"}.items():
        before = (folder / name).read_bytes()
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match="is damaged: delete this folder"):
            cofed.Federation.from_parquet(tmp_path / "all.parquet", "y", "site", on_disk=True)
        (folder / name).write_bytes(before)
    meta = json.loads((folder / "index.json").read_text())
    for entry in ("source", "clients", "samples", "largest", "labels"):
        for other in ({k: v for k, v in meta.items() if k != entry}, {**meta, entry: None}):
            (folder / "index.json").write_text(json.dumps(other))
            with pytest.raises(ValueError, match="is damaged: delete this folder"):
                cofed.Federation.from_parquet(tmp_path / "all.parquet", "y", "site", on_disk=True)


@pytest.mark.parametrize("kind", [False, True])
def test_a_column_may_be_whole_numbers_in_one_file_and_floats_in_the_next(tmp_path, kind):
    pd.DataFrame({"site": ["a", "a"], "x": [1, 2], "y": [0.5, 1.5]}).to_parquet(tmp_path / "1.parquet")
    pd.DataFrame({"site": ["b"], "x": [2.5], "y": [1]}).to_parquet(tmp_path / "2.parquet")
    fed = cofed.Federation.from_parquet(
        tmp_path, "y", "site", on_disk=kind, **({"index": tmp_path / "index"} if kind else {})
    )
    assert fed.dtype == np.float64
    assert [fed.client(m)[0].ravel().tolist() for m in (0, 1)] == [[1.0, 2.0], [2.5]]
    assert fed.client("b")[1].tolist() == [1.0]


def test_a_build_that_is_stopped_or_killed_leaves_no_half_index(tmp_path, monkeypatch):
    df = worlds.table(6)
    df.to_parquet(tmp_path / "all.parquet")
    again = lambda: cofed.Federation.from_parquet(tmp_path / "all.parquet", "y", "site", on_disk=True)  # noqa: E731

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(source.Source, "samples", stopped)
        with pytest.raises(KeyboardInterrupt):
            again()
    assert os.listdir(tmp_path) == ["all.parquet"]
    killed = tmp_path / ".all.parquet.cofed.building"  # what a killed build leaves
    killed.mkdir()
    (killed / "part-0").write_text("half")
    handle = os.open(killed, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    with pytest.raises(RuntimeError, match="another process is building the index"):
        again()
    os.close(handle)
    assert again().n_clients == 6
    assert sorted(os.listdir(tmp_path)) == ["all.parquet", "all.parquet.cofed"]


def test_a_full_disk_is_noticed_before_it_is_full(tmp_path, monkeypatch):
    monkeypatch.setattr(build.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 10})())
    with pytest.raises(OSError, match=r"the index needs 0\.0 GB in .* give another folder as index="):
        on_disk(worlds.table(6), tmp_path)
    assert os.listdir(tmp_path) == ["all.parquet"]
