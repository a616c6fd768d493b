"""The engine: what it computes beside the algorithms, and how it meets bad input, divergence and Ctrl-C."""

import os
import signal
import subprocess
import sys
import threading
import traceback

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import worlds

import cofed
from cofed.engine import execution as engine
from cofed.engine import inmemory

FED = worlds.linear()
L1 = cofed.L1(0.05)


def go(problem=None, federation=FED, algorithm=None, **options):
    options = {"rounds": 5, "local_steps": 2} | options
    return cofed.run(problem or worlds.problem(L1), federation, algorithm or cofed.FedDualAvg(0.02), **options)


class TestHistory:
    def test_rows_are_right(self):
        result = go(weights="samples", keep_models=True, w0=worlds.start())
        X, y = FED.pooled()
        table = result.history.to_pandas()
        assert table["round"].tolist() == [0, 1, 2, 3, 4, 5]
        for r, w in enumerate(result.models):
            loss = np.mean((X @ w.coef - y) ** 2) / 2
            np.testing.assert_allclose(table["loss"][r], loss, rtol=1e-12)
            np.testing.assert_allclose(table["objective"][r], loss + 0.05 * np.abs(w.coef).sum(), rtol=1e-12)
            gradient = X.T @ (X @ w.coef - y) / len(y)
            residual = np.linalg.norm(w.coef - worlds.soft(w.coef - gradient, 0.05))
            np.testing.assert_allclose(table["prox_gradient"][r], residual, rtol=1e-10)
            assert table["density"][r] == np.mean(w.coef != 0)
        assert np.all(np.diff(table["seconds"]) > 0)
        assert table["participants"].tolist() == [0] + [5] * 5

    def test_evaluations_are_every_so_often_and_at_the_end(self):
        assert go(rounds=7, evaluate_every=3).history["round"].tolist() == [0, 3, 6, 7]

    def test_own_metrics_and_held_out_data(self):
        train, test = worlds.logistic(sizes=(20, 30)).split(test=0.3)
        problem = worlds.problem(loss=cofed.Logistic())
        result = go(problem, train, metrics={"biggest": lambda w: jnp.abs(w.coef).max()}, evaluation=test)
        X, y = test.pooled()
        margin = X @ result.model.coef
        last = result.history.to_pandas().iloc[-1]
        np.testing.assert_allclose(last["test_loss"], np.mean(np.logaddexp(0, -np.where(y > 0, 1, -1) * margin)))
        np.testing.assert_allclose(last["test_accuracy"], np.mean((margin > 0) == (y > 0)))
        np.testing.assert_allclose(last["biggest"], np.abs(result.model.coef).max())

    def test_values_per_client(self):
        result = go(per_client=True)
        table = result.history.clients()
        assert list(table.columns) == list(FED.names)
        for name in FED.names:
            X, y = FED.client(name)
            np.testing.assert_allclose(table[name].iloc[-1], np.mean((X @ result.model.coef - y) ** 2) / 2)
        with pytest.raises(ValueError, match="per_client=True"):
            go().history.clients()

    def test_rank_of_a_matrix_model(self):
        data = cofed.datasets.yuan_low_rank(clients=3, samples=30, d=4, rank=1, dtype="float64")
        problem = cofed.Problem(cofed.Trace(4, 4), cofed.Squared(), cofed.Nuclear(0.5))
        result = cofed.run(
            problem, data.federation, cofed.FedDualAvg(0.01), rounds=200, local_steps=2, evaluate_every=50
        )
        singular = np.linalg.svd(result.model.coef, compute_uv=False)
        assert result.history["rank"][-1] == np.sum(singular > 1e-10) < 4

    def test_files(self, tmp_path):
        history = go().history
        history.to_csv(tmp_path / "h.csv")
        history.to_parquet(tmp_path / "deep" / "h.parquet")
        table = history.to_pandas()
        pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "h.csv"), table)
        pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "deep" / "h.parquet"), table)
        assert sorted(p.name for p in tmp_path.iterdir()) == ["deep", "h.csv"]

    def test_an_unknown_column_is_named(self):
        with pytest.raises(KeyError, match="no column 'f1'"):
            go().history["f1"]


class TestData:
    def test_evaluation_in_blocks_is_exact(self, monkeypatch):
        federation = worlds.linear(sizes=(700, 500, 900))
        result = go(federation=federation, weights="uniform")
        losses = [np.mean((X @ result.model.coef - y) ** 2) / 2 for X, y in (federation.client(m) for m in range(3))]
        np.testing.assert_allclose(result.history["loss"][-1], np.mean(losses), rtol=1e-12)

    def test_a_batch_as_large_as_the_client_is_the_full_gradient(self):
        full = go(keep_models=True, w0=worlds.start())
        batch = go(keep_models=True, w0=worlds.start(), batch_size=9)
        np.testing.assert_allclose(worlds.coefs(full), worlds.coefs(batch), atol=1e-12)

    def test_epochs_with_unequal_clients_take_their_own_numbers_of_steps(self):
        """NumPy twin: batches of 4 over clients of 4, 9, 6, 5, 7 samples; padded samples never count."""
        from cofed.engine import sampling

        result = go(
            worlds.problem(),
            local_steps=None,
            local_epochs=2,
            batch_size=4,
            rounds=2,
            keep_models=True,
            algorithm=cofed.FedAvg(0.02, 1.5),
            w0=worlds.start(),
        )
        w, key = worlds.start()["coef"], jax.random.key(0)
        for r in range(2):
            moves = []
            for m in range(5):
                X, y = FED.client(m)
                mine = sampling.client_key(sampling.round_key(key, jnp.asarray(r, jnp.int32)), FED.ids[m])
                n = jnp.asarray(len(y), jnp.int32)
                chosen, real = (np.asarray(a) for a in sampling.epoch_batches(mine, n, 9, 4, 2))
                x = w
                for k in range(2 * -(-len(y) // 4)):
                    rows = chosen[k][real[k]]
                    x = x - 0.02 * X[rows].T @ (X[rows] @ x - y[rows]) / len(rows)
                moves.append(x - w)
            w = w + 1.5 * np.mean(moves, axis=0)
            np.testing.assert_allclose(result.models[r + 1].coef, w, atol=1e-12)

    def test_the_same_seed_is_the_same_run_and_another_is_not(self):
        options = {"batch_size": 2, "clients_per_round": 2}
        same = [go(seed=4, **options).model.coef for _ in range(2)]
        np.testing.assert_array_equal(*same)
        assert not np.array_equal(same[0], go(seed=5, **options).model.coef)

    def test_a_users_own_loss_model_and_regularizer(self):
        import equinox as eqx

        class Ridge:
            convex, is_indicator = True, False
            value = staticmethod(lambda w: sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(w)) / 2)
            prox = staticmethod(lambda v, step: jax.tree.map(lambda leaf: leaf / (1 + step), v))

        module = eqx.nn.MLP(6, "scalar", 5, 1, key=jax.random.key(0))
        problem = cofed.Problem(module, lambda prediction, y: jnp.abs(prediction - y), Ridge())
        result = go(problem, rounds=3)
        assert isinstance(result.model, eqx.nn.MLP)
        assert result.model(jnp.ones(6)).shape == ()
        assert result.history["objective"][-1] < result.history["objective"][0]


class TestFailures:
    def test_a_diverging_run_stops_keeps_the_last_good_model_and_says_so(self):
        with pytest.warns(RuntimeWarning, match="FedDualAvg diverged in round"):
            result = go(algorithm=cofed.FedDualAvg(1e3), rounds=2000, evaluate_every=1000)
        assert result.outcome is cofed.Outcome.DIVERGED
        assert np.all(np.isfinite(result.model.coef))
        assert 0 < result.history["round"][-1] < 2000

    def test_a_client_without_a_finite_update_is_left_out_counted_and_named(self):
        def loss(prediction, y):  # not finite for the one client whose labels are huge
            return jnp.where(jnp.abs(y) > 1e5, jnp.nan, 1.0) * (prediction - y) ** 2 / 2

        clients = [FED.client(m) for m in range(5)]
        clients[2] = (clients[2][0], np.full_like(clients[2][1], 1e6))
        names = ["a", "b", "sick", "d", "e"]
        problem = worlds.problem(L1, loss)
        federation = cofed.Federation.from_arrays(clients, names)
        result = cofed.run(problem, federation, cofed.FedDualAvg(0.02), rounds=4, local_steps=2)
        healthy = cofed.Federation.from_arrays(
            [c for m, c in enumerate(clients) if m != 2], [n for n in names if n != "sick"]
        )
        expected = cofed.run(problem, healthy, cofed.FedDualAvg(0.02), rounds=4, local_steps=2)
        np.testing.assert_allclose(result.model.coef, expected.model.coef, atol=1e-12)
        assert result.history["left_out"].tolist() == [0, 1, 1, 1, 1]
        assert result.history.left_out == [cofed.LeftOut(r, "sick") for r in range(4)]
        assert result.outcome is cofed.Outcome.COMPLETED

    def test_a_left_out_client_keeps_its_state(self):
        def loss(prediction, y):
            return jnp.where(jnp.abs(y) > 1e5, jnp.nan, 1.0) * (prediction - y) ** 2 / 2

        clients = [FED.client(m) for m in range(3)]
        clients[1] = (clients[1][0], np.full_like(clients[1][1], 1e6))
        federation = cofed.Federation.from_arrays(clients)
        result = cofed.run(worlds.problem(None, loss), federation, cofed.Scaffold(0.02), rounds=3, local_steps=2)
        controls = np.asarray(result.state.clients.c.coef)
        np.testing.assert_array_equal(controls[1], 0)
        assert np.abs(controls[[0, 2]]).min() > 0

    def test_where_nobody_is_finite_the_run_ends(self):
        with pytest.warns(RuntimeWarning, match="diverged"):
            result = go(worlds.problem(L1, lambda p, y: jnp.nan * p), rounds=50)
        assert result.outcome is cofed.Outcome.DIVERGED
        np.testing.assert_array_equal(result.model.coef, 0)

    def test_a_loss_that_overflows_ends_the_run_in_the_same_round_however_it_is_chunked(self, monkeypatch):
        federation = worlds.linear(dtype=np.float32)
        rounds = []
        for pace in (1, 7, 100):
            monkeypatch.setattr(engine, "next_pace", lambda *_, pace=pace: pace)
            with pytest.warns(RuntimeWarning, match="FedAvg diverged in round"):
                result = go(worlds.problem(), federation, cofed.FedAvg(0.9), rounds=400, local_steps=1)
            assert result.outcome is cofed.Outcome.DIVERGED
            assert np.isfinite(result.history["objective"]).all()
            rounds.append(result.history["round"][-1])
        assert rounds[0] == rounds[1] == rounds[2] < 400

    @pytest.mark.parametrize("algorithm", [cofed.FedDecouple(0.05), cofed.FastFedDA(0.1, 9.0), cofed.FedDualAvg(0.05)])
    def test_participants_without_weight_change_nothing(self, algorithm):
        result = go(algorithm=algorithm, weights=[0, 0, 0, 0, 1.0], clients_per_round=1, rounds=30, keep_models=True)
        alone = worlds.coefs(result)
        still = np.all(alone[1:] == alone[:-1], axis=1)
        assert 0.5 < still.mean() < 1
        assert np.all(np.linalg.norm(alone[10:], axis=1) > 0)
        assert result.outcome is cofed.Outcome.COMPLETED

    def test_ctrl_c_returns_what_is_done(self, monkeypatch):
        before = signal.getsignal(signal.SIGINT)

        def record(job, log, chunk, real=engine.record):
            press = threading.Thread(target=lambda: os.kill(os.getpid(), signal.SIGINT))  # at some moment of the chunk
            if chunk.first == 201:
                press.start()
            real(job, log, chunk)
            if chunk.first == 201:
                press.join()

        monkeypatch.setattr(engine, "record", record)
        monkeypatch.setattr(engine, "next_pace", lambda *_: 100)
        options = {"rounds": 1001, "local_steps": 2, "evaluate_every": 100}
        result = go(algorithm=cofed.FedDualAvg(1e-5), **options)
        assert result.outcome is cofed.Outcome.INTERRUPTED
        assert 201 < result.history["round"][-1] < 600
        assert np.any(result.model.coef != 0)
        assert signal.getsignal(signal.SIGINT) is before

    @given(st.floats(1e-7, 1e2), st.integers(1, 10**6))
    def test_ctrl_c_is_heard_often_however_long_a_round_takes(self, seconds, capacity):
        pace = 1
        for _ in range(40):
            pace = engine.next_pace(pace, pace * seconds, capacity)
            assert 1 <= pace <= capacity
            assert pace == 1 or pace * seconds <= engine.CHUNK_SECONDS * (1 + 1e-12)

    def test_the_debug_engine_names_client_round_and_step(self):
        def loss(prediction, y):
            return jnp.where(prediction > 1.5, jnp.nan, 1.0) * (prediction - y) ** 2 / 2

        clients = [(np.ones((3, 1)), np.zeros(3)), (np.ones((3, 1)), np.full(3, 9.0))]
        federation = cofed.Federation.from_arrays(clients, names=["calm", "steep"])
        problem = worlds.problem(None, loss)
        with pytest.raises(cofed.DebugFailure, match="client 'steep', round 0, local step 2") as failure:
            cofed.run(problem, federation, cofed.FedAvg(0.1), rounds=3, local_steps=5, debug=True)
        assert (failure.value.client, failure.value.round, failure.value.step) == ("steep", 0, 2)

    def test_the_debug_engine_names_a_divergence(self):
        federation = worlds.linear(dtype=np.float32)
        with pytest.raises(cofed.DebugFailure, match=r"round \d+, local step \d: the loss is"):
            go(worlds.problem(), federation, cofed.FedAvg(100.0), rounds=60, local_steps=2, debug=True)

    def test_the_debug_engine_names_where_own_code_raises(self):
        def loss(prediction, y):
            raise ZeroDivisionError("oh")

        with pytest.raises(ValueError, match=r"the loss cannot be computed for one prediction.*ZeroDivisionError: oh"):
            go(worlds.problem(None, loss))

        def in_local_steps(prediction, y):
            if any(frame.name == "loss_and_gradient" for frame in traceback.extract_stack()):
                raise ZeroDivisionError("oh")
            return (prediction - y) ** 2

        with pytest.raises(cofed.DebugFailure, match="client '0', round 0, local step 0: ZeroDivisionError: oh"):
            go(worlds.problem(None, in_local_steps), debug=True)

    def test_progress_is_silent_without_a_terminal_and_shown_on_request(self, capfd):
        go()
        assert capfd.readouterr() == ("", "")
        go(progress=True)
        assert "FedDualAvg" in capfd.readouterr().err


REFUSED = {
    "rounds": ({"rounds": 0}, "rounds must be an integer >= 1, got 0"),
    "steps and epochs": ({"local_steps": 2, "local_epochs": 1}, "not both"),
    "steps": ({"local_steps": 0}, "local_steps must be an integer >= 1"),
    "batch": ({"batch_size": 0}, "batch_size must be an integer >= 1"),
    "too many clients": ({"clients_per_round": 6}, "clients_per_round is 6, but there are only 5 clients"),
    "weights": ({"weights": "size"}, "size"),
    "w0 shape": ({"w0": {"coef": np.zeros(4)}}, r"w0\['coef'\] has shape \(4,\), but the model's is \(6,\)"),
    "w0 name": ({"w0": {"beta": np.zeros(6)}}, r"entries \['beta'\], but the model's are \['coef'\]"),
    "w0 nan": ({"w0": {"coef": np.full(6, np.nan)}}, "NaN"),
    "w0 leaves": ({"w0": (np.zeros(6), np.zeros(1))}, "w0 has 2 arrays, but the model has 1"),
    "reserved": ({"metrics": {"loss": lambda w: 0.0}}, r"columns of its own named \['loss'\]"),
    "reserved by node": ({"metrics": {"objective_max": lambda w: 0.0}}, r"columns of its own named"),
    "seed": ({"seed": -1}, r"seed must be an integer from 0 to 2\*\*32 - 1, got -1"),
    "grid": ({"algorithm": cofed.FedDualAvg(np.array([0.1, 0.2]))}, r"client_lr must be one number, got an array"),
    "vector loss": (
        {"problem": worlds.problem(None, lambda p, y: jnp.stack([p, y]))},
        r"must be one number, got an array of shape \(2,\)",
    ),
    "metric": ({"metrics": {"bad": lambda w: w.nothing}}, "metric 'bad' cannot be computed"),
    "metric shape": ({"metrics": {"bad": lambda w: w.coef}}, "metric 'bad' must give one number"),
    "evaluation": ({"evaluation": worlds.linear(d=3)}, "evaluation federation has samples of shape"),
    "epochs": (
        {"algorithm": cofed.FastFedDA(0.1, 9.0), "local_steps": None, "local_epochs": 1, "batch_size": 4},
        "FastFedDA needs the same number of local steps",
    ),
    "indicator": (
        {"algorithm": cofed.FedAvg(0.1), "problem": worlds.problem(cofed.L1Ball(1.0))},
        "FedAvg does not fit the regularizer L1Ball.*finite",
    ),
    "smooth": ({"algorithm": cofed.Scaffold(0.1)}, "Scaffold does not fit the regularizer L1.*Zero"),
    "convex": ({"problem": worlds.problem(cofed.MCP(0.1))}, "FedDualAvg does not fit the regularizer MCP.*convex"),
    "mirror": (
        {"algorithm": cofed.FedDualAvg(0.1, mirror=cofed.PNorm(3.0)), "problem": worlds.problem(cofed.L2Ball(1.0))},
        "PNorm.*L2Ball",
    ),
    "ball": (
        {"algorithm": cofed.CFedDA(0.1, 5.0, radius=1.0), "problem": worlds.problem(cofed.ElasticNet(0.1, 0.5))},
        "CFedDA does not fit the regularizer ElasticNet.*norm",
    ),
    "labels": (
        {"problem": worlds.problem(loss=cofed.Logistic())},
        "client '0': Logistic expects labels 0/1 or -1/\\+1",
    ),
    "stages": ({"algorithm": cofed.MCFedDA(0.1, 5.0), "rounds": 2}, "3 stages"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_gets_a_sentence_before_compilation(what, monkeypatch):
    options, sentence = REFUSED[what]
    monkeypatch.setattr(inmemory.InMemory, "advance", lambda *_: pytest.fail("compiled before it was checked"))
    with pytest.raises(ValueError, match=sentence):
        go(**options)


KINDS = """
import numpy as np, cofed
federation = cofed.Federation.from_arrays([(np.ones((2, 2)), np.ones(2))])
problem, algorithm = cofed.Problem(), cofed.FedAvg(0.1)
for arguments, options in [
    ((federation, problem, algorithm), {}),
    ((problem, [(np.ones((2, 2)), np.ones(2))], algorithm), {}),
    ((problem, federation, cofed.FedAvg), {}),
    ((problem, federation, "FedAvg"), {}),
    ((problem, federation, algorithm), {"rounds": 2.5}),
    ((problem, federation, algorithm), {"seed": None}),
]:
    try:
        cofed.run(*arguments, **({"rounds": 1} | options))
    except (TypeError, ValueError) as error:
        print(error)
import tempfile
one, folder = np.int64(1), tempfile.mkdtemp() + "/run"
cofed.run(problem, federation, algorithm, rounds=one, local_steps=one, seed=one, checkpoint=folder)
print("numpy integers are fine")
"""


def test_arguments_of_the_wrong_kind_get_a_sentence():
    """In a process of its own, without the run-time checks of annotations that all other tests have."""
    sentences = subprocess.run([sys.executable, "-c", KINDS], capture_output=True, text=True, check=True).stdout
    for line, expected in zip(
        sentences.splitlines(),
        ["first argument must be a cofed.Problem", "must be a cofed.Federation"]
        + ["third argument must be an algorithm"] * 2
        + ["rounds must be an integer >= 1, got 2.5", "seed must be an integer"]
        + ["numpy integers are fine"],
        strict=True,
    ):
        assert expected in line


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cofed.FedAvg(0.0), "FedAvg: client_lr must be a finite number > 0, got 0"),
        (lambda: cofed.FedDualAvg(-1), "FedDualAvg: client_lr"),
        (lambda: cofed.FedMiD(float("nan")), "FedMiD: client_lr"),
        (lambda: cofed.FedMiD(0.1, mirror=cofed.PNorm(3.0)), "FedMiD needs the mirror Euclidean"),
        (lambda: cofed.CFedDA(0.1, 1.0, radius=-1.0), "CFedDA: radius"),
        (lambda: cofed.MCFedDA(0.1, 1.0, strengths=(1.0, 2.0), radii=(1.0,)), "one entry per stage"),
        (lambda: cofed.MCFedDA(0.1, 1.0, radii=(1.0,), sparsity=3), "radii or sparsity, not both"),
        (lambda: cofed.Huber(0), "Huber: delta"),
    ],
)
def test_bad_hyperparameters_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cofed.Problem(loss="squared"), "loss must be"),
        (lambda: cofed.Problem(model="linear"), "model must be"),
        (lambda: cofed.Problem(regularizer=0.1), "regularizer must have"),
        (lambda: cofed.Problem(regularizer=cofed.L1), "regularizer must have"),
        (lambda: cofed.FedAvg("0.1"), "FedAvg: client_lr must be a number, got '0.1'"),
    ],
)
def test_bad_parts_get_a_sentence(make, sentence):
    with pytest.raises(TypeError, match=sentence):
        make()
