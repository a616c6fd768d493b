"""The machinery of experiments: what it measures, writes, keeps, resumes and judges, on a tiny experiment."""

import dataclasses
import itertools
import json
import os
import shutil
import signal

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from tests.pages import blocks

import cofed
from cofed import experiments
from cofed.engine import execution, tune
from cofed.experiments import expected, figure, measure, page, reproduce, results, verdicts
from cofed.experiments.measurements import Measurements
from cofed.experiments.parts import Parts, Piece
from cofed.experiments.specification import Claim, Comparison, Experiment, Method, Setup, Sweep, Verdict, View

CALLS: list[str] = []


def setup(n, seed):
    CALLS.append(f"setup {seed}")
    data = cofed.datasets.yuan_lasso(n.clients, 8, 6, 2, test_clients=1, seed=seed, dtype="float64")
    problem = cofed.Problem(cofed.Linear(), cofed.Squared(), cofed.On(cofed.L1(0.1), "coef"))
    run = {"rounds": n.rounds, "local_steps": 2, "evaluate_every": 2}
    pooled = lambda: cofed.solve_pooled(problem, data.federation).model  # noqa: E731
    metrics = {"f1": cofed.metrics.f1(data.truth)}
    return Setup(problem, data.federation, run, metrics, data.test, {"pooled": pooled}, "a tiny set")


def methods(n):
    return [
        Method("FedDualAvg", cofed.FedDualAvg, {"client_lr": n.rates}, {"client_lr": 0.5}),
        Method("FedMiD", cofed.FedMiD, {"client_lr": (0.01,)}),
    ]


def converges(seen: Measurements) -> Verdict:
    gap = seen.last("FedDualAvg", "objective") / seen.reference("pooled", "objective")
    return Verdict(gap < 100, f"It is {gap:.3f} times the optimum.", {"gap": gap})


TINY = Experiment(
    id="tiny-fig1",
    title="A tiny comparison",
    measure=Comparison(setup, methods),
    full={"clients": 4, "rounds": 8, "rates": (0.001, 0.02)},
    quick={"rounds": 4},
    views=(View("objective"), View("f1")),
    claims=(
        Claim("It converges.", converges),
        Claim(
            "Pigs\n fly.",
            lambda seen: Verdict(False, "They do not.", {"pigs": None}),
            why="No\n wings.",
            quote="Given wings,\n they fly.",
            criterion="Any\n pig.",
        ),
        Claim("Only in full.", lambda seen: Verdict(True, "So.", {}), quick=False),
    ),
    note="A note\n over lines.",
)
QUIET = Console(quiet=True)


def go(out, experiment=TINY, size="full", seeds=2, **options):
    return reproduce.reproduce([experiment], out, size, seeds, screen=QUIET, **options)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """One finished experiment, for several tests."""
    out = tmp_path_factory.mktemp("results")
    assert go(out) == {"tiny-fig1": "done"}
    return out


def test_the_folder_has_what_is_agreed(done):
    folder = done / "tiny-fig1"
    files = {
        "claims.json",
        "config.json",
        "figure.png",
        "figure.svg",
        "numbers.csv",
        "numbers.parquet",
        "tuning.parquet",
    }
    assert {path.name for path in folder.iterdir()} == files
    table = pd.read_parquet(folder / "numbers.parquet")
    assert list(table.columns[:4]) == ["panel", "algorithm", "seed", "round"]
    assert {"objective", "test_loss", "f1", "bytes_up", "seconds"} <= set(table)
    assert len(table) == 2 * 2 * 5  # methods, seeds, rounds 0, 2, 4, 6, 8
    assert len(pd.read_csv(folder / "numbers.csv")) == len(table)
    config = json.loads((folder / "config.json").read_text())
    assert (config["id"], config["paper"], config["size"], config["seeds"]) == ("tiny-fig1", "tiny", "full", [0, 1])
    assert config["note"] == "A note over lines."
    assert config["data"]["source"] == "a tiny set"
    tuned, fixed = config["algorithms"]
    assert tuned["tuned"]
    assert tuned["grid"] == {"client_lr": [0.001, 0.02]}
    assert tuned["paper_hyperparameters"] == {"client_lr": 0.5}
    assert not fixed["tuned"]
    assert fixed["hyperparameters"] == {"client_lr": 0.01}
    assert fixed["outcomes"] == {"0": "completed", "1": "completed"}


def test_the_numbers_are_those_of_the_tuned_runs(done):
    tuning = pd.read_parquet(done / "tiny-fig1" / "tuning.parquet")
    assert len(tuning) == 2
    config = json.loads((done / "tiny-fig1" / "config.json").read_text())
    best = config["algorithms"][0]["hyperparameters"]["client_lr"]
    assert best == tuning.loc[tuning["score"].idxmin(), "client_lr"]
    made = setup(TINY.numbers("full"), 1)
    alone = cofed.run(made.problem, made.federation, cofed.FedDualAvg(best), **made.run, metrics=made.metrics, seed=1)
    table = pd.read_parquet(done / "tiny-fig1" / "numbers.parquet")
    rows = table[(table["algorithm"] == "FedDualAvg") & (table["seed"] == 1)]
    np.testing.assert_array_equal(rows["objective"], alone.history["objective"])


def test_a_method_may_have_a_regularizer_of_its_own_and_tune_it(tmp_path):
    grid = {"client_lr": (0.001, 0.02), "strength": (10.0, 0.01)}
    lasso = Method("FedMiD", cofed.FedMiD, grid, regularizer=cofed.L1, score="loss")
    experiment = dataclasses.replace(TINY, measure=Comparison(setup, lambda n: [lasso]), claims=())
    assert go(tmp_path, experiment, seeds=1) == {"tiny-fig1": "done"}
    made, alone = setup(TINY.numbers("full"), 0), {}
    for place, choice in enumerate(lasso.choices()):
        problem = dataclasses.replace(made.problem, regularizer=cofed.L1(choice["strength"]))
        method = cofed.FedMiD(choice["client_lr"])
        alone[place] = cofed.run(problem, made.federation, method, **made.run, seed=0).history["loss"]
    tuning = pd.read_parquet(tmp_path / "tiny-fig1" / "tuning.parquet")
    np.testing.assert_allclose(tuning["score"], [losses[-1] for losses in alone.values()], rtol=1e-9)
    best = int(tuning["score"].idxmin())
    entry = json.loads((tmp_path / "tiny-fig1" / "config.json").read_text())["algorithms"][0]
    assert entry["hyperparameters"] == lasso.choices()[best]
    assert entry["reached"]["column"] == "loss"
    table = pd.read_parquet(tmp_path / "tiny-fig1" / "numbers.parquet")
    np.testing.assert_array_equal(table["loss"], alone[best])


def test_claims_are_judged_and_explained(done):
    first, second, third = json.loads((done / "tiny-fig1" / "claims.json").read_text())
    assert first["holds"] is True
    assert first["why"] == ""
    assert first["figures"]["gap"] > 0.99
    assert second == {
        "claim": "Pigs\n fly.",
        "quote": "Given wings, they fly.",
        "criterion": "Any pig.",
        "holds": False,
        "verdict": "does not hold",
        "seeds": {"0": False, "1": False},
        "measured": "They do not.",
        "figures": {"pigs": None},
        "why": "No wings.",
    }
    assert third["holds"] is True


@pytest.mark.parametrize(
    ("errors", "word"),
    [
        ((0.1, 0.1, 0.1, 0.1, 0.1), "holds"),
        ((0.1, 0.1, 3.0, 0.1, 0.1), "holds"),  # one unlucky seed, and the mean is still below 1
        ((0.1, 0.1, 9.0, 0.1, 0.1), "undecided"),  # the mean is above 1, and four seeds are not
        ((0.1, 0.1, 2.0, 2.0, 0.1), "undecided"),
        ((2.0, 2.0, 0.1, 2.0, 2.0), "does not hold"),
        ((2.0, 0.1), "undecided"),
        ((2.0,), "does not hold"),
    ],
)
def test_a_verdict_needs_four_in_five_seeds(errors, word):
    rows = [
        {"panel": "", "algorithm": "A", "seed": seed, "round": 1, "error": error} for seed, error in enumerate(errors)
    ]
    small = Claim("It is small.", lambda seen: Verdict(seen.last("A", "error") < 1, "So.", {}), why="Large.")
    found = verdicts.judged(small, Measurements(pd.DataFrame(rows), {}), "full")
    assert found["verdict"] == word
    assert found["holds"] == {"holds": True, "does not hold": False}.get(word)
    assert found["seeds"] == {str(seed): error < 1 for seed, error in enumerate(errors)}
    assert found["why"] == ("" if word == "holds" else "Large.")
    assert verdicts.word_of({"holds": found["holds"]}) == (word if word != "undecided" else "not judged")


def test_a_seed_is_judged_against_the_baselines_on_its_own_data(done):
    config = json.loads((done / "tiny-fig1" / "config.json").read_text())
    own = [config["references_by_seed"][str(seed)][""]["pooled"]["objective"] for seed in (0, 1)]
    assert own[0] != own[1]
    assert config["references"][""]["pooled"]["objective"] == pytest.approx(np.mean(own), rel=1e-12)
    made = setup(TINY.numbers("full"), 1)
    model = made.baselines["pooled"]()
    assert measure.row_of(made, model)["objective"] == pytest.approx(own[1], rel=1e-9)
    seen = results.measurements(pd.read_parquet(done / "tiny-fig1" / "numbers.parquet"), config)
    assert [seen.of_seed(seed).reference("pooled", "objective") for seed in seen.seeds] == own


def test_the_configuration_says_where_and_with_what_it_ran(done):
    config = json.loads((done / "tiny-fig1" / "config.json").read_text())
    assert config["versions"]["cofed"] == cofed.__version__
    assert set(config["versions"]) == {"cofed", "jax", "numpy", "python"}
    assert config["hardware"]["processor"]
    assert config["hardware"]["cores"] >= 1
    assert config["created"].endswith("+00:00")
    tuned, fixed = config["algorithms"]
    assert (tuned["on_edge"], fixed["on_edge"]) == (["client_lr"], [])
    table = pd.read_parquet(done / "tiny-fig1" / "numbers.parquet")
    ends = table[(table["round"] == 8) & (table["algorithm"] == "FedMiD")]["objective"]
    told = {"column": "objective", "mean": ends.mean(), "deviation": ends.std(ddof=0), "over": 2}
    assert fixed["reached"] == {name: pytest.approx(value) for name, value in told.items()}


def test_a_configuration_off_the_grid_runs_beside_the_tuned_one(tmp_path):
    def beside(n):
        return [*methods(n), Method("FedMiD, fast", cofed.FedMiD, {"client_lr": (0.02,)}, beside="FedMiD")]

    labels = lambda seen: Verdict(True, ", ".join(seen.labels()), {})  # noqa: E731
    more = dataclasses.replace(TINY, measure=Comparison(setup, beside), claims=(Claim("All.", labels),))
    go(tmp_path, more, seeds=1)
    assert results.read(tmp_path / "tiny-fig1" / "claims.json")[0]["measured"] == "FedDualAvg, FedMiD"
    extra = results.read(tmp_path / "tiny-fig1" / "config.json")["algorithms"][-1]
    assert (extra["beside"], extra["hyperparameters"], extra["tuned"]) == ("FedMiD", {"client_lr": 0.02}, False)
    styles = figure.distinct(["FedMiD", "FedMiD, fast"], {"FedMiD, fast": "FedMiD"})
    assert styles["FedMiD"][0] == styles["FedMiD, fast"][0]
    assert styles["FedMiD"][1] != styles["FedMiD, fast"][1]
    assert "FedMiD, fast" in set(pd.read_parquet(tmp_path / "tiny-fig1" / "numbers.parquet")["algorithm"])


def test_the_pooled_baseline_is_the_optimum(done):
    config = json.loads((done / "tiny-fig1" / "config.json").read_text())
    pooled = config["references"][""]["pooled"]
    assert pooled["prox_gradient"] < 1e-6
    table = pd.read_parquet(done / "tiny-fig1" / "numbers.parquet")
    for seed, own in config["references_by_seed"].items():
        assert own[""]["pooled"]["objective"] <= table[table["seed"] == int(seed)]["objective"].min()


def test_what_is_finished_is_kept_unless_asked(done):
    CALLS.clear()
    assert go(done) == {"tiny-fig1": "kept"}
    assert CALLS == []
    changed = dataclasses.replace(TINY, full=TINY.full | {"rounds": 6})
    assert not results.finished(done / "tiny-fig1", results.definition(changed, "full", [0, 1]))


def test_an_interrupted_experiment_goes_on(tmp_path, monkeypatch):
    whole, real = tmp_path / "whole", measure.run
    go(whole, seeds=1)
    done: list[str] = []

    def stops(setup, method, best, seed):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(method.label)
        return real(setup, method, best, seed)

    monkeypatch.setattr(measure, "run", stops)
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, seeds=1)
    monkeypatch.setattr(measure, "run", lambda *a: done.append(a[1].label) or real(*a))
    monkeypatch.setattr(measure, "tune", None)  # it is done already
    assert go(tmp_path, seeds=1) == {"tiny-fig1": "done"}
    assert done == ["FedDualAvg", "FedMiD"]
    ours, theirs = (pd.read_parquet(out / "tiny-fig1" / "numbers.parquet") for out in (tmp_path, whole))
    pd.testing.assert_frame_equal(ours.drop(columns="seconds"), theirs.drop(columns="seconds"))
    assert not (tmp_path / "tiny-fig1" / "parts").exists()


@pytest.mark.parametrize("busy", ["run", "tune"])
def test_ctrl_c_in_the_last_rounds_is_not_lost(tmp_path, monkeypatch, busy):
    room, name = (execution, "judge") if busy == "run" else (tune, "run_slice")
    real = getattr(room, name)  # it comes back when the last round is done
    monkeypatch.setattr(room, name, lambda *a: (real(*a), os.kill(os.getpid(), signal.SIGINT))[0])
    with pytest.raises(KeyboardInterrupt):
        go(tmp_path, seeds=1)
    monkeypatch.setattr(room, name, real)
    assert go(tmp_path, seeds=1) == {"tiny-fig1": "done"}


def test_what_was_done_before_an_interruption_counts_as_time(tmp_path):
    ticks = itertools.count()
    done = Piece("a", 1, lambda: (pd.DataFrame({"x": [1.0]}), {"best": 1}))
    for _ in range(2):  # the second time it is there already
        parts = Parts(tmp_path / "parts", "one", clock=lambda: float(next(ticks)))
        assert parts.done(done)[1] == {"best": 1}
        assert parts.took("a").seconds == 1.0
        assert parts.took("a").processor_seconds >= 0
    parts.put("b", pd.DataFrame({"x": [1.0]}), {"best": 1})  # as older versions did
    assert parts.took("b").seconds == 0.0


def test_parts_of_another_definition_are_dropped(tmp_path):
    parts = Parts(tmp_path / "parts", "one")
    parts.put("a / b", pd.DataFrame({"x": [1.0]}), {"best": 1})
    assert parts.get("a / b")[1] == {"best": 1}
    assert "a / b" in Parts(tmp_path / "parts", "one")
    assert "a / b" not in Parts(tmp_path / "parts", "two")


def test_quick_has_other_numbers_and_judges_less(tmp_path):
    go(tmp_path, size="quick", seeds=1)
    claims = json.loads((tmp_path / "tiny-fig1" / "claims.json").read_text())
    assert [claim["holds"] for claim in claims] == [True, False, None]
    assert pd.read_parquet(tmp_path / "tiny-fig1" / "numbers.parquet")["round"].max() == 4


def test_judging_again_needs_no_run(done, tmp_path):
    other = dataclasses.replace(TINY, claims=TINY.claims[:1], title="Another title")
    CALLS.clear()
    assert reproduce.judge_again([other], done) == {"tiny-fig1": "kept"}
    assert CALLS == []
    assert len(json.loads((done / "tiny-fig1" / "claims.json").read_text())) == 1
    reproduce.judge_again([TINY], done)
    assert reproduce.judge_again([TINY], tmp_path) == {"tiny-fig1": "not run yet"}


def test_missing_data_leaves_an_experiment_out(tmp_path):
    def missing(n, seed):
        raise FileNotFoundError("MNIST: there is no file")

    lacks = dataclasses.replace(TINY, measure=Comparison(missing, methods))
    assert go(tmp_path, lacks) == {"tiny-fig1": "MNIST: there is no file"}
    assert list(tmp_path.iterdir()) == []


def point(n, x, seed):
    data = "numbers of our own"
    errors = {"FedAvg": 1 / x + 0 * seed, "FedMiD": 2 / x}
    return [{"algorithm": label, "x": x, "error": error, "data": data} for label, error in errors.items()]


def test_a_sweep_has_its_own_axis(tmp_path):
    slope = lambda seen: Verdict(abs(seen.slope("FedAvg", "error") + 1) < 1e-9, "So.", {})  # noqa: E731
    experiment = Experiment(
        id="tiny-sweep",
        title="A sweep",
        measure=Sweep("clients", lambda n: n.points, point),
        full={"points": (1, 2, 4)},
        views=(View("error", log=True, log_x=True),),
        claims=(Claim("It falls like 1/K.", slope),),
    )
    go(tmp_path, experiment)
    table = pd.read_parquet(tmp_path / "tiny-sweep" / "numbers.parquet")
    assert list(table.columns[:5]) == ["panel", "algorithm", "seed", "x", "x_name"]
    assert len(table) == 3 * 2 * 2
    assert "data" not in table
    assert results.read(tmp_path / "tiny-sweep" / "config.json")["data"] == {"source": "numbers of our own"}
    assert json.loads((tmp_path / "tiny-sweep" / "claims.json").read_text())[0]["holds"]
    seen = Measurements(table, {})
    assert np.isnan(seen.slope("FedAvg", "error", high=1.5))
    assert np.isnan(seen.slope("FedAvg", "error", high=float("nan")))


def test_results_belong_to_the_files_of_the_data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("COFED_DATA", str(tmp_path / "data"))
    images = tmp_path / "data" / "mnist" / "train-images-idx3-ubyte"
    images.parent.mkdir(parents=True)
    images.write_bytes(b"these")
    experiment = Experiment(
        id="tiny-sweep",
        title="A sweep",
        measure=Sweep("clients", lambda n: n.points, point),
        full={"points": (1, 2)},
        views=(View("error"),),
        reads=("mnist",),
    )
    out = tmp_path / "out"
    assert go(out, experiment) == {"tiny-sweep": "done"}
    assert go(out, experiment) == {"tiny-sweep": "kept"}
    (tmp_path / "data" / "notes.txt").write_text("of no dataset")
    os.utime(images, ns=(0, 0))
    assert go(out, experiment) == {"tiny-sweep": "kept"}
    images.write_bytes(b"those")  # of the same size
    said = results.what_changed(
        json.loads((out / "tiny-sweep" / "config.json").read_text())["defined_by"],
        results.definition(experiment, "full", [0, 1]),
    )
    assert said.startswith("data.mnist/train-images-idx3-ubyte was 5 bytes")
    assert go(out, experiment) == {"tiny-sweep": "done"}
    assert (out / "tiny-sweep.old-1" / "config.json").exists()
    monkeypatch.delenv("COFED_DATA")
    assert "data" not in json.loads(results.definition(experiment, "full", [0, 1]))


def test_ties_go_to_the_fastest(monkeypatch):
    tuning = cofed.Tuning(
        table=pd.DataFrame({"score": [0.999, 1.0, 0.5], "diverged": False}, index=[1, 0, 2]),
        best=None,
        score=1.0,
        curves={"f1": np.array([[0.2, 1.0], [0.9, 0.999], [0.9, 0.5]])},
        rounds=np.array([1, 2]),
    )
    monkeypatch.setattr(cofed, "tune", lambda *a, **k: tuning)
    method = Method("FedAvg", cofed.FedAvg, {"client_lr": (0.1, 0.2, 0.3)})
    made = setup(TINY.numbers("full"), 0)
    for ties, best in ((0.0, 0), (0.01, 1)):
        what = Comparison(setup, methods, "f1", maximise=True, ties=ties)
        assert measure.tune(what, made, method, TINY.numbers("full"), 0)[1]["best"] == best


def test_seeds_are_drawn_as_a_band(done):
    table = pd.read_parquet(done / "tiny-fig1" / "numbers.parquet")
    drawn = figure.draw(TINY, Measurements(table, {}, "a tiny set"), "full")
    assert [axes.get_ylabel() for axes in drawn.axes] == ["objective", "F1 of the support"]
    assert len(drawn.axes[0].collections) == 2  # a band for each method
    long = dataclasses.replace(TINY, title="a " * 100)
    (legend,) = figure.draw(long, Measurements(table, {}, "a tiny set"), "full").legends
    assert max(map(len, legend.get_title().get_text().splitlines())) < 100
    both = {"": {"pooled": {"objective": 0.5}, "twice": {"objective": 0.5}, "half": {"objective": 0.2}}}
    drawn = figure.draw(TINY, Measurements(table, both, "a tiny set"), "full")
    assert [text.get_text() for text in drawn.axes[0].texts] == ["pooled; twice", "half"]
    assert "a tiny set" in drawn._supxlabel.get_text()


def test_the_page_shows_claims_and_figures(done, tmp_path):
    written = page.publish(done, tmp_path / "docs", [TINY]).read_text()
    assert "Of 1 experiment 1 ran (1 of them with fewer than five seeds), 0 are missing." in written
    assert "| as printed (fewer than five seeds, or an earlier version) | 2 | 1 | 0 | 0 |" in written
    assert "![tiny-fig1](tiny-fig1/figure.png)" in written
    assert "| [tiny-fig1](#tiny-fig1) | Pigs fly. | **does not hold** |  |" in written
    assert "> Given wings, they fly.\n\nCriterion: Any pig.\n" in written
    assert "| as printed | **does not hold** | 0 of 2 seeds | They do not. | No wings. |" in written
    assert "| FedMiD | client_lr 0.01 |  | objective " in written
    assert "Tuned values were chosen from client_lr 0.001, 0.02." in written
    assert "(edge) | client_lr 0.5 |" in written
    assert f"cofed {cofed.__version__}, jax " in written
    assert (tmp_path / "docs" / "tiny-fig1" / "figure.svg").exists()
    assert not (tmp_path / "docs" / "tiny-fig1" / "numbers.parquet").exists()


def test_the_page_has_both_forms_of_an_experiment_side_by_side(done, tmp_path):
    pigs = Claim("Pigs fly.", lambda seen: Verdict(True, "These do.", {}))
    theirs = dataclasses.replace(TINY, id="tiny-fig1-released", released_form_of="tiny-fig1", claims=(pigs,))
    lacks = dataclasses.replace(TINY, id="tiny-fig2", reads=("mnist",))
    docs = tmp_path / "docs"
    shutil.copytree(done / "tiny-fig1", docs / "tiny-fig1")
    shutil.copytree(done / "tiny-fig1", docs / "tiny-fig1-released")
    config = results.read(docs / "tiny-fig1-released" / "config.json")
    config["defined_by"] = results.definition(theirs, "full", [0, 1])
    results.write_config(docs / "tiny-fig1-released", config)
    reproduce.judge_again([theirs], docs)
    written = page.publish(docs, docs, [TINY, theirs, lacks]).read_text()
    assert "Of 3 experiments 2 ran" in written
    assert "| as released (fewer than five seeds, or an earlier version) | 1 | 0 | 0 | 0 |\n\nOf the" in written
    assert "Of the claims that do not hold as printed, 1 hold in another form." in written
    assert "| [tiny-fig1](#tiny-fig1) | Pigs fly. | **does not hold** | as released: **holds** |" in written
    scaled = dataclasses.replace(theirs, form="features scaled")
    other = page.publish(docs, docs, [TINY, scaled, lacks]).read_text()
    assert "| **does not hold** | features scaled: **holds** |" in other
    assert "| features scaled (fewer than five seeds, or an earlier version) | 1 | 0 | 0 | 0 |" in other
    assert "![tiny-fig1-released](tiny-fig1-released/figure.png)" in written
    assert "## tiny-fig1-released" not in written
    assert "| tiny-fig2 | A tiny comparison | no data: it reads MNIST (`mnist/*-ubyte*`) |" in written
    assert "| `cofed reproduce tiny-fig2 --data DIR` |" in written


def test_the_page_shows_results_of_one_seed_and_of_earlier_versions_as_such(tmp_path):
    docs = tmp_path / "docs"
    go(docs, size="quick", seeds=1)
    config, claims = (results.read(docs / "tiny-fig1" / name) for name in ("config.json", "claims.json"))
    for name in (
        "versions",
        "hardware",
        "references_by_seed",
        "processor_seconds",
        "content_hash",
    ):  # as older versions wrote them
        config.pop(name)
    for entry in config["algorithms"]:
        entry.pop("on_edge"), entry.pop("reached")
    older = [{name: claim[name] for name in ("claim", "holds", "measured", "figures", "why")} for claim in claims]
    (docs / "tiny-fig1" / "config.json").write_text(json.dumps(config))
    (docs / "tiny-fig1" / "claims.json").write_text(json.dumps(older))
    written = page.publish(docs, docs, [TINY]).read_text()
    assert "| It converges. | **holds**, 1 seed |  |" in written
    assert "| as printed | **does not hold** | 0 of 1 seed | They do not. | not found yet |" in written
    assert f"The quick size, 1 seed, {config['seconds']:.0f} s, {config['created'][:10]}, cofed" in written
    changed = dataclasses.replace(TINY, quick={"rounds": 6})
    written = page.publish(docs, docs, [changed]).read_text()
    assert "of an earlier version of the experiment: rounds was 4 and is now 6." in written
    assert "| It converges. | **holds**, 1 seed, earlier version |  |" in written
    config.pop("defined_by")
    (docs / "tiny-fig1" / "config.json").write_text(json.dumps(config))
    assert "earlier version of" not in page.publish(docs, docs, [TINY]).read_text()
    assert "experiment: its settings were others." in page.publish(docs, docs, [changed]).read_text()
    fewer = dataclasses.replace(TINY, claims=TINY.claims[:1])
    assert "other claims were judged" in page.publish(docs, docs, [fewer]).read_text()


def test_a_plan_says_what_an_experiment_takes_and_the_page_repeats_it(tmp_path):
    sweep = dataclasses.replace(TINY, id="tiny-sweep", measure=Sweep("rate", lambda n: n.rates, point))
    panels = dataclasses.replace(TINY, panels={"a": {}, "b": {"rounds": 16}})
    found = expected.expect([panels, sweep], tmp_path, "full", 2, QUIET)
    told = results.read(tmp_path / "tiny-fig1" / "plan.json")
    each = "of 2 points with 2 seeds each (--quick takes fewer or smaller ones)"
    said = f"a time that is not forecast: it is a sweep, {each}"
    assert found == {"tiny-fig1": expected.words(told), "tiny-sweep": said}
    assert told["seconds"] > 0
    written = page.publish(tmp_path, tmp_path / "docs", [TINY, sweep]).read_text()
    assert f"not run yet at this size; it takes {expected.words(told)} (" in written
    assert f"not run yet at this size; it takes {said} | " in written
    assert list(tmp_path.glob("tiny-fig1/*")) == [tmp_path / "tiny-fig1" / "plan.json"]


def test_a_page_keeps_small_files_only(done, tmp_path, monkeypatch):
    page.publish(done, tmp_path, [TINY])
    assert (tmp_path / "tiny-fig1" / "numbers.csv").exists()
    monkeypatch.setattr(page, "LARGEST", 10)
    page.publish(done, tmp_path, [TINY])
    assert not (tmp_path / "tiny-fig1" / "numbers.csv").exists()  # those of an earlier run would be others
    assert (tmp_path / "tiny-fig1" / "figure.png").exists()


def test_every_declared_experiment_is_whole():
    everything = experiments.everything()
    assert len(everything) >= 24
    for name, one in everything.items():
        assert name == one.id
        assert one.claims
        assert one.views
        if one.released_form_of:
            assert not everything[one.released_form_of].released_form_of
            assert {claim.text for claim in one.claims} & {c.text for c in everything[one.released_form_of].claims}
        for size in ("quick", "full"):
            assert json.loads(results.definition(one, size, [0]))["id"] == name
            for panel in one.panels:
                for method in one.measure.methods(one.numbers(size, panel)):
                    assert method.algorithms()


def test_the_skeleton_of_a_paper_works(tmp_path):
    scope: dict = {}
    exec(blocks("docs/experiments.md", "python")[-1].text, scope)
    assert go(tmp_path, scope["EXPERIMENTS"][0], size="quick", seeds=1) == {"mine-fig1": "done"}
    assert len(json.loads((tmp_path / "mine-fig1" / "claims.json").read_text())) == 1
