"""Batch samplers: what they draw, how it counts, and full gradients beside batches."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import worlds
from tests.disk import worlds as tables

import cofed
from cofed.batches import AbstractBatches, Batch, ClientRound, Shuffled, Weighted
from cofed.engine import sampling
from cofed.engine.chunk_loop import run_chunk

FED = worlds.linear(names=["e", "b", "d", "a", "c"])
ROUNDS, STEPS = 4, 3


class Alternating(AbstractBatches):
    """One sample of the front and one of the back, of which the first counts more."""

    first: float = 0.75

    def size(self, most):
        return 2

    def draw(self, round):
        k = jnp.arange(round.steps, dtype=jnp.int32) + round.number
        rows = jnp.stack([k % round.samples, round.samples - 1 - k % round.samples], axis=1)
        share = jnp.stack([self.first, 1 - self.first]).astype(round.X.dtype)
        return Batch(rows, jnp.broadcast_to(share[None], rows.shape))


def go(batches, algorithm=None, federation=FED, **options):
    options = {"rounds": ROUNDS, "local_steps": STEPS, "w0": worlds.start(), "keep_models": True} | options
    return cofed.run(worlds.problem(), federation, algorithm or cofed.FedAvg(0.02), batch_size=batches, **options)


def round_of(key, n, steps=STEPS, most=9, X=None):
    """What a sampler sees of a client with n samples."""
    X = np.ones((most, 2)) if X is None else X
    number, samples = jnp.zeros((), jnp.int32), jnp.asarray(n, jnp.int32)
    keys = sampling.batches_key(key), sampling.step_keys(key, steps)
    return ClientRound(*keys, number, samples, jnp.asarray(X), jnp.zeros(len(X)))


def twin(batches, rounds, seed=0):
    """FedAvg in NumPy, on the rows that the sampler draws with the keys of (seed, round, client)."""
    w, ids = worlds.start()["coef"], FED.ids
    for r in range(rounds):
        ends = []
        for m in range(FED.n_clients):
            X, y = FED.client(m)
            key = sampling.client_key(sampling.round_key(jax.random.key(seed), jnp.asarray(r, jnp.int32)), ids[m])
            padded = np.concatenate([X, np.zeros((9 - len(X), X.shape[1]))])
            seen = round_of(key, len(X), X=padded)
            drawn = batches.draw(dataclasses.replace(seen, number=jnp.asarray(r, jnp.int32)))
            rows = np.asarray(drawn.rows)
            share = np.full(rows.shape, 1 / rows.shape[1]) if drawn.share is None else np.asarray(drawn.share)
            x = w.copy()
            for k in range(STEPS):
                B, t = X[rows[k]], y[rows[k]]
                x = x - 0.02 * B.T @ (share[k] * (B @ x - t))
            ends.append(x)
        w = np.mean(ends, axis=0)
    return w


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 99), st.integers(1, 9), st.integers(1, 5), st.integers(1, 12))
def test_a_pass_has_every_sample_once(seed, n, size, steps):
    drawn = Shuffled(size).draw(round_of(jax.random.key(seed), n, steps))
    rows, share = np.asarray(drawn.rows), np.asarray(drawn.share)
    np.testing.assert_allclose(share.sum(axis=1), 1)
    each = -(-n // size)
    for first in range(0, steps, each):
        seen = rows[first : first + each][share[first : first + each] > 0]
        assert len(set(seen)) == len(seen)
        if first + each <= steps:
            assert sorted(seen) == list(range(n))


def test_every_round_and_every_pass_has_an_order_of_its_own():
    orders = [np.asarray(Shuffled(1).draw(round_of(jax.random.key(s), 9, 18)).rows)[:, 0] for s in range(2)]
    first, second = orders[0][:9], orders[0][9:]
    assert (first != second).any()
    assert (orders[0] != orders[1]).any()


def test_weighted_draws_are_counted_without_bias():
    X = np.random.default_rng(0).normal(size=(9, 2))
    X[4] = 0  # never drawn, and its gradient is 0
    n, size = 7, 50_000
    drawn = Weighted(size).draw(round_of(jax.random.key(3), n, 1, X=X))
    rows, share = np.asarray(drawn.rows)[0], np.asarray(drawn.share)[0]
    chance = np.sum(X[:n] ** 2, axis=1) / np.sum(X[:n] ** 2)
    np.testing.assert_allclose(share, 1 / (n * size * chance[rows]), rtol=1e-12)
    found = np.bincount(rows, minlength=n) / size
    np.testing.assert_allclose(found, chance, atol=5 * np.sqrt(0.25 / size))
    own = Weighted(size, lambda x, y: 1.0 + x[0] ** 2).draw(round_of(jax.random.key(3), n, 1, X=X))
    assert set(np.asarray(own.rows)[0]) == set(range(n))


@pytest.mark.parametrize("batches", [Shuffled(2), Weighted(2), Alternating(0.6)], ids=lambda b: type(b).__name__)
def test_a_run_is_its_twin_on_the_rows_that_were_drawn(batches):
    np.testing.assert_allclose(go(batches).model.coef, twin(batches, ROUNDS), rtol=1e-11)


def test_order_chunks_debug_mesh_clock_and_checkpoints_change_nothing(tmp_path):
    batches = Weighted(2)
    whole = go(batches)
    order = [3, 1, 4, 0, 2]
    other = cofed.Federation.from_arrays([FED.client(m) for m in order], names=[FED.names[m] for m in order])
    for again in (
        go(batches, federation=other),
        go(batches, debug=True),
        go(batches, mesh=cofed.mesh(1)),
        go(batches, clock=cofed.Clock(1.0)),
    ):
        np.testing.assert_allclose(worlds.coefs(again), worlds.coefs(whole), rtol=1e-12)
    stop = type("Stop", (), {"on_row": lambda self, row: row["round"] < 2})
    go(batches, checkpoint=tmp_path / "run", checkpoint_every=1, callbacks=[stop()])
    assert (worlds.coefs(cofed.resume(tmp_path / "run")) == worlds.coefs(whole)).all()
    with pytest.raises(ValueError, match="Alternating is a sampler of batches with code of its own"):
        go(Alternating(), checkpoint=tmp_path / "other")


def test_another_number_compiles_nothing():
    go(Alternating(0.6))
    size = run_chunk._cached._cache_size()
    go(Alternating(0.7))
    assert run_chunk._cached._cache_size() == size


def test_clients_on_disk_have_the_same_batches(tmp_path):
    memory, disk = tables.both(tables.table(), tmp_path)
    one, other = (
        cofed.run(
            cofed.Problem(),
            fed,
            cofed.FedAvg(0.01),
            rounds=3,
            local_steps=2,
            batch_size=Shuffled(2),
            clients_per_round=4,
        )
        for fed in (memory, disk)
    )
    np.testing.assert_allclose(one.model.coef, other.model.coef, rtol=1e-12, atol=1e-14)


class Wrong(AbstractBatches):
    """What `given` says."""

    given: object

    def size(self, most):
        return 2

    def draw(self, round):
        return self.given(round)


@pytest.mark.parametrize(
    ("batches", "options", "words"),
    [
        ("many", {}, "must be an integer >= 1, a sampler such as"),
        (Shuffled(2), {"local_steps": None}, "give local_steps"),
        (Wrong(lambda round: round.samples), {}, "must give a cofed.batches.Batch"),
        (Wrong(lambda round: Batch(jnp.zeros((1, 2), jnp.int32))), {}, r"rows of shape \(3, 2\) as int32"),
        (
            Wrong(lambda round: Batch(jnp.zeros((3, 2), jnp.int32), jnp.ones((3, 2), jnp.float32))),
            {},
            r"shape \(3, 2\) as float64",
        ),
        (Wrong(lambda round: float(round.samples)), {}, "must be computed by JAX"),
    ],
)
def test_what_is_no_batch_is_refused_in_a_sentence(batches, options, words):
    with pytest.raises(ValueError, match=words):
        go(batches, **options)


def test_a_row_that_is_not_there_is_no_silent_mistake():
    past = Wrong(lambda round: Batch(jnp.where(round.samples > 4, 0, jnp.full((STEPS, 2), 4, jnp.int32))))
    result = go(past, rounds=1)
    assert {left.client for left in result.history.left_out} == {"e"}


@pytest.mark.parametrize("batch", [None, 2, Shuffled(2)], ids=["whole", "number", "sampler"])
def test_full_gradients_are_those_of_all_samples(batch):
    class Whole(cofed.AbstractServerAlgorithm):
        def init(self, problem, w0):
            return w0

        def init_client(self, problem, w0):
            return w0

        def broadcast(self, server):
            return server

        def local(self, problem, down, client, steps):
            gradient = steps.full_gradient(down)
            return gradient, gradient

        def aggregate(self, problem, server, up, share):
            return jax.tree.map(lambda w, g: w - 0.1 * g, server, up)

        def model(self, problem, server):
            return server

    result = go(batch, Whole(), rounds=1, local_steps=2)
    w = worlds.start()["coef"]
    for m in range(FED.n_clients):
        np.testing.assert_allclose(result.state.clients.coef[m], worlds.gradient(FED, m, w), rtol=1e-11)


def test_a_missed_round_that_a_method_cannot_make_up_for_is_no_silent_mistake():
    """FedDecouple then ended with a stationarity of 0.3 for 0.00000002; one that was never there changes nothing."""

    def at(bad):
        rows = lambda round: jnp.where(bad(round), 99, jnp.zeros((STEPS, 2), jnp.int32))  # noqa: E731
        return Wrong(lambda round: Batch(rows(round)))

    once, always = at(lambda round: (round.samples < 5) & (round.number == 1)), at(lambda round: round.samples < 5)
    method = cofed.FedDecouple(0.01)
    with pytest.warns(RuntimeWarning, match="FedDecouple: e sent no finite update in some rounds .* add up to zero"):
        go(once, method, rounds=3)
    go(always, method, rounds=3)
    go(once, method, rounds=3, clients_per_round=2)  # where clients may be missing
    go(once, cofed.FedDR(0.01, 0.5), rounds=3)
