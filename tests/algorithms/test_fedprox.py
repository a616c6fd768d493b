"""FedProx and PureLocal: twins of the paper's pseudo-code, identities, limits."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize
from tests import worlds

import cofed
from cofed.engine import sampling
from cofed.solvers.joint import joint_path


def twin(federation, algorithm, rounds, K, p, who, psi=0.0, w0=None):
    """Algorithm 3 of chen2021 in NumPy, full gradients: (global models, clients' models)."""
    lam, mu = algorithm.strength, algorithm.mu
    m, d = federation.n_clients, federation.n_features
    w = np.zeros(d) if w0 is None else w0["coef"].copy()
    own = np.tile(w, (m, 1))
    models = [w.copy()]

    def train(i):
        v = own[i].copy()
        for k in range(K):
            eta = 1 / ((mu + lam) * (k + 1)) if algorithm.client_lr is None else algorithm.client_lr
            v = v - eta * (worlds.gradient(federation, i, v) + lam * (v - w))
            v = worlds.soft(v, eta * psi)
            if algorithm.radius is not None:
                v *= min(1, algorithm.radius / np.linalg.norm(v))
        return v

    for t in range(rounds):
        for i in who[t]:
            own[i] = train(i)
        if algorithm.server_lr is not None:
            step = lam * algorithm.server_lr
        else:
            step = 1 if mu is None else lam * 2 * (mu + lam) / (lam * mu * (t + 1))
        w = w - step * m / len(who[t]) * sum(p[i] * (w - own[i]) for i in who[t])
        models.append(w.copy())
    return np.array(models), np.array([train(i) for i in range(m)])


def sampled(federation, rounds, count, seed=0):
    """Who takes part in each round."""
    import jax
    import jax.numpy as jnp

    place = np.argsort(np.asarray(federation.ids))
    key = jax.random.key(seed)
    m = federation.n_clients
    keys = [sampling.round_key(key, jnp.asarray(t, jnp.int32)) for t in range(rounds)]
    return [place[np.asarray(sampling.participants(k, m, count))] for k in keys]


CASES = {
    "practical": (cofed.FedProx(0.7, client_lr=0.03), None, "uniform", 0.0),
    "server step, sampled, weighted, l1": (cofed.FedProx(0.7, 0.03, server_lr=0.9), 3, "samples", 0.05),
    "the paper's steps, sampled, weighted, ball": (cofed.FedProx(0.4, mu=9.0, radius=1.5), 2, "samples", 0.0),
    "the paper's local steps only": (cofed.FedProx(2.0, mu=8.0, server_lr=0.3), 4, "uniform", 0.02),
}


@pytest.mark.parametrize("case", CASES)
def test_follows_the_papers_pseudo_code(case):
    algorithm, count, weights, psi = CASES[case]
    federation, rounds = worlds.linear(), 5
    who = sampled(federation, rounds, count) if count else [range(5)] * rounds
    p = np.asarray(federation.weights(weights))
    expected, personal = twin(federation, algorithm, rounds, 3, p, who, psi, worlds.start())
    result = cofed.run(
        worlds.problem(cofed.L1(psi) if psi else None),
        federation,
        algorithm,
        rounds=rounds,
        local_steps=3,
        clients_per_round=count,
        weights=weights,
        w0=worlds.start(),
        keep_models=True,
    )
    np.testing.assert_allclose(worlds.coefs(result), expected, rtol=0, atol=1e-11)
    np.testing.assert_allclose(result.personal_models.coef, personal, rtol=0, atol=1e-11)


OPTIONS = {"rounds": 6, "local_steps": 3, "batch_size": 2, "clients_per_round": 3, "weights": "samples"}


@settings(max_examples=10)
@given(rate=st.floats(0.001, 0.05), strength=st.floats(0.0, 0.1), seed=st.integers(0, 2**32 - 1))
def test_strength_zero_is_pure_local(rate, strength, seed):
    problem, federation = worlds.problem(cofed.L1(strength)), worlds.linear()
    go = lambda a: cofed.run(problem, federation, a, **OPTIONS, seed=seed, w0=worlds.start())  # noqa: E731
    prox, local = go(cofed.FedProx(0.0, client_lr=rate)), go(cofed.PureLocal(client_lr=rate))
    np.testing.assert_allclose(prox.personal_models.coef, local.personal_models.coef, rtol=0, atol=1e-13)
    assert local.communication.total == 0
    np.testing.assert_array_equal(local.model.coef, worlds.start()["coef"])


def test_strength_zero_is_pure_local_with_the_papers_steps_too():
    go = lambda a: cofed.run(worlds.problem(), worlds.linear(), a, **OPTIONS, w0=worlds.start())  # noqa: E731
    prox, local = go(cofed.FedProx(0.0, mu=9.0, radius=2.0)), go(cofed.PureLocal(mu=9.0, radius=2.0))
    np.testing.assert_allclose(prox.personal_models.coef, local.personal_models.coef, rtol=0, atol=1e-13)
    assert np.linalg.norm(local.personal_models.coef, axis=1).max() <= 2.0 + 1e-12


def test_pure_local_finds_every_clients_own_sparse_model():
    federation, problem = worlds.linear(sizes=(20, 30, 25)), worlds.problem(cofed.L1(0.3))
    result = cofed.run(problem, federation, cofed.PureLocal(0.05), rounds=60, local_steps=50)
    for m in range(3):
        best = cofed.solve_local(problem, federation, m).model.coef
        np.testing.assert_allclose(result.personal_models.coef[m], best, rtol=0, atol=1e-8)
    assert (result.personal_models.coef == 0).any()
    assert result.clients["samples"].tolist() == [20, 30, 25]


def joint_minimiser(federation, strength, p):
    """The minimiser of FedProx's objective by SciPy's BFGS, logistic loss."""
    m, d = federation.n_clients, federation.n_features
    data = [federation.client(i) for i in range(m)]

    def objective(v):
        w, own = v[:d], v[d:].reshape(m, d)
        value, slopes = 0.0, []
        for i, (X, y) in enumerate(data):
            s = np.where(y > 0, 1.0, -1.0)
            z = s * (X @ own[i])
            value += p[i] * (np.logaddexp(0, -z).mean() + strength / 2 * np.sum((own[i] - w) ** 2))
            slopes.append(p[i] * (X.T @ (-s / (1 + np.exp(z))) / len(y) + strength * (own[i] - w)))
        pull = sum(p[i] * strength * (w - own[i]) for i in range(m))
        return value, np.concatenate([pull, *slopes])

    found = optimize.minimize(objective, np.zeros(d * (m + 1)), jac=True, method="BFGS", options={"gtol": 1e-10})
    return found.x[:d], found.x[d:].reshape(m, d)


def test_converges_to_the_joint_minimiser_of_an_independent_solver():
    federation = worlds.logistic(sizes=(30, 45, 36, 60), d=3)
    p = np.asarray(federation.weights("samples"))
    problem = worlds.problem(loss=cofed.Logistic())
    result = cofed.run(
        problem,
        federation,
        cofed.FedProx(0.2, client_lr=1.0),
        rounds=400,
        local_steps=20,
        weights="samples",
        evaluate_every=400,
    )
    w, own = joint_minimiser(federation, 0.2, p)
    np.testing.assert_allclose(result.model.coef, w, rtol=0, atol=1e-6)
    np.testing.assert_allclose(result.personal_models.coef, own, rtol=0, atol=1e-6)
    exact = joint_path(problem, federation, [0.2])
    np.testing.assert_allclose(exact.models(0).coef, own, rtol=0, atol=1e-6)


def test_with_a_regularizer_it_is_stationary_in_every_clients_problem():
    federation, problem = worlds.linear(sizes=(20, 30, 25)), worlds.problem(cofed.L1(0.2))
    result = cofed.run(problem, federation, cofed.FedProx(0.5, 0.05), rounds=600, local_steps=20, evaluate_every=600)
    w, own = result.model.coef, result.personal_models.coef
    np.testing.assert_allclose(w, own.mean(axis=0), rtol=0, atol=1e-8)
    for m in range(3):
        gradient = worlds.gradient(federation, m, own[m]) + 0.5 * (own[m] - w)
        np.testing.assert_allclose(own[m], worlds.soft(own[m] - gradient, 0.2), rtol=0, atol=1e-7)


def test_large_strengths_approach_one_model_for_all_like_one_over_lambda():
    federation, problem = worlds.linear(sizes=(20, 30, 25)), worlds.problem()
    pooled = cofed.solve_pooled(problem, federation, weights="samples").model.coef
    gaps = []
    for strength in (100.0, 200.0, 400.0):
        algorithm = cofed.FedProx(strength, client_lr=1 / (strength + 30))
        result = cofed.run(
            problem, federation, algorithm, rounds=8000, local_steps=10, weights="samples", evaluate_every=8000
        )
        gaps.append(np.abs(result.personal_models.coef - pooled).max() * strength)
    np.testing.assert_allclose(gaps[1:], gaps[:-1], rtol=0.1)
    assert gaps[0] < 100


def test_clients_that_fail_keep_their_model_and_are_named():
    def loss(prediction, y):
        import jax.numpy as jnp

        return jnp.where(y > 50, jnp.nan, 1.0) * (prediction - y) ** 2 / 2

    X = np.eye(3)
    pairs = {"good": (X, np.ones(3)), "bad": (X, np.array([1.0, 99.0, 1.0]))}
    problem = cofed.Problem(cofed.Linear(intercept=False), loss)
    result = cofed.run(problem, cofed.Federation.from_arrays(pairs), cofed.FedProx(0.1, 0.5), rounds=3)
    assert {entry.client for entry in result.history.left_out} == {"bad"}
    assert [entry.round for entry in result.history.left_out] == [0, 1, 2, 3]
    np.testing.assert_array_equal(result.personal_models.coef[1], 0)
    assert np.abs(result.personal_models.coef[0]).min() > 0.1


def test_history_and_table_judge_the_clients_own_models():
    data = cofed.datasets.chen_logistic(clients=4, samples=[10, 20, 30, 40], test_samples=50, heterogeneity=2.0)
    problem = worlds.problem(loss=cofed.Logistic())
    test = data.test.select(["2", "0", "3"])
    options = {"rounds": 5, "weights": "samples", "evaluation": test, "per_client": True}
    result = cofed.run(problem, data.federation, cofed.PureLocal(0.5), **options)
    X, y = test.client("2")
    w = result.personal_models.coef[2]
    s = np.where(y > 0, 1.0, -1.0)
    np.testing.assert_allclose(result.clients.loc["2", "test_loss"], np.logaddexp(0, -s * (X @ w)).mean(), rtol=1e-10)
    np.testing.assert_allclose(result.clients.loc["2", "test_accuracy"], np.mean((X @ w > 0) == (y > 0)), rtol=1e-10)
    assert np.isnan(result.clients.loc["1", "test_loss"])
    # One more round is what the last stage does, with other random draws of none: full gradients.
    more = cofed.run(problem, data.federation, cofed.PureLocal(0.5), **(options | {"rounds": 6}))
    p = np.asarray(data.federation.weights("samples"))
    np.testing.assert_allclose(more.history["personal_loss"][-1], p @ result.clients["loss"], rtol=1e-10)
    np.testing.assert_allclose(more.history.clients().iloc[-1], result.clients["loss"], rtol=1e-10)


@pytest.mark.slow  # the engine's matter, which others test; both methods are rows of the conformance table
def test_checkpoints_chunks_and_debug_change_nothing(tmp_path):
    federation, problem = worlds.linear(sizes=(3, 4, 3)), worlds.problem(cofed.L1(0.01))
    options = {"rounds": 4, "local_steps": 2, "batch_size": 2, "clients_per_round": 2}
    for algorithm in (cofed.PureLocal(0.02), cofed.FedProx(0.3, 0.02)):
        folder = tmp_path / type(algorithm).__name__
        whole = cofed.run(problem, federation, algorithm, **options, checkpoint=folder, checkpoint_every=1)
        again = cofed.resume(folder)
        np.testing.assert_array_equal(whole.personal_models.coef, again.personal_models.coef)

    brief = {"rounds": 1, "local_steps": 1, "clients_per_round": 2}
    fast, slow = (cofed.run(problem, federation, cofed.FedProx(0.3, 0.02), **brief, debug=d) for d in (False, True))
    np.testing.assert_allclose(fast.personal_models.coef, slow.personal_models.coef, rtol=0, atol=1e-12)


def test_thousands_of_clients_are_one_array():
    rng = np.random.default_rng(0)
    federation = cofed.Federation.from_arrays([(rng.normal(size=(3, 4)), rng.normal(size=3)) for _ in range(3000)])
    result = cofed.run(worlds.problem(), federation, cofed.FedProx(1.0, 0.1), rounds=3, clients_per_round=50)
    assert result.personal_models.coef.shape == (3000, 4)
    assert len(result.clients) == 3000


def test_weights_of_zero_do_not_keep_a_client_from_training():
    federation, problem = worlds.linear(sizes=(9, 8, 7)), worlds.problem()
    options = {"rounds": 9, "clients_per_round": 1}
    equal = cofed.run(problem, federation, cofed.PureLocal(0.02), **options)
    none = cofed.run(problem, federation, cofed.PureLocal(0.02), **options, weights=[0.0, 1.0, 1.0])
    np.testing.assert_array_equal(equal.personal_models.coef, none.personal_models.coef)


def test_tuning_looks_at_the_clients_own_models():
    grid = [cofed.PureLocal(rate) for rate in (0.0001, 0.02)]
    assert cofed.tune(worlds.problem(), worlds.linear(), grid, rounds=10).best.client_lr == 0.02


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: cofed.FedProx(-1.0, 0.1), "strength must be a finite number >= 0"),
        (lambda: cofed.FedProx(1.0), "give client_lr"),
        (lambda: cofed.FedProx(1.0, 0.0), "client_lr must be a finite number > 0"),
        (lambda: cofed.FedProx(1.0, 0.1, server_lr=-2.0), "server_lr must be"),
        (lambda: cofed.PureLocal(), "give client_lr"),
        (lambda: cofed.PureLocal(0.1, radius=0.0), "radius must be"),
    ],
)
def test_bad_numbers_get_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
