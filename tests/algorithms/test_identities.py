"""The identities between algorithms, to round-off: w0 != 0, unequal clients, sampling, K > 1, server_lr != 1."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import worlds

import cofed
from cofed.engine.job import prepare
from cofed.engine.spec import RunSpec

TOLERANCE = 1e-9
FED = worlds.linear()
W0 = worlds.start()

# Shapes compile, numbers do not: few of the former, many of the latter.
schedules = st.sampled_from(
    [
        {"local_steps": 3, "batch_size": 2, "clients_per_round": 3},
        {"local_steps": 4, "batch_size": None, "clients_per_round": 2},
        {"local_epochs": 2, "batch_size": 4, "clients_per_round": 3},
        {"local_steps": 2, "batch_size": None, "clients_per_round": None},
    ]
)
rates = st.floats(0.005, 0.03)
server_rates = st.floats(0.3, 1.9)
seeds = st.integers(0, 2**31 - 1)


def trajectory(algorithm, regularizer=None, federation=FED, rounds=5, w0=W0, **kwargs):
    result = cofed.run(
        worlds.problem(regularizer), federation, algorithm, rounds=rounds, w0=w0, keep_models=True, **kwargs
    )
    assert result.outcome is cofed.Outcome.COMPLETED
    return worlds.coefs(result)


def same(a, b):
    np.testing.assert_allclose(a, b, rtol=0, atol=TOLERANCE)


@given(schedules, rates, server_rates, seeds)
@settings(max_examples=4)
def test_without_regularizer_averaging_mirror_descent_and_dual_averaging_are_one(schedule, lr, slr, seed):
    base = trajectory(cofed.FedAvg(lr, slr), seed=seed, **schedule)
    assert np.abs(np.diff(base, axis=0)).max() > 1e-4  # it moves
    for method in (cofed.FedMiD, cofed.FedDualAvg):
        for client_prox in (True, False):
            same(base, trajectory(method(lr, slr, client_prox=client_prox), seed=seed, **schedule))


@pytest.mark.parametrize("mirror", [cofed.Euclidean(), cofed.PNorm(3.0), cofed.PNorm()])
def test_dual_averaging_with_one_step_is_centralised(mirror):
    lr, slr, lam = 0.01, 1.7, 0.2
    got = trajectory(cofed.FedDualAvg(lr, slr, mirror=mirror), cofed.L1(lam), local_steps=1, weights="samples")
    psi, z = cofed.L1(lam), mirror.to_dual({"coef": jnp.asarray(W0["coef"])})
    for r in range(6):
        w = mirror.to_primal(psi, z, jnp.asarray(slr * lr * r))["coef"]
        same(got[r], w)
        step = slr * lr * worlds.mean_gradient(FED, np.asarray(w), "samples")
        z = {"coef": z["coef"] - step}


def test_identical_clients_make_rounds_of_k_steps_into_steps():
    X, y = FED.client(1)
    twins = cofed.Federation.from_arrays([(X, y)] * 4)
    runs = [
        trajectory(cofed.FedDualAvg(0.02), cofed.L1(0.1), twins, rounds=12 // k, local_steps=k)[-1] for k in (1, 3, 4)
    ]
    same(runs[0], runs[1])
    same(runs[0], runs[2])


@given(schedules, rates, seeds)
@settings(max_examples=8)
def test_mirror_descent_on_a_set_is_projected_sgd_with_averaging(schedule, lr, seed):
    ball = cofed.L2Ball(0.8)
    got = trajectory(cofed.FedMiD(lr), ball, seed=seed, **schedule)
    assert np.all(np.linalg.norm(got[1:], axis=1) <= 0.8 * (1 + 1e-12))
    if schedule["batch_size"] is None and schedule["clients_per_round"] is None:
        w = W0["coef"]
        project = lambda v: v * min(1, 0.8 / np.linalg.norm(v))  # noqa: E731
        for r in range(5):
            ends = []
            for m in range(FED.n_clients):
                x = w
                for _ in range(schedule["local_steps"]):
                    x = project(x - lr * worlds.gradient(FED, m, x))
                ends.append(x)
            w = project(np.mean(ends, axis=0))
            same(got[r + 1], w)


def test_mirror_descent_osp_with_one_step_is_proximal_gradient():
    lr, slr, lam = 0.02, 1.7, 0.3
    got = trajectory(cofed.FedMiD(lr, slr, client_prox=False), cofed.L1(lam), local_steps=1)
    w = W0["coef"]
    for r in range(5):
        w = worlds.soft(w - slr * lr * worlds.mean_gradient(FED, w), slr * lr * lam)
        same(got[r + 1], w)


@given(
    schedules.filter(lambda s: "local_steps" in s), rates, server_rates, seeds, st.sampled_from(["uniform", "samples"])
)
@settings(max_examples=12)
def test_without_regularizer_decoupling_is_scaffold(schedule, lr, slr, seed, weights):
    kwargs = schedule | {"seed": seed, "rounds": 8, "weights": weights}
    same(trajectory(cofed.FedDecouple(lr, slr), **kwargs), trajectory(cofed.Scaffold(lr, slr), **kwargs))


def test_decoupling_with_one_step_is_proximal_gradient():
    lr, slr, lam = 0.02, 1.7, 0.3
    got = trajectory(cofed.FedDecouple(lr, slr), cofed.L1(lam), local_steps=1)
    w = worlds.soft(W0["coef"], lr * slr * lam)
    same(got[0], w)
    for r in range(5):
        w = worlds.soft(w - slr * lr * worlds.mean_gradient(FED, w), slr * lr * lam)
        same(got[r + 1], w)


def posed(algorithm, regularizer, federation=FED, local_steps=3, **kwargs):
    """A job of the engine, to look inside its rounds."""
    numbers = {"rounds": 10, "local_steps": local_steps, "weights": "samples"} | kwargs
    job = prepare(RunSpec(worlds.problem(regularizer), federation, algorithm, **numbers))
    return job, job.stages[0].task


def test_the_corrections_of_decoupling_sum_to_zero_in_every_round():
    lr, slr = 0.03, 1.3
    job, task = posed(cofed.FedDecouple(lr, slr), cofed.L1(0.2))
    w0 = job.spec.problem.start(FED, W0)
    state = task.begin(w0, jax.random.key(0), 0)
    pi = np.asarray(FED.weights("samples"))
    for _ in range(6):
        state, _ = task.one_round(state)
        client = state.clients
        x, p, gradient = (np.asarray(a.coef) for a in (state.server.x, client.p, client.gradient))
        c = (p - x) / (lr * slr * 3) - gradient
        assert np.abs(c).max() > 1e-3  # clients differ, so the corrections are at work
        np.testing.assert_allclose(pi @ c, 0, atol=1e-12)


def test_roundings_of_decoupling_do_not_add_up():
    drawn = cofed.datasets.zhang_logistic(clients=8, samples=40, d=6, normalize=True, seed=0).federation
    short = cofed.Federation.from_arrays(
        [(np.asarray(X, np.float32), y) for X, y in zip(drawn.X, drawn.y, strict=True)]
    )
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic(), cofed.L1(0.01))
    rounds = {"rounds": 4000, "local_steps": 1, "evaluate_every": 1000}
    norms = cofed.run(problem, short, cofed.FedDecouple(4.0), **rounds).history["prox_gradient"]
    assert norms[-1] < 2e-6 * norms[0]  # rounding the model alone gave 1e-3 here, and more with every round


def test_the_optimum_is_a_fixed_point_of_decoupling():
    lr, slr, lam = 0.03, 1.3, 0.2
    total = lr * slr * 3
    job, task = posed(cofed.FedDecouple(lr, slr), cofed.L1(lam))
    best = cofed.solve_pooled(job.spec.problem, FED, weights="samples", tol=1e-14).model.coef
    gradients = np.stack([worlds.gradient(FED, m, best) for m in range(FED.n_clients)])
    mean = np.asarray(FED.weights("samples")) @ gradients
    like = job.spec.problem.start(FED)
    tree = lambda a: dataclasses.replace(like, coef=jnp.asarray(a))  # noqa: E731
    state = task.begin(like, jax.random.key(0), 0)
    server = state.server._replace(x=tree(best - total * mean))
    # A client keeps p and its mean gradient; c_i = (p - x)/eta~ - gradient = grad f(x*) - grad f_i(x*).
    keeps = state.clients._replace(p=tree(np.tile(best, (FED.n_clients, 1))), gradient=tree(gradients))
    state = dataclasses.replace(state, server=server, clients=keeps)
    after, _ = task.one_round(state)
    np.testing.assert_allclose(after.server.x.coef, server.x.coef, atol=1e-10)
    np.testing.assert_allclose(task.model(after).coef, best, atol=1e-10)


def test_the_normal_map_with_the_proxs_own_step_is_proximal_gradient():
    lr, lam = 0.03, 0.3
    got = trajectory(cofed.NormalMap(lr), cofed.L1(lam), local_steps=1)
    w = worlds.soft(W0["coef"], lr * lam)
    same(got[0], w)
    for r in range(5):
        w = worlds.soft(w - lr * worlds.mean_gradient(FED, w), lr * lam)
        same(got[r + 1], w)


def test_without_regularizer_the_normal_map_is_gradient_descent():
    got = trajectory(cofed.NormalMap(0.02, 1.3), local_steps=1, batch_size=2, clients_per_round=3, seed=4)
    same(got, trajectory(cofed.FedAvg(0.026), local_steps=1, batch_size=2, clients_per_round=3, seed=4))


def test_the_normal_map_stays_at_a_stationary_point_of_a_penalty_that_is_not_convex():
    """0 in grad F(x) + d psi(x) for MCP: what is beyond its bend is not shrunk, what is 0 has a small gradient."""
    lam, bend, lr = 0.5, 3.0, 0.03
    problem = worlds.problem(cofed.MCP(lam, gamma=bend))
    options = {"rounds": 4000, "local_steps": 1, "w0": W0, "evaluate_every": 4000}
    w = cofed.run(problem, FED, cofed.NormalMap(lr, 0.7), **options).model.coef
    slope = worlds.mean_gradient(FED, w)
    pull = np.sign(w) * np.maximum(lam - np.abs(w) / bend, 0)
    np.testing.assert_allclose(np.where(w == 0, 0, slope + pull), 0, atol=1e-9)
    assert np.all(np.abs(slope[w == 0]) <= lam + 1e-9)
    assert 0 < np.sum(w == 0) < w.size


def test_the_normal_map_takes_one_step():
    with pytest.raises(ValueError, match="NormalMap takes one step per round, not 3; give local_steps=1"):
        trajectory(cofed.NormalMap(0.03), local_steps=3)


def test_skipping_nothing_is_proximal_gradient():
    """p = 1: every step communicates, however many a round might have."""
    lr, lam = 0.03, 0.3
    got = trajectory(cofed.ProxSkip(lr, 1.0), cofed.L1(lam), local_steps=4)
    w = W0["coef"]
    for r in range(5):
        w = worlds.soft(w - lr * worlds.mean_gradient(FED, w), lr * lam)
        same(got[r + 1], w)


@given(st.floats(0.2, 0.9), rates, seeds)
@settings(max_examples=5)
def test_skipping_keeps_the_mean_of_its_corrections_at_zero_without_a_regularizer(p, lr, seed):
    """psi = 0 is Scaffnew: x+ = mean (x^_i - (gamma/p) h_i) with sum h_i = 0, so the server only averages."""
    job, task = posed(cofed.ProxSkip(lr, p), None, local_steps=6)
    state = task.begin(job.spec.problem.start(FED, W0), jax.random.key(seed), 0)
    pi = np.asarray(FED.weights("samples"))
    for _ in range(5):
        state, _ = task.one_round(state)
        h, x = (np.asarray(leaf.coef) for leaf in state.clients)
        same(state.server.coef, pi @ x)
        np.testing.assert_allclose(pi @ h, 0, atol=1e-9)
    assert np.abs(h).max() > 1e-3


def test_the_corrections_of_skipping_tend_to_the_gradients_at_the_optimum():
    lam = 0.2
    problem = worlds.problem(cofed.L1(lam))
    best = cofed.solve_pooled(problem, FED, weights="samples", tol=1e-14).model.coef
    options = {"rounds": 2000, "local_steps": 16, "weights": "samples", "evaluate_every": 2000}
    result = cofed.run(problem, FED, cofed.ProxSkip(0.03, 0.3), w0=W0, **options)
    gradients = np.stack([worlds.gradient(FED, m, best) for m in range(FED.n_clients)])
    np.testing.assert_allclose(result.state.clients.h.coef, gradients, atol=1e-7)


def test_skipping_refuses_sampled_clients():
    with pytest.raises(ValueError, match="ProxSkip needs every client in every round"):
        trajectory(cofed.ProxSkip(0.03, 0.3), local_steps=5, clients_per_round=2)


def test_fast_dual_averaging_with_one_step_is_classical():
    mu, L, lam = 0.4, 9.0, 0.2
    got = trajectory(cofed.FastFedDA(mu, L), cofed.L1(lam), local_steps=1)
    w0 = w = W0["coef"]
    g, v = 0.0, 0.0
    for t in range(5):
        g, v = g + (t + 1) * worlds.mean_gradient(FED, w), v + (t + 1) * w
        A, gamma = (t + 1) * (t + 2) / 2, L * (t + 1)
        c = mu * A / 2 + gamma
        w = worlds.soft((gamma * w0 - g + mu * v / 2) / c, A / c * lam)
        same(got[t + 1], w)


def test_fast_dual_averaging_of_identical_clients_does_not_depend_on_k():
    X, y = FED.client(1)
    twins = cofed.Federation.from_arrays([(X, y)] * 3)
    runs = [
        trajectory(cofed.FastFedDA(0.3, 8.0), cofed.L1(0.1), twins, rounds=12 // k, local_steps=k)[-1]
        for k in (1, 3, 4)
    ]
    same(runs[0], runs[1])
    same(runs[0], runs[2])


@given(st.floats(0.0, 1.0), st.floats(4.0, 20.0), st.floats(0.0, 2.0), seeds)
@settings(max_examples=6)
def test_constrained_dual_averaging_with_one_step_and_no_ball_is_the_fast_one(mu, L, growth, seed):
    kwargs = {"regularizer": cofed.L1(0.2), "local_steps": 1, "batch_size": 2, "clients_per_round": 3, "seed": seed}
    constrained, fast = cofed.CFedDA(mu, L, growth=growth), cofed.FastFedDA(mu, L + mu, growth=growth)
    same(trajectory(constrained, **kwargs), trajectory(fast, **kwargs))


@given(st.floats(0.01, 0.2), seeds)
@settings(max_examples=6)
def test_constant_weights_without_strong_convexity_are_plain_dual_averaging(lr, seed):
    """The model is D_t(w_0 - (sum of all gradients)/L) with t = (steps so far)/L: FedDualAvg's with the step 1/L."""
    kwargs = {"regularizer": cofed.L1(0.2), "local_steps": 3, "batch_size": 2, "clients_per_round": 3, "seed": seed}
    same(trajectory(cofed.FastFedDA(0.0, 1 / lr, growth=0.0), **kwargs), trajectory(cofed.FedDualAvg(lr), **kwargs))


@given(st.floats(0.01, 0.2), seeds)
@settings(max_examples=6)
def test_constrained_dual_averaging_with_constant_weights_and_no_penalty_is_averaging(lr, seed):
    """C-FedDA's prox has the factor K: its step is 1/(LK)."""
    kwargs = {"regularizer": cofed.Zero(), "local_steps": 4, "batch_size": 2, "clients_per_round": 3, "seed": seed}
    same(trajectory(cofed.CFedDA(0.0, 1 / (4 * lr), growth=0.0), **kwargs), trajectory(cofed.FedAvg(lr), **kwargs))


@given(st.floats(0.1, 2.0), seeds)
@settings(max_examples=6)
def test_constrained_models_stay_in_the_ball(radius, seed):
    got = trajectory(
        cofed.CFedDA(0.1, 6.0, radius=radius), cofed.L1(0.1), local_steps=3, clients_per_round=3, seed=seed
    )
    assert np.all(np.abs(got - W0["coef"]).sum(axis=1) <= radius * (1 + 1e-12))


LIMITS = {
    "FedDecouple": (cofed.FedDecouple(0.02, 1.5), {"local_steps": 5}, 2000, 1e-9),
    "FedDecouple, sampled": (cofed.FedDecouple(0.01, 1.0), {"local_steps": 3, "clients_per_round": 3}, 8000, 1e-8),
    "FedDR": (cofed.FedDR(0.1, 0.5), {"local_steps": 5}, 1500, 1e-9),
    "FedDR, sampled": (cofed.FedDR(0.1, 0.5), {"local_steps": 10, "clients_per_round": 3}, 5000, 1e-8),
    "FedADMM": (cofed.FedADMM(0.1, 0.5), {"local_steps": 5}, 1500, 1e-9),
    "FedNL": (cofed.FedNL(cofed.TopK(0.2)), {"local_steps": 1}, 120, 1e-9),
    "FedNL, one bit": (cofed.FedNL(cofed.Quantised(1)), {"local_steps": 1}, 400, 1e-9),
    "SDANE": (cofed.SDANE(), {"local_steps": 20}, 300, 1e-12),
    "AccSDANE": (cofed.AccSDANE(mu=0.1), {"local_steps": 20}, 300, 1e-12),
    "ProxSkip, 0.3": (cofed.ProxSkip(0.03, 0.3), {"local_steps": 16}, 2000, 1e-9),
    "ProxSkip, 0.1": (cofed.ProxSkip(0.03, 0.1), {"local_steps": 50}, 2000, 1e-9),
}


@pytest.mark.parametrize("name", LIMITS)
def test_exact_methods_reach_the_pooled_optimum_in_spite_of_heterogeneity(name):
    algorithm, schedule, rounds, distance = LIMITS[name]
    problem = worlds.problem(cofed.L1(0.2))
    best = cofed.solve_pooled(problem, FED, tol=1e-13).model.coef
    result = cofed.run(problem, FED, algorithm, rounds=rounds, w0=W0, evaluate_every=rounds, **schedule)
    np.testing.assert_allclose(result.model.coef, best, atol=distance)
    assert result.history["prox_gradient"][-1] < 100 * distance


class ScaffoldAndProx(cofed.Scaffold):
    """The guess that is not to be made: Scaffold's local steps for F alone, then one prox at the server."""

    needs = ()

    def aggregate(self, problem, server, up, share):
        moved = super().aggregate(problem, server, up, share)
        step = self.client_lr * self.server_lr * problem.local_steps
        return self.with_model(moved, problem.regularizer.prox(self.model(problem, moved), step))


def distance_from_the_pooled_lasso(candidate, K, schedule):
    """Of a method's limit on heterogeneous clients, with local steps of eta = 0.2/L."""
    problem = worlds.problem(cofed.L1(0.2))
    L = max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X, _ in map(FED.client, range(FED.n_clients)))
    best = cofed.solve_pooled(problem, FED, tol=1e-13).model.coef
    options = {"rounds": 4000, "local_steps": K, "w0": W0, "evaluate_every": 4000} | schedule
    return np.linalg.norm(cofed.run(problem, FED, candidate(0.2 / L), **options).model.coef - best)


# What any federated method for F + psi must pass before it is called exact: five local steps, clients that differ.
CANDIDATES = {
    "FedDecouple": (cofed.FedDecouple, 5, {}),
    "FedDecouple, sampled": (cofed.FedDecouple, 5, {"clients_per_round": 3, "rounds": 8000}),
    "ProxSkip": (lambda eta: cofed.ProxSkip(eta, 0.2), 25, {}),
    "FedDR": (lambda eta: cofed.FedDR(eta, 5 * eta), 5, {}),
    "FedADMM": (lambda eta: cofed.FedADMM(eta, 5 * eta), 5, {}),
    "NormalMap": (lambda eta: cofed.NormalMap(5 * eta), 1, {}),
    "NormalMap, longer": (lambda eta: cofed.NormalMap(eta, 1.5), 1, {}),
}


@pytest.mark.parametrize("name", CANDIDATES)
def test_a_candidate_ends_at_the_pooled_lasso(name):
    assert distance_from_the_pooled_lasso(*CANDIDATES[name]) < 1e-8


def test_scaffold_with_one_prox_at_the_server_does_not():
    """So the test above can tell: steps on F alone walk away from the optimum, where grad F is not zero."""
    assert distance_from_the_pooled_lasso(ScaffoldAndProx, 5, {}) > 0.01
    assert distance_from_the_pooled_lasso(ScaffoldAndProx, 1, {}) < 1e-8


def test_fast_dual_averaging_approaches_the_pooled_optimum_like_one_over_t():
    federation, problem = worlds.linear(sizes=(20, 30, 25)), worlds.problem(cofed.L1(0.2))
    best = cofed.solve_pooled(problem, federation, tol=1e-13).model.coef
    error = []
    for rounds in (1000, 4000):
        result = cofed.run(
            problem, federation, cofed.FastFedDA(0.2, 12.0), rounds=rounds, local_steps=3, w0=W0, evaluate_every=rounds
        )
        error.append(np.linalg.norm(result.model.coef - best))
    assert error[1] < 1e-2
    assert 0.15 < error[1] / error[0] < 0.4  # four times the steps, a quarter of the error


def test_biased_methods_stay_biased():
    problem = worlds.problem(cofed.L1(0.2))
    best = cofed.solve_pooled(problem, FED, tol=1e-13).model.coef
    for algorithm in (cofed.FedDualAvg(0.03), cofed.FedAvg(0.03)):
        result = cofed.run(problem, FED, algorithm, rounds=4000, local_steps=5, w0=W0, evaluate_every=4000)
        assert np.linalg.norm(result.model.coef - best) > 1e-3


@pytest.mark.parametrize("method", [cofed.SDANE, cofed.AccSDANE])
def test_stabilized_dane_stays_at_the_pooled_composite_optimum_with_exact_zeros(method):
    """Its prox-centre, the clients' points and the model: the extension to psi has the right fixed point."""
    problem = worlds.problem(cofed.L1(0.8))
    best = cofed.solve_pooled(problem, FED, tol=1e-14).model.coef
    assert 0 < np.sum(best == 0) < best.size
    result = cofed.run(problem, FED, method(0.7), rounds=8, local_steps=20, w0={"coef": best}, evaluate_every=8)
    np.testing.assert_allclose(result.model.coef, best, atol=1e-10)
    assert np.array_equal(result.model.coef == 0, best == 0)


def test_stabilized_dane_needs_everybody():
    with pytest.raises(ValueError, match="SDANE needs every client in every round"):
        trajectory(cofed.SDANE(), local_steps=5, clients_per_round=2)
