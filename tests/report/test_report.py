"""The data on the page, and what `cofed report` says of folders that it cannot show."""

import json
import re
import shutil
from importlib import resources

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from cofed.cli import app
from cofed.plotting.styles import COLOURS
from cofed.report import page, write_report
from cofed.report.curves import channels, luminance, on_dark, styled, thin
from cofed.report.runs import ReportedRun, check_numbers
from tests.report.sample import HOSTILE, METHODS, SEEDS


def invoke(*arguments: object):
    """The command, on a terminal of 80 columns."""
    result = CliRunner().invoke(app, ["report", *map(str, arguments)], env={"COLUMNS": "80", "NO_COLOR": "1"})
    return result, " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split())


def content(path) -> dict:
    """The JSON on a page."""
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', path.read_text())[1])


def run_of(runs, name: str) -> dict:
    """What the page holds of a run."""
    return next(run for run in content(runs.page)["runs"] if run["id"] == name)


def in_memory(numbers: pd.DataFrame) -> ReportedRun:
    """A run that was never written."""
    return ReportedRun(resources.files("cofed"), {}, check_numbers(numbers), [], None, [])


def test_curves_are_the_mean_and_the_range_over_seeds(runs):
    (panel,) = run_of(runs, "lasso")["panels"]
    for curve, label in zip(sorted(panel["curves"], key=lambda curve: curve["series"]), METHODS, strict=True):
        rounds = runs.numbers[runs.numbers["algorithm"] == label].groupby("round")
        for name, expected in (("mean", rounds.mean), ("low", rounds.min), ("high", rounds.max)):
            expected = expected(numeric_only=True)
            np.testing.assert_allclose(curve["y"]["objective"][name], expected["objective"], rtol=1e-5)
            np.testing.assert_allclose(curve["y"]["f1"][name], expected["f1"], rtol=1e-5)
        mean = rounds.mean(numeric_only=True)
        np.testing.assert_allclose(curve["x"]["megabytes"], (mean["bytes_down"] + mean["bytes_up"]) / 1e6, rtol=1e-5)
        np.testing.assert_allclose(curve["x"]["seconds"], mean["seconds"], rtol=1e-5)


def test_axes_follow_from_the_columns(runs):
    assert run_of(runs, "lasso")["axes"] == ["round", "megabytes", "seconds"]
    assert run_of(runs, "panels")["axes"] == ["round", "seconds"]
    assert run_of(runs, "sweep")["axes"] == ["x"]
    assert run_of(runs, "sweep")["panels"][0]["x_name"] == "rounds allowed"
    columns = [column["key"] for column in run_of(runs, "sweep")["columns"]]
    assert columns == ["f1", "objective", "density", "loss", "prox_gradient", "bytes_down", "bytes_up", "seconds"]


def test_final_values_are_those_of_the_last_round(runs):
    table = run_of(runs, "lasso")["final"]
    last = runs.numbers[runs.numbers["round"] == 40].groupby("algorithm")["objective"]
    place = table["columns"].index("objective")
    for row in table["rows"]:
        ends = last.get_group(row[0])
        np.testing.assert_allclose(row[place], [ends.mean(), ends.min(), ends.max()], rtol=1e-5)
    assert table["columns"][-1] == "seeds"  # no remark: all came to the last round
    assert [row[-1] for row in table["rows"]] == [len(SEEDS)] * 3


def test_a_seed_that_ended_early_is_remarked():
    table = pd.DataFrame({"algorithm": "FedAvg", "seed": [0, 0, 1], "round": [0, 1, 0], "loss": [2.0, 1.0, np.inf]})
    described = page.described(in_memory(table), points=10)
    assert described["final"]["rows"] == [["FedAvg", [1, 1, 1], [0.5, 0, 1], 2, "1 of 2 ended before round 1"]]
    assert described["panels"][0]["curves"][0]["y"]["loss"]["mean"] == [2, 1]


def test_hyperparameters_stand_beside_the_papers(runs):
    table = run_of(runs, "lasso")["hyperparameters"]
    assert table["columns"] == ["algorithm", "hyperparameter", "used", "paper's", "grid", "origin"]
    assert table["rows"][0] == ["FedAvg", "client_lr", 0.01, 0.001, "0.001, 0.01, 0.1", "tuned"]
    assert table["rows"][1] == ["FedAvg", "server_lr", 1, 0.3, None, "given"]


def test_long_curves_are_thinned_but_keep_their_ends_and_extremes():
    values = np.random.default_rng(0).normal(size=(20_000, 3))
    kept = thin(values, 400)
    assert len(kept) <= 400 + 6
    assert {0, 1, 2, 19_999} <= set(kept)
    assert {*values.argmin(0), *values.argmax(0)} <= set(kept)


def test_many_runs_share_the_pages_numbers():
    table = pd.DataFrame({"algorithm": "FedAvg", "round": np.arange(2000)} | dict.fromkeys("abcdefghijklmn", 1.0))
    few = [in_memory(table)]
    many = few * 200
    assert page.points_per_curve(few) == page.MOST
    points = page.points_per_curve(many)
    assert points > page.FEWEST
    assert points * 15 * 200 <= page.NUMBERS < (points + 10) * 15 * 200


def test_a_page_of_25_experiments_stays_below_10_megabytes():
    rng = np.random.default_rng(0)
    index = pd.MultiIndex.from_product(
        [["a", "b"], list(COLOURS)[:5], range(3), range(501)], names=["panel", "algorithm", "seed", "round"]
    )
    columns = ["objective", "loss", "density", "f1", "accuracy", "test_loss", "bytes_up", "seconds"]
    table = pd.DataFrame(rng.normal(size=(len(index), len(columns))), index, columns).reset_index()
    assert len(page.page([in_memory(table)] * 25, {})) < 10e6


def test_lines_differ_and_are_seen_on_a_dark_ground():
    labels = [*COLOURS, "FedMiD-OSP", "FedMiD (K=2)", "FedMiD (K=4)", "mine", "yours"]
    lines = styled(labels)
    assert len({(line["light"], line["dash"]) for line in lines}) == len(labels)
    assert [line["light"] for line in lines[: len(COLOURS)]] == list(COLOURS.values())
    ground = luminance(channels("#16191d"))
    for colour in COLOURS.values():
        assert (luminance(channels(on_dark(colour))) + 0.05) / (ground + 0.05) >= 3
    style = resources.files("cofed.report").joinpath("page.css").read_text()
    assert "--sheet: #16191d" in style  # the ground that the colours are made for


def test_no_text_can_end_its_element(runs):
    text = runs.page.read_text()
    assert text.count("</script>") == 3  # those of the page itself
    assert 'id="broken"' not in text
    hostile = run_of(runs, HOSTILE)
    assert hostile["series"][0]["label"] == HOSTILE
    assert hostile["claims"][0]["why"] == HOSTILE


def test_nothing_comes_from_outside(runs):
    text = re.sub(r'<script type="application/json".*?</script>', "", runs.page.read_text(), flags=re.DOTALL)
    assert "default-src 'none'" in text
    assert set(re.findall(r"https?://[^\"' ]*", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address


def test_what_json_does_not_have_is_text(tmp_path):
    (tmp_path / "config.json").write_text(r'{"id": "odd", "rate": NaN, "most": Infinity, "title": "\ud800"}')
    parquet(tmp_path / "numbers.parquet", algorithm=["a", "a"], round=[0, 1], loss=[np.inf, 1.0])
    write_report([tmp_path], tmp_path / "page.html")
    (run,) = content(tmp_path / "page.html")["runs"]
    assert (run["config"]["rate"], run["config"]["most"], run["title"]) == ("nan", "inf", "\ud800")
    assert run["panels"][0]["curves"][0]["y"]["loss"]["mean"] == [None, 1.0]


def test_the_command_says_where_the_page_is_and_what_is_not_on_it(runs, tmp_path):
    result, said = invoke(runs.folder, "--out", tmp_path / "new" / "page.html")
    assert result.exit_code == 0
    assert f"{tmp_path}/new/page.html shows 4 runs" in said
    assert f"Not shown: {runs.folder}/broken: config.json is not valid JSON (line 1: " in said
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["page.html"]
    assert content(tmp_path / "new" / "page.html")["unreadable"][0]["folder"].endswith("broken")


def test_a_run_that_is_given_twice_is_shown_once(runs, tmp_path):
    done = write_report([runs.folder / "lasso", runs.folder / "panels" / ".." / "lasso"], tmp_path / "page.html")
    assert done.runs == [runs.folder / "lasso"]


def parquet(path, **columns) -> None:
    pd.DataFrame(columns).to_parquet(path, index=False)


BREAKS = {
    "config.json is not valid JSON (line 2: ": lambda folder: (folder / "config.json").write_text("{\n"),
    "config.json must hold an object with the run's settings, it holds a list": lambda folder: (
        folder / "config.json"
    ).write_text("[]"),
    "config.json is not text in UTF-8": lambda folder: (folder / "config.json").write_bytes(b"\xff"),
    "config.json is nested too deeply": lambda folder: (folder / "config.json").write_text("[" * 200_000),
    "numbers.parquet is not a Parquet file that can be read": lambda folder: (folder / "numbers.parquet").write_text(
        "no"
    ),
    "numbers.parquet needs a column 'algorithm', it has: round": lambda folder: parquet(
        folder / "numbers.parquet", round=[1]
    ),
    "numbers.parquet needs a column 'round' (curves) or 'x' (sweeps), it has: algorithm": lambda folder: parquet(
        folder / "numbers.parquet", algorithm=["a"]
    ),
    "numbers.parquet has no rows": lambda folder: parquet(folder / "numbers.parquet", algorithm=[], round=[]),
    "the column 'round' of numbers.parquet has no numbers": lambda folder: parquet(
        folder / "numbers.parquet", algorithm=["a"], round=["first"]
    ),
}


@pytest.mark.parametrize("why", BREAKS)
def test_a_broken_run_is_refused_in_a_sentence(runs, tmp_path, why):
    shutil.copytree(runs.folder / "sweep", tmp_path / "run")
    BREAKS[why](tmp_path / "run")
    result, said = invoke(tmp_path, "--out", tmp_path / "page.html")
    assert result.exit_code == 2
    assert why in said.replace("- ", "-")
    assert "Traceback" not in said
    assert not (tmp_path / "page.html").exists()


@pytest.mark.parametrize("text", ["{", "{}", '[{"claim": "a", "holds": "yes"}]'])
def test_broken_claims_leave_the_rest_of_the_run(runs, tmp_path, text):
    shutil.copytree(runs.folder / "sweep", tmp_path / "run")
    (tmp_path / "run" / "claims.json").write_text(text)
    (tmp_path / "run" / "tuning.parquet").write_text("no")
    write_report([tmp_path], tmp_path / "page.html")
    (run,) = content(tmp_path / "page.html")["runs"]
    assert [note.split(":")[0] for note in run["notes"]] == ["The claims are not shown", "The tuning is not shown"]
    assert run["panels"]


def test_a_bare_configuration_is_enough(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.json").write_text('{"algorithms": 3, "references": [], "note": 4, "title": null}')
    parquet(tmp_path / "run" / "numbers.parquet", algorithm=["a", None], round=[0, 1], loss=[1.0, 2.0])
    write_report([tmp_path], tmp_path / "page.html")
    (run,) = content(tmp_path / "page.html")["runs"]
    assert (run["id"], run["title"], run["notes"], run["hyperparameters"]["rows"]) == ("run", "run", ["4"], [])


def test_folders_that_cannot_be_shown(tmp_path):
    (tmp_path / "empty").mkdir()
    for arguments, why in (
        ([tmp_path / "empty"], "there is no run in or below"),
        ([tmp_path / "nowhere"], "is not a folder; give a folder with runs in or below it"),
        ([], "Missing argument 'DIR...'"),
        ([tmp_path, "--out", tmp_path / "empty"], "is a folder; give the name of a file such as"),
    ):
        result, said = invoke(*arguments)
        assert result.exit_code == 2
        assert why in said
        assert "Traceback" not in said


def test_a_page_that_cannot_be_written(runs, tmp_path):
    (tmp_path / "file").write_text("")
    result, said = invoke(runs.folder, "--out", tmp_path / "file" / "page.html")
    assert result.exit_code == 2
    assert "cannot be written" in said
