"""Clients with numbers of local steps of their own."""

import numpy as np
import pytest
from tests import worlds

import cofed
from cofed.engine import plan

FED = worlds.linear()
STEPS = [1, 4, 2, 3, 1]


def go(local_steps, algorithm=None, regularizer=None, **options):
    return cofed.run(
        worlds.problem(regularizer),
        FED,
        algorithm or cofed.FedAvg(0.02),
        **{"rounds": 3, "w0": worlds.start()} | options,
        local_steps=local_steps,
    )


def test_each_client_takes_its_own_steps():
    """A twin in NumPy, full gradients."""
    w = worlds.start()["coef"]
    for _ in range(3):
        moves = []
        for m, steps in enumerate(STEPS):
            x = w
            for _ in range(steps):
                x = x - 0.02 * worlds.gradient(FED, m, x)
            moves.append(x - w)
        w = w + np.mean(moves, axis=0)
    np.testing.assert_allclose(go(STEPS).model.coef, w, rtol=1e-12)


@pytest.mark.parametrize("schedule", [{"local_steps": 3}, {"local_epochs": 2}])
def test_batches_gathered_at_once_are_the_batches_one_by_one(schedule, monkeypatch):
    """Several classes, clients of unequal sizes: the same to the last bit."""
    rng = np.random.default_rng(0)
    data = [(rng.normal(size=(n, 5)), rng.integers(0, 3, size=n)) for n in (7, 4, 6)]
    options = {"rounds": 2, "batch_size": 3, "clients_per_round": 2, "evaluate_every": 2, **schedule}

    def fitted(most):
        monkeypatch.setattr(plan, "GATHERED", most)
        problem = cofed.Problem(cofed.Linear(), cofed.Softmax(3), cofed.L1(0.01))
        return cofed.run(problem, cofed.Federation.from_arrays(data), cofed.FedMiD(0.1), **options).model

    at_once, one_by_one = fitted(2**20), fitted(0)
    assert at_once.coef.tobytes() == one_by_one.coef.tobytes()
    assert at_once.intercept.tobytes() == one_by_one.intercept.tobytes()


def test_batches_are_gathered_at_once_where_they_stay_near_the_cache():
    small, large = plan.Plan(6, True, None, 10, 100, 1000), plan.Plan(13, True, None, 10, 10, 64)
    assert plan.in_cache(small, 4 * 784, 4 * 7850).gathered
    assert not plan.in_cache(large, 4 * 1024, 4 * 1024).gathered
    assert not plan.in_cache(plan.Plan(1, True, None, None, 5, 5), 8, 8).gathered, "full gradients have no batches"


def test_equal_numbers_are_one_number():
    assert go([2] * 5, batch_size=3).model.coef.tobytes() == go(2, batch_size=3).model.coef.tobytes()


def test_batches_do_not_depend_on_how_many_steps_others_take():
    """Drawn clients, a correction at each: what client 1 keeps is that of a run in which all take its four steps."""
    options = {"algorithm": cofed.Scaffold(0.02), "batch_size": 3, "rounds": 1}
    own, all_four = (go(steps, **options).state.clients.c.coef for steps in (STEPS, 4))
    np.testing.assert_array_equal(own[1], all_four[1])
    assert not np.allclose(own[0], all_four[0])


def test_a_checkpoint_holds_them(tmp_path):
    whole = go(STEPS, batch_size=3, rounds=5)
    go(STEPS, batch_size=3, checkpoint=tmp_path)
    assert cofed.resume(tmp_path, rounds=5).model.coef.tobytes() == whole.model.coef.tobytes()


@pytest.mark.parametrize(
    ("steps", "algorithm", "words"),
    [
        ([1, 2], None, "one for each of 5 clients"),
        ([1, 2, 3, 4, 0], None, "each of local_steps must be an integer >= 1, got 0"),
        (STEPS, cofed.FedDecouple(0.1), "same number of local_steps on all clients"),
        (STEPS, cofed.MCFedDA(0.1, 20.0, strengths=(0.1, 0.05)), "local.steps"),
    ],
)
def test_what_does_not_fit_is_refused(steps, algorithm, words):
    with pytest.raises(ValueError, match=words):
        go(steps, algorithm, cofed.L1(0.1))
