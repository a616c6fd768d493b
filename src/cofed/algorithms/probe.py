"""Local steps without data, to see what a method sends where there is no client."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms.base.local_steps import Carry


class Probe(eqx.Module):
    """The `LocalSteps` of a client whose loss is linear: its gradient has the same value everywhere."""

    round: Float[Array, ""]
    count: Float[Array, ""]
    value: float  # of every entry of the gradient
    steps: int = eqx.field(static=True)  # K

    @property
    def key(self) -> PRNGKeyArray:
        """A fixed key, as there is no client to fold into it."""
        return jax.random.key(0)

    @property
    def shared_key(self) -> PRNGKeyArray:
        """A fixed key, as there is no round to fold into it."""
        return jax.random.key(0)

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """The same at every w."""
        return jax.tree.map(lambda leaf: jnp.full_like(leaf, self.value), w)

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The linear loss, and that gradient."""
        gradient = self.gradient(w, k)
        return trees.dot(gradient, w), gradient

    def full_gradient(self, w: PyTree) -> PyTree:
        """The same as that of any batch."""
        return self.gradient(w, jnp.zeros_like(self.count))

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """That gradient, of one sample, cut to a norm."""
        gradient = self.gradient(w, k)
        return trees.scale(jnp.minimum(1, clip / trees.norm(gradient)), gradient), jnp.ones_like(clip)

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """Zero: the loss is linear."""
        return jnp.zeros((where.size, where.size), self.count.dtype)

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        """carry <- step(k, carry) for k = 0..K-1"""
        counter = jnp.arange(self.steps, dtype=self.count.dtype)
        return jax.lax.scan(lambda carry, k: (step(k, carry), None), carry, counter)[0]
