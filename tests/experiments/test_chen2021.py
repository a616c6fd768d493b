"""The experiments of chen2021: the theorem's strength, and their judges on made-up risks."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cofed.experiments.chen2021 import common, fedprox, rates
from cofed.experiments.measurements import Measurements


def test_the_theorems_strength_in_its_three_regimes():
    """With m = 4 clients of 50 and 150 samples: m/N = 0.01, and C_p = 4 * 150 / 400 = 1.5."""
    counts = [150, 50, 150, 50]
    assert fedprox.sizes(4, 100) == counts
    mu = 0.32
    assert fedprox.theorems_strength(2.0, mu, counts) == pytest.approx(mu / (16 * 4) * 0.01)
    assert fedprox.theorems_strength(0.0, mu, counts) == pytest.approx(mu * 4 / (16 * 1.5))
    many = [150, 50] * 50  # m/N is still 0.01, and 1/m is below R
    assert fedprox.theorems_strength(0.05, mu, many) == pytest.approx(mu / (16 * 1.5 * 0.05) * 0.1)


def test_convexity_is_the_smallest_eigenvalue_of_any_client():
    drawn = common.data(SimpleNamespace(d=2, fresh=10), [30, 20], 2, 0.5, seed=0)
    step, lowest = 1e-4, []
    for i, w in enumerate(drawn.local["coef"]):
        X = np.asarray(drawn.federation.client(i)[0])
        gradient = lambda v, X=X: X.T @ (1 / (1 + np.exp(-X @ v))) / len(X)  # noqa: E731, labels drop out
        hessian = np.stack([(gradient(w + step * e) - gradient(w - step * e)) / (2 * step) for e in np.eye(2)])
        lowest.append(np.linalg.eigvalsh(hessian)[0])
    assert fedprox.convexity(drawn) == pytest.approx(min(lowest), rel=1e-6)


def measured(value, columns, panels, labels):
    """Measurements in which value(label, panel, x) is every column."""
    rows = [
        {"panel": panel, "algorithm": label, "seed": 0, "x": x} | dict.fromkeys(columns, value(label, panel, x))
        for panel in panels
        for label in labels
        for x in (1.0, 4.0, 16.0)
    ]
    return Measurements(pd.DataFrame(rows), {})


PANELS = [f"{R}, {axis} varies" for R in ("R = 0", "R large") for axis in ("n", "m")]


def test_local_training_that_fell_with_the_clients_would_fail_the_rates():
    def right(label, panel, x):
        return x**-1.0 if "n varies" in panel or label == common.SHARED else 1.0

    labels = (common.SHARED, common.LOCAL)
    assert rates.falls(measured(right, ["aer"], PANELS, labels)).holds
    assert not rates.falls(measured(lambda label, panel, x: 1 / x, ["aer"], PANELS, labels)).holds
    assert not rates.falls(measured(lambda label, panel, x: x**-0.5, ["aer"], PANELS, labels)).holds


def test_a_risk_that_outgrows_its_rate_fails_and_so_does_a_slow_algorithm():
    columns = ["aer", "aer_over_rate", "ier_small", "ier_large"]
    panels = [f"m = {m}, n = {n}" for m, n in fedprox.FEDERATIONS]
    flat = measured(lambda label, panel, x: 3.0, columns, panels, fedprox.LABELS)
    assert fedprox.of_the_rate(("aer_over_rate",), flat).holds
    assert fedprox.as_good_as_exact(flat).holds
    grows = measured(lambda label, panel, x: 3.0 * (1 + panels.index(panel)), columns, panels, fedprox.LABELS)
    assert not fedprox.of_the_rate(("ier_small", "ier_large"), grows).holds
    slow = measured(lambda label, panel, x: 1.0 + (label == common.PROX), columns, panels, fedprox.LABELS)
    assert not fedprox.as_good_as_exact(slow).holds
