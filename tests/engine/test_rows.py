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
from cofed import rows

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


@pytest.mark.parametrize("case", CASES)
def test_runs_are_the_same_in_both_layouts(case):
    problem, algorithm, how = CASES[case]
    stack, flat = both(SIZES)
    held = [both((2, 17, 1, 1), seed=8)[place] for place in range(2)]
    done = [
        cofed.run(problem, federation, algorithm, evaluation=evaluation, **GIVEN, **how)
        for federation, evaluation in zip((stack, flat), held, strict=True)
    ]
    assert_same(*done)


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
