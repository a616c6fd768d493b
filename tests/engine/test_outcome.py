"""How a run ended is said: divergence that stays finite too, and never of a run that is well."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import worlds

import cofed
from cofed.engine.ending import BOTTOMLESS, FAR, blown_up

SCHEDULE = {"rounds": 12, "local_steps": 2}
PROBLEM, FED = worlds.problem(cofed.L1(0.05)), worlds.linear()


def go(algorithm, problem=PROBLEM, federation=FED, **options):
    return cofed.run(problem, federation, algorithm, **(SCHEDULE | options))


METHODS = {
    "server": (cofed.FedDualAvg(1.0), {}),
    "rows at the start and the end only": (cofed.FedDualAvg(1.0), {"evaluate_every": 10**6}),
    "gossip": (cofed.DFedDA(1.0, 1.0), {"topology": cofed.topologies.ring(5)}),
    "personal": (cofed.PureLocal(3.0), {}),
    "a constraint": (cofed.FedDualAvg(1.0), {"problem": worlds.problem(cofed.L1(0.05))}),
}


@pytest.mark.parametrize("kind", METHODS)
def test_a_finite_blow_up_is_divergence(kind):
    algorithm, options = METHODS[kind]
    with pytest.warns(RuntimeWarning, match=r"diverged: its (personal )?objective rose from .* to .* in 12 rounds"):
        result = go(algorithm, **options)
    assert result.outcome is cofed.Outcome.DIVERGED
    assert np.isfinite(result.history["objective"]).all()
    assert repr(result).startswith("Result(diverged after 12 rounds")


def test_a_resumed_blow_up_is_divergence_too(tmp_path):
    for act in (lambda: go(cofed.FedDualAvg(1.0), checkpoint=tmp_path / "a"), lambda: cofed.resume(tmp_path / "a")):
        with pytest.warns(RuntimeWarning, match="diverged: its objective rose"):
            assert act().outcome is cofed.Outcome.DIVERGED


WELL = {
    "from zero": {},
    "from the optimum, where noise is many times the objective": {
        "w0": {"coef": np.linspace(1.0, 2.0, 6)},
        "federation": cofed.Federation.from_arrays(
            [(X := np.random.default_rng(s).normal(size=(9, 6)), X @ np.linspace(1, 2, 6) + 1e-7 * s) for s in range(3)]
        ),
        "problem": worlds.problem(),
        "batch_size": 2,
    },
    "outside a constraint, where the objective is infinite": {
        "problem": worlds.problem(cofed.L2Ball(0.1)),
        "w0": worlds.start(),
    },
    "an objective below zero": {"problem": worlds.problem(cofed.L2Ball(1.0), lambda p, y: -jnp.tanh(p * y) - 3.0)},
    "labels that are all zero": {
        "federation": cofed.Federation.from_arrays([(np.eye(6), np.zeros(6))] * 3),
        "problem": worlds.problem(),
    },
}


@pytest.mark.parametrize("kind", WELL)
def test_a_run_that_is_well_is_not_called_diverged(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert go(cofed.FedDualAvg(0.01), **WELL[kind]).outcome is cofed.Outcome.COMPLETED


@given(
    st.lists(st.floats(-1e6, 1e6, allow_subnormal=False), min_size=2, max_size=9),
    st.floats(1e-3, 1e3),
    st.floats(0.0, 1e3, allow_subnormal=False),
)
@example([1.1125369292536007e-200, -1.0], 1.0, 0.0)
def test_the_rule_does_not_depend_on_the_scale_and_never_blames_a_fall(values, scale, usual):
    scaled = [scale * value for value in values]
    rise, size = values[-1] - values[0], max(abs(values[0]), values[0] - min(values), usual)
    floor = BOTTOMLESS * max(abs(values[0]), usual)
    bottomless = -values[-1] > floor > 0  # a fall that no problem with a minimum has
    near = [abs(a - b) <= 1e-9 * max(abs(a), b) for a, b in ((rise, FAR * size), (-values[-1], floor))]
    if not any(near):  # not at an edge, where rounding decides
        assert blown_up(values, usual) == blown_up(scaled, scale * usual) == (rise > FAR * size or bottomless)
    if values[-1] <= values[0] and not bottomless:
        assert not blown_up(values, usual)


def test_a_grid_judges_as_a_run_does():
    grid = [cofed.FedDualAvg(rate) for rate in (0.01, 1.0, 1e30)]
    tuning = cofed.tune(PROBLEM, FED, grid, evaluate_every=3, **SCHEDULE)
    assert tuning.table["outcome"].tolist() == ["completed", "diverged", "diverged"]
    assert tuning.table["diverged"].tolist() == [False, True, True]
    assert np.isfinite(tuning.curves["objective"][1]).all()  # what is finite is shown
    with pytest.raises(ValueError, match="every configuration of the grid diverged"):
        cofed.tune(PROBLEM, FED, grid[1:], **SCHEDULE)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_pooled_problem_without_a_minimum_is_not_solved(dtype):
    federation = worlds.linear(dtype=dtype)
    for loss in (lambda p, y: -p * y, lambda p, y: -jnp.exp(p), lambda p, y: jnp.nan * p):
        problem = worlds.problem(None, loss)
        with pytest.warns(RuntimeWarning, match="the pooled solver stopped after"):
            solution = cofed.solve_pooled(problem, federation, max_iterations=5000)
        assert not solution.converged
        with pytest.warns(RuntimeWarning, match="the pooled solver stopped after"):
            assert not cofed.solve_local(problem, federation, 0, max_iterations=5000).converged
    assert cofed.solve_pooled(worlds.problem(cofed.L1(0.1)), federation).converged
