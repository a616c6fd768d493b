"""A run that begins from the whole state of another."""

import jax
import numpy as np
import pytest
from tests import worlds

import cofed
from cofed.engine import chunk_loop

FED = worlds.linear()
OPTIONS = {"local_steps": 3, "w0": worlds.start()}


def go(algorithm, regularizer=None, **options):
    return cofed.run(worlds.problem(regularizer), FED, algorithm, **OPTIONS | options)


@pytest.fixture(scope="module")
def first():
    return go(cofed.FedDecouple(0.02), cofed.L1(0.05), rounds=4)


def test_without_draws_two_halves_are_the_whole_to_the_last_bit(first):
    """Full gradients of everybody: nothing depends on the number of a round."""
    whole = go(cofed.FedDecouple(0.02), cofed.L1(0.05), rounds=8)
    second = go(cofed.FedDecouple(0.02), cofed.L1(0.05), rounds=4, w0=None, start=first)
    for a, b in zip(
        jax.tree.leaves((whole.state.server, whole.state.clients)),
        jax.tree.leaves((second.state.server, second.state.clients)),
        strict=True,
    ):
        assert np.asarray(a).tobytes() == np.asarray(b).tobytes()
    assert second.history["objective"][0] == first.history["objective"][-1]
    assert second.history["round"].tolist() == [0, 1, 2, 3, 4]
    only_the_model = go(cofed.FedDecouple(0.02), cofed.L1(0.05), rounds=4, w0=first.model)
    assert not np.array_equal(only_the_model.model.coef, second.model.coef), "the clients' corrections count"


def test_the_start_is_looked_at_by_the_program_of_the_rounds():
    """So a row does not depend on where a run began, to the last bit, and a run compiles one evaluation, not two."""
    whole = go(cofed.FedMiD(0.02), cofed.L1(0.05), rounds=3, keep_models=True)
    programs = chunk_loop.run_chunk._cached._cache_size()
    for past in range(1, 4):
        later = go(cofed.FedMiD(0.02), cofed.L1(0.05), rounds=3, w0=whole.models[past], keep_models=True)
        for name in ("objective", "loss", "prox_gradient"):
            assert later.history[name][0] == whole.history[name][past]
    assert chunk_loop.run_chunk._cached._cache_size() == programs


def test_of_a_given_start_only_the_shapes_are_compared():
    """The draws of a large network's own start take seconds to compile."""
    concrete = []

    class Drawn(cofed.AbstractModel):
        def init(self, key, x, outputs):
            coef = jax.random.normal(key, x.shape, x.dtype)
            concrete.append(not isinstance(coef, jax.core.Tracer))
            return {"coef": coef}

        def __call__(self, w, x):
            return x @ w["coef"]

    problem, own = cofed.Problem(Drawn()), np.arange(worlds.start()["coef"].size, dtype=float)
    assert np.array_equal(problem.start(FED, {"coef": own})["coef"], own)
    assert concrete == [False]
    with pytest.raises(ValueError, match=r"w0\['coef'\] has shape"):
        problem.start(FED, {"coef": own[1:]})
    assert problem.start(FED)["coef"].shape == own.shape
    assert concrete == [False, False, True]


def test_it_can_be_kept_and_resumed(first, tmp_path):
    options = {"rounds": 4, "w0": None, "start": first}
    whole = go(cofed.FedDecouple(0.02), cofed.L1(0.05), **options)
    go(cofed.FedDecouple(0.02), cofed.L1(0.05), **options | {"rounds": 2}, checkpoint=tmp_path)
    assert cofed.resume(tmp_path, rounds=4).model.coef.tobytes() == whole.model.coef.tobytes()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"algorithm": cofed.Scaffold(0.1)}, "of FedDecouple, does not fit Scaffold"),
        ({"w0": worlds.start()}, "not both"),
        ({"start": 3}, "must be the result of a run"),
        ({"clock": cofed.Clock(1.0)}, "without a clock"),
    ],
)
def test_what_does_not_fit_is_refused(first, given, words):
    options = {"algorithm": cofed.FedDecouple(0.1), "rounds": 1, "start": first, "local_steps": 3} | given
    with pytest.raises((TypeError, ValueError), match=words):
        cofed.run(worlds.problem(), FED, **options)


def test_numbers_that_a_state_depends_on_cannot_change(first):
    with pytest.raises(ValueError, match=r"start: client_lr of FedDecouple was 0.02 and is 0.01"):
        go(cofed.FedDecouple(0.01), cofed.L1(0.05), rounds=4, w0=None, start=first)
    admm = go(cofed.FedADMM(0.02, 0.1), cofed.L1(0.05), rounds=2)
    go(cofed.FedADMM(0.01, 0.1), cofed.L1(0.05), rounds=2, w0=None, start=admm)
    with pytest.raises(ValueError, match=r"start: eta of FedADMM was 0.1 and is 0.2"):
        go(cofed.FedADMM(0.02, 0.2), cofed.L1(0.05), rounds=2, w0=None, start=admm)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (cofed.FastFedDA(0.1, 20.0), {}),
        (cofed.Scheduled(cofed.FedAvg(0.02), {"client_lr": lambda r: 1 / (1 + r)}), {}),
    ],
)
def test_methods_that_count_rounds_do_not_begin_in_the_middle(method, options):
    begun = go(method, rounds=2, **options)
    with pytest.raises(ValueError, match="depends on the round's number, and rounds begin anew here"):
        go(method, rounds=2, w0=None, start=begun, **options)


@pytest.mark.parametrize("method", [cofed.NIDS(0.02), cofed.PGExtra(0.02)], ids=lambda method: method.name)
def test_gossip_goes_on_where_it_ended(method):
    """Each node's gradient and last models are its own: the first round is told by the state, not by its number."""
    options = {"topology": cofed.topologies.ring(FED.n_clients), "local_steps": 1, "batch_size": None}
    whole = go(method, cofed.L1(0.05), **options, rounds=6)
    half = go(method, cofed.L1(0.05), **options, rounds=3)
    rest = go(method, cofed.L1(0.05), **options | {"w0": None, "start": half}, rounds=3)
    np.testing.assert_allclose(rest.personal_models.coef, whole.personal_models.coef, rtol=0, atol=1e-14)


def test_what_clients_keep_is_theirs_and_of_their_weights(first):
    problem, options = worlds.problem(cofed.L1(0.05)), {"rounds": 2, "local_steps": 3, "start": first}
    order = [3, 1, 4, 0, 2]
    moved = cofed.Federation.from_arrays([FED.client(m) for m in order], names=[FED.names[m] for m in order])
    with pytest.raises(ValueError, match=r"the clients of that run were 0, 1, 2, 3, 4 and are 3, 1, 4, 0, 2, and each"):
        cofed.run(problem, moved, cofed.FedDecouple(0.02), **options)
    with pytest.raises(ValueError, match=r"the clients counted 0.2, 0.2, 0.2, 0.2, 0.2 and now count .*begin with w0"):
        cofed.run(problem, FED, cofed.FedDecouple(0.02), **options, weights="samples")
    with pytest.raises(ValueError, match="clients took 3 local steps and are to take 5, but what FedDecouple keeps"):
        cofed.run(problem, FED, cofed.FedDecouple(0.02), **options | {"local_steps": 5})
    stateless = cofed.run(worlds.problem(), FED, cofed.FedAvg(0.02), rounds=2)
    other = {"rounds": 2, "weights": "samples", "local_steps": 2, "start": stateless}
    assert cofed.run(worlds.problem(), moved, cofed.FedAvg(0.02), **other).outcome is cofed.Outcome.COMPLETED
    scaffold = cofed.run(worlds.problem(), FED, cofed.Scaffold(0.02), rounds=2, local_steps=3)
    more = cofed.run(worlds.problem(), FED, cofed.Scaffold(0.02), rounds=2, local_steps=5, start=scaffold)
    assert more.outcome is cofed.Outcome.COMPLETED
