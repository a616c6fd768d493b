"""What losses say of themselves, by the definitions: conjugates, curvature, links, the saturated model."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import cofed
from cofed.losses import Deviance, PoissonDeviance

numbers = st.floats(-6, 6)
LOSSES = {
    "squared": (cofed.Squared(), [-1.5, 2.0]),
    "squared without the half": (cofed.Squared(half=False), [-1.5, 2.0]),
    "logistic": (cofed.Logistic(), [0.0, 1.0]),
    "huber": (cofed.Huber(0.8), [-1.5, 2.0]),
    "quantile": (cofed.SmoothQuantile(0.8, 0.7), [-1.5, 2.0]),
    "poisson": (cofed.Poisson(), [0.0, 3.0]),
    "poisson deviance": (PoissonDeviance(), [0.0, 3.0]),
    "deviance": (Deviance(cofed.Poisson()), [0.0, 3.0]),
}
rows = pytest.mark.parametrize("name", LOSSES)


def test_the_table_has_every_loss_with_a_conjugate():
    given = {name for name in cofed.losses.__all__ if getattr(getattr(cofed.losses, name), "conjugate", None)}
    lacking = {name for name in given if getattr(cofed.losses, name).conjugate is cofed.AbstractLoss.conjugate}
    # Of several numbers: below, and in tests/estimators/test_site_effects.py and test_site_effects_of_classes.py.
    elsewhere = {"Softmax", "SiteIntercepts", "SiteClassIntercepts"}
    missing = given - lacking - elsewhere - {type(loss).__name__ for loss, _ in LOSSES.values()}
    assert not missing, f"add rows for {missing} to LOSSES"


@rows
@given(numbers, numbers)
def test_fenchel_and_young(name, z, other):
    loss, labels = LOSSES[name]
    for y in map(jnp.asarray, labels):
        value, theta = jax.value_and_grad(loss)(jnp.asarray(z), y)
        conjugate = float(loss.conjugate(theta, y))
        np.testing.assert_allclose(conjugate, float(theta) * z - float(value), atol=1e-9)
        assert conjugate >= float(theta) * other - float(loss(jnp.asarray(other), y)) - 1e-9


@rows
@given(numbers)
def test_curvature_and_self_concordance_are_bounds(name, z):
    loss, labels = LOSSES[name]
    for y in map(jnp.asarray, labels):
        second = jax.grad(jax.grad(loss))
        at = jnp.asarray(z)
        if "poisson" not in name and name != "deviance":  # those have no bound
            assert float(second(at, y)) <= loss.curvature + 1e-12
        if loss.self_concordance is not None:
            assert abs(float(jax.grad(second)(at, y))) <= loss.self_concordance * float(second(at, y)) + 1e-9


@given(st.lists(numbers, min_size=3, max_size=3), st.lists(numbers, min_size=3, max_size=3))
def test_softmax_has_a_conjugate_on_the_simplex(z, other):
    loss, y = cofed.Softmax(3), jnp.asarray(1)
    value, theta = jax.value_and_grad(loss)(jnp.array(z), y)
    conjugate = float(loss.conjugate(theta, y))
    np.testing.assert_allclose(conjugate, float(theta @ jnp.array(z) - value), atol=1e-9)
    assert conjugate >= float(theta @ jnp.array(other) - loss(jnp.array(other), y)) - 1e-9
    assert float(loss.conjugate(theta + 0.1, y)) == np.inf


@rows
def test_the_saturated_model_is_the_best_and_the_deviance_is_above_it(name):
    loss, labels = LOSSES[name]
    grid = np.linspace(-12, 12, 4801)
    y = np.array(labels)
    values = np.asarray(jax.vmap(lambda z: jax.vmap(lambda label: loss(z, label))(y))(grid))
    np.testing.assert_allclose(loss.saturated(y), values.min(axis=0), atol=1e-4)
    above = loss.as_deviance()
    assert above.attains_zero
    again = np.asarray(jax.vmap(lambda z: jax.vmap(lambda label: above(z, label))(y))(grid))
    np.testing.assert_allclose(again, values - loss.saturated(y), atol=1e-8)
    z = np.array([[0.5, -1.0], [1.0, 0.0]])
    by_definition = cofed.AbstractLoss.deviance(loss, z, y)
    np.testing.assert_allclose(loss.deviance(z, y), by_definition, rtol=1e-10)


@pytest.mark.parametrize("loss", [cofed.Squared(), cofed.Logistic(), cofed.Poisson()])
@given(st.floats(0.05, 0.95))
def test_the_link_inverts_the_expected_label(loss, mean):
    z = loss.link(jnp.asarray(mean))
    np.testing.assert_allclose(jax.grad(loss.cumulant)(z), mean, rtol=1e-12)
    for side in (-1, 1):
        inside = jnp.asarray(mean) + side * min(float(loss.mean_margin(jnp.asarray(mean))), 1.0)
        assert np.isfinite(loss.link(inside))


def test_a_loss_that_says_nothing():
    class Absolute(cofed.AbstractLoss):
        def __call__(self, prediction, y):
            return jnp.abs(prediction - y)

    loss = Absolute()
    assert (loss.curvature, loss.self_concordance) == (None, None)
    assert not any((loss.has_conjugate, loss.has_link, loss.has_dispersion, loss.quadratic, loss.attains_zero))
    for call in (
        lambda: loss.conjugate(jnp.zeros(()), jnp.zeros(())),
        lambda: loss.link(jnp.zeros(())),
        lambda: loss.cumulant(jnp.zeros(())),
        lambda: loss.mean_margin(jnp.zeros(())),
        lambda: loss.dispersion(1.0, 10, 5),
        lambda: loss.saturated(np.zeros(2)),
    ):
        with pytest.raises(TypeError, match=r"^Absolute (gives|has) no "):
            call()
