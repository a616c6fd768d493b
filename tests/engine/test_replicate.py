"""Several seeds in one call: each is its own run, and the band is what NumPy says."""

import json
import signal

import jax
import numpy as np
import pandas as pd
import pytest
from safetensors.numpy import load_file
from tests import worlds

import cofed
from cofed.plotting import plot_history

FED = worlds.linear()
OPTIONS = {"rounds": 6, "local_steps": 2, "batch_size": 3, "clients_per_round": 3, "w0": worlds.start()}
SEEDS = [4, 0, 7]


@pytest.fixture(scope="module")
def found():
    return cofed.replicate(worlds.problem(), FED, cofed.FedAvg(0.02), seeds=SEEDS, **OPTIONS)


def test_each_seed_is_its_own_run_to_the_last_bit(found):
    assert list(found.results) == SEEDS
    for seed, result in found.results.items():
        alone = cofed.run(worlds.problem(), FED, cofed.FedAvg(0.02), seed=seed, **OPTIONS)
        for a, b in zip(jax.tree.leaves(alone.state.server), jax.tree.leaves(result.state.server), strict=True):
            assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
        assert alone.history["objective"].tobytes() == result.history["objective"].tobytes()
    ends = {float(result.history["objective"][-1]) for result in found.results.values()}
    assert len(ends) == len(SEEDS), "seeds that change nothing would show nothing"


def test_all_seeds_share_one_program(monkeypatch):
    traces = []
    monkeypatch.setattr(
        cofed.FedAvg,
        "aggregate",
        lambda self, problem, server, up, share, old=cofed.FedAvg.aggregate: (
            traces.append(0),
            old(self, problem, server, up, share),
        )[1],
    )
    counts = []
    for seeds in (1, 2, 4):
        traces.clear()
        cofed.replicate(worlds.problem(), FED, cofed.FedAvg(0.02), seeds=seeds, **OPTIONS)
        counts.append(len(traces))
    # From the second seed on a run only looks at shapes, as often each time; the first also traces the loop.
    assert counts[2] == 2 * counts[1]


def test_bands_are_quantiles_over_the_seeds(found):
    curves = np.array([result.history["objective"] for result in found.results.values()])
    bands = found.bands(low=0.25, high=1.0)
    np.testing.assert_allclose(bands["median"], np.median(curves, axis=0), rtol=1e-15)
    np.testing.assert_allclose(bands["low"], np.quantile(curves, 0.25, axis=0), rtol=1e-15)
    np.testing.assert_allclose(bands["high"], curves.max(axis=0), rtol=1e-15)
    assert bands["seeds"].tolist() == [3] * 7
    table = found.to_pandas()
    assert table.columns[0] == "seed"
    assert table.groupby("seed").size().to_dict() == dict.fromkeys(SEEDS, 7)


def test_the_figure_has_the_median_and_the_band(found):
    for x in ("round", "bytes"):
        [panel] = plot_history({"FedAvg": found}, x=x).axes
        np.testing.assert_allclose(panel.lines[0].get_ydata(), found.bands()["median"])
        [band] = panel.collections
        heights = band.get_paths()[0].vertices[:, 1]
        assert heights.min() == pytest.approx(found.bands()["low"].min())
        assert heights.max() == pytest.approx(found.bands()["high"].max())


def test_a_seed_that_diverges_is_counted_until_then():
    options = OPTIONS | {"rounds": 40, "w0": None}
    with pytest.warns(RuntimeWarning, match="diverged"):
        found = cofed.replicate(worlds.problem(), FED, cofed.FedAvg(1e60), seeds=2, **options)
    assert {outcome.name for outcome in found.outcomes.values()} == {"DIVERGED"}
    assert found.bands()["seeds"].iloc[0] == 2


def test_ctrl_c_keeps_what_is_done():
    class Stop(cofed.callbacks.AbstractCallback):
        def on_end(self, result):
            signal.raise_signal(signal.SIGINT)

    found = cofed.replicate(worlds.problem(), FED, cofed.FedAvg(0.02), seeds=3, callbacks=[Stop()], **OPTIONS)
    assert list(found.results) == [0]


def test_each_seed_has_a_folder_to_go_on_from(tmp_path, found):
    half = OPTIONS | {"rounds": 3}
    cofed.replicate(worlds.problem(), FED, cofed.FedAvg(0.02), seeds=[4], checkpoint=tmp_path, **half)
    longer = cofed.resume(tmp_path / "seed-4", rounds=6)
    assert longer.history["objective"][-1] == found.results[4].history["objective"][-1]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seeds": []}, "seeds is empty"),
        ({"seeds": [1, 1]}, "1 is there twice"),
        ({"seeds": [-1]}, "each of seeds must be an integer from 0"),
        ({"seeds": 2, "seed": 1}, "no option 'seed'.*given by seeds="),
        ({"seeds": 2, "local_stpes": 1}, "no option 'local_stpes'"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        cofed.replicate(worlds.problem(), FED, cofed.FedAvg(0.02), rounds=1, **given)


def test_a_report_reads_what_is_saved(tmp_path, found):
    found.save(tmp_path / "seeds", label="FedAvg, three seeds")
    found.results[4].save(tmp_path / "one")
    shown = cofed.report.write_report([tmp_path], tmp_path / "report.html")
    assert "FedAvg, three seeds" in (tmp_path / "report.html").read_text()
    assert shown is not None
    rows = pd.read_parquet(tmp_path / "seeds" / "numbers.parquet")
    assert rows.groupby("seed").size().to_dict() == dict.fromkeys(SEEDS, 7)
    config = json.loads((tmp_path / "one" / "config.json").read_text())
    assert config["algorithms"][0]["hyperparameters"] == {"client_lr": 0.02, "server_lr": 1.0}
    assert config["outcome"] == "completed"
    model = load_file(tmp_path / "one" / "model.safetensors")
    assert model["coef"].tobytes() == found.results[4].model.coef.tobytes()
    with pytest.raises(FileExistsError, match="holds a result already"):
        found.save(tmp_path / "one")
