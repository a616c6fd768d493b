"""Each algorithm beside a slow twin: the pseudo-code of its paper as NumPy loops, full gradients, all clients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds

import cofed

K, ROUNDS, LAM = 3, 6, 0.07
FED = worlds.linear()
W0 = worlds.start()["coef"]
M = FED.n_clients
PI = np.asarray(FED.weights("samples"))
G = [lambda w, m=m: worlds.gradient(FED, m, w) for m in range(M)]


def mean(values):
    return sum(p * v for p, v in zip(PI, values, strict=True))


def fedavg(lr, slr):
    w, out = W0, [W0]
    for _ in range(ROUNDS):
        moves = []
        for g in G:
            x = w
            for _ in range(K):
                x = x - lr * (g(x) + LAM * np.sign(x))
            moves.append(x - w)
        w = w + slr * mean(moves)
        out.append(w)
    return out


def fedmid(lr, slr, client_prox):
    w, out = W0, [W0]
    for _ in range(ROUNDS):
        moves = []
        for g in G:
            x = w
            for _ in range(K):
                x = x - lr * g(x)
                if client_prox:
                    x = worlds.soft(x, lr * LAM)
            moves.append(x - w)
        w = worlds.soft(w + slr * mean(moves), slr * lr * K * LAM)
        out.append(w)
    return out


def feddualavg(lr, slr, client_prox):
    z, out = W0, [W0]
    for r in range(ROUNDS):
        ends = []
        for g in G:
            x = z
            for k in range(K):
                w = worlds.soft(x, (slr * lr * r * K + lr * k) * LAM) if client_prox else x
                x = x - lr * g(w)
            ends.append(x - z)
        z = z + slr * mean(ends)
        out.append(worlds.soft(z, slr * lr * (r + 1) * K * LAM))
    return out


def fastfedda(mu, L, weight=lambda t: t + 1):
    def P(z, t):
        A, gamma = sum(weight(i) for i in range(t + 1)), L * weight(t)
        c = mu * A / 2 + gamma
        return worlds.soft((gamma * W0 - z) / c, A / c * LAM)

    g, v, w, out = np.zeros_like(W0), W0, W0, [W0]
    for r in range(ROUNDS):
        gs, vs = [], []
        for grad in G:
            gi, vi, wi = g, v, w
            for k in range(K):
                t = r * K + k
                gi = gi + weight(t) * grad(wi)
                if k < K - 1:
                    wi = P(gi - mu * vi / 2, t)
                    vi = vi + weight(t + 1) * wi
            gs.append(gi)
            vs.append(vi)
        t = (r + 1) * K - 1
        g, v = mean(gs), mean(vs)
        w = P(g - mu * v / 2, t)
        v = v + weight(t + 1) * w
        out.append(w)
    return out


def cfedda(mu, L, weight=lambda r: r + 1):
    def C(z, r):
        A, gamma = sum(weight(i) for i in range(r + 1)), (L + mu) * weight(r)
        c = (mu * A / 2 + gamma) * K
        return worlds.soft((gamma * K * W0 - z) / c, A * K / c * LAM)

    g, v, w, out = np.zeros_like(W0), W0, W0, [W0]
    for r in range(ROUNDS):
        gs = []
        for grad in G:
            gi, x = g, w
            for k in range(K):
                gi = gi + weight(r) * grad(x)
                if k < K - 1:
                    x = C(gi - mu * K * v / 2, r)
            gs.append(gi)
        g = mean(gs)
        w = C(g - mu * K * v / 2, r)
        v = v + weight(r + 1) * w
        out.append(w)
    return out


def feddecouple(lr, slr):
    total = lr * slr * K
    x, c = W0, [np.zeros_like(W0)] * M
    out = [worlds.soft(x, total * LAM)]
    for _ in range(ROUNDS):
        p = worlds.soft(x, total * LAM)
        ends, means = [], []
        for m, g in enumerate(G):
            zhat = z = p
            total_gradient = 0
            for k in range(K):
                now = g(z)
                zhat = zhat - lr * (now + c[m])
                z = worlds.soft(zhat, (k + 1) * lr * LAM)
                total_gradient = total_gradient + now
            ends.append(zhat)
            means.append(total_gradient / K)
        x = p + slr * (mean(ends) - p)
        c = [(p - x) / total - means[m] for m in range(M)]
        out.append(worlds.soft(x, total * LAM))
    return out


def feddr(lr, eta, alpha):
    xs, ys, xhats = [W0] * M, [W0] * M, [W0] * M
    xtilde = W0
    out = [worlds.soft(W0, eta * LAM)]
    for _ in range(ROUNDS):
        xbar, new = out[-1], []
        for m, g in enumerate(G):
            ys[m] = ys[m] + alpha * (xbar - xs[m])
            for _ in range(K):
                xs[m] = xs[m] - lr * (g(xs[m]) + (xs[m] - ys[m]) / eta)
            new.append(2 * xs[m] - ys[m])
        xtilde = xtilde + mean([a - b for a, b in zip(new, xhats, strict=True)])
        xhats = new
        out.append(worlds.soft(xtilde, eta * LAM))
    return out


def fedadmm(lr, eta):
    xs, ls = [W0] * M, [np.zeros_like(W0)] * M
    out = [worlds.soft(W0, eta * LAM)]
    for _ in range(ROUNDS):
        xbar = out[-1]
        for m, g in enumerate(G):
            for _ in range(K):
                xs[m] = xs[m] - lr * (g(xs[m]) + ls[m] + (xs[m] - xbar) / eta)
            ls[m] = ls[m] + (xs[m] - xbar) / eta
        out.append(worlds.soft(mean([x + eta * dual for x, dual in zip(xs, ls, strict=True)]), eta * LAM))
    return out


def proxskip(lr, p, lengths):
    x, out = W0, [W0]
    h = [np.zeros_like(W0)] * M
    for T in lengths:
        ends = []
        for m, g in enumerate(G):
            at = x
            for _ in range(T):
                at = at - lr * (g(at) - h[m])
            ends.append(at)
        x = worlds.soft(mean([end - lr / p * one for end, one in zip(ends, h, strict=True)]), lr / p * LAM)
        h = [one + p / lr * (x - end) for end, one in zip(ends, h, strict=True)]
        out.append(x)
    return out


def around(centre, means, strength, curvature):
    """The clients' work of S-DANE: their points, subgradients, and the curvature that they have met."""
    points, slopes = [], []
    for m, g in enumerate(G):
        h, x, at, slope = g(centre) - means, centre, g(centre), np.zeros_like(W0)
        for _ in range(K):
            ahead = x - (at - h + strength * (x - centre)) / (curvature[m] + strength)
            new = worlds.soft(ahead, LAM / (curvature[m] + strength))
            d, bent = new - x, g(new) - at
            if d @ bent > curvature[m] * d @ d:
                curvature[m] = 1.05 * d @ bent / (d @ d)
                continue
            x, at, slope = new, g(new), g(new) + (ahead - new) * (curvature[m] + strength)
            off = slope - h + strength * (x - centre)
            if np.linalg.norm(off) <= strength / 2 * np.linalg.norm(x - centre):
                break
        points.append(x)
        slopes.append(slope)
    return points, slopes


def passes(centre, points, slopes, strength):
    """S-DANE's test of a step, with each h_i at the mean of the points."""
    x, total = mean(points), mean(slopes)
    gradients = [g(x) for g in G]
    h = [one - mean(gradients) for one in gradients]
    products = [(s - one) @ (centre - p) for s, one, p in zip(slopes, h, points, strict=True)]
    return mean(products) >= total @ total / (2 * strength)


def sdane(strength, mu):
    """Two rounds of the engine are one of the paper's: x is known after the look that follows the work."""
    x, v, out, curvature = W0, W0, [W0, W0, W0], [0.0] * M
    while len(out) <= ROUNDS:
        points, slopes = around(v, mean([g(v) for g in G]), strength, curvature)
        if passes(v, points, slopes, strength):
            x, a = mean(points), 1 / strength
            v, strength = (mu * a * x + v - a * mean(slopes)) / (1 + mu * a), strength / 2
        else:
            strength = 2 * strength
        out += [x, x]
    return out[: ROUNDS + 1]


def accsdane(strength, mu):
    x, v, A, B, out, curvature = W0, W0, 0.0, 1.0, [W0, W0, W0], [0.0] * M
    while len(out) <= ROUNDS:
        a = (B + np.sqrt(B**2 + 4 * strength * A * B)) / (2 * strength)
        y = (A * x + a * v) / (A + a)
        points, slopes = around(y, mean([g(y) for g in G]), strength, curvature)
        if passes(y, points, slopes, strength):
            x = mean(points)
            v = (mu * a * x + B * v - a * mean(slopes)) / (mu * a + B)
            A, B, strength = A + a, B + mu * a, strength / 2
            out += [x, x]
        else:
            strength = 2 * strength
            out += [x, x, x]  # one more look, as y is another
    return out[: ROUNDS + 1]


def normalmap(gamma, slr):
    z, a = W0, slr * gamma
    out = [worlds.soft(z, gamma * LAM)]
    for _ in range(ROUNDS):
        x = out[-1]
        z = z - a * (mean([g(x) for g in G]) + (z - x) / gamma)
        out.append(worlds.soft(z, gamma * LAM))
    return out


def drawn_lengths(p, most):
    """How many steps the rounds of a run with seed 0 have."""
    from cofed.engine import sampling

    def draw(r):
        key = sampling.shared_key(sampling.round_key(jax.random.key(0), jnp.asarray(r, jnp.int32)))
        return float(jax.random.uniform(key, (), np.float64))

    # The first T with 1 - (1 - p)^T > u
    return [next(t for t in range(1, 1000) if t == most or 1 - (1 - p) ** t > draw(r)) for r in range(ROUNDS)]


PAIRS = {
    "FedAvg": (cofed.FedAvg(0.05, 1.7), lambda: fedavg(0.05, 1.7)),
    "FedMiD": (cofed.FedMiD(0.05, 1.7), lambda: fedmid(0.05, 1.7, True)),
    "FedMiD-OSP": (cofed.FedMiD(0.05, 1.7, client_prox=False), lambda: fedmid(0.05, 1.7, False)),
    "FedDualAvg": (cofed.FedDualAvg(0.05, 1.7), lambda: feddualavg(0.05, 1.7, True)),
    "FedDualAvg-OSP": (cofed.FedDualAvg(0.05, 1.7, client_prox=False), lambda: feddualavg(0.05, 1.7, False)),
    "FastFedDA": (cofed.FastFedDA(0.3, 8.0), lambda: fastfedda(0.3, 8.0)),
    "CFedDA": (cofed.CFedDA(0.3, 8.0), lambda: cfedda(0.3, 8.0)),
    "FastFedDA, constant weights": (cofed.FastFedDA(0.3, 8.0, growth=0), lambda: fastfedda(0.3, 8.0, lambda t: 1)),
    "CFedDA, constant weights": (cofed.CFedDA(0.3, 8.0, growth=0), lambda: cfedda(0.3, 8.0, lambda r: 1)),
    "CFedDA, huge ball": (cofed.CFedDA(0.3, 8.0, radius=1e6), lambda: cfedda(0.3, 8.0)),
    "FedDecouple": (cofed.FedDecouple(0.05, 1.7), lambda: feddecouple(0.05, 1.7)),
    "ProxSkip": (cofed.ProxSkip(0.05, 0.4), lambda: proxskip(0.05, 0.4, drawn_lengths(0.4, K))),
    "SDANE": (cofed.SDANE(16.0, 0.2), lambda: sdane(16.0, 0.2)),
    "SDANE, too weak": (cofed.SDANE(2.0), lambda: sdane(2.0, 0.0)),
    "AccSDANE": (cofed.AccSDANE(16.0, 0.2), lambda: accsdane(16.0, 0.2)),
    "AccSDANE, too weak": (cofed.AccSDANE(2.0), lambda: accsdane(2.0, 0.0)),
    "NormalMap": (cofed.NormalMap(0.05, 1.7), lambda: normalmap(0.05, 1.7)),
    "FedDR": (cofed.FedDR(0.05, 0.8, 0.9), lambda: feddr(0.05, 0.8, 0.9)),
    "FedADMM": (cofed.FedADMM(0.05, 0.8), lambda: fedadmm(0.05, 0.8)),
}

# Those whose trajectories are tested otherwise.
ELSEWHERE = {
    "Alternative": "test_alternative.py",
    "FedFISTA": "test_second_order.py",
    "FedNL": "test_fednl.py",
    "FedNewton": "test_second_order.py",
    "FedProx": "test_fedprox.py",
    "MCFedDA": "stage by stage, below",
    "PureLocal": "test_fedprox.py",
    "Scaffold": "test_identities.py, as FedDecouple without a regularizer",
}


def test_every_algorithm_has_a_twin():
    twins = {type(algorithm).__name__ for algorithm, _ in PAIRS.values()}
    missing = set(cofed.algorithms.__all__) - twins - set(ELSEWHERE)
    assert not missing, f"add NumPy twins of {missing} to PAIRS, or say in ELSEWHERE where they are"


@pytest.mark.parametrize("name", PAIRS)
def test_trajectory_is_that_of_the_papers_pseudo_code(name):
    algorithm, twin = PAIRS[name]
    result = cofed.run(
        worlds.problem(cofed.L1(LAM)),
        FED,
        algorithm,
        rounds=ROUNDS,
        local_steps=1 if algorithm.one_step else K,
        weights="samples",
        w0={"coef": W0},
        keep_models=True,
    )
    np.testing.assert_allclose(worlds.coefs(result), np.stack(twin()), rtol=0, atol=1e-11)


def test_the_averaged_outputs_are_the_weighted_means_of_the_models():
    models = np.stack(fastfedda(0.3, 8.0))[1:]
    alpha = np.array([(r + 1) * K + 1.0 for r in range(ROUNDS)])
    run = lambda algorithm: cofed.run(  # noqa: E731
        worlds.problem(cofed.L1(LAM)), FED, algorithm, rounds=ROUNDS, local_steps=K, weights="samples", w0={"coef": W0}
    )
    fast = run(cofed.FastFedDA(0.3, 8.0)).average.coef
    np.testing.assert_allclose(fast, alpha @ models / alpha.sum(), atol=1e-11)
    models = np.stack(cfedda(0.3, 8.0))[1:]
    alpha = np.arange(1.0, ROUNDS + 1)
    constrained = run(cofed.CFedDA(0.3, 8.0)).average.coef
    np.testing.assert_allclose(constrained, alpha @ models / alpha.sum(), atol=1e-11)
    partly = run(cofed.CFedDA(0.3, 8.0, last_share=0.25)).average.coef
    np.testing.assert_allclose(partly, 0.75 * constrained + 0.25 * models[-1], atol=1e-11)
    models = np.stack(cfedda(0.3, 8.0, lambda r: 1))[1:]
    constant = run(cofed.CFedDA(0.3, 8.0, growth=0)).average.coef
    np.testing.assert_allclose(constant, models.mean(0), atol=1e-11)


def test_multi_stage_restarts_from_the_averaged_output_with_its_strength_and_radius():
    kwargs = {"local_steps": K, "weights": "samples"}
    many = cofed.MCFedDA(0.3, 8.0, strengths=(4 * LAM, 2 * LAM, LAM), radii=(3.0, 2.0, 1.0), stage_rounds=(2, 3, 2))
    result = cofed.run(worlds.problem(cofed.L1(LAM)), FED, many, rounds=7, w0={"coef": W0}, keep_models=True, **kwargs)
    start, models = W0, [W0]
    for factor, radius, rounds in ((4, 3.0, 2), (2, 2.0, 3), (1, 1.0, 2)):
        one = cofed.CFedDA(0.3, 8.0, radius=radius)
        problem = worlds.problem(cofed.L1(factor * LAM))
        stage = cofed.run(problem, FED, one, rounds=rounds, w0={"coef": start}, keep_models=True, **kwargs)
        models += [w.coef for w in stage.models[1:]]
        assert all(np.abs(w.coef - start).sum() <= radius * (1 + 1e-12) for w in stage.models)
        start = stage.average.coef
    np.testing.assert_allclose(worlds.coefs(result), np.stack(models), atol=1e-12)
    np.testing.assert_allclose(result.average.coef, start, atol=1e-12)
    assert result.history["stage"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2]


def test_multi_stage_with_the_whole_share_restarts_from_the_last_model_and_keeps_the_weights():
    """As in the authors' code: constant weights, and each stage begins where the one before ended."""
    kwargs = {"local_steps": K, "weights": "samples"}
    many = cofed.MCFedDA(0.3, 8.0, strengths=(2 * LAM, LAM), stage_rounds=(2, 3), growth=0.0, last_share=1.0)
    result = cofed.run(worlds.problem(cofed.L1(LAM)), FED, many, rounds=5, w0={"coef": W0}, keep_models=True, **kwargs)
    start, models = W0, [W0]
    for factor, rounds in ((2, 2), (1, 3)):
        problem, one = worlds.problem(cofed.L1(factor * LAM)), cofed.CFedDA(0.3, 8.0, growth=0.0)
        stage = cofed.run(problem, FED, one, rounds=rounds, w0={"coef": start}, keep_models=True, **kwargs)
        models += [w.coef for w in stage.models[1:]]
        start = stage.model.coef
    np.testing.assert_allclose(worlds.coefs(result), np.stack(models), atol=1e-12)
    np.testing.assert_array_equal(result.average.coef, result.model.coef)


def test_multi_stage_defaults_follow_the_paper():
    problem = worlds.problem(cofed.On(cofed.L1(LAM), "coef"))
    stages = cofed.MCFedDA(0.5, 8.0, sparsity=2).stages(problem, 10, None)
    assert [stage.rounds for stage in stages] == [4, 3, 3]
    np.testing.assert_allclose([stage.algorithm.scale for stage in stages], [4, 2, 1])
    np.testing.assert_allclose(
        [stage.algorithm.radius for stage in stages], [108 * 2 * f * LAM / 0.5 for f in (4, 2, 1)]
    )
