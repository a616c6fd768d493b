"""Local steps in process: gradients of a client's batches, and the loop over them as one scan."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Num, PRNGKeyArray, PyTree

from cofed.batches import AbstractBatches, ClientRound
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


class WholeClient(eqx.Module):
    """All samples of one client, found where they lie when they are asked for."""

    data: Data
    position: Int[Array, ""]
    width: int = eqx.field(static=True)  # what they are padded to

    def samples(self) -> tuple[Array, Array, Array]:
        """Features, labels, and what each sample counts in the mean."""
        real = jnp.arange(self.width, dtype=jnp.int32) < self.data.sizes[self.position]
        return *self.data.whole(self.position, self.width), means(real, self.data.dtype)


class Steps(eqx.Module):
    """The local steps of one client in one round (the contract is in algorithms/base/)."""

    problem: Problem
    X: Float[Array, "samples ..."]  # the samples of all clients, one after another; this client's where rows is None
    y: Num[Array, "..."]  # this client's labels: of each batch, or all where gradients are full
    rows: Int[Array, "steps batch"] | None  # where in X the samples of each batch are; None: X has them batch by batch
    share: Float[Array, "..."]  # what each sample counts in the mean
    round: Float[Array, ""]
    count: Float[Array, ""]
    key: PRNGKeyArray  # of the method's own draws
    shared_key: PRNGKeyArray  # of those that all clients share
    plan: Plan = eqx.field(static=True)
    stream: Stream | None = None  # where samples come from, if they are drawn afresh at every step
    client: WholeClient | None = None  # all samples, where steps see batches of them
    draws: PRNGKeyArray | None = None  # of what the model draws in training; None: it draws nothing

    def batch(self, k: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """The k-th batch: features, labels, and what each sample counts."""
        if self.stream is not None:
            return *self.stream.batch(k), self.share
        if self.plan.batch is None:  # the full gradient
            return self.X, self.y, self.share
        i = jnp.asarray(k).astype(jnp.int32)
        return self.X[i] if self.rows is None else taken(self.X, self.rows[i]), self.y[i], self.share[i]

    def training(self, k: Float[Array, ""]) -> tuple[Array, ...]:
        """What the loss of the k-th step is made of: its batch and, where the model draws, a key for each sample"""
        batch = self.batch(k)
        return batch if self.draws is None else (*batch, sampling.sample_keys(self.draws, k, len(batch[0])))

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w)"""
        return jax.grad(self.problem.mean_loss)(w, *self.training(k))

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The mean loss at w on the k-th batch, and G_k(w)"""
        return jax.value_and_grad(self.problem.mean_loss)(w, *self.training(k))

    def full_gradient(self, w: PyTree) -> PyTree:
        """The gradient at w on all samples of the client, of the model without draws"""
        if self.stream is not None:
            raise ValueError("samples that are drawn afresh at every step have no full gradient")
        samples = self.batch(jnp.zeros_like(self.count)) if self.client is None else self.client.samples()
        return jax.grad(self.problem.mean_loss)(w, *samples)

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """The sum of the gradients at w of the samples of the k-th batch, each cut to a norm; a whole batch's size"""
        X, y, share, *keys = self.training(k)
        alone = jnp.ones(1, share.dtype)

        def gradient(x, label, *key):
            return jax.grad(self.problem.mean_loss)(w, x[None], label[None], alone, *(one[None] for one in key))

        rows = jax.vmap(gradient)(X, y, *keys)
        square = sum(jnp.sum(leaf.reshape(len(X), -1) ** 2, axis=1) for leaf in jax.tree.leaves(rows))
        norm = jnp.sqrt(square)
        factor = jnp.where(share > 0, jnp.where(norm > clip, clip / norm, 1), 0)
        total = jax.tree.map(lambda leaf: jnp.tensordot(factor.astype(leaf.dtype), leaf, 1), rows)
        return total, jnp.sum(self.batch(jnp.zeros_like(k))[2] > 0).astype(share.dtype)

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The Hessian of that loss at w, on these coordinates, of the model without draws"""
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


def taken(X: Float[Array, "samples ..."], rows: Int[Array, "..."]) -> Float[Array, "..."]:
    """One gather of these rows out of all clients' data: no client's data is copied."""
    return X.at[rows].get(mode="promise_in_bounds")


class ClientView(NamedTuple):
    """A client, as its local steps see it."""

    position: Int[Array, ""]
    own: tuple[Array, Array] | None = None  # its data, where gradients are full and they are at hand
    width: int | None = None  # what its samples are padded to, which bounds the work; None: the largest client's


class RoundContext(NamedTuple):
    """What the local steps of all clients depend on in a round."""

    key: PRNGKeyArray  # of the round
    number: Float[Array, ""]  # the round, counted from the start of the stage
    batches: AbstractBatches | None = None  # what draws the batches; None: uniformly


def client_round(data: Data, plan: Plan, client: ClientView, context: RoundContext) -> ClientRound:
    """What the batches of a client's round may depend on."""
    position = client.position
    key = sampling.client_key(context.key, data.ids[position])
    keys = sampling.batches_key(key), sampling.step_keys(key, plan.steps)
    # Padded to the largest client, whatever tier this one is in: the draws are the same wherever it lies.
    own = data.whole(position, data.widest)
    return ClientRound(*keys, context.number.astype(jnp.int32), data.sizes[position], *own)


def sampled_batches(
    batches: AbstractBatches, data: Data, plan: Plan, client: ClientView, context: RoundContext
) -> tuple[Int[Array, "steps batch"], Float[Array, "steps batch"]]:
    """The batches that a sampler draws, and what each of their samples counts: NaN where there is no such sample."""
    drawn = batches.draw(client_round(data, plan, client, context))
    share = jnp.full(drawn.rows.shape, 1 / drawn.rows.shape[1], data.dtype) if drawn.share is None else drawn.share
    there = (drawn.rows >= 0) & (drawn.rows < data.sizes[client.position])
    return jnp.where(there, drawn.rows, 0), jnp.where(there, share, jnp.nan)


def make_steps(problem: Problem, data: Data, plan: Plan, client: ClientView, context: RoundContext) -> Steps:
    """The local steps of a client in a round."""
    position, round = client.position, context.number
    n, dtype, most = data.sizes[position], data.dtype, data.widest
    width = most if client.width is None else client.width
    key = sampling.client_key(context.key, data.ids[position])
    keys, steps = (sampling.own_key(key), sampling.shared_key(context.key)), jnp.asarray(plan.steps, dtype)
    draws = sampling.model_key(key) if problem.model.is_random else None
    if data.steps is not None:
        steps = data.steps[position].astype(dtype)
    if data.draw is not None:
        assert plan.batch is not None
        share = jnp.full(plan.batch, 1 / plan.batch, dtype)
        stream = Stream(key, data.first() + position, plan.batch, data.draw)
        return Steps(problem, data.X[0], data.y[0], None, share, round, steps, *keys, plan, stream, draws=draws)
    if plan.batch is None:
        X, y = data.whole(position, width) if client.own is None else client.own
        share = means(jnp.arange(width, dtype=jnp.int32) < n, dtype)
        return Steps(problem, X, y, None, share, round, steps, *keys, plan, draws=draws)
    X, y = data.flat()
    whole = WholeClient(data, position, width)
    if context.batches is not None:
        chosen, share = sampled_batches(context.batches, data, plan, client, context)
        rows = data.start(position) + chosen
        return Steps(problem, X, y[rows], rows, share, round, steps, *keys, plan, client=whole, draws=draws)
    if plan.epochs is None:
        chosen, real = sampling.random_batches(key, n, most, plan.batch, plan.steps, width)
        count = steps
    else:
        chosen, real = sampling.epoch_batches(key, n, most, plan.batch, plan.epochs, width)
        count = (plan.epochs * ((n + plan.batch - 1) // plan.batch)).astype(dtype)
        plan = dataclasses.replace(plan, steps=min(plan.steps, chosen.shape[0]))
    # A batch that is larger than the client has only padding at its end.
    chosen, real = chosen[:, :width], real[:, :width]
    rows = data.start(position) + chosen
    labels, share = y[rows], means(real, dtype)
    if plan.gathered:
        X, rows = taken(X, rows), None
    return Steps(problem, X, labels, rows, share, round, count, *keys, plan, client=whole, draws=draws)
