"""Private stays private: modes of files whatever the umask, names that stay in their folder, cells without formulas."""

import csv
import os
import stat
import threading
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed._util import files, spreadsheets
from cofed.experiments.experiment_file import opened, write_example
from cofed.experiments.parts import Parts
from tests import worlds
from tests.disk.worlds import table


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request):
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def modes(folder: Path) -> dict[str, int]:
    """Those of a folder and of all that is in it."""
    return {str(path.relative_to(folder.parent)): mode(path) for path in [folder, *folder.rglob("*")]}


def assert_private(folder: Path) -> None:
    found = modes(folder)
    assert len(found) > 1
    expected = {name: 0o700 if (folder.parent / name).is_dir() else 0o600 for name in found}
    assert found == expected


@pytest.fixture
def seen_being_written(monkeypatch):
    """The modes that files have as soon as they are made, before anything is in them."""
    seen: dict[str, int] = {}
    real = os.open

    def opened(path, flags, *rest, **options):
        handle = real(path, flags, *rest, **options)
        if flags & os.O_CREAT:
            seen[Path(path).name] = stat.S_IMODE(os.fstat(handle).st_mode)
        return handle

    monkeypatch.setattr(os, "open", opened)
    return seen


class TestModes:
    def test_a_checkpoint_and_the_data_in_it_are_the_owners_alone(self, tmp_path, umask, seen_being_written):
        """The run, its end and going on with it: all files, also in the moment when they are made."""
        folder = tmp_path / "run"
        options = {"rounds": 4, "local_steps": 1, "checkpoint_every": 2, "evaluation": worlds.linear(seed=1)}
        cofed.run(worlds.problem(), worlds.linear(), cofed.Scaffold(0.01), checkpoint=folder, **options)
        assert_private(folder)
        cofed.resume(folder)
        assert_private(folder)
        assert {"federation", "evaluation", "run", "round-000000002"} <= {
            name.lstrip(".").split(".")[0] for name in seen_being_written
        }
        assert all(made & ~0o600 == 0 for made in seen_being_written.values())

    @pytest.mark.parametrize("shuffled", [False, True])  # of which the second goes through files in parts
    def test_an_index_is_the_owners_alone(self, tmp_path, umask, shuffled, seen_being_written):
        rows = table()
        rows = rows.sample(frac=1.0, random_state=0) if shuffled else rows.sort_values("site")
        rows.to_parquet(tmp_path / "rows.parquet")
        place = tmp_path / "index"
        cofed.Federation.from_parquet(tmp_path / "rows.parquet", "y", "site", on_disk=True, index=place)
        assert_private(place)
        assert {"samples.npy", "offsets.npy", "names.arrow", "index.json"} <= set(seen_being_written)
        assert any(name.startswith("part-") for name in seen_being_written) == shuffled
        assert all(made & ~0o600 == 0 for made in seen_being_written.values())

    def test_what_a_killed_build_left_open_is_closed(self, tmp_path):
        rows = table()
        rows.to_parquet(tmp_path / "rows.parquet")
        left = tmp_path / ".index.building"
        left.mkdir(mode=0o777)
        left.chmod(0o777)
        cofed.Federation.from_parquet(tmp_path / "rows.parquet", "y", "site", on_disk=True, index=tmp_path / "index")
        assert_private(tmp_path / "index")

    def test_what_is_made_to_be_shown_has_the_permissions_of_any_new_file(self, tmp_path):
        result = cofed.run(worlds.problem(), worlds.linear(), cofed.FedAvg(0.01), rounds=2)
        for umask in (0o000, 0o022, 0o077):
            before = os.umask(umask)
            try:
                folder = tmp_path / f"{umask:o}"
                result.history.to_csv(folder / "a.csv")
                result.history.to_parquet(folder / "a.parquet")
            finally:
                os.umask(before)
            assert modes(folder) == {
                f"{umask:o}": 0o777 & ~umask,
                f"{umask:o}/a.csv": 0o666 & ~umask,
                f"{umask:o}/a.parquet": 0o666 & ~umask,
            }

    def test_the_umask_of_the_process_is_never_changed(self, tmp_path, monkeypatch):
        """It belongs to all threads: while it was 0, another one would make open files."""
        monkeypatch.setattr(os, "umask", None)
        files.atomically(tmp_path / "a", lambda name: Path(name).write_text("a"))
        files.atomically(tmp_path / "b", lambda name: Path(name).write_text("b"), shown=True)

    def test_an_old_file_keeps_nobody_in(self, tmp_path):
        """A file that others could read is replaced by one that they cannot."""
        path = tmp_path / "state"
        path.write_text("old")
        path.chmod(0o666)
        files.atomically(path, lambda name: Path(name).write_text("new"))
        assert (path.read_text(), mode(path)) == ("new", 0o600)

    def test_a_link_is_replaced_and_not_followed(self, tmp_path):
        (tmp_path / "theirs").write_text("theirs")
        (tmp_path / "ours").symlink_to(tmp_path / "theirs")
        files.atomically(tmp_path / "ours", lambda name: Path(name).write_text("ours"))
        assert (tmp_path / "theirs").read_text() == "theirs"
        assert (tmp_path / "ours").read_text() == "ours"

    def test_many_writers_at_once_leave_one_whole_file(self, tmp_path):
        path, texts = tmp_path / "new" / "folder" / "a", [str(i) * 10_000 for i in range(8)]
        writers = [
            threading.Thread(target=files.atomically, args=(path, lambda name, t=t: Path(name).write_text(t)))
            for t in texts
        ]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert path.read_text() in texts
        assert os.listdir(path.parent) == ["a"]
        assert mode(path.parent) == 0o700

    def test_a_file_where_a_folder_is_needed_is_said(self, tmp_path):
        (tmp_path / "a").write_text("")
        with pytest.raises(NotADirectoryError, match="a is a file, and a folder is needed there"):
            files.private_folder(tmp_path / "a")


NAMES = {
    "": "is not empty",
    "   ": "is not empty",
    "..": "does not begin with a dot",
    ".": "does not begin with a dot",
    ".hidden": "does not begin with a dot",
    "../outside": "has no / in it",
    "/etc/passwd": "has no / in it",
    "a/b": "has no / in it",
    "a\\b": r"has no \\ in it",
    "C:": "has no : in it",
    "a*": r"has no \* in it",
    "nul\0": "has no control characters",
    "line\nbreak": "has no control characters",
    "\u202eevil": "has no control characters",
    "-rf": "does not begin with a dot, a dash",
    "a.": "nor end with a dot",
    " a": "does not begin with",
    "NUL": "Windows keeps for devices",
    "com1.csv": "Windows keeps for devices",
    "x" * 101: "at most 100 bytes",
    "ü" * 51: "at most 100 bytes",
}


class TestNames:
    @pytest.mark.parametrize("name", NAMES, ids=repr)
    def test_names_that_are_no_names_of_files_are_refused(self, name):
        with pytest.raises(ValueError, match=f"cannot name a site: it becomes a file's name, which .*{NAMES[name]}"):
            files.plain_names(["oslo", name], "a site")

    @pytest.mark.parametrize("name", [None, 3, b"oslo", ["oslo"]])
    def test_names_are_texts(self, name):
        with pytest.raises(TypeError, match="cannot name a site: a name is a text"):
            files.plain_names([name], "a site")

    @pytest.mark.parametrize("pair", [("Oslo", "oslo"), ("a", "a"), ("STRASSE", "straße")])
    def test_names_that_would_be_one_file_are_refused(self, pair):
        with pytest.raises(ValueError, match="cannot both name a site: they would be the same file"):
            files.plain_names(list(pair), "a site")

    @given(st.text(max_size=60))
    def test_what_is_taken_is_a_file_in_its_folder(self, name):
        try:
            files.plain_names([name], "a site")
        except ValueError:
            return
        place = Path("/folder") / f"{name}.key"
        assert place.parent == Path("/folder")
        assert os.path.normpath(place) == str(place)
        assert "\0" not in name

    @given(st.lists(st.text(max_size=80), unique=True, min_size=2, max_size=2))
    def test_two_texts_have_two_stems_that_are_names_of_files(self, texts):
        stems = [files.file_stem(text) for text in texts]
        assert stems[0] != stems[1]
        assert not any(files.unfit(stem) for stem in stems)

    def test_parts_of_an_experiment_with_like_names_are_not_taken_for_each_other(self, tmp_path):
        parts = Parts(tmp_path / "parts", "definition")
        parts.put("FedAvg (a)", pd.DataFrame({"x": [1.0]}), {"best": 1})
        assert "FedAvg (a)" in parts
        assert "FedAvg /a/" not in parts
        parts.put("../../" + "FedAvg" * 100, pd.DataFrame({"x": [2.0]}), {"best": 2})
        assert parts.get("../../" + "FedAvg" * 100)[1] == {"best": 2}
        assert {path.name for path in tmp_path.iterdir()} == {"parts"}

    def test_an_experiment_file_whose_name_is_no_folders_is_refused(self, tmp_path):
        path = tmp_path / "...toml"  # its stem is ".."
        write_example(path)
        with pytest.raises(ValueError, match="cannot name an experiment"):
            opened(path)


FORMULAS = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1", '=HYPERLINK("http://x","y")']


def cells(path: Path) -> list[list[str]]:
    with open(path, newline="") as file:
        return list(csv.reader(file))


class TestCells:
    def test_texts_are_no_formulas_and_numbers_stay_numbers(self, tmp_path):
        rows = pd.DataFrame(
            {
                "text": FORMULAS,
                "kind": pd.Categorical(FORMULAS),
                "mixed": [-1.5, "=2", None, 3, "a", "-", "", True, "-1.5"],
                "number": np.linspace(-2, 2, 9),
                "whole": np.arange(-4, 5),
                "=name": 1.0,
            }
        )
        kept = rows.copy()
        spreadsheets.to_csv(rows, tmp_path / "a.csv")
        pd.testing.assert_frame_equal(rows, kept)
        head, *body = cells(tmp_path / "a.csv")
        assert head == ["text", "kind", "mixed", "number", "whole", "'=name"]
        expected = [f"'{text}".replace("\r", "\n") for text in FORMULAS]
        assert [row[0] for row in body] == expected == [row[1] for row in body]
        assert [row[2] for row in body] == ["-1.5", "'=2", "", "3", "a", "'-", "", "True", "'-1.5"]
        found = pd.read_csv(tmp_path / "a.csv")
        np.testing.assert_array_equal(found["number"], rows["number"])
        np.testing.assert_array_equal(found["whole"], rows["whole"])

    @given(st.lists(st.one_of(st.text(), st.floats(), st.integers()), min_size=1))
    def test_no_cell_begins_like_a_formula_but_numbers(self, values):
        for value, written in zip(values, map(spreadsheets.cell, values), strict=True):
            if isinstance(value, str):
                assert written.removeprefix("'").split() == value.removeprefix("'").split()
                assert not written.startswith(spreadsheets.FORMULA)
                assert "\r" not in written
            else:
                assert written is value

    def test_a_metric_that_is_called_like_a_formula(self, tmp_path):
        """In a history, and in the rows that a logger writes."""
        metrics = {name: cofed.metrics.density() for name in ("=1+1", "@x")}
        logger = cofed.loggers.CSV(tmp_path / "rows.csv")
        result = cofed.run(
            worlds.problem(), worlds.linear(), cofed.FedAvg(0.01), rounds=2, metrics=metrics, callbacks=[logger]
        )
        result.history.to_csv(tmp_path / "history.csv")
        for name in ("rows.csv", "history.csv"):
            head, *body = cells(tmp_path / name)
            assert {"'=1+1", "'@x"} <= set(head)
            assert not any(text.startswith(spreadsheets.FORMULA) for text in head)
            assert len(body) == 3
