"""What every algorithm must pass. Adding an algorithm is one row of TABLE."""

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from tests import worlds

import cofed
from cofed.engine import execution as engine
from cofed.engine.evaluate import smooth
from cofed.engine.job import prepare
from cofed.engine.spec import RunSpec
from cofed.problem import PosedProblem


class Row(NamedTuple):
    algorithm: Any
    other: Any  # the same algorithm with other numbers
    regularizer: Any = cofed.L1(0.05)
    down: int = 1  # vectors to a client per round
    up: int = 1  # vectors from a client per round
    scalars: tuple[int, int] = (0, 0)  # numbers beside them
    network: bool = True  # whether it trains networks, which are not convex
    up_bytes: int | None = None  # from a client per round, where that is not so many vectors and numbers
    everyone: bool = False  # whether it needs every client in every round
    draws: bool = False  # whether clients draw for themselves, beside their batches
    counts: bool = False  # whether its server counts rounds in integers, as optimizers do
    own_code: bool = False  # whether it holds functions, which are given again to a resumed run
    first: int = 1  # the rounds after which the first step shows in the model


def falling(r):
    return 1 / (1 + 0.1 * r)


TABLE = {
    "FedAvg": Row(cofed.FedAvg(0.02, 1.3), cofed.FedAvg(0.01, 0.7)),
    "FedMiD": Row(cofed.FedMiD(0.02, 1.3), cofed.FedMiD(0.01, 0.7), scalars=(0, 1)),
    "FedMiD-OSP": Row(
        cofed.FedMiD(0.02, 1.3, client_prox=False), cofed.FedMiD(0.01, 0.7, client_prox=False), scalars=(0, 1)
    ),
    "FedDualAvg": Row(cofed.FedDualAvg(0.02, 1.3), cofed.FedDualAvg(0.01, 0.7), scalars=(1, 1)),
    "FedDualAvg-OSP": Row(
        cofed.FedDualAvg(0.02, 1.3, client_prox=False), cofed.FedDualAvg(0.01, 0.7, client_prox=False), scalars=(1, 1)
    ),
    "FedDualAvg, p-norm": Row(
        cofed.FedDualAvg(0.02, 1.3, mirror=cofed.PNorm(3.0)),
        cofed.FedDualAvg(0.01, 0.7, mirror=cofed.PNorm(2.5)),
        scalars=(1, 1),
    ),
    "FastFedDA": Row(cofed.FastFedDA(0.1, 20.0), cofed.FastFedDA(0.2, 30.0, growth=0.0), down=3, up=2),
    "CFedDA": Row(cofed.CFedDA(0.1, 20.0), cofed.CFedDA(0.2, 30.0), down=3),
    "CFedDA, ball": Row(cofed.CFedDA(0.1, 20.0, 2.0), cofed.CFedDA(0.2, 30.0, 3.0), down=3),
    "MCFedDA": Row(
        cofed.MCFedDA(0.1, 20.0, strengths=(0.1, 0.05)),
        cofed.MCFedDA(0.2, 30.0, strengths=(0.2, 0.1), growth=0.0, last_share=1.0),
        down=3,
    ),
    "FedDecouple": Row(cofed.FedDecouple(0.02, 1.3), cofed.FedDecouple(0.01, 0.7), down=2),
    "Scaffold": Row(cofed.Scaffold(0.02, 1.3), cofed.Scaffold(0.01, 0.7), cofed.Zero(), down=2, up=2),
    "FedDR": Row(cofed.FedDR(0.02, 0.5, 0.9), cofed.FedDR(0.01, 0.4, 1.1)),
    "FedADMM": Row(cofed.FedADMM(0.02, 0.5), cofed.FedADMM(0.01, 0.4)),
    "FedProx": Row(cofed.FedProx(0.3, 0.02, 4.0), cofed.FedProx(0.5, 0.01, 1.0)),
    "FedFISTA": Row(cofed.FedFISTA(9.0), cofed.FedFISTA(5.0), scalars=(0, 1), everyone=True),
    "Compressed, top-k": Row(
        cofed.Compressed(cofed.FedDualAvg(0.02, 1.3), cofed.TopK(0.5)),
        cofed.Compressed(cofed.FedDualAvg(0.01, 0.7), cofed.TopK(0.5)),
        scalars=(1, 1),
        up_bytes=3 * (8 + 1) + 8,
    ),
    "Compressed, random": Row(
        cofed.Compressed(cofed.FedProx(0.3, 0.02, 4.0), cofed.RandomK(0.5)),
        cofed.Compressed(cofed.FedProx(0.5, 0.01, 1.0), cofed.RandomK(0.5)),
        up_bytes=3 * 8 + 4,
        draws=True,
    ),
    "Compressed, quantised": Row(
        cofed.Compressed(cofed.FedDecouple(0.02, 1.3), cofed.Quantised(2)),
        cofed.Compressed(cofed.FedDecouple(0.01, 0.7), cofed.Quantised(2)),
        down=2,
        up_bytes=2 + 8,
    ),
    "ServerOptimizer": Row(
        cofed.ServerOptimizer(cofed.FedAvg(0.02), optax.adam, {"learning_rate": 0.1}),
        cofed.ServerOptimizer(cofed.FedAvg(0.01, 0.7), optax.adam, {"learning_rate": 0.2}),
        counts=True,
    ),
    "Scheduled": Row(
        cofed.Scheduled(cofed.FedDualAvg(0.02, 1.3), {"client_lr": falling, "server_lr": falling}),
        cofed.Scheduled(cofed.FedDualAvg(0.01, 0.7), {"client_lr": falling, "server_lr": falling}),
        scalars=(1, 1),
        own_code=True,
    ),
    "NormalMap": Row(cofed.NormalMap(0.02, 1.3), cofed.NormalMap(0.01, 0.7)),
    "ProxSkip": Row(cofed.ProxSkip(0.02, 0.4), cofed.ProxSkip(0.01, 0.7), everyone=True),
    "SDANE": Row(
        *(cofed.SDANE(16.0, 0.1), cofed.SDANE(20.0, 0.2)),
        down=2,
        up=2,
        scalars=(2, 1),
        everyone=True,
        network=False,
        first=3,
    ),
    "AccSDANE": Row(
        *(cofed.AccSDANE(16.0, 0.1), cofed.AccSDANE(20.0, 0.2)),
        down=2,
        up=2,
        scalars=(2, 1),
        everyone=True,
        network=False,
        first=3,
    ),
    "FedNL": Row(
        cofed.FedNL(cofed.TopK(0.5), 0.8),
        cofed.FedNL(cofed.TopK(0.5), 0.6),
        network=False,
        up_bytes=6 * 8 + 2 * 8 + 11 * (8 + 1),  # of 21 numbers of a triangle
    ),
    "FedNewton": Row(*(cofed.FedNewton(0.8), cofed.FedNewton(0.6)), scalars=(0, 1 + 21), network=False, everyone=True),
}
# PureLocal is FedProx with strength 0, Alternative trains others: test_fedprox.py and test_alternative.py have both.
ELSEWHERE = {"PureLocal", "Alternative", "PrivateRows"}
SCHEDULE = {"rounds": 6, "local_steps": 3, "batch_size": 2, "clients_per_round": 3}


def test_the_table_has_every_algorithm():
    """Every public one, so that an algorithm without a row is noticed however it came to be public."""
    public = {name for name in cofed.__all__ if is_server_algorithm(getattr(cofed, name))}
    assert public == {*cofed.algorithms.__all__, "Compressed", "PrivateRows", "Scheduled", "ServerOptimizer"}
    rows = {type(row.algorithm).__name__ for row in TABLE.values()}
    assert rows == public - ELSEWHERE, "every public algorithm with a server needs a row in TABLE"


def is_server_algorithm(value):
    """Whether this is a class of the room of algorithms with a server, beside the contract."""
    room = getattr(value, "__module__", "")
    return isinstance(value, type) and f"{room}.".startswith("cofed.algorithms.") and ".base." not in f"{room}."


# Variants of a row whose trajectories other tests follow step by step: the table is long enough without them.
VARIANTS = {"FedMiD-OSP", "FedDualAvg-OSP", "CFedDA, ball", "Compressed, random", "Compressed, quantised"}
# The debug engine knows nothing of algorithms: one with clients' state, one of stages.
DEBUGGED = {"FedDecouple", "MCFedDA"}
# Trees of parameters are the engine's and the regularizers' matter: one method of each kind of state.
TREES = {"FedDualAvg", "FedDecouple", "MCFedDA", "FedADMM"}


# Weights are the engine's matter: one without clients' state, one with, and one whose models are the clients' own.
WEIGHTED = {"FedDualAvg", "FedDecouple", "FedProx"}
# A dozen seconds each to compile, for what the other rows show of the engine.
SOLVING = {"SDANE", "AccSDANE"}


def names(fits=lambda row: True, slow=frozenset()):
    """The rows that a test is for."""
    found = [name for name, row in TABLE.items() if fits(row)]
    return [pytest.param(name, marks=pytest.mark.slow if name in VARIANTS | slow else ()) for name in found]


def for_rows(fits, slow=frozenset()):
    """A test that is not for every row, and slow for some."""
    return pytest.mark.parametrize("row", names(fits, slow), indirect=True, ids=str)


@pytest.fixture(params=names(), ids=str)
def row(request):
    return TABLE[request.param]


def schedule(row):
    """What the row is run with."""
    one_step = {"local_steps": 1} if row.algorithm.one_step else {}
    return SCHEDULE | one_step | ({"clients_per_round": None} if row.everyone else {})


def go(row, federation=None, **changes):
    federation = worlds.linear() if federation is None else federation
    options = schedule(row) | {"w0": worlds.start(), "keep_models": True} | changes
    algorithm = options.pop("algorithm", row.algorithm)
    return cofed.run(worlds.problem(row.regularizer), federation, algorithm, **options)


# Some are for convex problems only: with an intercept they have tests of their own.
@pytest.mark.parametrize(
    "row",
    [pytest.param(n, marks=() if n in TREES else pytest.mark.slow) for n, row in TABLE.items() if row.network],
    indirect=True,
)
def test_pytree_parameters(row):
    """A network of four leaves trains like a vector."""
    problem = cofed.Problem(cofed.MLP(hidden=(4,)), cofed.Squared(), row.regularizer)
    result = cofed.run(problem, worlds.linear(), row.algorithm, **schedule(row))
    start = cofed.run(problem, worlds.linear(), row.algorithm, **(schedule(row) | {"rounds": 2})).model
    assert [leaf.shape for leaf in jax.tree.leaves(result.model)] == [(6, 4), (4,), (4, 1), (1,)]
    moved = jax.tree.map(lambda a, b: np.abs(a - b).max(), result.model, start)
    assert all(0 < change < np.inf for change in jax.tree.leaves(moved))


def test_a_changed_number_compiles_nothing(row):
    traces = []

    def loss(prediction, y):
        traces.append(1)
        return (prediction - y) ** 2 / 2

    federation = worlds.linear()
    psi, scaled = row.regularizer, row.regularizer
    if hasattr(psi, "strength"):
        scaled = dataclasses.replace(psi, strength=0.01)

    def run(algorithm, regularizer, rounds, seed):
        options = schedule(row) | {"rounds": rounds, "seed": seed, "evaluate_every": rounds}
        cofed.run(worlds.problem(regularizer, cofed.losses.FunctionLoss(loss)), federation, algorithm, **options)

    run(row.algorithm, psi, 6, 0)
    before = len(traces)
    run(row.algorithm, psi, 6, 0)
    shapes_only = len(traces) - before  # what looks at shapes before a run, without compiling
    assert shapes_only < before  # the first run compiled something, and there is something not to do again
    run(row.other, scaled, 9, 7)
    assert len(traces) - before == 2 * shapes_only


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dtype_is_that_of_the_data(row, dtype):
    result = go(row, worlds.linear(dtype=dtype))
    assert result.model.coef.dtype == dtype
    state = [leaf for leaf in jax.tree.leaves((result.state.server, result.state.clients)) if leaf.size]
    numbers = {leaf.dtype for leaf in state if not (row.counts and leaf.dtype == np.int32)}
    assert numbers == {np.dtype(dtype)}


def test_permuting_the_clients_changes_nothing(row):
    names = ["a", "b", "c", "d", "e"]
    federation = worlds.linear(names=names)
    order = [3, 0, 4, 2, 1]
    pairs = [federation.client(name) for name in names]
    moved = cofed.Federation.from_arrays([pairs[i] for i in order], names=[names[i] for i in order])
    np.testing.assert_allclose(worlds.coefs(go(row)), worlds.coefs(go(row, moved)), rtol=0, atol=1e-12)


def test_chunking_changes_no_bit(row, monkeypatch):
    whole = go(row)
    monkeypatch.setattr(engine, "next_pace", lambda pace, seconds, capacity: 1)
    one_by_one = go(row)
    np.testing.assert_array_equal(worlds.coefs(whole), worlds.coefs(one_by_one))
    drop = lambda result: [{k: v for k, v in row.items() if k != "seconds"} for row in result.history.rows]  # noqa: E731
    assert drop(whole) == drop(one_by_one)


def test_resuming_changes_no_bit(row, tmp_path, monkeypatch):
    whole = go(row, checkpoint=tmp_path / "whole", checkpoint_every=2)

    def killed(job, log, chunk, record=engine.record):
        if chunk.first >= 4:
            raise SystemExit
        record(job, log, chunk)

    with monkeypatch.context() as patch:
        patch.setattr(engine, "record", killed)
        with pytest.raises(SystemExit):
            go(row, checkpoint=tmp_path / "part", checkpoint_every=2)
    resumed = cofed.resume(tmp_path / "part", algorithm=row.algorithm if row.own_code else None)
    np.testing.assert_array_equal(worlds.coefs(whole), worlds.coefs(resumed))
    for a, b in zip(jax.tree.leaves(whole.state), jax.tree.leaves(resumed.state), strict=True):
        data = jax.random.key_data if jnp.issubdtype(a.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(data(a), data(b))
    assert len(resumed.history) == len(whole.history)
    assert resumed.communication == whole.communication


@pytest.mark.parametrize(
    "row", [pytest.param(n, marks=() if n in DEBUGGED else pytest.mark.slow) for n in TABLE], indirect=True
)
def test_the_debug_engine_gives_the_same_trajectory(row):
    federation = worlds.linear(sizes=(3, 4, 3))
    options = {"rounds": 2, "local_steps": 1 if row.algorithm.one_step else 2, "evaluate_every": 2}
    options |= {} if row.everyone else {"clients_per_round": 2}
    fast, slow = (go(row, federation, debug=debug, **options) for debug in (False, True))
    np.testing.assert_allclose(worlds.coefs(fast), worlds.coefs(slow), rtol=0, atol=1e-12)
    np.testing.assert_allclose(fast.history["objective"], slow.history["objective"], rtol=1e-12)


# The stages of MC-FedDA are C-FedDA, a row of its own; FedNL's one number acts on the round after.
@for_rows(lambda row: not isinstance(row.algorithm, (cofed.MCFedDA, cofed.FedNL)), SOLVING)
def test_gradients_through_a_round_are_finite_under_vmap(row):
    """d objective / d hyperparameters through a round, for two sets of hyperparameters at once."""
    federation = worlds.linear()
    numbers = schedule(row) | {"rounds": 1, "local_steps": 1 if row.algorithm.one_step else 2}
    job, other = (
        prepare(RunSpec(worlds.problem(row.regularizer), federation, one, **numbers))
        for one in (row.algorithm, row.other)
    )
    task = job.stages[0].task
    w0 = job.spec.problem.start(federation, worlds.start())

    def objective(algorithm):
        mine = dataclasses.replace(task, algorithm=algorithm)
        state = mine.begin(w0, jax.random.key(0), 0)
        for _ in range(row.first):
            state, _ = mine.one_round(state)
        return smooth(mine.problem, mine.data, mine.model(state))[0]

    both = jax.tree.map(lambda a, b: jnp.stack([a, b]), task.algorithm, other.stages[0].task.algorithm)
    gradients = jax.tree.leaves(jax.jit(jax.vmap(jax.grad(objective)))(both))
    assert all(np.all(np.isfinite(g)) for g in gradients)
    assert any(np.abs(g).max() > 0 for g in gradients)


def test_bytes_are_the_sizes_of_the_messages(row):
    result, d = go(row), worlds.D
    assert result.communication.down_per_client == 8 * (row.down * d + row.scalars[0])
    up = 8 * (row.up * d + row.scalars[1]) if row.up_bytes is None else row.up_bytes
    assert result.communication.up_per_client == up
    assert result.communication.up == 6 * (5 if row.everyone else 3) * result.communication.up_per_client
    last = 5 * result.communication.down_per_client if row.algorithm.ends_locally else 0
    assert result.history["bytes_down"][-1] + last == result.communication.down


def test_decoupling_sends_one_vector_each_way_where_everybody_takes_part():
    result = go(TABLE["FedDecouple"], clients_per_round=None)
    assert (result.communication.down_per_client, result.communication.up_per_client) == (8 * 6, 8 * 6)


@for_rows(lambda row: not row.everyone)
def test_clients_outside_the_sample_never_change_anything(row):
    federation = worlds.linear()
    result = go(row, rounds=2, seed=3, per_client=False)
    took_part = {int(m) for m in np.concatenate(participants(row, federation, 2, 3))}
    absent = [m for m in range(5) if m not in took_part]
    assert absent, "choose a seed that leaves somebody out"
    pairs = [federation.client(m) for m in range(5)]
    for m in absent:
        pairs[m] = (pairs[m][0] * 3 + 1, pairs[m][1] - 7)
    changed = go(row, cofed.Federation.from_arrays(pairs), rounds=2, seed=3)
    np.testing.assert_array_equal(worlds.coefs(result), worlds.coefs(changed))
    if not isinstance(row.algorithm, cofed.MCFedDA):
        job_clients, problem = jax.tree.leaves(result.state.clients), worlds.problem(row.regularizer)
        start = jax.tree.leaves(
            row.algorithm.init_client(
                PosedProblem(problem.model, problem.loss, problem.regularizer, local_steps=3, everyone=False),
                {"coef": jnp.asarray(worlds.start()["coef"])},
            )
        )
        for leaf, initial in zip(job_clients, start, strict=True):
            for m in absent:
                np.testing.assert_array_equal(leaf[m], initial)


def participants(row, federation, rounds, seed):
    """Who takes part in each round."""
    from cofed.engine import sampling

    place = np.argsort(np.asarray(federation.ids))
    key = jax.random.key(seed)
    rounds = jnp.arange(rounds, dtype=jnp.int32)
    return [place[np.asarray(sampling.participants(sampling.round_key(key, r), 5, 3))] for r in rounds]


@for_rows(lambda row: not row.draws, set(TABLE) - WEIGHTED)  # copies draw differently
def test_weights_by_samples_equal_repeated_clients(row):
    """A client of weight 2/3 against one of 1/3 counts like two copies of it."""
    X, y = worlds.linear().client(1)
    X2, y2 = worlds.linear().client(2)
    pair = cofed.Federation.from_arrays([(X, y), (X2, y2)])
    three = cofed.Federation.from_arrays([(X, y), (X, y), (X2, y2)])
    options = {"batch_size": None, "clients_per_round": None}
    np.testing.assert_allclose(
        worlds.coefs(go(row, pair, weights=[2.0, 1.0], **options)), worlds.coefs(go(row, three, **options)), atol=1e-12
    )
