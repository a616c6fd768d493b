"""Algorithms without a server: twins, identities, limits, faults and streams."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import worlds

import cofed

t = cofed.topologies
FED, W0, LAM, K, ROUNDS = worlds.linear(), worlds.start(), 0.07, 3, 6
M = FED.n_clients
START = np.tile(W0["coef"], (M, 1))


def go(algorithm, topology, regularizer=None, federation=FED, **options):
    options = {"rounds": ROUNDS, "local_steps": K, "w0": W0, "keep_models": True} | options
    return cofed.run(worlds.problem(regularizer), federation, algorithm, topology=topology, **options)


def same(a, b, tolerance=1e-9):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


def gradients(x):
    return np.stack([worlds.gradient(FED, m, x[m]) for m in range(M)])


class TestTwins:
    """The recursions as NumPy loops, on a chain, with full gradients."""

    U = t.chain(M).matrix()
    lr, slr = 0.03, 1.4

    @pytest.mark.parametrize("tracking", [False, True])
    def test_dfedda(self, tracking):
        z, elapsed = START, 0.0
        c = -gradients(START) + self.U @ gradients(START) if tracking else np.zeros_like(START)
        for _ in range(ROUNDS):
            at = z
            for k in range(K):
                x = worlds.soft(at, (elapsed + self.lr * k) * LAM)
                at = at - self.lr * (gradients(x) + c)
            delta = (at - z) / (K * self.lr)
            if tracking:
                c = c + delta - self.U @ delta
            z = self.U @ (z + K * self.slr * self.lr * delta)
            elapsed += self.slr * self.lr * K
        result = go(cofed.DFedDA(self.lr, self.slr, tracking), t.chain(M), cofed.L1(LAM))
        same(result.personal_models.coef, worlds.soft(z, elapsed * LAM), 1e-11)
        same(result.model.coef, worlds.soft(z.mean(axis=0), elapsed * LAM), 1e-11)

    def test_dfedmid(self):
        w = START
        for _ in range(ROUNDS):
            x = w
            for _ in range(K):
                x = worlds.soft(x - self.lr * gradients(x), self.lr * LAM)
            w = worlds.soft(self.U @ (w + self.slr * (x - w)), self.slr * self.lr * K * LAM)
        result = go(cofed.DFedMiD(self.lr, self.slr), t.chain(M), cofed.L1(LAM))
        same(result.personal_models.coef, w, 1e-11)

    def test_refeddagt(self):
        Q, p = 0.8, 3.0
        q = p / (p - 1)

        def point(z):
            norm = np.linalg.norm(z, p, axis=1, keepdims=True)
            u = np.where(norm > 0, norm, 1) ** (2 - p) * np.sign(z) * np.abs(z) ** (p - 1) / (p - 1)
            length = np.linalg.norm(u, q, axis=1, keepdims=True)
            return START + u * np.minimum(1, np.sqrt(Q) / np.where(length > 0, length, 1))

        z, c, total = np.zeros_like(START), np.zeros_like(START), 0
        for _ in range(ROUNDS):
            total = total + point(z)
            at = z
            for _ in range(K):
                at = at - self.lr * (gradients(point(at)) + c)
            delta = (at - z) / (K * self.lr)
            c = c + delta - self.U @ delta
            z = self.U @ (z + K * self.slr * self.lr * delta)
        method = cofed.ReFedDAGT(self.lr, self.slr, radius_squared=Q, sparsity=2, mirror=cofed.PNorm(p))
        result = go(method, t.chain(M))
        same(result.personal_models.coef, point(z), 1e-11)
        assert np.all(np.linalg.norm(result.personal_models.coef - START, q, axis=1) <= np.sqrt(Q) * (1 + 1e-12))
        mean = (total / ROUNDS).mean(axis=0)
        keep = np.argsort(-np.abs(mean), kind="stable")[:2]
        same(result.average.coef, np.where(np.isin(np.arange(6), keep), mean, 0), 1e-11)

    def test_dasm(self):
        z, total = np.zeros_like(START), 0
        x = START
        for r in range(ROUNDS):
            z = self.U @ z - gradients(x)
            alpha = 0.1 / np.sqrt(r + 2)
            x = worlds.soft(START + alpha * z, alpha * (r + 1) * LAM)
            total = total + x
        result = go(cofed.DASM(0.1), t.chain(M), cofed.L1(LAM), local_steps=1)
        same(result.personal_models.coef, x, 1e-11)

    @pytest.mark.parametrize("name", ["NIDS", "PGExtra"])
    def test_proximal_gradient_by_gossip(self, name):
        half = (np.eye(M) + self.U) / 2
        x, before, g_before = START, START, gradients(START)
        z = (self.U @ x if name == "PGExtra" else x) - self.lr * g_before
        x = worlds.soft(z, self.lr * LAM)
        for _ in range(ROUNDS - 1):
            g = gradients(x)
            change = self.lr * (g - g_before)
            extra = self.U @ x + z - half @ before - change
            z = extra if name == "PGExtra" else z - x + half @ (2 * x - before - change)
            before, x, g_before = x, worlds.soft(z, self.lr * LAM), g
        result = go(getattr(cofed, name)(self.lr), t.chain(M), cofed.L1(LAM), local_steps=1)
        same(result.personal_models.coef, x, 1e-11)


rates, server_rates, seeds = st.floats(0.005, 0.03), st.floats(0.3, 1.9), st.integers(0, 2**31 - 1)


class TestIdentities:
    """U = J/M is a server."""

    complete = t.complete(M)

    @given(rates, server_rates, seeds)
    @settings(max_examples=6)
    def test_dual_averaging(self, lr, slr, seed):
        options = {"batch_size": 2, "seed": seed}
        for psi in (None, cofed.L1(LAM)):
            gossip = go(cofed.DFedDA(lr, slr), self.complete, psi, **options)
            same(worlds.coefs(gossip), worlds.coefs(go(cofed.FedDualAvg(lr, slr), None, psi, **options)))

    @given(rates, server_rates, seeds)
    @settings(max_examples=6)
    def test_mirror_descent(self, lr, slr, seed):
        options = {"batch_size": 2, "seed": seed, "local_steps": None, "local_epochs": 1}
        gossip = go(cofed.DFedMiD(lr, slr), self.complete, cofed.L1(LAM), **options)
        server = go(cofed.FedMiD(lr, slr), None, cofed.L1(LAM), **options)
        # The mean of prox'ed nodes is the prox of the mean only because all nodes agree after an exchange.
        same(worlds.coefs(gossip), worlds.coefs(server))

    @given(rates, server_rates, seeds, st.sampled_from([np.inf, 0.5]))
    @settings(max_examples=6)
    def test_restricted_dual_averaging(self, lr, slr, seed, Q):
        method = cofed.ReFedDAGT(lr, slr, radius_squared=Q, sparsity=3, mirror=cofed.PNorm(2.5))
        a, b = (go(method, topology, batch_size=2, seed=seed) for topology in (self.complete, None))
        same(worlds.coefs(a), worlds.coefs(b))
        same(a.average.coef, b.average.coef)

    @given(rates, server_rates, seeds)
    @settings(max_examples=6)
    def test_scaffold(self, lr, slr, seed):
        options = {"batch_size": 2, "seed": seed}
        scaffold = worlds.coefs(go(cofed.Scaffold(lr, slr), None, **options))
        same(worlds.coefs(go(cofed.DScaffold(lr, slr), self.complete, **options)), scaffold)

    @given(rates, server_rates, seeds)
    @settings(max_examples=6)
    def test_restricted_dual_averaging_in_the_plane_is_scaffold_under_sampling_too(self, lr, slr, seed):
        options = {"batch_size": 2, "seed": seed, "clients_per_round": 3, "rounds": 8}
        method = cofed.ReFedDAGT(lr, slr, mirror=cofed.PNorm(2.0))
        same(worlds.coefs(go(method, None, **options)), worlds.coefs(go(cofed.Scaffold(lr, slr), None, **options)))

    def test_tracked_dual_averaging_is_scaffold_started_at_the_first_gradients(self):
        lr, slr = 0.02, 1.3
        x, result = W0["coef"], go(cofed.DFedDA(lr, slr, gradient_tracking=True), self.complete)
        c = gradients(START)
        for r in range(ROUNDS):
            y, mean = np.tile(x, (M, 1)), c.mean(axis=0)
            for _ in range(K):
                y = y - lr * (gradients(y) - c + mean)
            c = c - mean + (x - y) / (K * lr)
            x = x + slr * (y - x).mean(axis=0)
            same(result.models[r + 1].coef, x)

    @given(rates, seeds)
    @settings(max_examples=4)
    def test_nodes_with_the_same_data_are_one(self, lr, seed):
        """Proximal gradient descent, on any graph."""
        X, y = FED.client(1)
        twins = cofed.Federation.from_arrays([(X, y)] * 4)
        for method in (cofed.NIDS(lr), cofed.PGExtra(lr)):
            result = go(method, t.star(4), cofed.L1(LAM), twins, local_steps=1, seed=seed)
            w = W0["coef"]
            for r in range(ROUNDS):
                w = worlds.soft(w - lr * worlds.gradient(twins, 0, w), lr * LAM)
                same(result.models[r + 1].coef, w)

    def test_stages_are_the_same_with_and_without_a_server(self):
        method = cofed.MReFedDAGT(0.02, 1.0, 3, stages_count=3)
        a, b = (go(method, topology, rounds=7) for topology in (self.complete, None))
        same(worlds.coefs(a), worlds.coefs(b))
        assert a.history["stage"].tolist() == [0, 0, 0, 0, 1, 1, 2, 2]

    def test_growing_stages_are_single_runs_with_twice_the_steps_of_half_the_size(self):
        doubling = go(cofed.MReFedDAGT(0.02, 1.0, 3, stages_count=2, steps_growth=2), None, rounds=6)
        first = go(cofed.ReFedDAGT(0.02, radius_squared=1.0, sparsity=3), None, rounds=3)
        second = cofed.ReFedDAGT(0.01, radius_squared=0.5, sparsity=3)
        again = go(second, None, rounds=3, local_steps=2 * K, w0=first.average)
        same(doubling.average.coef, again.average.coef)
        same(doubling.model.coef, again.model.coef)


METHODS = {
    "DFedDA": (cofed.DFedDA(0.02, 1.3), cofed.L1(LAM)),
    "DFedDA-GT": (cofed.DFedDA(0.02, 1.3, gradient_tracking=True), cofed.L1(LAM)),
    "DFedDA-GT, p-norm": (cofed.DFedDA(0.02, 1.3, True, cofed.PNorm(3.0)), cofed.L1(LAM)),
    "DFedMiD": (cofed.DFedMiD(0.02, 1.3), cofed.L1(LAM)),
    "DScaffold": (cofed.DScaffold(0.02, 1.3), None),
    "ReFedDAGT": (cofed.ReFedDAGT(0.02, 1.3, 4.0, 3), None),
    "MReFedDAGT": (cofed.MReFedDAGT(0.02, 4.0, 3, stages_count=2), None),
    "NIDS": (cofed.NIDS(0.02), cofed.L1(LAM)),
    "PGExtra": (cofed.PGExtra(0.02), cofed.L1(LAM)),
}
ONE_STEP = ("NIDS", "PGExtra")  # those that take one step per round


def taken(name):
    """The local steps that a method of the table can take."""
    return {"local_steps": 1 if name in ONE_STEP else 2}


TRACKING = ["DFedDA-GT", "DFedDA-GT, p-norm", "DScaffold", "ReFedDAGT"]


GRAPHS = [t.chain(M), t.star(M), t.ring(M), t.complete(M)]
QUICK = list(zip(TRACKING, GRAPHS, (0.5, 0.0, 0.5, 0.5), strict=True))


@pytest.mark.parametrize(
    ("name", "topology", "failure"),
    [
        pytest.param(*case, marks=() if case in QUICK else pytest.mark.slow, id=f"{case[0]}-{case[1].name}-{case[2]}")
        for case in itertools.product(TRACKING, GRAPHS, (0.0, 0.5))
    ],
)
def test_trackers_sum_to_zero_on_every_graph_and_under_link_failure(name, topology, failure):
    method, psi = METHODS[name]
    result = go(method, topology, psi, rounds=12, link_failure=failure, batch_size=2, keep_models=False)
    trackers = np.asarray(result.state.clients.c.coef)
    assert np.abs(trackers).max() > 1e-3
    np.testing.assert_allclose(trackers.sum(axis=0), 0, atol=1e-10)


# The engine knows nothing of the method: one of them is debugged in every run.
@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n == "DFedDA-GT" else pytest.mark.slow) for n in METHODS])
def test_the_debug_engine_gives_the_same(name):
    method, psi = METHODS[name]
    federation = worlds.linear(sizes=(3, 4, 3))
    runs = [go(method, t.chain(3), psi, federation, rounds=2, debug=debug, **taken(name)) for debug in (False, True)]
    same(runs[0].personal_models.coef, runs[1].personal_models.coef, 1e-12)


# Of those that differ in numbers or in the geometry only, one is enough in every run.
COMMON = {"DFedDA-GT", "MReFedDAGT", "NIDS"}


@pytest.mark.parametrize("name", [pytest.param(n, marks=() if n in COMMON else pytest.mark.slow) for n in METHODS])
class TestConformance:
    def test_pytree_parameters(self, name):
        method, psi = METHODS[name]
        problem = cofed.Problem(cofed.MLP((4,)), cofed.Squared(), psi or cofed.Zero())
        result = cofed.run(problem, FED, method, topology=t.ring(M), rounds=4, batch_size=2, **taken(name))
        assert [leaf.shape[1:] for leaf in jax.tree.leaves(result.personal_models)] == [(6, 4), (4,), (4, 1), (1,)]

    def test_resuming_changes_no_bit(self, name, tmp_path, monkeypatch):
        from cofed.engine import execution as engine

        method, psi = METHODS[name]
        options = {"batch_size": 2, "link_failure": 0.3, "keep_models": False} | taken(name)
        whole = go(method, t.chain(M), psi, **options)

        def killed(job, log, chunk, record=engine.record):
            if chunk.first >= 4:
                raise SystemExit
            record(job, log, chunk)

        with monkeypatch.context() as patch:
            patch.setattr(engine, "record", killed)
            with pytest.raises(SystemExit):
                go(method, t.chain(M), psi, checkpoint=tmp_path / "run", checkpoint_every=2, **options)
        resumed = cofed.resume(tmp_path / "run")
        np.testing.assert_array_equal(whole.personal_models.coef, resumed.personal_models.coef)
        assert whole.communication == resumed.communication

    def test_dtype_is_that_of_the_data(self, name):
        method, psi = METHODS[name]
        result = go(method, t.ring(M), psi, worlds.linear(dtype=np.float32), w0=None, **taken(name))
        assert result.personal_models.coef.dtype == np.float32

    def test_tuned_together_as_alone(self, name):
        method, psi = METHODS[name]
        problem = worlds.problem(psi)
        options = {"rounds": 4, "topology": t.ring(M), "link_failure": 0.2} | taken(name)
        tuning = cofed.tune(problem, FED, [method, method], evaluate_every=2, **options)
        alone = cofed.run(problem, FED, method, evaluate_every=2, **options)
        for column in ("objective", "consensus", "objective_max"):
            np.testing.assert_allclose(tuning.curves[column][1], alone.history[column][1:], rtol=1e-9)


class TestLimits:
    fed = worlds.linear(sizes=(20,) * 16, seed=4)

    def test_tracking_reaches_the_pooled_optimum_on_a_chain_where_without_it_a_bias_stays(self):
        problem = worlds.problem(cofed.L1(0.1))
        best = cofed.solve_pooled(problem, self.fed, tol=1e-13).model.coef
        chain = t.chain(16)
        options = {"topology": chain, "rounds": 4000, "local_steps": 2, "evaluate_every": 4000}
        errors = {}
        for tracking in (False, True):
            method = cofed.DFedDA(0.003, 1.0, gradient_tracking=tracking)
            models = cofed.run(problem, self.fed, method, **options).personal_models.coef
            errors[tracking] = np.linalg.norm(models - best, axis=1).max()
        assert errors[True] < 1e-6
        assert errors[False] > 1e-2

    def test_every_node_of_a_chain_has_the_pooled_optimum_with_a_step_that_the_graph_does_not_change(self):
        problem = worlds.problem(cofed.L1(0.1))
        best = cofed.solve_pooled(problem, self.fed, tol=1e-13).model.coef
        largest = max(np.linalg.norm(X, 2) ** 2 / len(y) for X, y in (self.fed.client(m) for m in range(16)))
        options = {"topology": t.chain(16), "rounds": 6000, "local_steps": 1, "evaluate_every": 6000}
        runs = {
            name: cofed.run(problem, self.fed, getattr(cofed, name)(factor / largest), **options)
            for name, factor in (("NIDS", 1.9), ("PGExtra", 0.9))
        }
        for result in runs.values():
            assert np.abs(result.personal_models.coef - best).max() < 1e-9
            # Every model is a prox. A node's own multiplier may end on the edge, so a zero may be a tiny number there.
            assert np.mean((result.personal_models.coef == 0) == (best == 0)) > 0.9

    def test_the_error_halves_per_stage(self):
        """liang2023, Theorem 6.1: ||w_n - w*||_1^2 <= Q_0 2^-n, from a start within the first ball."""
        d, s, M = 40, 3, 8
        rng = np.random.default_rng(0)
        truth = np.r_[np.full(s, 1.0), np.zeros(d - s)]
        shifts = rng.normal(size=(M, d)) * 0.3
        shifts -= shifts.mean(axis=0)
        clients = []
        for m in range(M):
            X = np.linalg.qr(rng.normal(size=(60, d)))[0] * np.sqrt(60)
            clients.append((X, X @ (truth + shifts[m])))
        federation = cofed.Federation.from_arrays(clients)
        Q = np.abs(truth).sum() ** 2 * 1.2
        errors = []
        for stages in range(1, 6):
            method = cofed.MReFedDAGT(0.1, Q, s, stages_count=stages)
            result = cofed.run(
                worlds.problem(), federation, method, rounds=60 * stages, local_steps=5, evaluate_every=10**6
            )
            errors.append(np.abs(result.average.coef - truth).sum())
        assert all(error**2 <= Q / 2 ** (n + 1) for n, error in enumerate(errors))
        assert np.all(np.diff(np.log2(errors)) <= -1)

    def test_nodes_go_on_agreeing_in_later_stages(self):
        method = cofed.MReFedDAGT(0.003, 1e4, 6, stages_count=3, mirror=cofed.Euclidean())
        best = cofed.solve_pooled(worlds.problem(), self.fed, tol=1e-13).model.coef
        options = {"topology": t.chain(16), "rounds": 9000, "local_steps": 2, "evaluate_every": 3000}
        result = cofed.run(worlds.problem(), self.fed, method, **options)
        assert np.linalg.norm(result.personal_models.coef - best, axis=1).max() < 1e-3
        assert result.history["consensus"][-1] < 1e-4

    def test_dasm_approaches_the_optimum(self):
        problem = worlds.problem(cofed.L1(0.1))
        best = cofed.solve_pooled(problem, self.fed).objective
        options = {"topology": t.complete(16), "local_steps": 1, "evaluate_every": 2000}
        gaps = [
            cofed.run(problem, self.fed, cofed.DASM(0.3), rounds=rounds, **options).history["objective"][-1] - best
            for rounds in (100, 2000)
        ]
        assert 0 <= gaps[1] < gaps[0] / 4


class TestEngine:
    def test_history_has_nodes_consensus_and_errors(self):
        truth = np.ones(6)
        metrics = {"l1": cofed.metrics.distance(truth, 1), "l2": cofed.metrics.distance(truth, 2)}
        result = go(cofed.DFedDA(0.02), t.chain(M), cofed.L1(LAM), metrics=metrics)
        models, row = result.personal_models.coef, result.history.to_pandas().iloc[-1]
        apart = np.linalg.norm(models - result.model.coef, axis=1)
        np.testing.assert_allclose(row["consensus"], np.sqrt(np.mean(apart**2)))
        errors = np.abs(models - truth).sum(axis=1)
        np.testing.assert_allclose(
            row[["l1_min", "l1_mean", "l1_max"]].tolist(), [errors.min(), errors.mean(), errors.max()]
        )
        np.testing.assert_allclose(row["l2"], np.linalg.norm(result.model.coef - truth))
        objectives = []
        for w in models:
            losses = [np.mean((X @ w - y) ** 2) / 2 for X, y in (FED.client(m) for m in range(M))]
            objectives.append(np.mean(losses) + LAM * np.abs(w).sum())
        np.testing.assert_allclose(
            row[["objective_min", "objective_mean", "objective_max"]].tolist(),
            [min(objectives), np.mean(objectives), max(objectives)],
        )

    def test_bytes_by_edge_and_node(self):
        result = go(cofed.DFedDA(0.02, gradient_tracking=True), t.star(M))
        message = 8 * (2 * 6 + 1)  # z, Delta, elapsed
        assert result.communication.up_per_client == message
        assert result.communication.per_edge == 2 * message
        assert result.communication.per_node == (4 * message, *[message] * 4)
        first = 8 * 6 * 2 * 4  # one gradient each way along four edges
        assert result.communication.up == first + ROUNDS * 2 * 4 * message
        assert result.communication.down == 0
        plain = go(cofed.DFedDA(0.02), t.star(M))
        assert plain.communication.up_per_client == 8 * (6 + 1)

    def test_failed_links_carry_nothing_and_follow_the_seed(self):
        runs = [go(cofed.DFedMiD(0.02), t.ring(M), link_failure=0.5, rounds=40, seed=s) for s in (1, 1, 2)]
        np.testing.assert_array_equal(runs[0].personal_models.coef, runs[1].personal_models.coef)
        assert not np.array_equal(runs[0].personal_models.coef, runs[2].personal_models.coef)
        whole = 40 * 5 * 2 * runs[0].communication.up_per_client
        assert 0.35 * whole < runs[0].communication.up < 0.65 * whole

    def test_a_node_that_is_not_finite_is_left_out_and_the_rest_goes_on(self):
        def loss(prediction, y):
            return jnp.where(jnp.abs(y) > 1e5, jnp.nan, 1.0) * (prediction - y) ** 2 / 2

        clients = [FED.client(m) for m in range(M)]
        clients[4] = (clients[4][0], np.full_like(clients[4][1], 1e6))
        federation = cofed.Federation.from_arrays(clients, names=[*"abcd", "sick"])
        result = cofed.run(
            worlds.problem(None, loss), federation, cofed.DScaffold(0.02), topology=t.chain(5), rounds=5, local_steps=2
        )
        healthy = cofed.Federation.from_arrays(clients[:4])
        U = t.chain(5).matrix()[:4, :4]
        U[3, 3] += 1 - U[3].sum()
        expected = cofed.run(
            worlds.problem(), healthy, cofed.DScaffold(0.02), topology=t.from_matrix(U), rounds=5, local_steps=2
        )
        same(result.personal_models.coef[:4], expected.personal_models.coef, 1e-12)
        np.testing.assert_array_equal(result.personal_models.coef[4], 0)
        assert {event.client for event in result.history.left_out} == {"sick"}

    def test_a_diverging_run_ends(self):
        with pytest.warns(RuntimeWarning, match="diverged"):
            result = go(cofed.DFedDA(1e3), t.ring(M), rounds=3000, keep_models=False, evaluate_every=500)
        assert result.outcome is cofed.Outcome.DIVERGED
        assert np.all(np.isfinite(result.model.coef))

    def test_a_changed_graph_of_the_same_shape_compiles_nothing(self):
        traces = []

        def loss(prediction, y):
            traces.append(1)
            return (prediction - y) ** 2 / 2

        problem = worlds.problem(None, cofed.losses.FunctionLoss(loss))
        counts = []
        for lr, failure, shift in ((0.02, 0.1, 0), (0.02, 0.1, 0), (0.01, 0.3, 1)):
            before = len(traces)
            topology = t.from_matrix(np.roll(np.roll(t.ring(5).matrix(), shift, 0), shift, 1) * 0.9 + np.eye(5) * 0.1)
            cofed.run(problem, FED, cofed.DFedMiD(lr), topology=topology, rounds=3, local_steps=2, link_failure=failure)
            counts.append(len(traces) - before)
        assert counts[2] == counts[1] < counts[0]


REFUSED = {
    "no topology": ({"algorithm": cofed.DFedDA(0.1), "topology": None}, "DFedDA has no server: give a topology"),
    "no gossip form": ({"algorithm": cofed.FedDualAvg(0.1)}, "FedDualAvg needs a server and has no form by gossip"),
    "stages": ({"algorithm": cofed.MCFedDA(0.1, 3.0)}, "MCFedDA needs a server"),
    "size": ({"topology": t.ring(4)}, "the topology has 4 nodes, but there are 5 clients"),
    "sampling": ({"clients_per_round": 2}, "clients_per_round is for runs with a server"),
    "weights": ({"weights": "samples"}, "all nodes count alike"),
    "failure": ({"link_failure": 1.0}, r"probability in \[0, 1\), got 1.0"),
    "failure with a server": (
        {"algorithm": cofed.FedAvg(0.1), "topology": None, "link_failure": 0.1},
        "link_failure is for runs with a topology",
    ),
    "steps of NIDS": ({"algorithm": cofed.NIDS(0.1), "local_steps": 3}, "NIDS takes one step per round, not 3"),
    "steps of PGExtra": ({"algorithm": cofed.PGExtra(0.1), "local_steps": 2}, "PGExtra takes one step"),
    "steps": ({"algorithm": cofed.DASM(0.1), "local_steps": 3}, "DASM takes one step per round, not 3"),
    "growth": (
        {"algorithm": cofed.MReFedDAGT(0.1, 1.0, 3, steps_growth=2), "local_steps": None, "local_epochs": 1},
        "steps_growth=2 multiplies local_steps, so give local_steps",
    ),
    "psi": ({"algorithm": cofed.DScaffold(0.1), "regularizer": cofed.L1(0.1)}, "DScaffold does not fit"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_bad_input_gets_a_sentence(what):
    options, sentence = REFUSED[what]
    options = {"algorithm": cofed.DFedDA(0.1), "topology": t.ring(M)} | options
    with pytest.raises(ValueError, match=sentence):
        go(**options)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: cofed.ReFedDAGT(0.1, radius_squared=-1.0), "radius_squared must be > 0"),
        (lambda: cofed.ReFedDAGT(0.1, mirror=cofed.Entropy()), "needs a mirror with a norm"),
        (lambda: cofed.MReFedDAGT(0.1, 1.0, 3, stages_count=0), "stages_count"),
        (lambda: cofed.DASM(0.0), "DASM: step"),
    ],
)
def test_bad_hyperparameters_get_a_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


TRUTHS = jnp.asarray(np.random.default_rng(0).normal(size=(4, 3)))


def draw(key, client, size):
    X = jax.random.normal(key, (size, 3))
    noise = jax.random.normal(jax.random.fold_in(key, 1), (size,))
    return X, X @ TRUTHS[client] + 0.1 * noise


class TestStreams:
    fed = cofed.Federation.from_stream(draw, clients=4, samples=500)
    options = {"local_steps": 5, "batch_size": 10}  # noqa: RUF012

    def test_every_step_has_fresh_samples_of_its_client(self):
        """NumPy twin: the draws of FedAvg's steps, repeated from their keys."""
        from cofed.engine import sampling

        result = cofed.run(
            worlds.problem(), self.fed, cofed.FedAvg(0.05, 1.2), rounds=2, keep_models=True, **self.options
        )
        w, key = np.zeros(3), jax.random.key(0)
        for r in range(2):
            moves = []
            for m in range(4):
                mine = sampling.client_key(
                    sampling.round_key(key, jnp.asarray(r, jnp.int32)), jnp.asarray(m, jnp.int32)
                )
                x = w
                for k in range(5):
                    step = jax.random.fold_in(mine, jnp.asarray(k, jnp.int32))
                    X, y = (np.asarray(a) for a in draw(step, m, 10))
                    x = x - 0.05 * X.T @ (X @ x - y) / 10
                moves.append(x - w)
            w = w + 1.2 * np.mean(moves, axis=0)
            same(result.models[r + 1].coef, w, 1e-12)

    @pytest.mark.parametrize("method", [cofed.FedDualAvg(0.05), cofed.FastFedDA(0.5, 20.0), cofed.FedDecouple(0.02)])
    def test_with_a_server(self, method):
        result = cofed.run(worlds.problem(), self.fed, method, rounds=300, evaluate_every=300, **self.options)
        assert np.linalg.norm(result.model.coef - TRUTHS.mean(axis=0)) < 0.15

    def test_without_a_server(self):
        method = cofed.DFedDA(0.01, gradient_tracking=True)
        options = self.options | {"topology": t.chain(4), "rounds": 400, "evaluate_every": 400}
        result = cofed.run(worlds.problem(), self.fed, method, **options)
        assert np.abs(result.personal_models.coef - np.asarray(TRUTHS).mean(axis=0)).max() < 0.15

    def test_debugged_and_sampled(self):
        options = {"rounds": 2, "local_steps": 2, "batch_size": 3, "clients_per_round": 2}
        runs = [cofed.run(worlds.problem(), self.fed, cofed.FedAvg(0.05), debug=d, **options) for d in (False, True)]
        same(runs[0].model.coef, runs[1].model.coef, 1e-12)

    def test_full_gradients_and_epochs_are_refused(self):
        for options in ({"local_steps": 2}, {"local_epochs": 1, "batch_size": 4}):
            with pytest.raises(ValueError, match="draw fresh samples at every step"):
                cofed.run(worlds.problem(), self.fed, cofed.FedAvg(0.1), rounds=1, **options)

    def test_streams_that_do_not_keep_their_word_are_refused(self):
        def run(draw):
            federation = cofed.Federation.from_stream(draw, clients=2, samples=5)
            cofed.run(worlds.problem(), federation, cofed.FedAvg(0.1), rounds=1, local_steps=1, batch_size=3)

        with pytest.raises(ValueError, match=r"gave X, y of shapes \(5, 2\), \(5,\), expected"):
            run(lambda key, client, size: (jax.random.normal(key, (5, 2)), jnp.ones(5)))
        with pytest.raises(ValueError, match="JAX function of a traced key and client"):
            run(
                lambda key, client, size: (
                    jax.random.normal(key, (size, 2)),
                    jnp.ones(size) if client == 0 else jnp.zeros(size),
                )
            )

        def forgetful(key, client, size):  # of the dtype: float32 when the federation was made, float64 later
            dtype = jnp.float64 if isinstance(client, jax.core.Tracer) else jnp.float32
            return jax.random.normal(key, (size, 2), dtype), jnp.ones(size, dtype)

        with pytest.raises(ValueError, match="gave X of dtype float64, but the federation is of float32"):
            run(forgetful)
        with pytest.raises(ValueError, match="no fixed samples to split"):
            self.fed.split()

    def test_a_node_whose_first_gradient_is_not_finite_is_left_out_of_the_first_exchange(self):
        def sick(key, client, size):
            X = jax.random.normal(key, (size, 3))
            return X, jnp.where(client == 0, jnp.nan, 1.0) * X.sum(axis=1)

        pairs = [draw(jax.random.key(m), m, 9) for m in range(3)]
        fixed = cofed.Federation.from_arrays([(np.asarray(X), np.asarray(y)) for X, y in pairs])
        federation = dataclasses.replace(fixed, draw=sick)
        method = cofed.DFedDA(0.02, gradient_tracking=True)
        options = {"topology": t.ring(3), "rounds": 4, "local_steps": 2, "batch_size": 4}
        result = cofed.run(worlds.problem(), federation, method, **options)
        assert {event.client for event in result.history.left_out} == {"0"}
        np.testing.assert_array_equal(result.personal_models.coef[0], 0)
        np.testing.assert_allclose(np.asarray(result.state.clients.c.coef).sum(axis=0), 0, atol=1e-12)

    def test_a_draw_that_fails_is_named(self):
        with pytest.raises(ValueError, match=r"draw\(key, 0, 256\) must give a pair"):
            cofed.Federation.from_stream(lambda key, client, size: 3, clients=2)

    def test_streams_come_back_only_with_their_code(self, tmp_path):
        cofed.run(worlds.problem(), self.fed, cofed.FedAvg(0.1), rounds=2, checkpoint=tmp_path / "run", **self.options)
        with pytest.raises(ValueError, match="draws its samples with code of its own"):
            cofed.resume(tmp_path / "run")
        cofed.resume(tmp_path / "run", federation=self.fed)

    def test_the_streams_of_the_paper_have_its_truths(self):
        data = cofed.datasets.liang_linear_stream(clients=4, d=8, s=2, samples=4000, dtype="float64")
        X, y = data.federation.client(2)
        np.testing.assert_allclose(np.linalg.lstsq(X, y)[0], data.local["coef"][2], atol=0.1)
        np.testing.assert_allclose(data.local["coef"].mean(axis=0), data.truth["coef"], atol=1e-12)
        assert (X[:, 0] == 1).all()
        data = cofed.datasets.liang_logistic_stream(clients=4, d=8, s=2, samples=20000, dtype="float64")
        X, y = data.federation.pooled()
        gradient = X.T @ (1 / (1 + np.exp(-X @ data.truth["coef"])) - y) / len(y)
        assert np.linalg.norm(gradient) < 0.02  # the truth is the federation's optimum
        options = {"rounds": 20, "local_steps": 2, "batch_size": 10}
        problem = worlds.problem(loss=cofed.Logistic())
        result = cofed.run(problem, data.federation, cofed.FedDualAvg(0.2), evaluate_every=20, **options)
        assert result.history["loss"][-1] < result.history["loss"][0]
