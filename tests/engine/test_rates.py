"""Rates that nobody gives: the curvature that they follow from, each method's rule, and the safeguard."""

import dataclasses
import signal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import worlds

import cofed
from cofed._util.scalars import AUTOMATIC
from cofed.algorithms.base import LossCurvature
from cofed.engine import rates
from cofed.engine.spec import RunSpec

FED = worlds.linear()
SCHEDULE = {"rounds": 5, "local_steps": 3, "weights": "samples", "w0": worlds.start()}
SEEN = LossCurvature(L=2.0, largest=5.0, mu=0.1, difference=3.0, local_steps=4)
# What a method needs beside its rates.
REST = {
    "FedProx": {"strength": 0.5, "mu": None, "server_lr": None},
    "MCFedDA": {"strengths": (0.2, 0.1)},
    "MReFedDAGT": {"radius_squared": 1.0, "sparsity": 1},
    "ReFedDAGT": {"radius_squared": 1.0, "sparsity": 1},
    "PureLocal": {"mu": None},
}


def hessians():
    return np.stack([X.T @ X / len(X) for X, _ in map(FED.client, range(FED.n_clients))])


def test_the_curvature_is_that_of_the_clients_hessians():
    curvature, sent = rates.measured(RunSpec(worlds.problem(), FED, cofed.FedAvg(1.0), **SCHEDULE))
    H, pi = hessians(), np.asarray(FED.weights("samples"))
    mean = np.tensordot(pi, H, axes=1)
    values = np.linalg.eigvalsh(mean)
    np.testing.assert_allclose([curvature.mu, curvature.L], values[[0, -1]], rtol=1e-9)
    np.testing.assert_allclose(curvature.largest, np.linalg.eigvalsh(H).max(), rtol=1e-3)
    spread = sum(p * (one - mean) @ (one - mean) for p, one in zip(pi, H, strict=True))
    np.testing.assert_allclose(curvature.difference, np.linalg.eigvalsh(spread).max() ** 0.5, rtol=1e-3)
    assert curvature.local_steps == 3
    vectors = worlds.D + 2 * rates.DIFFERENCE_STEPS  # Lanczos' method ends after as many steps as there are numbers
    assert sent == (FED.n_clients * vectors * worlds.D * 8, FED.n_clients * (vectors * worlds.D + 1) * 8)


def test_mini_batches_make_the_clients_steeper():
    """By the trace of each client's Hessian, which is the mean curvature of a sample; a whole client adds nothing."""
    schedule = SCHEDULE | {"batch_size": 5}
    plain, _ = rates.measured(RunSpec(worlds.problem(), FED, cofed.FedAvg(1.0), **SCHEDULE))
    noisy, sent = rates.measured(RunSpec(worlds.problem(), FED, cofed.FedAvg(1.0), **schedule))
    H, pi, n = hessians(), np.asarray(FED.weights("samples")), np.array(worlds.SIZES)
    noise = np.trace(H, axis1=1, axis2=2) * np.maximum(n - 5, 0) / (5 * (n - 1))
    assert noise[3] == 0, "this client has five samples"
    np.testing.assert_allclose(noisy.L, plain.L + pi**2 @ noise, rtol=1e-9)
    np.testing.assert_allclose(noisy.largest, (np.linalg.eigvalsh(H)[:, -1] + noise).max(), rtol=1e-3)
    assert noisy.drift_free_lr <= plain.drift_free_lr
    vectors = worlds.D + 2 * rates.DIFFERENCE_STEPS
    assert sent.up == FED.n_clients * (vectors * worlds.D + 2) * 8


def test_every_rate_of_every_method_has_a_rule():
    found = set()
    for name in [*cofed.algorithms.__all__, *cofed.gossip.__all__]:
        method = getattr(cofed, name)
        if name in ("topologies", "FedNL"):
            continue
        open_ = {f.name: "auto" for f in dataclasses.fields(method) if f.name in AUTOMATIC}
        required = {f.name for f in dataclasses.fields(method) if f.default is f.default_factory is dataclasses.MISSING}
        missing = required - set(open_) - set(REST.get(name, {}))
        assert not missing, f"{name} must be given {missing}: say a value in REST"
        given = method(**(open_ | REST.get(name, {})))
        settled = rates.settled(given, SEEN)
        assert not rates.is_open(settled), f"rates(curvature) of {name} leaves some of {set(open_)} open"
        assert rates.is_open(given) == bool(open_)
        found |= set(open_)
    assert found == set(AUTOMATIC)


def test_the_rules_are_those_of_the_papers():
    settle = lambda method: rates.settled(method, SEEN)  # noqa: E731
    assert settle(cofed.Scaffold("auto")).client_lr == 1 / (4 * 3.0)
    assert settle(cofed.NIDS("auto")).client_lr == 1 / 5.0
    assert settle(cofed.FedFISTA("auto")).L == 2.0
    assert settle(cofed.NormalMap("auto", "auto")) == cofed.NormalMap(1 / 2.0, 1.0)
    assert settle(cofed.ProxSkip("auto", "auto")) == cofed.ProxSkip(1 / 5.0, 0.25)
    assert settle(cofed.FedADMM("auto", 0.5)) == cofed.FedADMM(1 / (5.0 + 2.0), 0.5)
    inside = settle(cofed.Compressed(cofed.FedDualAvg("auto", 1.5), cofed.TopK(0.5)))
    assert (inside.algorithm.client_lr, inside.algorithm.server_lr) == (1 / (4 * 3.0), 1.5)
    assert SEEN._replace(local_steps=1).drift_free_lr == 1 / 2.0
    both = settle(cofed.FedDecouple("auto", "auto"))
    assert (both.client_lr, both.server_lr) == (1 / 12, SEEN.server_lr(1 / 12))


@given(
    L=st.floats(0.1, 10.0),
    ratio=st.floats(0.0, 1.0),
    K=st.integers(1, 20),
    step=st.floats(0.01, 1.0),
    at=st.floats(0, 1),
)
def test_the_servers_step_is_the_best_for_quadratics(L, ratio, K, step, at):
    """No other step leaves less of the worst error between mu and L, but where it would swing."""
    seen = LossCurvature(L, L, ratio * L, 0.0, K)
    lr = step / L
    part = lambda curvature: 1 - (1 - lr * curvature) ** K  # noqa: E731
    worst = lambda s: max(abs(1 - s * part(curvature)) for curvature in (seen.mu, L))  # noqa: E731
    ours = seen.server_lr(lr)
    assert ours * part(L) <= 1.8 + 1e-9
    other = at * 1.8 / part(L)
    assert worst(ours) <= worst(other) + 1e-9


def test_a_run_shows_its_numbers_and_counts_what_they_cost():
    problem = worlds.problem(cofed.L1(0.05))
    result = cofed.run(problem, FED, cofed.FedDecouple("auto", 1.2), **SCHEDULE)
    curvature, sent = rates.measured(RunSpec(problem, FED, cofed.FedAvg(1.0), **SCHEDULE))
    assert result.algorithm == cofed.FedDecouple(curvature.drift_free_lr, 1.2)
    by_hand = cofed.run(problem, FED, result.algorithm, **SCHEDULE)
    np.testing.assert_array_equal(result.model.coef, by_hand.model.coef)
    assert by_hand.algorithm == result.algorithm
    assert result.communication.down == by_hand.communication.down + sent.down
    assert result.communication.up == by_hand.communication.up + sent.up


def test_where_the_objective_grows_rates_are_halved_and_the_run_begins_again(tmp_path):
    """Poisson counts of about 50: at the start, 0, the loss is far less curved than at the optimum."""
    rng = np.random.default_rng(0)
    clients = []
    for n in worlds.SIZES:
        X = np.c_[np.ones(n), 0.1 * rng.normal(size=(n, 2))]
        clients.append((X, rng.poisson(50, size=n)))
    federation = cofed.Federation.from_arrays(clients)
    problem = worlds.problem(loss=cofed.Poisson())
    options = {"rounds": 40, "local_steps": 3}
    first, _ = rates.measured(RunSpec(problem, federation, cofed.FedAvg(1.0), **options))
    result = cofed.run(problem, federation, cofed.FedAvg("auto"), checkpoint=tmp_path / "run", **options)
    halvings = np.log2(first.drift_free_lr / result.algorithm.client_lr)
    assert halvings >= 1
    assert halvings == round(halvings)
    assert result.outcome is cofed.Outcome.COMPLETED
    assert result.history["objective"][-1] < result.history["objective"][0]
    again = cofed.resume(tmp_path / "run")
    np.testing.assert_array_equal(again.model.coef, result.model.coef)
    assert again.algorithm == result.algorithm


def test_auto_is_refused_where_nothing_settles_it():
    problem = worlds.problem()
    with pytest.raises(ValueError, match=r"FedAvg: client_lr='auto' is settled by cofed\.run"):
        cofed.tune(problem, FED, [cofed.FedAvg("auto")], rounds=2)
    with pytest.raises(TypeError, match="FedAvg: client_lr must be a number, got 'fast'"):
        cofed.FedAvg("fast")
    with pytest.raises(ValueError, match="FedProx has no rule for server_lr='auto'"):
        cofed.run(problem, FED, cofed.FedProx(0.1, 0.1, "auto"), rounds=2)
    with pytest.raises(TypeError, match="radius must be a number, got 'auto'"):
        cofed.FedProx(0.1, 0.1, radius="auto")
    with pytest.raises(ValueError, match="FedAvg does not fit the regularizer"):
        cofed.run(worlds.problem(cofed.L2Ball(1.0)), FED, cofed.FedAvg("auto"), rounds=2)


def counts(mean, spread):
    """Poisson counts, whose loss is far less curved at 0 than at the optimum."""
    rng = np.random.default_rng(0)
    rows = [np.c_[np.ones(n), spread * rng.normal(size=(n, 2))] for n in worlds.SIZES]
    return cofed.Federation.from_arrays([(X, rng.poisson(mean, size=len(X))) for X in rows])


class Beginnings(cofed.callbacks.AbstractCallback):
    """Counts them, and presses Ctrl-C after a round."""

    def __init__(self, press=None):
        self.count, self.press = 0, press

    def on_start(self, info):
        self.count += 1

    def on_row(self, row):
        if row["round"] == self.press:
            signal.raise_signal(signal.SIGINT)


def test_a_run_that_overflows_before_its_objective_is_seen_to_grow_begins_again(recwarn):
    problem, federation, beginnings = worlds.problem(loss=cofed.Poisson()), counts(200, 3.0), Beginnings()
    options = {"rounds": 60, "local_steps": 10, "callbacks": [beginnings]}
    result = cofed.run(problem, federation, cofed.FedAvg("auto"), **options)
    assert result.outcome is cofed.Outcome.COMPLETED
    assert result.history["objective"][-1] < result.history["objective"][0]
    assert beginnings.count > 1
    assert not recwarn.list


def test_ctrl_c_ends_a_run_that_would_begin_again():
    press = Beginnings(press=1)
    problem, options = worlds.problem(loss=cofed.Poisson()), {"rounds": 40, "local_steps": 3}
    assert cofed.run(problem, counts(50, 0.1), cofed.FedAvg("auto"), **options).outcome is cofed.Outcome.COMPLETED
    result = cofed.run(problem, counts(50, 0.1), cofed.FedAvg("auto"), callbacks=[press], **options)
    assert result.outcome is cofed.Outcome.INTERRUPTED
    assert press.count == 1


def test_noise_about_an_optimum_whose_objective_is_zero_is_no_growth():
    """That of counts with the mean e, whose loss there is e (1 - log e)."""
    y = np.r_[np.full(718, 3), np.full(282, 2)]
    federation = cofed.Federation.from_arrays([(np.ones((1000, 1)), y)])
    problem, beginnings = worlds.problem(loss=cofed.Poisson()), Beginnings()
    options = {"rounds": 40, "local_steps": 3, "batch_size": 2, "callbacks": [beginnings]}
    result = cofed.run(problem, federation, cofed.FedAvg("auto"), w0={"coef": np.log([y.mean()])}, **options)
    start, end = abs(result.history["objective"][0]), result.history["objective"].max()
    assert end > 10 * start
    assert end < 0.1
    assert beginnings.count == 1


def test_a_run_from_another_state_is_measured_where_it_begins():
    problem, federation = worlds.problem(loss=cofed.Poisson()), counts(50, 0.1)
    first = cofed.run(problem, federation, cofed.FedAvg(0.002), rounds=200, local_steps=1)
    by_state, by_model = (
        cofed.run(problem, federation, cofed.FedAvg("auto"), rounds=2, **{name: given})
        for name, given in (("start", first), ("w0", first.model))
    )
    assert by_state.algorithm == by_model.algorithm
    kept = cofed.run(problem, federation, cofed.FedDecouple(0.01, "auto"), rounds=2, local_steps=2)
    with pytest.raises(ValueError, match=r"client_lr of FedDecouple was 0.01, on which its state depends: give that"):
        cofed.run(problem, federation, cofed.FedDecouple("auto", 1.0), rounds=2, local_steps=2, start=kept)
