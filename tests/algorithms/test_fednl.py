"""FedNL: its NumPy twin, and what it is where nothing is compressed."""

import numpy as np
import pytest
from tests import worlds

import cofed

FED, W0, LAM = worlds.logistic(), worlds.start()["coef"], 0.03
M, D, ROUNDS = FED.n_clients, worlds.D, 8
TRIANGLE = np.triu_indices(D)
PI = np.asarray(FED.weights("samples"))


def hessian(m, w):
    """Of a client's logistic loss."""
    X, y = FED.client(m)
    p = 1 / (1 + np.exp(-X @ w))
    return X.T @ (X * (p * (1 - p))[:, None]) / len(y)


def packed(H):
    return H[TRIANGLE]


def unpacked(v):
    H = np.zeros((D, D))
    H[TRIANGLE] = v
    return H + np.triu(H, 1).T


def solved(H, g, x, lam):
    """argmin_z <g, z - x> + (z - x)'H(z - x)/2 + lam |z|_1, by many small steps."""
    z, L = x, np.linalg.eigvalsh(H)[-1]
    for _ in range(20_000):
        z = worlds.soft(z - (g + H @ (z - x)) / L, lam / L)
    return z


def top(v, k):
    kept = np.zeros_like(v)
    where = np.argsort(-np.abs(v), kind="stable")[:k]
    kept[where] = v[where]
    return kept


def twin(alpha, k, lam):
    x, own, mean, out = W0, np.zeros((M, len(TRIANGLE[0]))), np.zeros(len(TRIANGLE[0])), [W0]
    for _ in range(ROUNDS):
        off = np.stack([packed(hessian(m, x)) - own[m] for m in range(M)])
        far = PI @ [np.linalg.norm(unpacked(one)) for one in off]
        sent = np.stack([top(one, k) for one in off])
        g = sum(PI[m] * worlds.gradient(FED, m, x, "logistic") for m in range(M))
        x = solved(unpacked(mean) + far * np.eye(D), g, x, lam)
        own, mean = own + alpha * sent, mean + alpha * PI @ sent
        out.append(x)
    return np.stack(out)


def run(method, lam, **options):
    problem = worlds.problem(cofed.L1(lam) if lam else None, cofed.Logistic())
    given = {"rounds": ROUNDS, "local_steps": 1, "weights": "samples", "w0": {"coef": W0}, "keep_models": True}
    return cofed.run(problem, FED, method, **(given | options))


@pytest.mark.parametrize("lam", [pytest.param(0.0, marks=pytest.mark.slow), LAM])
def test_its_trajectory_is_that_of_the_twin(lam):
    share = 5 / 21
    result = run(cofed.FedNL(cofed.TopK(share), hessian_lr=0.9), lam)
    np.testing.assert_allclose(worlds.coefs(result), twin(0.9, 5, lam), rtol=0, atol=1e-9)


def test_uncompressed_it_is_newtons_method_with_the_hessian_of_the_round_before():
    """And with that Hessian's distance from today's on its diagonal: H + l I."""
    result = run(cofed.FedNL(cofed.TopK(1.0)), 0.0)
    models = worlds.coefs(result)
    for r in range(1, ROUNDS):
        x, before = models[r], models[r - 1]
        H = sum(PI[m] * hessian(m, before) for m in range(M))
        far = sum(PI[m] * np.linalg.norm(hessian(m, x) - hessian(m, before)) for m in range(M))
        g = sum(PI[m] * worlds.gradient(FED, m, x, "logistic") for m in range(M))
        np.testing.assert_allclose(models[r + 1], x - np.linalg.solve(H + far * np.eye(D), g), atol=1e-10)


def test_uncompressed_a_squared_loss_is_solved_in_two_rounds():
    federation, problem = worlds.linear(), worlds.problem(cofed.L1(0.2))
    best = cofed.solve_pooled(problem, federation, tol=1e-13).model.coef
    result = cofed.run(problem, federation, cofed.FedNL(cofed.TopK(1.0)), rounds=2, local_steps=1, w0=worlds.start())
    np.testing.assert_allclose(result.model.coef, best, atol=1e-9)


def test_under_sampling_the_server_keeps_the_mean_of_all_clients_pictures():
    result = run(cofed.FedNL(cofed.TopK(0.3), 0.7), LAM, clients_per_round=2, weights="uniform")
    own = np.asarray(result.state.clients.hessian)
    np.testing.assert_allclose(result.state.server.hessian, own.mean(axis=0), atol=1e-12)
    assert np.abs(own).max() > 0


def test_it_is_compressed_already():
    with pytest.raises(ValueError, match="FedNL is compressed already"):
        cofed.Compressed(cofed.FedNL(cofed.TopK(0.5)), cofed.TopK(0.5))
