"""Metrics of a user's own: what changes between runs, and what is known of them."""

import equinox as eqx
import jax.numpy as jnp

import cofed
from tests import worlds

THRESHOLD = 0.0


class Above(eqx.Module):
    """The example of docs/runs.md."""

    threshold: float

    def __call__(self, w):
        return jnp.mean((jnp.abs(w.coef) > self.threshold).astype(w.coef.dtype))


def above(w):
    return Above(THRESHOLD)(w)


def last(metric):
    run = cofed.run(worlds.problem(), worlds.linear(), cofed.FedAvg(0.01), rounds=2, metrics={"above": metric})
    return run.history["above"][-1]


def test_a_field_of_a_module_takes_effect_and_a_global_does_not(monkeypatch):
    assert last(Above(0.0)) == 1.0
    assert last(Above(1e6)) == 0.0
    assert last(above) == 1.0
    monkeypatch.setitem(globals(), "THRESHOLD", 1e6)
    assert last(above) == 1.0  # as docs/runs.md says


def test_all_public_names_are_listed():
    assert "higher_is_better" in cofed.metrics.__all__
