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


def sampled_twin(who, alpha, k, lam):
    """The paper's FedNL-PP with psi: the quadratic models of all who have come, each of its own last round."""
    x, own, out = W0, {}, [W0]
    for chosen in who:
        for m in chosen:
            H = own[m][0] if m in own else np.zeros(len(TRIANGLE[0]))
            H = H + alpha * top(packed(hessian(m, x)) - H, k)
            far = np.linalg.norm(unpacked(packed(hessian(m, x)) - H))
            slope = unpacked(H) @ x + far * x - worlds.gradient(FED, m, x, "logistic")
            own[m] = (H, slope, far)
        H, slope, far = (np.mean([one[i] for one in own.values()], axis=0) for i in range(3))
        bent = unpacked(H) + far * np.eye(D)
        x = solved(bent, bent @ x - slope, x, lam)
        out.append(x)
    return np.stack(out)


def participants(result):
    drawn = result.history.participants()
    return [[FED.names.index(name) for name in each] for _, each in drawn.groupby("round")["client"]]


@pytest.mark.parametrize("lam", [pytest.param(0.0, marks=pytest.mark.slow), LAM])
def test_under_sampling_its_trajectory_is_that_of_the_twin(lam):
    result = run(cofed.FedNL(cofed.TopK(5 / 21), 0.9), lam, clients_per_round=2, weights="uniform")
    who = participants(result)
    assert len({m for chosen in who[:2] for m in chosen}) < M  # the first models lack somebody
    np.testing.assert_allclose(worlds.coefs(result), sampled_twin(who, 0.9, 5, lam), rtol=0, atol=1e-9)


def test_under_sampling_the_server_keeps_the_means_of_all_clients_models():
    result = run(cofed.FedNL(cofed.TopK(0.3), 0.7), LAM, rounds=20, clients_per_round=2, weights="samples")
    clients, server = result.state.clients, result.state.server
    np.testing.assert_allclose(server.hessian, PI @ np.asarray(clients.hessian), atol=1e-12)
    for mean, own in zip(server.mean, clients.model, strict=True):
        np.testing.assert_allclose(mean, PI @ np.asarray(own), atol=1e-10)
    np.testing.assert_allclose(server.mean.known, 1)
    assert np.abs(np.asarray(clients.hessian)).max() > 0


@pytest.mark.parametrize(
    "options",
    [
        {"clients_per_round": 3},
        {"clients_per_round": 1, "weights": "samples"},
        {"clients_per_round": 2, "clock": cofed.Clock(np.linspace(1, 4, M), jitter=0.3, staleness=0)},
    ],
    ids=["3", "1", "clock"],
)
@pytest.mark.parametrize("loss", [cofed.Squared(), cofed.Logistic()], ids=["squared", "logistic"])
def test_who_is_absent_counts_too_so_sampling_moves_the_answer_nowhere(loss, options):
    federation = FED if isinstance(loss, cofed.Logistic) else worlds.linear()
    problem = worlds.problem(cofed.L1(LAM), loss)
    best = cofed.solve_pooled(problem, federation, weights=options.get("weights", "uniform"), tol=1e-13).model.coef
    method = cofed.FedNL(cofed.TopK(0.3))
    result = cofed.run(problem, federation, method, rounds=200, local_steps=1, w0=worlds.start(), **options)
    np.testing.assert_allclose(result.model.coef, best, atol=1e-9)


def test_it_is_compressed_already():
    with pytest.raises(ValueError, match="FedNL is compressed already"):
        cofed.Compressed(cofed.FedNL(cofed.TopK(0.5)), cofed.TopK(0.5))
