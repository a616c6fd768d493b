"""Rates that change from round to round: each round is the method's own, with that round's rates."""

import jax
import numpy as np
import optax
import pytest
from tests import worlds

import cofed

FED = worlds.linear()
OPTIONS = {"local_steps": 3, "batch_size": 2, "clients_per_round": 3, "w0": worlds.start()}


def go(algorithm, regularizer=None, **options):
    return cofed.run(worlds.problem(regularizer), FED, algorithm, **OPTIONS | {"rounds": 4} | options)


def once(r):
    return 1.0


@pytest.mark.parametrize(
    ("method", "regularizer"),
    [(cofed.FedDualAvg(0.02, 1.3), cofed.L1(0.05)), (cofed.Scaffold(0.02, 1.3), None), (cofed.FedDR(0.02, 0.5), None)],
    ids=lambda part: getattr(part, "name", ""),
)
def test_a_constant_schedule_is_the_method_itself(method, regularizer):
    plain = go(method, regularizer)
    same = go(cofed.Scheduled(method, dict.fromkeys(method.changeable, once)), regularizer)
    for a, b in zip(
        jax.tree.leaves((plain.state.server, plain.state.clients)),
        jax.tree.leaves((same.state.server.own, same.state.clients)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-15)
    assert same.communication == plain.communication


def test_every_round_has_its_own_rates():
    """The twin begins each round anew, from the model before it, with that round's rates."""
    method = cofed.Scheduled(
        cofed.FedAvg(0.05, 1.2), {"client_lr": lambda r: 0.5**r, "server_lr": lambda r: 1 / (1 + r)}
    )
    full = {"batch_size": None, "clients_per_round": None}
    found = go(method, keep_models=True, **full).models
    w = worlds.start()
    for r in range(4):
        w = {"coef": go(cofed.FedAvg(0.05 * 0.5**r, 1.2 / (1 + r)), rounds=1, **full | {"w0": w}).model.coef}
        np.testing.assert_allclose(found[r + 1].coef, w["coef"], rtol=1e-12)


def test_a_schedule_of_optax_is_one():
    falling = cofed.Scheduled(cofed.FedAvg(0.05), {"client_lr": optax.linear_schedule(1.0, 0.0, 2)})
    models = go(falling, keep_models=True).models
    assert not np.allclose(models[1].coef, models[2].coef)
    np.testing.assert_array_equal(models[2].coef, models[4].coef)  # the rate is 0 from round 2 on


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((cofed.FedDecouple(0.1), {"client_lr": once}), "cannot change.*has no rate that may"),
        ((cofed.FedDR(0.1, 0.5), {"eta": once}), "eta of FedDR cannot change.*may change client_lr"),
        ((cofed.FedAvg(0.1), {"rate": once}), "rate of FedAvg cannot change"),
        ((cofed.FedAvg(0.1), {"client_lr": 0.5}), "must be a function of the round"),
        ((cofed.FedAvg(0.1), {}), "must be a mapping"),
        ((cofed.FedAvg(0.1), {"client_lr": lambda r: -1.0}), "one number >= 0"),
        ((cofed.FedAvg(0.1), {"client_lr": lambda r: float(r)}), r"fails in round 0 \(\w+: [^\n]*\)$"),
        ((cofed.NIDS(0.1), {"client_lr": once}), "one with a server.*NIDS has none"),
        ((cofed.FedNL(cofed.TopK(0.5)), {"hessian_lr": once}), "does not go around FedNL, which compresses its own"),
        (
            (cofed.Compressed(cofed.FedAvg(0.1), cofed.TopK(0.5)), {"client_lr": once}),
            r"as in Compressed\(Scheduled\(...\), TopK",
        ),
    ],
)
def test_what_cannot_be_is_refused(given, words):
    with pytest.raises((TypeError, ValueError), match=words):
        cofed.Scheduled(*given)


@pytest.mark.parametrize(
    "wrap", [lambda method: method, lambda method: cofed.ServerOptimizer(method, optax.sgd, {"learning_rate": 1.0})]
)
def test_a_rate_that_turns_negative_during_the_run_is_refused_before_it(wrap):
    """Its steps go uphill: FedAvg ended above its start, as completed."""
    falling = wrap(cofed.Scheduled(cofed.FedAvg(0.02), {"client_lr": lambda r: 1 - r / 3}))
    go(falling)
    with pytest.raises(ValueError, match=r"client_lr of schedules must give a number >= 0, got -0.3333 in round 4"):
        go(falling, rounds=5)
    root = cofed.Scheduled(cofed.FedAvg(0.02), {"client_lr": lambda r: (1 - r / 3) ** 0.5})
    with pytest.raises(ValueError, match="got nan in round 4"):
        cofed.tune(worlds.problem(), FED, [root], **OPTIONS | {"rounds": 9})
