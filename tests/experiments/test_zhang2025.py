"""The parts of zhang2025's experiments that are more than settings, and their judges on curves that are made up."""

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import cofed
from cofed.datasets.mnist import Images
from cofed.experiments.measurements import Measurements
from cofed.experiments.zhang2025 import full_gradients, network, prox_parameter, residual, stochastic
from cofed.experiments.zhang2025.common import ONE, TEN, clients, fifths, sparse_logistic


def seen_of(curves: dict[tuple[str, str], np.ndarray], every: int = 1, column: str = "optimality") -> Measurements:
    """Measurements of made-up curves, by panel and label."""
    rows = [
        {"panel": panel, "algorithm": label, "seed": 0, "round": every * i, column: value}
        for (panel, label), curve in curves.items()
        for i, value in enumerate(curve)
    ]
    return Measurements(pd.DataFrame(rows), {})


def coefficients(kind, tau: int) -> np.ndarray:
    result = cofed.run(
        sparse_logistic(0.003), clients(20, 0.5, 0), kind(4.0, 15.0), rounds=4, local_steps=tau, progress=False
    )
    return np.asarray(result.model.coef)


def test_the_prox_parameter_matters_from_the_second_local_step_on():
    ours, theirs = cofed.FedDecouple, prox_parameter.ConstantParameter
    np.testing.assert_array_equal(coefficients(theirs, 1), coefficients(ours, 1))
    assert np.abs(coefficients(theirs, 3) - coefficients(ours, 3)).max() > 1e-3


def test_rows_have_one_norm():
    X, _ = clients(5, 0.25, 3).pooled()
    np.testing.assert_allclose(np.linalg.norm(X, axis=1), 0.25, rtol=1e-12)


def test_the_variance_is_that_of_the_samples_gradients():
    X, y = clients(12, 0.5, 1).client(0)
    w = np.linspace(-1, 1, X.shape[1])
    y = y.astype(float)
    loss = lambda v, x, label: jnp.log1p(jnp.exp(-label * (x @ v)))  # noqa: E731
    gradients = np.stack([np.asarray(jax.grad(loss)(jnp.asarray(w), x, b)) for x, b in zip(X, y, strict=True)])
    assert residual.gradient_variance(X, y, w) == pytest.approx(gradients.var(axis=0).sum(), rel=1e-10)


def images(count: int) -> Images:
    """Images whose pixels say which they are."""
    rng = np.random.default_rng(0)
    pixels = np.zeros((count, 28, 28), np.float32)
    pixels[:, 0, 0], pixels[:, 0, 1] = np.arange(count) // 256 / 255, np.arange(count) % 256 / 255
    return Images(pixels, rng.integers(0, 10, count), pixels[:5], np.zeros(5, int))


def test_half_of_the_images_are_dealt_out_by_label():
    some = images(600)
    parts = network.dealt(some, 600, seed=1)
    assert sorted(np.concatenate(parts)) == list(range(600))
    for label, part in enumerate(parts):
        assert set(some.train_y[part[30:]]) == {label}  # 300 of them are dealt out evenly, 30 to each
        assert len(set(some.train_y[part[:30]])) > 5


def test_clients_draw_only_images_of_their_own():
    some = images(600)
    parts = network.dealt(some, 600, seed=1)
    federation = network.as_stream(some, parts, 40, seed=0)
    assert federation.draw is not None
    for client in (0, 7):
        X, y = federation.draw(jax.random.key(3), jnp.int32(client), 2000)
        drawn = np.round(255 * np.asarray(X[:, 0, 0])) * 256 + np.round(255 * np.asarray(X[:, 0, 1]))
        assert set(drawn.astype(int)) == set(parts[client])  # 2000 draws from about 60 miss one with probability 1e-13
        np.testing.assert_array_equal(y, some.train_y[drawn.astype(int)])
        assert federation.client(client)[0].shape == (40, 28, 28)


def test_the_same_rate_is_not_the_same_curve():
    rounds = np.arange(200)
    ours, later, slower = 10.0 ** (-rounds / 10), 5 * 10.0 ** (-rounds / 10), 10.0 ** (-rounds / 13)
    for theirs, holds in ((later, True), (slower, False)):
        seen = seen_of({(ONE, "FedDecouple"): ours, (ONE, "FedDualAvg"): theirs})
        assert full_gradients.same_rate(seen).holds is holds
    stalled = seen_of({(ONE, "FedDecouple"): ours, (ONE, "FedDualAvg"): np.maximum(ours, 1e-6)})
    assert full_gradients.same_rate(stalled).holds is False


def test_a_curve_that_falls_is_no_floor():
    panels = (stochastic.SINGLE, stochastic.TWENTY)
    flat, falling = np.full(101, 0.01), 0.01 * 10.0 ** (-np.arange(101) / 100)
    high = {(panels[0], "FedDecouple"): np.full(101, 0.1)}
    assert stochastic.floor_falls_with_batch(seen_of(high | {(panels[1], "FedDecouple"): flat})).holds
    verdict = stochastic.floor_falls_with_batch(seen_of(high | {(panels[1], "FedDecouple"): falling}))
    assert not verdict.holds
    assert "still falls with b = 20" in verdict.measured
    last, before = fifths(seen_of({("", "A"): falling}), "A", "")
    assert last == pytest.approx(before * 10**-0.2)


def test_the_network_is_judged_by_accuracy_and_by_rounds():
    slow, fast = np.linspace(0, 0.8, 21), np.minimum(np.linspace(0, 1.6, 21), 0.9)
    panels = (network.FIVE, TEN)
    for ours, theirs, holds in ((fast, slow, True), (slow, fast, False), (slow, slow, False)):
        curves = {(p, label): c for p in panels for label, c in (("FedDecouple", ours), ("FedDualAvg", theirs))}
        assert network.more_accurate_sooner(seen_of(curves, 15, "test_accuracy")).holds is holds
