"""Published results: the words of the code beside numbers that stay, divergence, sweeps, and numbers as CSV alone."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from tests.experiments.test_experiments import TINY, point
from typer.testing import CliRunner

import cofed
from cofed import experiments
from cofed.cli.__main__ import app
from cofed.experiments import expected, figure, gather, page, reproduce, results, verdicts, wording
from cofed.experiments.measurements import DivergedRuns, Measurements
from cofed.experiments.specification import Claim, Experiment, Method, Numbers, Sweep, Verdict, View

QUIET = Console(quiet=True)


def spread(seen):
    """A claim that three seeds in five share: it is undecided."""
    return Verdict(seen.seeds[0] < 3, "It is FedAvg's.", {})


SWEEP = Experiment(
    id="tiny-sweep",
    title="A sweep",
    measure=Sweep(
        "clients", lambda n: n.points, point, lambda n: [Method("FedAvg", cofed.FedAvg, {"client_lr": n.lrs})]
    ),
    full={"points": (1, 2, 4), "lrs": (0.1, 1.0)},
    views=(View("error", log=True, log_x=True),),
    claims=(
        Claim("It is the first seeds'.", spread, quote="the furst", criterion="Any."),
        Claim("Pigs fly.", lambda seen: Verdict(False, "They do not.", {}), why="No wings."),
        Claim("It falls.", lambda seen: Verdict(seen.slope("FedAvg", "error") < -0.9, "So.", {}), why="Unused."),
    ),
    note="A note.",
)


@pytest.fixture
def docs(tmp_path):
    """A published folder of a sweep with five seeds, which has its numbers as CSV alone."""
    assert reproduce.reproduce([SWEEP], tmp_path / "out", "full", 5, screen=QUIET) == {"tiny-sweep": "done"}
    page.publish(tmp_path / "out", tmp_path / "docs", [SWEEP])
    return tmp_path / "docs"


def test_words_are_mended_without_a_run(docs, tmp_path):
    first, pigs, falls = SWEEP.claims
    mended = dataclasses.replace(
        SWEEP,
        claims=(
            dataclasses.replace(first, quote="the\n first", criterion="Some."),
            dataclasses.replace(pigs, why="No lift."),
            dataclasses.replace(falls, why="Still unused."),
        ),
        note="Another\n note.",
    )
    before = results.read(docs / "tiny-sweep" / "claims.json")
    drawn = page.written([mended], docs)  # the page alone already has the words of the code
    assert "> the first\n\nCriterion: Some.\n" in drawn
    assert "Another note." in drawn
    page.publish(tmp_path / "nothing", docs, [mended])
    assert (docs / "README.md").read_text() == drawn
    assert "No lift." in drawn
    assert "furst" not in drawn
    assert "nused" not in drawn  # the claim holds
    claims, config = (results.read(docs / "tiny-sweep" / name) for name in ("claims.json", "config.json"))
    assert [claim["quote"] for claim in claims] == ["the first", "", ""]
    assert [claim["why"] for claim in claims] == ["", "No lift.", ""]
    words = ("quote", "criterion", "why")
    for one, other in zip(before, claims, strict=True):
        assert {k: v for k, v in one.items() if k not in words} == {k: v for k, v in other.items() if k not in words}
    assert config["note"] == "Another note."
    assert results.read_config(docs / "tiny-sweep") == config  # with hashes of its own


def test_the_note_of_an_earlier_version_stays(docs, tmp_path):
    changed = dataclasses.replace(SWEEP, full=SWEEP.full | {"points": (1, 2)}, note="Of two points.")
    written = page.publish(tmp_path / "nothing", docs, [changed]).read_text()
    assert "A note." in written
    assert "Of two points." not in written
    assert results.read(docs / "tiny-sweep" / "config.json")["note"] == "A note."


def test_words_are_not_written_beside_a_configuration_that_somebody_changed(docs, tmp_path):
    path = docs / "tiny-sweep" / "config.json"
    path.write_text(json.dumps(results.read(path) | {"seconds": 1.0}))
    with pytest.raises(ValueError, match="was changed after it was written"):
        page.publish(tmp_path / "nothing", docs, [dataclasses.replace(SWEEP, note="Another.")])


def test_an_undecided_claim_without_a_reason_says_so(docs):
    written = (docs / "README.md").read_text()
    assert "| as printed | **undecided** | 3 of 5 seeds | It is FedAvg's. | not found yet |" in written


def test_a_sweeps_values_are_swept_and_not_counted_as_tuned(docs):
    written = (docs / "README.md").read_text()
    assert "| FedAvg | client_lr swept |" in written
    assert "Swept values are client_lr 0.1, 1.0." in written
    assert "tuned methods" not in written
    [entry] = results.read(docs / "tiny-sweep" / "config.json")["algorithms"]
    assert (entry["tuned"], entry["swept"]) == (False, True)


@pytest.mark.parametrize("out", ["its own", "published"])
def test_a_folder_with_csv_alone_is_judged_as_one_with_exact_numbers(docs, tmp_path, out):
    folder = (docs if out == "published" else tmp_path / "out") / "tiny-sweep"
    before = results.read(folder / "claims.json")
    (folder / "claims.json").unlink()
    (folder / "figure.png").unlink()
    assert reproduce.judge_again([SWEEP], folder.parent) == {"tiny-sweep": "kept"}
    assert results.read(folder / "claims.json") == before
    assert (folder / "figure.png").exists()
    assert results.numbers_of(folder).suffix == (".csv" if out == "published" else ".parquet")
    exact, kept = (results.read_numbers(where / "tiny-sweep") for where in (tmp_path / "out", docs))
    pd.testing.assert_frame_equal(exact, kept, rtol=1e-6, check_dtype=False)


def test_a_csv_that_somebody_changed_is_not_judged(docs, tmp_path):
    numbers = docs / "tiny-sweep" / "numbers.csv"
    numbers.write_text(numbers.read_text().replace("0.5", "0.6"))
    with pytest.raises(ValueError, match=r"numbers\.csv was changed after it was written"):
        reproduce.judge_again([SWEEP], docs)
    numbers.unlink()
    said = "its numbers are not here: neither numbers.parquet nor numbers.csv"
    assert reproduce.judge_again([SWEEP], docs) == {"tiny-sweep": said}


PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
KEPT = sorted(path.parent for path in PUBLISHED.glob("*/numbers.csv"))


@pytest.mark.parametrize("folder", KEPT, ids=lambda folder: folder.name)
def test_what_docs_results_keeps_is_judged_as_the_exact_numbers_were(folder):
    published = experiments.everything()[folder.name]
    config, claims = results.read_config(folder), results.read(folder / "claims.json")
    if wording.what_is_earlier(published, config, claims):
        pytest.skip("of an earlier version")
    seen = results.measurements(results.read_numbers(folder), config)
    words = ("claim", "holds", "measured")
    for claim, before in zip(published.claims, claims, strict=True):
        again = verdicts.judged(claim, seen, config["size"])
        assert verdicts.word_of(again) == verdicts.word_of(before)
        assert {word: again[word] for word in words} == {word: before[word] for word in words}
        assert again["seeds"] == before.get("seeds", again["seeds"])  # the oldest do not have them


def test_the_command_judges_a_published_folder(docs, monkeypatch):
    monkeypatch.setattr(experiments, "everything", lambda: {SWEEP.id: SWEEP})
    before = results.read(docs / SWEEP.id / "claims.json")
    done = CliRunner().invoke(app, ["reproduce", SWEEP.id, "--judge", "--out", str(docs), "--page", str(docs)])
    assert done.exit_code == 0, done.output
    assert results.read(docs / SWEEP.id / "claims.json") == before


def errors(ends, lost=()):
    """Curves of a method over rounds 0, 5 and 10; a run that is lost blows up and stops at round 5."""
    rows = []
    for seed, end in enumerate(ends):
        values = (9.0, 1e30) if seed in lost else (9.0, (9.0 + end) / 2, end)
        rows += [
            {"panel": "", "algorithm": "FedMiD", "seed": seed, "round": 5 * i, "error": value}
            for i, value in enumerate(values)
        ]
    return pd.DataFrame(rows)


def entry_of(lost):
    outcomes = {str(seed): "diverged" if seed in lost else "completed" for seed in range(5)}
    return {"label": "FedMiD", "panel": "", "outcomes": outcomes}


def test_figures_in_the_end_leave_out_runs_that_diverged_and_say_how_many():
    table, entry = errors((1.0, 2.0, 3.0, 9.0, 9.0), lost=(3, 4)), entry_of((3, 4))
    told = gather.reached(table, "error", Numbers(), entry)
    assert told == {"column": "error", "mean": 2.0, "deviation": pytest.approx(np.std([1.0, 2.0, 3.0])), "over": 3}
    assert Measurements(table, {}).last("FedMiD", "error") == told["mean"]  # as a claim has it
    nobody = gather.reached(errors((1.0,), lost=(0,)), "error", Numbers(), entry_of(range(5)))
    assert np.isnan(nobody["mean"])
    assert nobody["over"] == 0


def with_divergence(folder, experiment):
    """Let one of a finished experiment's runs of FedMiD have diverged."""
    config = results.read(folder / experiment.id / "config.json")
    config["algorithms"][1]["outcomes"]["1"] = "diverged"
    claims = results.read(folder / experiment.id / "claims.json")
    claims[1]["measured"] = "Error in the end: FedMiD 2."
    claims[0]["measured"] = "Error in the end: FedDualAvg 1."
    (folder / experiment.id / "claims.json").write_text(json.dumps(claims))
    results.write_config(folder / experiment.id, config)


def test_the_page_counts_runs_that_diverged_beside_every_figure(tmp_path):
    reproduce.reproduce([TINY], tmp_path, "full", 2, screen=QUIET)
    with_divergence(tmp_path, TINY)
    written = page.publish(tmp_path, tmp_path, [TINY]).read_text()
    said = "Error in the end: FedMiD 2. Of the runs of FedMiD 1 of 2 diverged; its means go on with the others. |"
    assert said in written
    assert "| Error in the end: FedDualAvg 1. |" in written
    assert "; 1 of 2 diverged |" in written
    reproduce.judge_again([TINY], tmp_path)
    end = results.read(tmp_path / "tiny-fig1" / "config.json")["algorithms"][1]["reached"]
    assert end["over"] == 1
    assert f"| objective {end['mean']:.4g}; 1 of 2 diverged |" in page.written([TINY], tmp_path)  # one has no spread
    config = results.read(tmp_path / "tiny-fig1" / "config.json")
    config["algorithms"][1]["reached"].pop("over")  # as older versions wrote it
    results.write_config(tmp_path / "tiny-fig1", config)
    assert "; 1 of 2 diverged, whose last values are in this mean, and not in verdicts |" in page.written(
        [TINY], tmp_path
    )


def test_a_plan_names_every_sweep_of_the_papers(tmp_path):
    sweeps = [one for one in experiments.everything().values() if isinstance(one.measure, Sweep)]
    found = expected.expect(sweeps, tmp_path, "full", 5, QUIET)
    assert set(found) == {one.id for one in sweeps}
    assert "of 12 points with 5 seeds each" in found["yuan2021-feasible"]
    assert results.read(tmp_path / "yuan2021-feasible" / "plan.json")["points"] == 12


def test_what_is_smaller_than_the_papers_is_said_where_it_ran_and_where_it_is_missing(docs):
    smaller = dataclasses.replace(SWEEP, smaller="3 of 7 points")
    lacks = dataclasses.replace(smaller, id="tiny-other")
    written = page.written([smaller, lacks], docs)
    assert "The full setup, 5 seeds, " in written
    assert "Smaller than the paper's: 3 of 7 points.\n" in written
    assert (
        "| tiny-other | A sweep | not run yet at this size | 3 of 7 points | `cofed reproduce tiny-other` |" in written
    )
    assert "the paper's size" not in written


def test_one_seed_with_enough_in_it_is_not_preliminary(tmp_path):
    whole = dataclasses.replace(SWEEP, in_a_seed="100 data sets at every point")
    reproduce.reproduce([whole], tmp_path, "full", 1, screen=QUIET)
    written = page.publish(tmp_path, tmp_path, [whole]).read_text()
    assert "The full setup, 1 seed (100 data sets at every point), " in written
    assert "Of 1 experiment 1 ran, 0 are missing." in written
    assert "| as printed | 2 | 1 | 0 | 0 |" in written
    assert ", 1 seed |" not in written
    assert ", 1 seed |" in page.written([SWEEP], tmp_path)


def drawn(table, view, **about):
    """The axes of an experiment with this view."""
    one = dataclasses.replace(TINY, views=(view,))
    return figure.draw(one, Measurements(table, {}, **about), "full").axes[0]


def test_a_line_ends_in_a_cross_where_a_run_diverges_and_the_axis_shows_the_others():
    table = errors((1.0, 2.0, 3.0, 9.0, 9.0), lost=(3, 4))
    axes = drawn(table, View("error"), lost=DivergedRuns("", {("FedMiD", ""): [3, 4]}))
    every, left, cross = axes.lines
    np.testing.assert_array_equal(every.get_xdata(), [0, 5])  # of all runs, until the first has gone
    np.testing.assert_allclose(left.get_ydata(), [5.5, 2.0])  # of those that did not
    assert axes.get_ylim()[1] < 20
    assert (cross.get_marker(), cross.get_xdata()[0], cross.get_ydata()[0]) == ("x", 5, axes.get_ylim()[1])
    whole = drawn(table[table["seed"] < 3], View("error"))
    assert len(whole.lines) == 1
    gone = drawn(errors((1.0,), lost=(0,)), View("error"), lost=DivergedRuns("", {("FedMiD", ""): [0]}))
    assert [line.get_marker() for line in gone.lines].count("x") == 1


def test_panels_of_dots_share_their_limits_and_show_the_corner():
    rows = [
        {"panel": panel, "algorithm": "FedMiD", "seed": 0, "x": x, "f1": 1.0}
        for panel, x in (("", 0.2), ("", 0.2), ("other", 0.9))
    ]
    axes = drawn(pd.DataFrame(rows), View("f1", dots=True, corner=lambda seen: (0.0, 0.5, 0.75, 1.0)))
    assert axes.get_xlim()[1] > 0.9
    [corner] = axes.patches
    assert corner.get_bbox().bounds == (0.0, 0.75, 0.5, 0.25)
    first, second = axes.lines[0].get_ydata()
    assert first != second  # equal dots are apart
    assert abs(first - 1) < 0.01


def test_a_view_may_draw_what_is_not_one_panel_and_every_point_has_a_tick():
    rows = [
        {"panel": f"p = {p}", "algorithm": label, "seed": 0, "x": stage, "error": p / stage}
        for p in (5, 80)
        for label in ("CFedDA, one", "CFedDA, two")
        for stage in (1, 2)
    ]
    table = pd.DataFrame(rows)
    last = lambda rows: rows[rows["x"] == 2].assign(x=lambda last: last["panel"].str[4:].astype(int))  # noqa: E731
    across = drawn(table, View("error", over=last, x="features", log_x=True))
    assert across.get_xlabel() == "features"
    np.testing.assert_array_equal(across.lines[0].get_xdata(), [5, 80])
    assert across.lines[0].get_marker() != across.lines[1].get_marker()
    assert [f"{tick:g}" for tick in across.get_xticks() if 5 <= tick <= 80] == ["5", "10", "20", "50"]
    stages = drawn(table, View("error", panel="p = 5"))
    assert list(stages.get_xticks()) == [1, 2]
    zero = drawn(table.assign(x=table["x"] - 1), View("error", panel="p = 5", log_x=True))
    assert list(zero.get_xticks()) == [0, 1]
