"""Optimizers at the server: what they are around each method, beside optax's own steps and a NumPy twin."""

import jax
import numpy as np
import optax
import pytest
from tests import worlds

import cofed
from cofed.engine.grid import group_by_program
from cofed.engine.spec import RunSpec

FED = worlds.linear()
OPTIONS = {"rounds": 5, "local_steps": 3, "batch_size": 2, "clients_per_round": 3, "w0": worlds.start()}
PLAIN, NOTHING = {"learning_rate": 1.0}, cofed.Zero()


def go(algorithm, regularizer=NOTHING, **options):
    return cofed.run(worlds.problem(regularizer), FED, algorithm, **OPTIONS | {"keep_models": True} | options)


@pytest.mark.parametrize(
    ("method", "regularizer"),
    [
        (cofed.FedAvg(0.02, 1.3), cofed.L1(0.05)),
        (cofed.Scaffold(0.02, 1.3), cofed.Zero()),
        (cofed.FedProx(0.3, 0.02, 4.0), cofed.L1(0.05)),
    ],
    ids=lambda part: getattr(part, "name", ""),
)
def test_gradient_descent_of_rate_one_is_the_method_itself(method, regularizer):
    plain, around = go(method, regularizer), go(cofed.ServerOptimizer(method, optax.sgd, PLAIN), regularizer)
    for a, b in zip(jax.tree.leaves(plain.state.clients), jax.tree.leaves(around.state.clients), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-14)
    for a, b in zip(plain.models, around.models, strict=True):
        np.testing.assert_allclose(a.coef, b.coef, rtol=1e-12, atol=1e-14)
    assert around.communication == plain.communication


def test_adam_and_momentum_are_their_formulas():
    """The clients' mean moves are those of FedAvg begun at each model; the server's steps are made here, in NumPy."""
    lr, b1, b2, eps = 0.1, 0.8, 0.95, 1e-3
    adam = cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.adam, {"learning_rate": lr, "b1": b1, "b2": b2, "eps": eps})
    ball = cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.sgd, {"learning_rate": 0.7, "momentum": 0.9})
    full = {"batch_size": None, "clients_per_round": None}

    def pseudo_gradient(w):
        return w - go(cofed.FedAvg(0.02), rounds=1, w0={"coef": w}, **full).model.coef

    found = go(adam, **full).models
    w = np.asarray(worlds.start()["coef"])
    m = v = np.zeros_like(w)
    for t in range(1, OPTIONS["rounds"] + 1):
        g = pseudo_gradient(w)
        m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g**2
        w = w - lr * (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        np.testing.assert_allclose(found[t].coef, w, rtol=1e-10)
    found = go(ball, **full).models
    w, m = np.asarray(worlds.start()["coef"]), 0.0
    for t in range(1, OPTIONS["rounds"] + 1):
        m = pseudo_gradient(w) + 0.9 * m
        w = w - 0.7 * m
        np.testing.assert_allclose(found[t].coef, w, rtol=1e-10)


def test_a_grid_of_the_optimizers_numbers_is_one_program():
    grid = [
        cofed.ServerOptimizer(cofed.FedAvg(c), optax.yogi, {"learning_rate": r}) for c in (0.01, 0.02) for r in (0.1, 1)
    ]
    spec = RunSpec(worlds.problem(), FED, grid[0], rounds=2)
    assert len(group_by_program(grid, spec)) == 1
    tuning = cofed.tune(worlds.problem(), FED, grid, rounds=5)
    assert tuning.best in grid


def test_a_checkpoint_holds_an_optimizer_of_optax_by_name(tmp_path):
    method = cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.adam, {"learning_rate": 0.1, "nesterov": True})
    whole = go(method)
    go(method, rounds=3, checkpoint=tmp_path)
    assert cofed.resume(tmp_path, rounds=5).model.coef.tobytes() == whole.model.coef.tobytes()


def test_a_transformation_that_is_made_already_is_taken_as_it_is(tmp_path):
    by_numbers = cofed.ServerOptimizer(cofed.FedAvg(0.02), chain, {"learning_rate": 0.1})
    made = cofed.ServerOptimizer(cofed.FedAvg(0.02), chain(0.1))
    np.testing.assert_allclose(go(made).model.coef, go(by_numbers).model.coef, rtol=1e-12)
    assert made.name == "FedAvg + optimizer"
    go(made, rounds=3, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="algorithm"):
        cofed.resume(tmp_path, rounds=5)
    assert cofed.resume(tmp_path, rounds=5, algorithm=made).model.coef.tobytes() == go(made).model.coef.tobytes()


def chain(learning_rate):
    return optax.chain(optax.clip_by_global_norm(1.0), optax.adam(learning_rate))


def test_an_optimizer_of_ones_own_is_given_again(tmp_path):
    method = cofed.ServerOptimizer(cofed.FedAvg(0.02), chain, {"learning_rate": 0.1})
    go(method, rounds=3, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="algorithm"):
        cofed.resume(tmp_path, rounds=5)
    longer = cofed.resume(tmp_path, rounds=5, algorithm=method)
    assert longer.model.coef.tobytes() == go(method).model.coef.tobytes()


def test_what_is_sent_may_be_compressed():
    method = cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.sgd, PLAIN)
    whole = cofed.Compressed(method, cofed.TopK(1.0))
    np.testing.assert_allclose(go(whole).model.coef, go(cofed.FedAvg(0.02)).model.coef, rtol=1e-12)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((cofed.FedDualAvg(0.1), optax.adam, PLAIN), "the model of FedDualAvg follows"),
        ((cofed.FedMiD(0.1), optax.adam, PLAIN), "the model of FedMiD follows"),
        ((cofed.NIDS(0.1), optax.adam, PLAIN), "one with a server"),
        ((cofed.Compressed(cofed.FedAvg(0.1), cofed.TopK(0.5)), optax.adam, PLAIN), "compress what comes of it"),
        ((cofed.FedAvg(0.1), 0.1), "must be what makes one"),
        ((cofed.FedAvg(0.1), optax.adam(0.1), PLAIN), "is made already"),
        ((cofed.FedAvg(0.1), optax.adam), "adam.., fails"),
        ((cofed.FedAvg(0.1), optax.adam, {"learning_rate": 0.1, "b3": 0.1}), "b3=0.1.* fails"),
        ((cofed.FedAvg(0.1), optax.adam, {"learning_rate": "fast"}), "learning_rate of options must be"),
        ((cofed.FedAvg(0.1), optax.adam, {"learning_rate": float("nan")}), "learning_rate of options must be"),
        ((cofed.FedAvg(0.1), optax.adam, 0.1), "options must be a mapping"),
        ((cofed.FedAvg(0.1), dict, PLAIN), "gives no optax transformation"),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        cofed.ServerOptimizer(*given)


def test_the_methods_own_needs_count():
    with pytest.raises(ValueError, match="Scaffold does not fit the regularizer L1"):
        go(cofed.ServerOptimizer(cofed.Scaffold(0.02), optax.sgd, PLAIN), cofed.L1(0.1))
