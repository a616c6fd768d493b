"""The true suboptimality never exceeds the gap, wherever the model is."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.estimators import hospitals

from cofed.estimators import (
    FederatedConstrained,
    FederatedElasticNet,
    FederatedGroupLasso,
    FederatedLogisticRegression,
    FederatedPoisson,
    FederatedTraceRegression,
)
from cofed.models import Weights

FAMILIES = {
    "lasso": (FederatedElasticNet(0.3, l1_ratio=1.0), hospitals.linear),
    "elastic net": (FederatedElasticNet(0.3, l1_ratio=0.4), hospitals.linear),
    "group": (FederatedGroupLasso(0.2, groups=[0, 0, 1, 1, 2, 2]), hospitals.linear),
    "trace": (FederatedTraceRegression(0.2, shape=(2, 3)), hospitals.linear),
    "ball": (FederatedConstrained(constraint="l1_ball", radius=2.0), hospitals.linear),
    "logistic": (FederatedLogisticRegression(0.02), hospitals.classes),
    "multinomial": (FederatedLogisticRegression(0.02), lambda: hospitals.classes(3)),
    "poisson": (FederatedPoisson(0.05), hospitals.counts),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_gap_bounds_the_suboptimality(family):
    model, data = FAMILIES[family]
    X, y = data()
    model.fit(X, y, clients=hospitals.SITES)
    problem = model._standardized(model._intake(X, y, hospitals.SITES))
    least = (model.certificate_.objective - problem.units.labels.least) / problem.units.objective
    psi = model._penalty(problem, vars(model).get("alpha", 0.0))
    assert model.certificate_.gap <= 1e-12 * model.certificate_.scale

    @given(st.integers(0, 2**32 - 1), st.floats(-6, 1))
    def holds(seed, size):
        rng = np.random.default_rng(seed)
        move = lambda leaf: jnp.asarray(10**size * rng.normal(size=leaf.shape))  # noqa: E731
        w = problem.problem(psi).regularizer.prox(Weights(move(problem.start.coef), move(problem.start.intercept)), 0.0)
        seen = problem.assess(psi, w)
        assert float(seen.objective) - least <= float(seen.gap) + 1e-13 * float(problem.null.loss)

    holds()


def test_the_gap_falls_with_the_suboptimality():
    """A certificate that is always large would be true and useless."""
    X, y = hospitals.classes()
    model = FederatedLogisticRegression(0.02).fit(X, y, clients=hospitals.SITES)
    problem = model._standardized(model._intake(X, y, hospitals.SITES))
    psi = model._penalty(problem, vars(model).get("alpha", 0.0))
    best = problem.solved(model.coef_[0], model.intercept_[0])
    gaps = [
        float(problem.assess(psi, Weights(best.coef * (1 + e), best.intercept + e)).gap) for e in (1e-1, 1e-3, 1e-5)
    ]
    assert gaps[0] > 20 * gaps[1] > 400 * gaps[2] > 0


def test_the_objective_is_the_documented_one():
    X, y = hospitals.linear()
    model = FederatedElasticNet(0.3, l1_ratio=0.4).fit(X, y, clients=hospitals.SITES)
    w = model.coef_ * X.std(axis=0)
    loss = np.mean((y - model.predict(X)) ** 2) / 2
    penalty = 0.3 * (0.4 * np.abs(w).sum() + 0.3 * (w**2).sum())
    assert model.certificate_.objective == pytest.approx(loss + penalty, rel=1e-12)
    assert model.certificate_.scale == pytest.approx(y.var() / 2, rel=1e-12)
