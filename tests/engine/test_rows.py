"""Two layouts of the clients' samples, one run: however a federation lies in memory, its results are the same."""

import contextlib

import equinox as eqx
import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests import worlds

import cofed
from cofed._util import machine
from cofed.federation import rows
from cofed.solvers.joint import JointFolds, cross_validate, joint_path
from cofed.statistics.local_fits import local_fits

SIZES = (3, 31, 1, 5, 2, 9)
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


@contextlib.contextmanager
def layout(padding, slack=1.5):
    """Stacks up to so much padding, rows beyond."""
    kept = rows.PADDING, rows.SLACK
    rows.PADDING, rows.SLACK = padding, slack
    try:
        yield
    finally:
        rows.PADDING, rows.SLACK = kept


def both(sizes, make=worlds.linear, **given):
    """The same data as one stack and as rows."""
    with layout(np.inf):
        stack = make(sizes, **given)
    with layout(1.0, slack=1.0):
        flat = make(sizes, **given)
    assert stack.rows.tiers is None
    assert (flat.rows.tiers is None) == (len(set(sizes)) == 1)
    return stack, flat


def assert_same(one, other):
    """Models, histories, personal models and what is kept agree to round-off; who took part exactly."""
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(other.state), strict=True):
        if not jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), **CLOSE)
    pair = [(result.model, result.average, result.personal_models) for result in (one, other)]
    for a, b in zip(*(jax.tree.leaves(eqx.filter(part, eqx.is_array_like)) for part in pair), strict=True):
        np.testing.assert_allclose(a, b, **CLOSE)
    tables = [result.history.to_pandas().drop(columns="seconds") for result in (one, other)]
    assert list(tables[0]) == list(tables[1])
    for name in tables[0]:
        np.testing.assert_allclose(
            *(table[name].to_numpy(float) for table in tables), rtol=1e-11, atol=1e-11, err_msg=name
        )
    np.testing.assert_allclose(one.history.clients(), other.history.clients(), **CLOSE)


FULL, EPOCHS, STEPS = {"local_steps": 3}, {"local_epochs": 2, "batch_size": 4}, {"local_steps": 3, "batch_size": 2}
LARGE = {"local_steps": 2, "batch_size": 80}  # more than are drawn one by one
SAMPLED = {"clients_per_round": 3, "weights": "samples"}
SPARSE, SMOOTH = worlds.problem(cofed.L1(0.02)), worlds.problem()
RING = {"topology": cofed.topologies.ring(len(SIZES))}
CASES = {
    "FedAvg, full": (SMOOTH, cofed.FedAvg(0.02), FULL),
    "FedDualAvg, full, sampled": (SPARSE, cofed.FedDualAvg(0.02, 1.3), FULL | SAMPLED),
    "FedDualAvg, epochs": (SPARSE, cofed.FedDualAvg(0.02, 1.3), EPOCHS),
    "FedMiD, epochs, sampled": (SPARSE, cofed.FedMiD(0.02, 1.3), EPOCHS | SAMPLED),
    "FedMiD, batches, sampled": (SPARSE, cofed.FedMiD(0.02, 1.3), STEPS | SAMPLED),
    "FedDualAvg, one epoch of a batch": (SPARSE, cofed.FedDualAvg(0.02), {"local_epochs": 1, "batch_size": 500}),
    "FedDecouple, full": (SPARSE, cofed.FedDecouple(0.02, 1.3), FULL),
    "FedDecouple, batches": (SPARSE, cofed.FedDecouple(0.02, 1.3), STEPS | SAMPLED),
    "Scaffold": (SMOOTH, cofed.Scaffold(0.02, 1.3), FULL | SAMPLED),
    "FedDR": (SPARSE, cofed.FedDR(client_lr=0.02, eta=0.5), FULL | SAMPLED),
    "FedADMM": (SPARSE, cofed.FedADMM(client_lr=0.02, eta=0.5), EPOCHS | SAMPLED),
    "FastFedDA": (SPARSE, cofed.FastFedDA(mu=0.1, L=50.0), STEPS),
    "MCFedDA": (SPARSE, cofed.MCFedDA(mu=0.5, L=20.0, strengths=(0.08, 0.04), radii=(5.0, 4.0)), STEPS),
    "Compressed": (SPARSE, cofed.Compressed(cofed.FedDualAvg(0.02), cofed.TopK(0.5)), FULL | SAMPLED),
    "FedProx": (SPARSE, cofed.FedProx(strength=0.1, client_lr=0.02), FULL | SAMPLED),
    "PureLocal": (SPARSE, cofed.PureLocal(client_lr=0.02), EPOCHS),
    "DFedDA on a ring": (SPARSE, cofed.DFedDA(0.02, gradient_tracking=True), FULL | RING),
    "DFedMiD on a ring, epochs": (SPARSE, cofed.DFedMiD(0.02), EPOCHS | RING),
}
GIVEN = {"rounds": 4, "w0": worlds.start(), "per_client": True, "progress": False}


# The layout is the engine's, not the method's: these have batches and full gradients, sampling, and clients' state.
QUICK = {"FedMiD, batches, sampled", "FedDecouple, full"}


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=() if case in QUICK else pytest.mark.slow) for case in CASES]
)
def test_runs_are_the_same_in_both_layouts(case):
    problem, algorithm, how = CASES[case]
    stack, flat = both(SIZES)
    held = [both((2, 17, 1, 1), seed=8)[place] for place in range(2)]
    done = [
        cofed.run(problem, federation, algorithm, evaluation=evaluation, **GIVEN, **how)
        for federation, evaluation in zip((stack, flat), held, strict=True)
    ]
    assert_same(*done)


@pytest.mark.slow  # every example compiles two programs
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    sizes=st.lists(st.integers(1, 90), min_size=2, max_size=5),
    how=st.sampled_from([FULL, EPOCHS, LARGE, FULL | {"clients_per_round": 2}, LARGE | {"clients_per_round": 2}]),
    seed=st.integers(0, 99),
)
def test_sizes_and_seeds_change_nothing(sizes, how, seed):
    stack, flat = both(tuple(sizes), seed=seed)
    runs = [cofed.run(SPARSE, f, cofed.FedDualAvg(0.01), seed=seed, **how, **GIVEN) for f in (stack, flat)]
    assert_same(*runs)
    for name in stack.names:
        for a, b in zip(stack.client(name), flat.client(name), strict=True):
            np.testing.assert_array_equal(a, b)
    for a, b in zip(stack.pooled(), flat.pooled(), strict=True):
        np.testing.assert_array_equal(a, b)
    for a, b in ((stack.X, flat.X), (stack.y, flat.y), (stack.mask(), flat.mask())):
        np.testing.assert_array_equal(a, b)


def test_order_of_the_clients_changes_nothing():
    _, flat = both(SIZES, names=list("abcdef"))
    with layout(1.0, slack=1.0):
        other = flat.select(list("ecafbd"))
    runs = [cofed.run(SPARSE, f, cofed.FedDualAvg(0.02), **FULL, **SAMPLED, **GIVEN) for f in (flat, other)]
    np.testing.assert_allclose(runs[0].model.coef, runs[1].model.coef, **CLOSE)
    frames = [run.history.clients() for run in runs]
    np.testing.assert_allclose(frames[0], frames[1][list("abcdef")], **CLOSE)


@pytest.mark.slow  # client by client
@pytest.mark.parametrize("how", [FULL | SAMPLED, EPOCHS])
def test_debug_is_the_compiled_run(how):
    _, flat = both(SIZES)
    runs = [cofed.run(SPARSE, flat, cofed.FedMiD(0.02), debug=debug, **how, **GIVEN) for debug in (False, True)]
    np.testing.assert_allclose(runs[0].model.coef, runs[1].model.coef, **CLOSE)


def test_a_grid_is_tuned_alike():
    found = [
        cofed.tune(SPARSE, f, [cofed.FedMiD(lr) for lr in (0.01, 0.02)], rounds=4, progress=False, **FULL, **SAMPLED)
        for f in both(SIZES)
    ]
    np.testing.assert_allclose(found[0].curves["objective"], found[1].curves["objective"], **CLOSE)


def test_a_run_in_rows_resumes_with_the_same_bits(tmp_path):
    with layout(1.0, slack=1.0):
        _, flat = both(SIZES)
        job = (SPARSE, flat, cofed.FedDecouple(0.02))
        whole = cofed.run(*job, **(GIVEN | {"rounds": 6}), **FULL)
        cofed.run(*job, checkpoint=tmp_path / "run", checkpoint_every=2, **(GIVEN | {"rounds": 6}), **FULL)
        for path in (tmp_path / "run").glob("round-000000006.*"):
            path.unlink()  # as if it had been stopped before
        resumed = cofed.resume(tmp_path / "run", progress=False)
    np.testing.assert_array_equal(resumed.model.coef, whole.model.coef)


def test_stored_stacks_of_unequal_clients_become_rows():
    stack, flat = both(SIZES)
    with layout(1.0, slack=1.0):
        back = cofed.Federation.restored(stack.stored(), stack.names, stack.feature_names)
    assert back.rows.tiers == flat.rows.tiers
    for a, b in zip(jax.tree.leaves(back), jax.tree.leaves(flat), strict=True):
        np.testing.assert_array_equal(a, b)


def test_pooled_and_local_solutions_agree():
    found = [(cofed.solve_pooled(SPARSE, f), cofed.solve_local(SPARSE, f, 1)) for f in both(SIZES)]
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a.model.coef, b.model.coef, rtol=1e-8, atol=1e-9)


@pytest.mark.slow
def test_methods_for_clients_of_their_own_agree():
    sizes = (40, 190, 45, 60)
    stack, flat = both(sizes, make=worlds.logistic, d=2)
    problem = cofed.Problem(cofed.Linear(), cofed.Logistic())
    with layout(1.0, slack=1.0):
        flat_fits = local_fits(problem, flat)
    fits = local_fits(problem, stack)
    np.testing.assert_allclose(fits.parameters, flat_fits.parameters, rtol=1e-8)
    np.testing.assert_allclose(fits.covariances, flat_fits.covariances, rtol=1e-8)
    given = (problem, [0, 0.3, np.inf])
    paths = [joint_path(given[0], f, given[1], ridge=1e-3) for f in (stack, flat)]
    np.testing.assert_allclose(paths[0].theta, paths[1].theta, rtol=1e-7, atol=1e-9)
    for a, b in zip(*(path.losses(f) for path, f in zip(paths, (stack, flat), strict=True)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    crossed = [cross_validate(problem, f, [0.3], JointFolds(2), ridge=1e-3)[0] for f in (stack, flat)]
    for a, b in zip(*crossed, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9)
    truth, model = {"coef": np.ones(2), "intercept": np.zeros(())}, {"coef": np.zeros(2), "intercept": np.ones(())}
    risks = [cofed.excess_risk(problem, f, model, truth) for f in (stack, flat)]
    np.testing.assert_allclose(risks[0].individual, risks[1].individual, **CLOSE)
    assert risks[0].standard_error == pytest.approx(risks[1].standard_error, rel=1e-12)


@pytest.mark.slow
def test_a_method_that_chooses_chooses_alike():
    stack, flat = both(SIZES)
    algorithm = cofed.Alternative(client_lr=0.02)
    done = [cofed.run(SMOOTH, f, algorithm, rounds=3, local_steps=2, progress=False) for f in (stack, flat)]
    assert done[0].choice.difference == pytest.approx(done[1].choice.difference, rel=1e-9)


def test_a_thousand_small_clients_and_a_large_one_take_the_memory_of_their_rows():
    """Padded to the largest they would take 400 MB; a round's arrays and its programs are of the size of the rows."""
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 10)), rng.normal(size=n)) for n in [5] * 1000 + [5000]]
    own = sum(X.nbytes + y.nbytes for X, y in clients)
    federation = cofed.Federation.from_arrays(clients)
    assert sum(leaf.nbytes for leaf in jax.tree.leaves(federation)) <= 1.1 * own
    assert federation.rows.tiers == ((5, 1000), (5000, 1))
    for how in ({"local_steps": 1}, {"local_steps": 1, "clients_per_round": 50}, {"local_epochs": 1, "batch_size": 50}):
        ahead = cofed.forecast(SMOOTH, federation, cofed.FedAvg(0.01), rounds=2, seconds=0.01, **how)
        assert ahead.data_bytes <= 1.1 * own
        assert ahead.working_bytes <= 4 * own, how
    sizes = np.full(1000, 5)
    assert rows.tiers_of(sizes) is None
    with pytest.raises(MemoryError, match=r"each padded to the 5,000 samples of the largest.*available here.*pooled"):
        machine_with(10**6, lambda: federation.X)


def machine_with(there, do):
    """Do it on a machine with so much memory left."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(machine, "available", lambda: there)
        return do()


REFUSED = {
    "from_arrays": lambda: cofed.Federation.from_arrays([(np.ones((100, 100)), np.ones(100))]),
    "clients of from_stream": lambda: cofed.Federation.from_stream(lambda key, m, n: None, clients=10**9),
    "samples of from_stream": lambda: cofed.Federation.from_stream(
        lambda key, client, n: (jax.random.normal(key, (n, 3)), jax.numpy.ones(n)), clients=100, samples=1000
    ),
    "yuan_lasso": lambda: cofed.datasets.yuan_lasso(clients=10**9),
    "yuan_low_rank": lambda: cofed.datasets.yuan_low_rank(d=10**6),
    "chen_logistic": lambda: cofed.datasets.chen_logistic(clients=10**9),
    "liang_linear": lambda: cofed.datasets.liang_linear(samples=10**9),
    "zhang_logistic": lambda: cofed.datasets.zhang_logistic(d=10**10),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_does_not_fit_is_refused_in_a_sentence(what):
    with pytest.raises(ValueError, match=r"would take .* of memory, and 50 kB is available here"):
        machine_with(50_000, REFUSED[what])


def test_states_that_do_not_fit_are_refused_before_anything_is_built():
    federation = worlds.linear((3,) * 40)
    with pytest.raises(ValueError, match=r"FedDecouple with 40 clients .* would take .* and 2 kB is available"):
        machine_with(2000, lambda: cofed.run(SMOOTH, federation, cofed.FedDecouple(0.1), rounds=1, local_steps=1))


@given(st.lists(st.integers(1, 10**5), min_size=1, max_size=60))
def test_tiers_hold_everybody_and_pad_to_less_than_twice(sizes):
    sizes = np.array(sizes)
    found = rows.tiers_of(sizes)
    if found is None:
        assert len(sizes) * sizes.max() <= 2 * sizes.sum()
        return
    assert len(sizes) * sizes.max() > 2 * sizes.sum()
    narrower = 0
    for width, clients in found:
        own = sizes[(sizes > narrower) & (sizes <= width)]
        assert len(own) == clients > 0
        assert own.max() == width
        narrower = width
    assert narrower == sizes.max()
    assert sum(width * clients for width, clients in found) <= 2 * sizes.sum()
