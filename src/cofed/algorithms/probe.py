"""Local steps without data: what a method sends can be looked at where no client is."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree


class Probe(eqx.Module):
    """Local steps with a gradient that does not look at data."""

    round: Any
    count: Any
    value: float
    steps: int = eqx.field(static=True)

    @property
    def key(self) -> PRNGKeyArray:
        """Of no client."""
        return jax.random.key(0)

    def gradient(self, w: PyTree, k: Any) -> PyTree:
        """The same everywhere."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, self.value), w)

    def loss_and_gradient(self, w: PyTree, k: Any) -> tuple[Any, PyTree]:
        """A loss of that gradient."""
        gradient = self.gradient(w, k)
        return sum(jnp.vdot(g, leaf) for g, leaf in zip(*map(jax.tree.leaves, (gradient, w)), strict=True)), gradient

    def hessian(self, w: PyTree, k: Any, where: Any) -> Any:
        """A linear loss has none."""
        return jnp.zeros((where.size, where.size), self.count.dtype)

    def run(self, step: Any, carry: Any) -> Any:
        """carry <- step(k, carry) for k = 0..K-1"""
        counter = jnp.arange(self.steps, dtype=self.count.dtype)
        return jax.lax.scan(lambda carry, k: (step(k, carry), None), carry, counter)[0]
