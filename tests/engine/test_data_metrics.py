"""Metrics that see data: per client, on held-out rows, in the history and for callbacks."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds

import cofed

FED = worlds.linear(names=["e", "b", "d", "a", "c"])
HELD = worlds.linear(sizes=(3, 5), seed=7, names=["b", "a"])
ERROR = cofed.metrics.on_samples(lambda prediction, y: abs(prediction - y))


class Explained(cofed.metrics.AbstractDataMetric):
    """The explained part of the variance, which is no mean over samples."""

    floor: float = 1e-3

    def __call__(self, predictions, y, share):
        return 1 - share @ (y - predictions) ** 2 / (self.floor + share @ (y - share @ y) ** 2)


def go(algorithm=None, metrics=None, **options):
    metrics = {"error": ERROR, "explained": Explained()} if metrics is None else metrics
    options = {"rounds": 4, "evaluation": HELD, "per_client": True, "w0": worlds.start()} | options
    return cofed.run(worlds.problem(), FED, algorithm or cofed.FedAvg(0.02), metrics=metrics, **options)


def by_hand(federation, m, coef):
    X, y = federation.client(m)
    rest = y - X @ coef
    return np.abs(rest).mean(), 1 - np.mean(rest**2) / (1e-3 + np.mean((y - y.mean()) ** 2)), np.mean(rest**2) / 2


def test_they_are_what_numpy_gives_for_each_client_and_for_all():
    class Last(cofed.callbacks.AbstractCallback):
        def on_model(self, snapshot):
            self.snapshot = snapshot

    last = Last()
    result = go(callbacks=[last])
    history, w = result.history, result.model.coef
    for federation, kind, weights in ((FED, "", np.full(5, 0.2)), (HELD, "test_", np.array([3, 5]) / 8)):
        each = np.array([by_hand(federation, m, w) for m in range(federation.n_clients)])
        for name, values in zip(("error", "explained", "loss"), each.T, strict=True):
            table = history.clients(f"{kind}{name}")
            assert table.columns.tolist() == list(federation.names)
            assert table.index.tolist() == list(range(5))
            np.testing.assert_allclose(table.iloc[-1], values, rtol=1e-10)
            np.testing.assert_allclose(history[f"{kind}{name}"][-1], weights @ values, rtol=1e-10)
            assert last.snapshot.client_scores[f"{kind}{name}"] == table.iloc[-1].to_dict()
    assert last.snapshot.client_losses == last.snapshot.client_scores["loss"]
    with pytest.raises(ValueError, match=r"column must be one of error, .* got 'rank'"):
        history.clients("rank")


def test_checkpoints_hold_the_tables(tmp_path):
    stop = type("Stop", (), {"on_row": lambda self, row: row["round"] < 2})
    go(checkpoint=tmp_path / "run", checkpoint_every=1, callbacks=[stop()])
    metrics = {"error": ERROR, "explained": Explained()}
    with pytest.raises(ValueError, match="pass them as metrics="):
        cofed.resume(tmp_path / "run")
    other = {"error": cofed.metrics.on_samples(jnp.subtract), "explained": Explained()}
    with pytest.raises(ValueError, match=r"metrics.error.measure was <lambda> and is now"):
        cofed.resume(tmp_path / "run", metrics=other)
    again, whole = cofed.resume(tmp_path / "run", metrics=metrics), go()
    for column in ("loss", "error", "test_loss", "test_explained"):
        assert again.history.clients(column).equals(whole.history.clients(column))


def test_of_personal_methods_they_are_those_of_the_clients_own_models():
    result = go(cofed.PureLocal(0.02), local_steps=2)
    # Clients work once more after the last round, so that of three rounds these are the models of round 4.
    own = np.asarray(go(cofed.PureLocal(0.02), local_steps=2, rounds=3).personal_models.coef)
    places = {name: m for m, name in enumerate(FED.names)}
    errors = [by_hand(FED, m, own[m])[0] for m in range(5)]
    np.testing.assert_allclose(result.history.clients("error").iloc[-1], errors, rtol=1e-10)
    np.testing.assert_allclose(result.history["personal_error"][-1], np.mean(errors), rtol=1e-10)
    tests = [by_hand(HELD, m, own[places[name]])[0] for m, name in enumerate(HELD.names)]
    np.testing.assert_allclose(result.history.clients("test_error").iloc[-1], tests, rtol=1e-10)


def test_tuning_ranks_by_them_and_gossip_measures_them():
    grid = [cofed.FedAvg(0.05), cofed.FedAvg(0.001)]
    options = {"rounds": 6, "evaluation": HELD, "w0": worlds.start()}
    better = cofed.metrics.higher_is_better(Explained())
    tuned = cofed.tune(worlds.problem(), FED, grid, metrics={"explained": better}, score="test_explained", **options)
    assert tuned.maximise
    assert tuned.score == tuned.curves["test_explained"][:, -1].max()
    with pytest.raises(ValueError, match="say whether more of it is better"):
        cofed.tune(worlds.problem(), FED, grid, metrics={"error": ERROR}, score="test_error", **options)
    nodes = go(cofed.DFedMiD(0.01), topology=cofed.topologies.ring(5), per_client=False)
    errors = [by_hand(FED, m, nodes.model.coef)[0] for m in range(5)]
    np.testing.assert_allclose(nodes.history["error"][-1], np.mean(errors))


@pytest.mark.parametrize(
    ("metrics", "words"),
    [
        ({"test_error": ERROR}, r"columns of its own named \['test_error'\]"),
        ({"error": ERROR, "personal_error": lambda w: jnp.sum(w.coef)}, r"named \['personal_error'\]"),
        ({"error": cofed.metrics.on_samples(lambda p, y: float(p))}, "cannot be computed from predictions and labels"),
        ({"error": cofed.metrics.on_samples(lambda p, y: jnp.ones(2))}, "must give one number|cannot be computed"),
    ],
)
def test_what_is_no_metric_is_refused(metrics, words):
    with pytest.raises(ValueError, match=words):
        go(metrics=metrics)
    with pytest.raises(TypeError, match="measure must be a function of a prediction and a label, got 3"):
        cofed.metrics.on_samples(3)
