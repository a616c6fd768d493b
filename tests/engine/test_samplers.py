"""Samplers: what they draw, how it counts, and that nothing else of a run depends on them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import worlds
from tests.disk import worlds as tables

import cofed
from cofed.samplers import Availability, Cyclic, Draw, Importance, Uniform

FED = worlds.linear(names=["e", "b", "d", "a", "c"])
ROUNDS = 12


def go(sampler, algorithm=None, federation=FED, problem=None, **options):
    options = {"rounds": ROUNDS, "local_steps": 2, "batch_size": 3, "w0": worlds.start()} | options
    algorithm = algorithm or cofed.FedAvg(0.02)
    return cofed.run(problem or worlds.problem(), federation, algorithm, clients_per_round=sampler, **options)


def same(one, other):
    """Whether two runs ended in the same state, bit by bit."""
    states = [jax.tree.leaves((r.state.server, r.state.clients)) for r in (one, other)]
    return all((np.asarray(a) == np.asarray(b)).all() for a, b in zip(*states, strict=True))


class Everybody(cofed.samplers.AbstractSampler):
    """All clients, of which a round's number decides who is there."""

    def count(self, clients):
        return clients

    def draw(self, key, round, clients):
        ids = jnp.arange(clients, dtype=jnp.int32)
        return Draw(ids, (ids + round) % 3 != 0)


def test_a_number_is_the_uniform_sampler():
    plain, by_sampler = go(3), go(Uniform(3))
    assert same(plain, by_sampler)
    who = by_sampler.history.participants()
    assert who.groupby("round").size().tolist() == [3] * ROUNDS
    assert who["counted"].all()
    assert plain.history.participants().equals(who)


def test_a_function_of_key_and_round_is_a_sampler():
    def drawn(key, round):
        return jax.random.permutation(key, 5)[:3]

    def turns(key, round):
        return (2 * round + jnp.arange(2)) % 5

    uniform, in_turn = go(drawn), go(turns)
    assert uniform.history.participants().groupby("round").size().tolist() == [3] * ROUNDS
    assert same(in_turn, go(Cyclic(2)))
    assert same(uniform, go(drawn))
    tuning = cofed.tune(worlds.problem(), FED, [cofed.FedAvg(0.02)], rounds=4, local_steps=2, clients_per_round=turns)
    assert tuning.best is not None


def test_functions_that_draw_no_clients_are_refused(tmp_path):
    def onward(key, round):
        return round + jnp.arange(2)

    for function, words in (
        (onward, r"ByFunction.draw must give 2 distinct ids from 0 to 4, got \[4, 5\] in round 4"),
        (lambda key, round: jnp.zeros(2, int), "must give 2 distinct ids"),
        (
            lambda key, round: [0.5, 1.0],
            r"<lambda>.key, round. must give the ids .* got an array of shape .2,. of float",
        ),
        (lambda key, round: 3, r"got an array of shape \(\)"),
        (lambda key, round: list(range(int(round))), "must be computed by JAX, of traced arguments"),
        (lambda key: [0], "must be computed by JAX, of traced arguments, but TypeError"),
        (lambda key, round: jnp.arange(6), "clients_per_round is 6, but there are only 5 clients"),
        (Cyclic, "must be an integer >= 1, a sampler"),
    ):
        with pytest.raises(ValueError, match=words):
            go(function)
    with pytest.raises(ValueError, match="is a sampler with code of its own, which no file can hold"):
        go(lambda key, round: jnp.arange(2), checkpoint=tmp_path / "own")


def test_who_took_part_is_who_changed():
    """Scaffold's clients change what they keep in a round, and in no other."""
    result = go(2, cofed.Scaffold(0.02), rounds=1)
    changed = [name for name, c in zip(FED.names, result.state.clients.c.coef, strict=True) if np.any(c != 0)]
    assert sorted(changed) == result.history.participants()["client"].tolist()


def test_cyclic_takes_everybody_by_turns_in_the_order_of_the_names():
    who = go(Cyclic(2), rounds=5).history.participants()
    assert who.groupby("round")["client"].apply(list).tolist() == [
        *(["a", "b"], ["c", "d"], ["a", "e"], ["b", "c"], ["d", "e"]),
    ]


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(Availability(4, 5.0, 0.5, 0.3), marks=pytest.mark.slow),
        Importance(2, [2.0, 1.0, 2.0, 1.0, 1.5]),
        Everybody(),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_the_order_of_the_clients_chunks_disk_and_mesh_change_nothing(sampler, tmp_path):
    whole = go(sampler, rounds=ROUNDS)
    order = [3, 1, 4, 0, 2]
    other = cofed.Federation.from_arrays([FED.client(m) for m in order], names=[FED.names[m] for m in order])
    moved = Importance(2, np.asarray(sampler.sizes)[order]) if isinstance(sampler, Importance) else sampler
    np.testing.assert_allclose(go(moved, federation=other).model.coef, whole.model.coef, rtol=1e-12)
    np.testing.assert_allclose(go(sampler, mesh=cofed.mesh(1)).model.coef, whole.model.coef, rtol=1e-12)
    who = whole.history.participants()
    if isinstance(sampler, Availability):
        few = go(sampler, debug=True, rounds=2)
        assert few.history.participants().equals(who[who["round"] < 2])
        np.testing.assert_allclose(few.model.coef, go(sampler, rounds=2).model.coef, rtol=1e-12)
    if not isinstance(sampler, Everybody):  # its code cannot be written
        stop = type("Stop", (), {"on_row": lambda self, row: row["round"] < 5})
        go(sampler, checkpoint=tmp_path / "run", callbacks=[stop()])
        again = cofed.resume(tmp_path / "run")
        assert same(again, whole)
        assert again.history.participants().equals(who)


@pytest.mark.parametrize(
    "sampler",
    [
        pytest.param(Cyclic(4), marks=pytest.mark.slow),
        Availability(6, 5.0, 0.5, 0.3),
        pytest.param(Importance(4, np.linspace(1, 2, 30)), marks=pytest.mark.slow),
    ],
    ids=lambda sampler: type(sampler).__name__,
)
def test_clients_on_disk_are_drawn_by_the_same_samplers(sampler, tmp_path):
    memory, disk = tables.both(tables.table(), tmp_path)
    one, other = (
        cofed.run(cofed.Problem(), fed, cofed.FedAvg(0.01), rounds=9, local_steps=2, clients_per_round=sampler)
        for fed in (memory, disk)
    )
    np.testing.assert_allclose(one.model.coef, other.model.coef, rtol=1e-12, atol=1e-14)
    assert one.history.participants().equals(other.history.participants())
    assert one.communication == other.communication


@given(st.lists(st.floats(0.5, 1.5), min_size=5, max_size=5), st.integers(1, 3))
@settings(max_examples=10, deadline=None)
def test_importance_draws_each_client_with_its_chance_and_its_mean_is_unbiased(sizes, count):
    sampler, values = Importance(count, sizes), jnp.asarray([3.0, -1.0, 10.0, 0.5, 2.0])
    draws = jax.vmap(lambda key: sampler.draw(key, jnp.zeros((), jnp.int32), 5))(
        jax.random.split(jax.random.key(0), 4000)
    )
    assert (np.diff(np.sort(draws.clients, axis=1), axis=1) > 0).all()  # distinct
    chances = np.asarray(sampler.chances())
    np.testing.assert_allclose(chances.sum(), count, rtol=1e-12)
    found = np.bincount(np.asarray(draws.clients).ravel(), minlength=5) / 4000
    np.testing.assert_allclose(found, chances, atol=5 * 0.5 / np.sqrt(4000))  # five standard errors at most
    means = np.asarray((values[draws.clients] / draws.chance).sum(axis=1)) / 5
    assert abs(means.mean() - values.mean()) < 5 * max(means.std(), 1e-12) / np.sqrt(4000) + 1e-12


def test_importance_counts_updates_by_their_chances():
    """One round of gradient steps, beside NumPy."""
    sizes, weights = np.array([1.0, 2.0, 2.0, 1.0, 3.0]), np.array([0.1, 0.3, 0.2, 0.25, 0.15])
    sampler = Importance(2, sizes)
    result = go(sampler, rounds=1, local_steps=1, batch_size=None, weights=weights, seed=3)
    w0 = worlds.start()["coef"]
    who = [FED.names.index(name) for name in result.history.participants()["client"]]
    chance = 2 * sizes / sizes.sum()
    expected = w0 - 0.02 * sum(weights[m] / chance[m] * worlds.gradient(FED, m, w0) for m in who)
    np.testing.assert_allclose(result.model.coef, expected, rtol=1e-12)
    with pytest.raises(ValueError, match="clients of Scaffold keep something that the server counts by the weights"):
        go(sampler, cofed.Scaffold(0.02))


def test_those_that_are_away_send_nothing_keep_what_they_have_and_end_no_run():
    night = Availability(5, day=8.0, awake=0.1)
    result = go(night, cofed.Scaffold(0.02), evaluate_every=1, rounds=16)
    there = result.history["participants"][1:]
    assert 0 in there
    assert there.max() >= 1
    who = result.history.participants()
    assert who.groupby("round").size().reindex(range(16), fill_value=0).tolist() == there.tolist()
    assert result.history["left_out"].sum() == 0
    assert result.communication.up == result.communication.up_per_client * there.sum()
    assert result.outcome is cofed.Outcome.COMPLETED
    still = np.flatnonzero(there == 0)
    objective = result.history["objective"]
    assert (objective[still + 1] == objective[still]).all()  # nobody, no step
    # Day by day the same hours: who is awake repeats.
    assert there[:8].tolist() == there[8:].tolist()
    dropped = go(Availability(5, dropout=0.5), rounds=200).history["participants"][1:]
    assert abs(dropped.mean() - 2.5) < 5 * np.sqrt(5 / 4 / 200)


@pytest.mark.parametrize(
    "method",
    [
        cofed.FastFedDA(0.1, 20.0),
        cofed.CFedDA(0.1, 20.0),
        cofed.Scheduled(cofed.FedDualAvg(0.02), {name: lambda r: 1 / (1 + r) for name in ("client_lr", "server_lr")}),
    ],
    ids=["FastFedDA", "CFedDA", "Scheduled"],
)
def test_a_round_without_anybody_is_no_step_of_a_method_that_counts_them(method):
    """Else the clients' steps would have other numbers than the server's: FastFedDA ended 0.86 from the optimum."""

    class EverySecond(Everybody):
        def draw(self, key, round, clients):
            return Draw(jnp.arange(clients, dtype=jnp.int32), jnp.full(clients, round % 2 == 1))

    options = {"problem": worlds.problem(cofed.L1(0.1)), "batch_size": None}
    half, whole = go(EverySecond(), method, rounds=8, **options), go(None, method, rounds=4, **options)
    np.testing.assert_allclose(half.model.coef, whole.model.coef, rtol=1e-12)


def test_another_number_compiles_nothing():
    from cofed.engine.chunk_loop import run_chunk

    go(Availability(3, 24.0, 0.5, 0.1))
    size = run_chunk._cached._cache_size()
    go(Availability(3, 12.0, 0.7, 0.2))
    assert run_chunk._cached._cache_size() == size


def test_what_is_no_sampler_is_refused(tmp_path):
    class Twice(Everybody):
        def draw(self, key, round, clients):
            return Draw(jnp.zeros(clients, jnp.int32))

    class Floats(Everybody):
        def draw(self, key, round, clients):
            return Draw(jnp.arange(clients, dtype=jnp.int64))

    class Onward(Everybody):
        """Without a modulus: from round 2 on there are no such clients."""

        def count(self, clients):
            return 2

        def draw(self, key, round, clients):
            return Draw(jnp.asarray(2 * round, jnp.int32) + jnp.arange(2, dtype=jnp.int32))

    class Unlikely(Everybody):
        def draw(self, key, round, clients):
            return Draw(jnp.arange(clients, dtype=jnp.int32), chance=jnp.zeros(clients))

    for sampler, words in (
        (Unlikely(), "a chance must be above 0 and at most 1"),
        (Cyclic(6), "clients_per_round is 6, but there are only 5 clients"),
        (Importance(2, [1.0, 1.0]), "there are 2 sizes, but 5 clients"),
        (Twice(), r"Twice.draw must give 5 distinct ids from 0 to 4, got \[0, 0, 0, 0, 0\]"),
        (Onward(), r"Onward.draw must give 2 distinct ids from 0 to 4, got \[4, 5\] in round 2"),
        (Floats(), "must give a cofed.samplers.Draw of 5 ids as int32"),
        ("three", "must be an integer >= 1, a sampler such as cofed.samplers.Cyclic"),
    ):
        with pytest.raises(ValueError, match=words):
            go(sampler)
    with pytest.raises(ValueError, match="Everybody is a sampler with code of its own, which no file can hold"):
        go(Everybody(), checkpoint=tmp_path / "own")
    for make, words in (
        (lambda: Importance(3, [1.0, 1.0, 9.0]), "its client would be needed more than once"),
        (lambda: Importance(1, [1.0, -1.0]), "sizes must be positive numbers"),
        (lambda: Availability(3, awake=0.0), "awake"),
        (lambda: Availability(3, dropout=1.0), "dropout is a probability"),
        (lambda: Cyclic(0), "must be an integer >= 1"),
    ):
        with pytest.raises(ValueError, match=words):
            make()
