"""The data, the measures and the judges of the experiments on Liang et al. (2023)."""

import numpy as np
import pandas as pd
import pytest

from cofed.experiments.liang2023 import EXPERIMENTS, rates, recovery, restart, streams
from cofed.experiments.measurements import Measurements
from cofed.models import Weights

STREAMS = [streams.printed_linear, streams.printed_logistic, streams.released_linear, streams.released_logistic]


def seen(values, column, axis="round", **more):
    """Measurements of curves, by label."""
    rows = [
        {"panel": "", "algorithm": label, "seed": 0, axis: x, column: value} | more
        for label, curve in values.items()
        for x, value in curve.items()
    ]
    return Measurements(pd.DataFrame(rows), {})


@pytest.mark.parametrize("make", STREAMS, ids=lambda make: make.__name__)
def test_own_optima_are_dense_and_distinct_and_the_common_one_is_sparse(make):
    data = make(40, 3)
    coef, local = data.truth["coef"], data.local["coef"]
    assert (coef[:16] != 0).all()
    assert (coef[16:] == 0).all()
    assert (local != 0).all()
    assert len(np.unique(local, axis=0)) == 16
    np.testing.assert_allclose(local[:, 16:].mean(axis=0), 0, atol=1e-12)


def test_the_released_effects_are_those_of_the_authors_code():
    local = streams.released_linear(40, 3).local["coef"]
    np.testing.assert_allclose(streams.released_linear(40, 3).truth["coef"][:16], local[:, :16].mean(axis=0))
    assert local[:, 16:].min() >= -5 / 16  # a Dirichlet entry is at least 0
    pairs = streams.released_logistic(40, 3).local["coef"]
    np.testing.assert_array_equal(pairs[:8, :16], pairs[8:, :16])
    np.testing.assert_array_equal(pairs[:8, 16:], -pairs[8:, 16:])
    assert np.abs(streams.common(np.random.default_rng(0))).min() >= 5


def test_the_printed_pairs_are_half_a_chain_apart():
    local = streams.printed_logistic(40, 3).local["coef"]
    np.testing.assert_array_equal(local[:8, 16:], -local[8:, 16:])


@pytest.mark.parametrize("loss", ["linear", "logistic"])
def test_the_optimality_gap_is_that_of_the_population(loss):
    """Against the mean over many samples of all clients."""
    rng = np.random.default_rng(1)
    data = (streams.released_linear if loss == "linear" else streams.printed_logistic)(20, 3)
    coef, local = data.truth["coef"], data.local["coef"]
    w = coef + 0.2 * rng.standard_normal(20)
    differences = []
    for own in local:
        X = rng.standard_normal((40_000, 20))
        if loss == "linear":
            X[:, 0] = 1
            difference = ((X @ (w - own)) ** 2 - (X @ (coef - own)) ** 2) / 2
        else:
            chance = 1 / (1 + np.exp(-X @ own))
            difference = np.logaddexp(0, X @ w) - np.logaddexp(0, X @ coef) - chance * (X @ (w - coef))
        differences.append(difference)
    gap = recovery.SquaredGap if loss == "linear" else recovery.LogisticGap
    mean, error = np.mean(differences), np.std(differences) / np.sqrt(np.size(differences))
    assert abs(float(gap(coef)(Weights(w))) - mean) < 4 * error
    assert float(gap(coef)(Weights(coef))) == pytest.approx(0, abs=1e-6)


def test_errors_are_those_of_the_nodes_and_rounds_of_a_server_count_for_several():
    chain = pd.DataFrame({"round": [16], "consensus": [1.0], "gap": [1.0], "gap_mean": [3.0]})
    server = pd.DataFrame({"round": [1], "gap": [2.0]})
    assert recovery.of_nodes("gap", chain)[0] == 3
    assert recovery.of_nodes("gap", server)[0] == 2
    assert recovery.counted(16, chain)[0] == recovery.counted(16, server)[0] == 16


def test_one_method_on_the_wrong_side_refutes_an_order():
    ends = {"DFedDA-GT": 1.0, "DReFedDA-GT": 1.1, "MReFedDA-GT": 1.2}
    ends |= {"DFedDA": 1.3, "FastFedDA": 1.4, "CFedDA": 1.5, "DFedMiD": 1.6}
    judge = recovery.LOWEST.judge
    assert judge(seen({k: {10: v} for k, v in ends.items()}, "mean_l1")).holds
    assert not judge(seen({k: {10: v} for k, v in (ends | {"FastFedDA": 1.15}).items()}, "mean_l1")).holds


def test_every_stage_must_halve():
    halving = {n: 64 * 0.4**n for n in range(7)}
    flat = {n: 64 / (n + 1) ** 2 for n in range(7)}
    curves = {restart.RESTARTS: halving, restart.NO_GROWTH: flat, restart.NO_RESTARTS: flat}
    good = seen(curves, "squared_error", "x")
    assert restart.halves(good).holds
    assert restart.controls_fail(good).holds
    late = halving | {6: halving[5] * 0.65}
    assert not restart.halves(seen(curves | {restart.RESTARTS: late}, "squared_error", "x")).holds
    slow = {n: 64 * 0.55**n for n in range(7)}  # each stage within the tolerance, but outside the theorem's ball
    assert not restart.halves(seen(curves | {restart.RESTARTS: slow}, "squared_error", "x")).holds
    assert not restart.controls_fail(seen(curves | {restart.NO_GROWTH: halving}, "squared_error", "x")).holds


def test_growth_faster_than_the_logarithm_is_seen():
    euclidean = {64: 1.0, 4096: 64.0}
    assert rates.logarithmic(seen({"p-norm": {64: 1.0, 4096: 5.0}, "Euclidean": euclidean}, "gap", "x")).holds
    assert not rates.logarithmic(seen({"p-norm": {64: 1.0, 4096: 6.0}, "Euclidean": euclidean}, "gap", "x")).holds
    assert not rates.logarithmic(
        seen({"p-norm": {64: 1.0, 4096: 2.0}, "Euclidean": {64: 1.0, 4096: 5.0}}, "gap", "x")
    ).holds


def test_more_than_the_square_of_the_mixing_time_is_seen():
    for exponent, holds in ((0.5, True), (1.9, True), (2.1, False), (-0.1, False)):
        curve = {tau: tau**exponent for tau in (1.0, 10.0, 100.0)}
        assert rates.at_most_tau_squared(seen({"DFedDA-GT": curve}, "rounds", "x")).holds is holds
    never = {1.0: 10.0, 10.0: np.nan}
    assert not rates.at_most_tau_squared(seen({"DFedDA-GT": never}, "rounds", "x")).holds


def test_a_released_form_repeats_the_claims_of_the_printed_one():
    by_id = {experiment.id: experiment for experiment in EXPERIMENTS}
    for experiment in EXPERIMENTS:
        if experiment.released_form_of:
            printed = by_id[experiment.released_form_of]
            assert [claim.text for claim in experiment.claims] == [claim.text for claim in printed.claims]
