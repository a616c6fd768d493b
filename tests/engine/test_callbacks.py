"""Callbacks: what they are told and when, how they stop a run, and that their errors do not."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds

import cofed
from cofed._util import threads
from cofed.engine.callbacks import Listeners, flat

FED = worlds.linear()


def go(*callbacks, algorithm=None, problem=None, **options):
    options = {"rounds": 40, "local_steps": 2} | options
    problem = problem or worlds.problem(cofed.L1(0.05))
    return cofed.run(problem, FED, algorithm or cofed.FedDualAvg(0.02), callbacks=callbacks, **options)


class Listener:
    """Keeps what it hears."""

    def __init__(self):
        self.info, self.rows, self.result = None, [], None

    def on_start(self, info):
        assert not self.rows
        self.info = info

    def on_row(self, row):
        assert self.result is None
        self.rows.append(row)

    def on_end(self, result):
        self.result = result


class Once:
    """Says or raises something when a round comes."""

    def __init__(self, round, answer):
        self.round, self.answer, self.heard = round, answer, []

    def on_row(self, row):
        self.heard.append(row["round"])
        if row["round"] == self.round:
            if isinstance(self.answer, BaseException):
                raise self.answer
            return self.answer


def test_the_rows_are_those_of_the_history():
    listener = Listener()
    result = go(listener, evaluate_every=3)
    assert listener.rows == result.history.rows
    assert [row["round"] for row in listener.rows] == [*range(0, 40, 3), 40]
    assert listener.result is result
    assert listener.info.rows == ()
    listener.rows[0]["objective"] = np.nan  # its own copy
    assert np.isfinite(result.history["objective"]).all()


def test_a_run_is_the_same_with_and_without_callbacks():
    np.testing.assert_array_equal(go(Listener()).model.coef, go().model.coef)


def test_false_stops_the_run_and_nothing_else_does():
    last, listener = Once(20, False), Listener()
    result = go(last, listener, rounds=100_000)
    done = result.history.rows[-1]["round"]
    assert result.outcome is cofed.Outcome.INTERRUPTED
    assert done == 20
    assert [row["objective"] for row in listener.rows] == result.history["objective"].tolist()
    assert last.heard == list(range(done + 1))
    np.testing.assert_array_equal(result.model.coef, go(rounds=done).model.coef)
    for answer in (None, 0, "", True):
        assert go(Once(20, answer)).outcome is cofed.Outcome.COMPLETED
    assert go(Once(40, False)).outcome is cofed.Outcome.COMPLETED  # all rounds are done then
    for answer in (False, np.bool_(False), np.array(1.0) > 2, jnp.array(1.0) > 2):
        assert len(go(Once(0, answer)).history) == 1


def test_a_stopped_run_can_be_resumed(tmp_path):
    kept = {"checkpoint": tmp_path / "run", "checkpoint_every": 10, "keep_checkpoints": 1}
    stopped = go(Once(27, False), rounds=100, **kept)  # the chunk of this round ends with a checkpoint
    assert stopped.history.rows[-1]["round"] == 27
    assert [path.stem for path in (tmp_path / "run").glob("round-*.json")] == ["round-000000027"]
    listener = Listener()
    again = cofed.resume(tmp_path / "run", callbacks=[listener])
    whole = go(rounds=100)
    np.testing.assert_array_equal(again.model.coef, whole.model.coef)
    told = [row["round"] for row in (*listener.info.rows, *listener.rows)]
    assert told == list(range(101))
    assert len(listener.info.rows) == 28
    assert listener.result is again
    assert listener.info.parameters()["algorithm.client_lr"] == 0.02


def test_an_error_in_a_callback_is_told_once_and_the_run_goes_on():
    broken, listener = Once(7, OSError("the disk is full\nand more")), Listener()
    sentence = "the callback Once failed in on_row and is not called again; .*: OSError: the disk is full$"
    with pytest.warns(RuntimeWarning, match=sentence) as caught:
        result = go(broken, listener)
    assert len(caught) == 1
    assert result.outcome is cofed.Outcome.COMPLETED
    assert broken.heard == list(range(8))
    assert listener.rows == result.history.rows

    class BadEnd:
        def on_end(self, result):
            raise ValueError("too late")

    with pytest.warns(RuntimeWarning, match="the callback BadEnd failed in on_end .*: ValueError: too late"):
        assert go(BadEnd()).outcome is cofed.Outcome.COMPLETED


def test_an_error_at_the_start_is_raised_before_anything_is_computed():
    class BadStart(Listener):
        def on_start(self, info):
            raise ValueError("no such server")

    callback = BadStart()
    with pytest.raises(RuntimeError, match="the callback BadStart failed in on_start: ValueError: no such server"):
        go(callback)
    assert not callback.rows


def test_the_end_of_a_run_that_diverges_is_told():
    listener = Listener()
    with pytest.warns(RuntimeWarning, match="diverged"):
        result = go(listener, algorithm=cofed.FedAvg(1e6), problem=worlds.problem(), rounds=200, evaluate_every=50)
    assert listener.result.outcome is cofed.Outcome.DIVERGED
    assert listener.rows == result.history.rows


def test_a_function_is_called_with_each_snapshot_and_may_end_the_run():
    rounds, models = [], []

    def watch(snapshot):
        rounds.append(snapshot.row["round"])
        models.append(snapshot.model.coef)
        return snapshot.row["round"] < 3

    result = go(watch)
    assert rounds == [0, 1, 2, 3]
    assert result.outcome is cofed.Outcome.INTERRUPTED
    np.testing.assert_array_equal(models[-1], result.model.coef)

    def broken(snapshot):
        raise ValueError("no such column")

    with pytest.warns(RuntimeWarning, match="the callback broken failed in on_model .*: ValueError: no such column"):
        assert go(broken).outcome is cofed.Outcome.COMPLETED


def test_what_is_no_callback_is_refused():
    with pytest.raises(TypeError, match="callbacks: a int has none of on_start, on_row, on_model, on_end"):
        go(3)
    with pytest.raises(TypeError, match="got the class Listener; call it to make one"):
        go(Listener)
    with pytest.raises(TypeError, match="must be a list of objects, got a single Listener"):
        Listeners(Listener())


def test_parameters_are_flat_names_of_numbers_and_words():
    listener = Listener()
    weights = np.full(FED.n_clients, 1 / FED.n_clients)
    go(listener, rounds=1, weights=weights, seed=4)
    told = listener.info.parameters()
    assert told["algorithm"] == "FedDualAvg"
    assert told["algorithm.mirror"] == "Euclidean"
    assert told["problem.loss"] == "Squared"
    assert told["problem.model.intercept"] is False
    assert told["problem.regularizer"] == "L1"
    assert told["problem.regularizer.strength"] == 0.05
    assert told["weights"] == str(weights.tolist())
    assert (told["rounds"], told["local_steps"], told["seed"]) == (1, 2, 4)
    assert (told["clients"], told["samples"], told["features"], told["dtype"]) == (5, 31, 6, "float64")
    assert "batch_size" not in told  # it is not set
    assert all(isinstance(value, (bool, int, float, str)) for value in told.values())


def test_parts_of_parts_are_told_and_long_arrays_and_functions_by_their_shape_and_name():
    told = dict(flat("psi", cofed.Sum(cofed.L1(0.5), cofed.Box(-1.0, 2.0))))
    assert (told["psi"], told["psi.parts.0"], told["psi.parts.1.high"]) == ("Sum", "L1", 2.0)
    assert dict(flat("w", np.zeros((3, 4)))) == {"w": "an array of shape (3, 4)"}
    assert dict(flat("f", np.linalg.norm)) == {"f": "norm"}
    assert dict(flat("d", {"a": np.float32(0.5), "b": None})) == {"d.a": 0.5}


def test_gossip_tells_its_topology():
    listener = Listener()
    options = {"topology": cofed.topologies.ring(5), "link_failure": 0.1, "rounds": 2}
    go(listener, algorithm=cofed.DFedDA(0.02), **options)
    told = listener.info.parameters()
    assert told["topology"] == "Topology"
    assert told["link_failure"] == 0.1
    assert "consensus" in listener.rows[-1]


class Watcher(cofed.callbacks.AbstractCallback):
    """Keeps the models that it sees, and ends the run after a round."""

    def __init__(self, last=None):
        self.last, self.seen = last, []

    def on_model(self, snapshot):
        self.seen.append(snapshot)
        return self.last is None or snapshot.row["round"] < self.last


def same_models(seen, models):
    return len(seen) == len(models) and all((s.model.coef == w.coef).all() for s, w in zip(seen, models, strict=True))


def test_models_are_those_after_their_rounds_and_change_nothing():
    watcher = Watcher()
    plain, watched = go(keep_models=True), go(watcher, per_client=True, evaluate_every=8)
    np.testing.assert_array_equal(watched.model.coef, plain.model.coef)
    assert watched.models is None
    assert [s.row for s in watcher.seen] == watched.history.rows
    assert same_models(watcher.seen, plain.models[::8])
    table = watched.history.clients()
    assert [s.client_losses for s in watcher.seen] == table.to_dict("records")
    assert same_models(watcher.seen, [plain.models[0], *plain.models[8::8]])


@pytest.mark.parametrize("end", [1, 7, 23])
def test_a_run_ends_after_the_very_round_that_was_answered_so(end, tmp_path):
    options = {"clients_per_round": 3, "batch_size": 2, "algorithm": cofed.Scaffold(0.02), "problem": worlds.problem()}
    watcher, folder = Watcher(end), tmp_path / "run"
    ended = go(watcher, rounds=600, keep_models=True, checkpoint=folder, checkpoint_every=300, **options)
    whole = go(rounds=600, keep_models=True, **options)
    assert [s.row["round"] for s in watcher.seen] == list(range(end + 1)) == ended.history["round"].tolist()
    assert same_models(watcher.seen, whole.models[: end + 1])
    assert same_models(watcher.seen, ended.models)
    assert ended.communication.up == whole.history["bytes_up"][end]
    np.testing.assert_array_equal(cofed.resume(folder).model.coef, whole.model.coef)


def test_early_stopping_keeps_the_best_model_and_goes_on_where_it_was(tmp_path):
    train, held_out = worlds.linear(sizes=(8, 9, 6)).split(0.5, seed=1)
    problem, options = worlds.problem(), {"local_steps": 2, "evaluation": held_out, "w0": worlds.start()}
    go_on = lambda **more: cofed.run(problem, train, cofed.FedAvg(0.02), **options, **more)  # noqa: E731
    losses = (whole := go_on(rounds=300, keep_models=True)).history["test_loss"]
    best = int(losses.argmin())
    assert 0 < best < 280  # it does get worse
    stopper, keeper = cofed.callbacks.EarlyStopping(patience=6), cofed.callbacks.KeepBest("test_loss")
    result = go_on(rounds=300, callbacks=[stopper, keeper])
    ends = next(r for r in range(300) if r >= 6 and losses[r - 6 : r + 1].argmin() == 0)
    assert result.history.rows[-1]["round"] == ends
    assert stopper.row["round"] == keeper.row["round"] == losses[: ends + 1].argmin()
    np.testing.assert_array_equal(stopper.model.coef, whole.models[stopper.row["round"]].coef)
    # What a resumed run has seen counts: its patience is used up at the same round.
    folder = tmp_path / "run"
    go_on(rounds=300, checkpoint=folder, callbacks=[Once(ends - 3, False)])
    again = cofed.resume(folder, callbacks=[cofed.callbacks.EarlyStopping(patience=6)])
    assert again.history.rows[-1]["round"] == ends
    with pytest.raises(RuntimeError, match="test_loss is measured on held-out data"):
        go(cofed.callbacks.EarlyStopping())
    with pytest.warns(RuntimeWarning, match="KeepBest failed in on_model .* no column 'los'"):
        go(cofed.callbacks.KeepBest("los"))


@pytest.mark.parametrize(("regularizer", "one"), [(cofed.Nuclear(0.1), True), (cofed.L1(0.1), False)])
def test_lapack_takes_one_thread_where_every_step_is_an_svd(regularizer, one):
    """Its threads would wait for one another; what the process had before the run is there again after it."""
    now = lambda: [lib["num_threads"] for lib in threads.libraries().info() if lib["user_api"] == "blas"]  # noqa: E731
    seen, rng = [], np.random.default_rng(0)

    class Asks:
        def on_row(self, row):
            seen.append(now())

    federation = cofed.Federation.from_arrays([(rng.normal(size=(4, 3, 2)), rng.normal(size=4)) for _ in range(2)])
    with threads.libraries().limit(limits=2, user_api="blas"):
        before = now()
        assert before
        assert set(before) == {2}
        problem = cofed.Problem(cofed.Trace(3, 2), cofed.Squared(), regularizer)
        cofed.run(problem, federation, cofed.FedMiD(0.01), rounds=1, local_steps=1, callbacks=[Asks()])
        assert now() == before
    assert {number for row in seen for number in row} == {1 if one else 2}
