"""Local steps in process: gradients of a client's batches, and the loop over them as one scan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree

from cofed.engine import draws
from cofed.engine.plan import Plan
from cofed.problem import Problem

UNROLL = 4  # local steps compiled as straight code; see benchmarks/rounds.py for what it gives


class Data(eqx.Module):
    """The arrays of a federation, as the compiled program sees them."""

    X: Float[Array, "clients n_max ..."]
    y: Num[Array, "clients n_max ..."]
    sizes: Int[Array, " clients"]
    ids: Int[Array, " clients"]
    weights: Float[Array, " clients"]  # pi_m


class Steps(eqx.Module):
    """The local steps of one client in one round (the contract is in algorithms/base.py)."""

    problem: Problem
    X: Float[Array, "..."]  # all clients' features; where gradients are full, this client's alone
    y: Num[Array, "..."]  # likewise the labels
    client: Int[Array, ""]  # the client's position in X, where X holds all clients
    chosen: Int[Array, "steps batch"] | None  # the samples of each batch; None: the full gradient
    share: Float[Array, "..."]  # what each sample counts in the mean
    round: Float[Array, ""]
    count: Float[Array, ""]
    plan: Plan = eqx.field(static=True)

    def batch(self, k: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """The k-th batch: features, labels, and what each sample counts."""
        if self.chosen is None:
            return self.X, self.y, self.share
        i = k.astype(jnp.int32)
        rows = self.chosen[i]
        # One gather of the batch's rows out of all clients' data: no client's data is copied.
        return self.X[self.client, rows], self.y[self.client, rows], self.share[i]

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w)"""
        return jax.grad(self.problem.mean_loss)(w, *self.batch(k))

    def run(self, step: Callable[[Float[Array, ""], Any], Any], carry: Any) -> Any:
        """carry <- step(k, carry) for k = 0..K_m-1"""

        def body(carry, k):
            new = step(k, carry)
            if not self.plan.equal:  # a client that has finished keeps what it has
                new = jax.tree.map(lambda a, b: jnp.where(k < self.count, a, b), new, carry)
            return new, None

        counter = jnp.arange(self.plan.steps, dtype=self.count.dtype)
        return jax.lax.scan(body, carry, counter, unroll=min(UNROLL, self.plan.steps))[0]


def make_steps(
    problem: Problem,
    data: Data,
    plan: Plan,
    client: Int[Array, ""],
    own: tuple[Array, Array] | None,
    key: PRNGKeyArray,
    round: Float[Array, ""],
) -> Steps:
    """The local steps of the client at this position. `own` is its data where gradients are full, else None."""
    n, dtype = data.sizes[client], data.X.dtype
    most = data.X.shape[1]
    key = draws.client_key(key, data.ids[client])
    if plan.batch is None:
        assert own is not None
        share = means(jnp.arange(most, dtype=jnp.int32) < n, dtype)
        count = jnp.asarray(plan.steps, dtype)
        return Steps(problem, *own, client, None, share, round, count, plan)
    if plan.epochs is None:
        chosen, real = draws.random_batches(key, n, most, plan.batch, plan.steps)
        count = jnp.asarray(plan.steps, dtype)
    else:
        chosen, real = draws.epoch_batches(key, n, most, plan.batch, plan.epochs)
        count = (plan.epochs * ((n + plan.batch - 1) // plan.batch)).astype(dtype)
    return Steps(problem, data.X, data.y, client, chosen, means(real, dtype), round, count, plan)


def means(real: Bool[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """What each sample counts in a mean over the real ones along the last axis."""
    counted = jnp.maximum(jnp.sum(real, axis=-1, keepdims=True), 1).astype(dtype)
    return real.astype(dtype) / counted
