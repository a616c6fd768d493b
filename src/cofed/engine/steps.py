"""Local steps in process: gradients of a client's batches, and the loop over them as one scan."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, PyTree

from cofed.engine import sampling
from cofed.engine.data import Data, means
from cofed.engine.plan import Plan
from cofed.problem import Problem
from cofed.solvers.curvature import mean_hessian

Carry = TypeVar("Carry")


class Stream(eqx.Module):
    """Samples that are drawn afresh at every local step, by a pure function of key and client."""

    key: PRNGKeyArray
    client: Int[Array, ""]
    size: int = eqx.field(static=True)
    draw: Callable = eqx.field(static=True)

    def batch(self, k: Float[Array, ""]) -> tuple[Array, Array]:
        """The samples of the k-th step."""
        return self.draw(jax.random.fold_in(self.key, jnp.asarray(k).astype(jnp.int32)), self.client, self.size)


class Steps(eqx.Module):
    """The local steps of one client in one round (the contract is in algorithms/base/)."""

    problem: Problem
    X: Float[Array, "samples ..."]  # the samples of all clients, one after another; this client's where rows is None
    y: Num[Array, "..."]  # this client's labels: of each batch, or all where gradients are full
    rows: Int[Array, "steps batch"] | None  # where in X the samples of each batch are; None: the full gradient
    share: Float[Array, "..."]  # what each sample counts in the mean
    round: Float[Array, ""]
    count: Float[Array, ""]
    key: PRNGKeyArray  # of the method's own draws
    shared_key: PRNGKeyArray  # of those that all clients share
    plan: Plan = eqx.field(static=True)
    stream: Stream | None = None  # where samples come from, if they are drawn afresh at every step

    def batch(self, k: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """The k-th batch: features, labels, and what each sample counts."""
        if self.stream is not None:
            return *self.stream.batch(k), self.share
        if self.rows is None:
            return self.X, self.y, self.share
        i = jnp.asarray(k).astype(jnp.int32)
        # One gather of the batch's rows out of all clients' data: no client's data is copied.
        X = self.X.at[self.rows[i]].get(mode="promise_in_bounds")
        return X, self.y[i], self.share[i]

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w)"""
        return jax.grad(self.problem.mean_loss)(w, *self.batch(k))

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The mean loss at w on the k-th batch, and G_k(w)"""
        return jax.value_and_grad(self.problem.mean_loss)(w, *self.batch(k))

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """The sum of the gradients at w of the samples of the k-th batch, each cut to a norm; a whole batch's size"""
        X, y, share = self.batch(k)
        alone = jnp.ones(1, share.dtype)
        rows = jax.vmap(lambda x, label: jax.grad(self.problem.mean_loss)(w, x[None], label[None], alone))(X, y)
        square = sum(jnp.sum(leaf.reshape(len(X), -1) ** 2, axis=1) for leaf in jax.tree.leaves(rows))
        norm = jnp.sqrt(square)
        factor = jnp.where(share > 0, jnp.where(norm > clip, clip / norm, 1), 0)
        total = jax.tree.map(lambda leaf: jnp.tensordot(factor.astype(leaf.dtype), leaf, 1), rows)
        return total, jnp.sum(self.batch(jnp.zeros_like(k))[2] > 0).astype(share.dtype)

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The Hessian of that loss at w, on these coordinates"""
        return mean_hessian(self.problem, w, *self.batch(k), where)

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        """carry <- step(k, carry) for k = 0..K_m-1"""

        def body(carry, k):
            new = step(k, carry)
            if not self.plan.equal:  # a client that has finished keeps what it has
                new = jax.tree.map(lambda a, b: jnp.where(k < self.count, a, b), new, carry)
            return new, None

        counter = jnp.arange(self.plan.steps, dtype=self.count.dtype)
        return jax.lax.scan(body, carry, counter)[0]


class ClientView(NamedTuple):
    """A client, as its local steps see it."""

    position: Int[Array, ""]
    own: tuple[Array, Array] | None = None  # its data, where gradients are full and they are at hand
    width: int | None = None  # what its samples are padded to, which bounds the work; None: the largest client's


class RoundContext(NamedTuple):
    """What the local steps of all clients depend on in a round."""

    key: PRNGKeyArray  # of the round
    number: Float[Array, ""]  # the round, counted from the start of the stage


def make_steps(problem: Problem, data: Data, plan: Plan, client: ClientView, context: RoundContext) -> Steps:
    """The local steps of a client in a round."""
    position, round = client.position, context.number
    n, dtype, most = data.sizes[position], data.dtype, data.widest
    width = most if client.width is None else client.width
    key = sampling.client_key(context.key, data.ids[position])
    keys, steps = (sampling.own_key(key), sampling.shared_key(context.key)), jnp.asarray(plan.steps, dtype)
    if data.steps is not None:
        steps = data.steps[position].astype(dtype)
    if data.draw is not None:
        assert plan.batch is not None
        share = jnp.full(plan.batch, 1 / plan.batch, dtype)
        stream = Stream(key, data.first() + position, plan.batch, data.draw)
        return Steps(problem, data.X[0], data.y[0], None, share, round, steps, *keys, plan, stream)
    if plan.batch is None:
        X, y = data.whole(position, width) if client.own is None else client.own
        share = means(jnp.arange(width, dtype=jnp.int32) < n, dtype)
        return Steps(problem, X, y, None, share, round, steps, *keys, plan)
    if plan.epochs is None:
        chosen, real = sampling.random_batches(key, n, most, plan.batch, plan.steps, width)
        count = steps
    else:
        chosen, real = sampling.epoch_batches(key, n, most, plan.batch, plan.epochs, width)
        count = (plan.epochs * ((n + plan.batch - 1) // plan.batch)).astype(dtype)
        plan = dataclasses.replace(plan, steps=min(plan.steps, chosen.shape[0]))
    # A batch that is larger than the client has only padding at its end.
    chosen, real = chosen[:, :width], real[:, :width]
    X, y = data.flat()
    rows = data.start(position) + chosen
    return Steps(problem, X, y[rows], rows, means(real, dtype), round, count, *keys, plan)
