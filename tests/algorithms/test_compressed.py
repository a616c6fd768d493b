"""Compressed methods: nothing is lost, both ends agree, and what should end at the pooled optimum does."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests import worlds

import cofed
from cofed._util import trees
from cofed.engine import sampling
from cofed.engine.job import prepare
from cofed.engine.spec import RunSpec
from cofed.engine.steps import ClientView, RoundContext, make_steps

FED = worlds.linear()
W0 = worlds.start()
TOP, DRAWN, CODED = cofed.TopK(0.5), cofed.RandomK(0.5), cofed.Quantised(2)
L1 = cofed.L1(0.05)
METHODS = {
    "FedAvg": (cofed.FedAvg(0.02, 1.3), L1),
    "FedMiD": (cofed.FedMiD(0.02, 1.3), L1),
    "FedDualAvg": (cofed.FedDualAvg(0.02, 1.3), L1),
    "FastFedDA": (cofed.FastFedDA(0.1, 20.0), L1),
    "CFedDA": (cofed.CFedDA(0.1, 20.0), L1),
    "MCFedDA": (cofed.MCFedDA(0.1, 20.0, strengths=(0.1, 0.05)), L1),
    "FedDecouple": (cofed.FedDecouple(0.02, 1.3), L1),
    "Scaffold": (cofed.Scaffold(0.02, 1.3), cofed.Zero()),
    "FedDR": (cofed.FedDR(0.02, 0.5, 0.9), L1),
    "FedADMM": (cofed.FedADMM(0.02, 0.5), L1),
    "FedProx": (cofed.FedProx(0.3, 0.02, 4.0), L1),
    "PureLocal": (cofed.PureLocal(0.02), L1),
    "ReFedDAGT": (cofed.ReFedDAGT(0.02, radius_squared=4.0, sparsity=3), cofed.Zero()),
}
SAMPLED = {"rounds": 6, "local_steps": 3, "batch_size": 2, "clients_per_round": 3}


def trajectory(algorithm, psi=L1, federation=FED, **changes):
    options = SAMPLED | {"w0": W0, "keep_models": True} | changes
    result = cofed.run(worlds.problem(psi), federation, algorithm, **options)
    assert result.outcome is cofed.Outcome.COMPLETED
    return worlds.coefs(result)


QUICK = ("FedDualAvg", "FastFedDA", "MCFedDA", "FedDecouple")  # differences, sums, stages, points


@pytest.mark.parametrize(
    ("name", "per_round"),
    [pytest.param(name, 3, marks=() if name in QUICK else pytest.mark.slow) for name in METHODS]
    + [("FedDecouple", None)],  # where it sends one vector down
)
def test_a_compressor_that_keeps_everything_changes_nothing(name, per_round):
    """So the origins of both ends are the same point."""
    method, psi = METHODS[name]
    plain = trajectory(method, psi, clients_per_round=per_round)
    whole = trajectory(cofed.Compressed(method, cofed.TopK(1.0)), psi, clients_per_round=per_round)
    np.testing.assert_allclose(whole, plain, rtol=0, atol=1e-12)


@pytest.mark.parametrize("compressor", [TOP, DRAWN, CODED], ids=repr)
def test_a_method_that_sends_nothing_has_nothing_to_compress(compressor):
    plain, small = (
        cofed.run(worlds.problem(L1), FED, one, w0=W0, **SAMPLED)
        for one in (cofed.PureLocal(0.02), cofed.Compressed(cofed.PureLocal(0.02), compressor))
    )
    np.testing.assert_array_equal(small.personal_models.coef, plain.personal_models.coef)
    assert np.abs(np.asarray(plain.personal_models.coef) - W0["coef"]).max() > 1e-3  # they have moved
    assert small.communication == plain.communication


@pytest.mark.parametrize(
    ("name", "compressor"), [("FedDualAvg", TOP), ("FastFedDA", CODED), ("FedDecouple", DRAWN)], ids=str
)
def test_what_was_sent_and_what_is_held_add_up_under_sampling(name, compressor):
    method, psi = METHODS[name]
    numbers = {"rounds": 8, "local_steps": 3, "batch_size": 2, "clients_per_round": 3, "weights": "samples"}
    job = prepare(RunSpec(worlds.problem(psi), FED, cofed.Compressed(method, compressor), **numbers))
    task = job.stages[0].task
    wrapped, problem, data, plan = task.algorithm, task.problem, task.data, task.plan
    inner, w0 = wrapped.algorithm, job.spec.problem.start(FED, W0)
    state = task.begin(w0, jax.random.key(0), 0)
    clients = [jax.tree.map(lambda leaf, m=m: leaf[m], state.clients) for m in range(5)]
    sent = [trees.zeros_like(client.error) for client in clients]
    meant = [trees.zeros_like(client.error) for client in clients]
    one_round = eqx.filter_jit(lambda state: task.one_round(state))

    @eqx.filter_jit
    def client_round(who, key, r, down, client):
        steps = make_steps(problem, data, plan, ClientView(who), RoundContext(key, r))
        up = inner.local(problem, down, client.own, steps)[0]
        if (origin := inner.local_origin(problem, down, client.own, steps)) is not None:
            up = trees.sub(up, origin)
        return up, *wrapped.local(problem, down, client, steps)

    absent = 0
    for r in range(8):
        key, down = sampling.round_key(state.key, state.round), inner.broadcast(state.server)
        state, roll = one_round(state)
        for m in range(5):
            if m not in np.asarray(roll.clients):
                absent += 1
                continue
            up, message, clients[m] = client_round(
                jnp.asarray(m, jnp.int32), key, jnp.asarray(float(r)), down, clients[m]
            )
            assert trees.nbytes(message) < trees.nbytes(up)
            sent[m], meant[m] = trees.add(sent[m], wrapped.expand(message)), trees.add(meant[m], up)
    assert absent > 0
    for m in range(5):
        own = jax.tree.map(lambda leaf, m=m: leaf[m], state.clients)
        for error, engine in zip(jax.tree.leaves(clients[m].error), jax.tree.leaves(own.error), strict=True):
            np.testing.assert_allclose(engine, error, atol=1e-11)
        held = jax.tree.leaves(trees.add(sent[m], own.error))
        for a, b in zip(held, jax.tree.leaves(meant[m]), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-11)
    assert max(float(jnp.abs(leaf).max()) for leaf in jax.tree.leaves(state.clients.error)) > 1e-4


def twin_top_k(v, k):
    out = np.zeros_like(v)
    kept = np.argsort(-np.abs(v), kind="stable")[:k]
    out[kept] = v[kept]
    return out


def twin_one_bit(v):
    return np.where(v >= 0, 1.0, -1.0) * np.abs(v).mean()


TWINS = {"top-k": (TOP, lambda v: twin_top_k(v, 3)), "one bit": (cofed.Quantised(1), twin_one_bit)}


def participants(rounds, seed=0):
    place, key = np.argsort(np.asarray(FED.ids)), jax.random.key(seed)
    return [
        place[np.asarray(sampling.participants(sampling.round_key(key, jnp.asarray(r, jnp.int32)), 5, 3))]
        for r in range(rounds)
    ]


@pytest.mark.parametrize("name", TWINS)
def test_dual_averaging_beside_its_twin(name):
    """NumPy loops: local dual averaging, sampled clients, error feedback."""
    compressor, C = TWINS[name]
    lr, slr, lam, K, rounds = 0.02, 1.3, 0.05, 3, 8
    z, t, errors, out = W0["coef"], 0.0, np.zeros((5, worlds.D)), []
    for who in participants(rounds):
        moves = []
        for m in who:
            x = z
            for k in range(K):
                x = x - lr * worlds.gradient(FED, m, worlds.soft(x, (t + lr * k) * lam))
            v = x - z + errors[m]
            moves.append(C(v))
            errors[m] = v - moves[-1]
        z, t = z + slr * np.mean(moves, axis=0), t + slr * lr * K
        out.append(worlds.soft(z, t * lam))
    got = trajectory(cofed.Compressed(cofed.FedDualAvg(lr, slr), compressor), rounds=rounds, batch_size=None)
    np.testing.assert_allclose(got[1:], out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", TWINS)
def test_decoupling_with_one_local_step_is_ef21(name):
    """EF21: ghat_i <- ghat_i + C(g_i(w) - ghat_i), w <- prox(w - eta mean ghat_i), from ghat_i = 0."""
    compressor, C = TWINS[name]
    lr, slr, lam = 0.03, 1.3, 0.05
    w, ghat, out = worlds.soft(W0["coef"], lr * slr * lam), np.zeros((5, worlds.D)), []
    for _ in range(8):
        # C is positively homogeneous but for its sign at 0, so it may act on -eta times the difference.
        ghat = ghat - np.stack([C(-lr * (worlds.gradient(FED, m, w) - ghat[m])) / lr for m in range(5)])
        w = worlds.soft(w - lr * slr * ghat.mean(axis=0), lr * slr * lam)
        out.append(w)
    method = cofed.Compressed(cofed.FedDecouple(lr, slr), compressor)
    got = trajectory(method, rounds=8, local_steps=1, batch_size=None, clients_per_round=None)
    np.testing.assert_allclose(got[1:], out, rtol=0, atol=1e-12)


@pytest.mark.parametrize("per_round", [3, None])
def test_the_servers_direction_is_the_mean_of_its_pictures(per_round):
    """d = sum_i pi_i ghat_i with ghat_i = g_i + e_i/(eta_c K), and so mean c_i = mean e_i/(eta_c K)."""
    lr, slr, K = 0.03, 1.3, 3
    numbers = {"rounds": 10, "local_steps": K, "clients_per_round": per_round}
    method = cofed.Compressed(cofed.FedDecouple(lr, slr), TOP)
    job = prepare(RunSpec(worlds.problem(cofed.L1(0.2)), FED, method, **numbers))
    task = job.stages[0].task
    state = task.begin(job.spec.problem.start(FED, W0), jax.random.key(0), 0)
    one_round = eqx.filter_jit(lambda state: task.one_round(state)[0])
    for _ in range(6):
        state = one_round(state)
        server, (own, error) = state.server, state.clients
        told = server.direction.coef if per_round else (server.p.coef - server.x.coef) / (lr * slr * K)
        pictures = own.gradient.coef + error.coef / (lr * K)
        np.testing.assert_allclose(told, pictures.mean(axis=0), atol=1e-11)
    assert np.abs(error.coef).max() > 1e-4


EXACT = {
    "FedDecouple, top-k": (cofed.FedDecouple(0.01), TOP, L1, None, 6000, 1e-9),
    "FedDecouple, one bit": (cofed.FedDecouple(0.005), cofed.Quantised(1), L1, None, 10000, 1e-9),
    "FedDecouple, random, sampled": (cofed.FedDecouple(0.004), DRAWN, L1, 3, 20000, 1e-7),
    "Scaffold, top-k": (cofed.Scaffold(0.01), TOP, cofed.Zero(), None, 20000, 1e-7),
    "FedDR, top-k, sampled": (cofed.FedDR(0.05, 0.3), TOP, L1, 3, 12000, 1e-7),
    "FedADMM, quantised": (cofed.FedADMM(0.05, 0.3), CODED, L1, None, 6000, 1e-9),
}


@pytest.mark.parametrize("name", EXACT)
def test_exact_methods_reach_the_pooled_optimum_with_compressed_uploads(name):
    method, compressor, psi, per_round, rounds, distance = EXACT[name]
    problem = worlds.problem(psi)
    federation = worlds.linear(sizes=(20, 30, 25, 15, 22))
    best = cofed.solve_pooled(problem, federation, tol=1e-13).model.coef
    options = {"rounds": rounds, "local_steps": 3, "clients_per_round": per_round, "evaluate_every": rounds}
    result = cofed.run(problem, federation, cofed.Compressed(method, compressor), w0=W0, **options)
    np.testing.assert_allclose(result.model.coef, best, atol=distance)
    assert max(np.abs(leaf).max() for leaf in jax.tree.leaves(result.state.clients.error)) < distance


def test_weighted_dual_averaging_forgets_what_was_held_back():
    federation, problem = worlds.linear(sizes=(20, 30, 25)), worlds.problem(cofed.L1(0.2))
    best = cofed.solve_pooled(problem, federation, tol=1e-13).model.coef
    method, error = cofed.Compressed(cofed.FastFedDA(0.2, 40.0), TOP), []
    for rounds in (1000, 4000):
        result = cofed.run(problem, federation, method, rounds=rounds, local_steps=3, w0=W0, evaluate_every=rounds)
        error.append(np.linalg.norm(result.model.coef - best))
    assert error[1] < 2e-2
    assert error[1] / error[0] < 0.5


def test_dual_averaging_trembles_by_its_step():
    federation, problem = worlds.linear(sizes=(20, 30, 25)), worlds.problem(cofed.L1(0.2))
    distance = []
    for lr, rounds in ((0.008, 4000), (0.002, 16000)):
        plain = cofed.FedDualAvg(lr)
        ends = [
            cofed.run(problem, federation, one, rounds=rounds, local_steps=3, w0=W0, evaluate_every=rounds).model.coef
            for one in (plain, cofed.Compressed(plain, TOP))
        ]
        distance.append(np.linalg.norm(ends[0] - ends[1]))
    assert distance[0] > 1e-4
    assert distance[1] < 0.6 * distance[0]


def test_stages_are_compressed_one_by_one():
    method = cofed.Compressed(METHODS["MCFedDA"][0], TOP)
    result = cofed.run(worlds.problem(L1), FED, method, w0=W0, **SAMPLED)
    assert result.history["stage"].max() == 1
    assert result.communication.up_per_client == 3 * (8 + 1)
    assert [type(stage.algorithm).__name__ for stage in method.stages(worlds.problem(L1), 6, 3)] == ["Compressed"] * 2
    assert result.average is not None


def test_personal_models_are_the_methods_own():
    method = cofed.Compressed(METHODS["FedProx"][0], TOP)
    result = cofed.run(worlds.problem(L1), FED, method, w0=W0, **SAMPLED)
    assert result.personal_models.coef.shape == (5, worlds.D)
    assert "personal_objective" in result.history.to_pandas()


def test_what_a_method_does_not_offer_is_not_offered():
    wrapped = cofed.Compressed(cofed.FedDualAvg(0.1), TOP)
    problem = worlds.problem(L1)
    server = wrapped.init(problem, problem.start(FED, W0))
    assert wrapped.average(problem, server) is None
    assert wrapped.origin(problem, server) is None
    assert not wrapped.is_personal
    assert not wrapped.ends_locally
    assert len(wrapped.stages(problem, 6, 3)) == 1
    assert wrapped.name == "FedDualAvg + TopK(share=0.5)"


def test_a_grid_of_steps_is_one_program_and_its_table_names_them():
    rates = (0.001, 0.01, 1e4)
    grid = [cofed.Compressed(cofed.FedDualAvg(rate), TOP) for rate in rates]
    grid.append(cofed.Compressed(cofed.FedDualAvg(0.01), cofed.TopK(0.2)))
    tuning = cofed.tune(worlds.problem(L1), FED, grid, rounds=20, local_steps=3, clients_per_round=3)
    table = tuning.table.sort_index()
    assert table["algorithm.client_lr"].tolist() == [*rates, 0.01]
    assert table["compressor.share"].tolist() == [0.5, 0.5, 0.5, 0.2]
    assert table["diverged"].tolist() == [False, False, True, False]
    alone = cofed.run(worlds.problem(L1), FED, grid[1], rounds=20, local_steps=3, clients_per_round=3)
    np.testing.assert_allclose(table["objective"][1], alone.history["objective"][-1], rtol=1e-12)


def test_a_client_that_is_not_finite_keeps_its_error():
    pairs = [FED.client(m) for m in range(5)]
    pairs[2] = (pairs[2][0] * 1e200, pairs[2][1])
    broken = cofed.Federation.from_arrays(pairs)
    for compressor in (TOP, DRAWN, CODED):
        method = cofed.Compressed(cofed.FedDualAvg(0.02), compressor)
        result = cofed.run(worlds.problem(L1), broken, method, w0=W0, rounds=4, local_steps=3)
        assert {event.client for event in result.history.left_out} == {"2"}
        assert np.isfinite(result.model.coef).all()
        np.testing.assert_array_equal(result.state.clients.error.z.coef[2], 0)
        assert np.abs(result.state.clients.error.z.coef).max() > 0


@pytest.mark.parametrize(
    ("make", "error", "words"),
    [
        (lambda: cofed.Compressed(3.0, TOP), TypeError, "algorithm must be one with a server.*got 3.0"),
        (lambda: cofed.Compressed(cofed.FedAvg, TOP), TypeError, "algorithm must be one with a server"),
        (lambda: cofed.Compressed(TOP, cofed.FedAvg(0.1)), TypeError, "algorithm must be one with a server"),
        (lambda: cofed.Compressed(cofed.FedAvg(0.1), 0.05), TypeError, "compressor must be one such as TopK.*got 0.05"),
        (lambda: cofed.Compressed(cofed.FedAvg(0.1), cofed.TopK), TypeError, "compressor must be one such as TopK"),
        (lambda: cofed.Compressed(cofed.DFedDA(0.1), TOP), ValueError, "DFedDA has no server"),
        (
            lambda: cofed.Compressed(cofed.Compressed(cofed.FedAvg(0.1), TOP), CODED),
            ValueError,
            r"FedAvg \+ TopK\(share=0.5\) is compressed already",
        ),
        (lambda: cofed.Compressed(cofed.FedFISTA(1.0), TOP), ValueError, "FedFISTA send must come whole: .*curvature"),
        (lambda: cofed.Compressed(cofed.FedNewton(), TOP), ValueError, "FedNewton send must come whole: .*Hessian"),
        (lambda: cofed.Compressed(cofed.Alternative(0.1), TOP), ValueError, "Alternative chooses between methods"),
    ],
)
def test_what_cannot_be_compressed_gets_a_sentence(make, error, words):
    with pytest.raises(error, match=words):
        make()


def test_what_does_not_fit_is_refused_in_the_methods_name():
    wrapped = cofed.Compressed(cofed.FedDualAvg(0.1), TOP)
    with pytest.raises(ValueError, match=r"^FedDualAvg does not fit the regularizer MCP"):
        cofed.run(worlds.problem(cofed.MCP(0.1, 3.0)), FED, wrapped, rounds=1)
    method = cofed.Compressed(cofed.FedDecouple(0.1), TOP)
    with pytest.raises(ValueError, match=r"^FedDecouple .* needs the same number of local steps"):
        cofed.run(worlds.problem(L1), FED, method, rounds=1, local_epochs=1, batch_size=2)
    with pytest.raises(ValueError, match=r"FedDualAvg .* needs a server"):
        cofed.run(worlds.problem(L1), FED, wrapped, rounds=1, topology=cofed.topologies.ring(5))


def test_draws_depend_on_the_seed_round_and_client_alone():
    method = cofed.Compressed(cofed.FedDualAvg(0.02), DRAWN)
    names = ["a", "b", "c", "d", "e"]
    federation = worlds.linear(names=names)
    order = [3, 0, 4, 2, 1]
    moved = cofed.Federation.from_arrays([federation.client(names[i]) for i in order], names=[names[i] for i in order])
    first = trajectory(method, federation=federation)
    np.testing.assert_allclose(trajectory(method, federation=moved), first, rtol=0, atol=1e-12)
    assert np.abs(trajectory(method, federation=federation, seed=1) - first).max() > 1e-6


def test_an_algorithm_of_the_compressed_kind_is_written_and_read(tmp_path):
    from cofed.engine.serialization import decode, encode

    for compressor in (TOP, DRAWN, CODED):
        method = cofed.Compressed(cofed.FedDualAvg(0.02, mirror=cofed.PNorm(3.0)), compressor)
        assert decode(encode(method)) == method
    assert [field.name for field in dataclasses.fields(cofed.Compressed)] == ["algorithm", "compressor"]
