"""Local steps in process: gradients of a client's batches, and the loop over them as one scan."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Num, PRNGKeyArray, PyTree

from cofed.curvature import mean_hessian
from cofed.engine import draws, shards
from cofed.engine.plan import Plan
from cofed.problem import Problem


class Data(eqx.Module):
    """The arrays of a federation, as the compiled program sees them: on a mesh, those of one device."""

    X: Float[Array, "clients n_max ..."]
    y: Num[Array, "clients n_max ..."]
    sizes: Int[Array, " clients"]
    ids: Int[Array, " clients"]
    weights: Float[Array, " clients"]  # pi_m
    draw: Callable | None = eqx.field(static=True, default=None)  # of a stream: (key, client, size) -> (X, y)
    owners: Int[Array, " clients"] | None = None  # of held-out data: the position of the client that each part is of
    places: Int[Array, " everybody"] | None = None  # the position of the client with each id, among all clients
    mesh: Mesh | None = eqx.field(static=True, default=None)  # the devices that the clients are spread over

    def total(self, tree: PyTree) -> PyTree:
        """The sum over all devices."""
        return shards.total(tree, self.mesh)

    def everybody(self, tree: PyTree) -> PyTree:
        """What all clients have, from what those on this device have."""
        return tree if self.places is None else shards.everybody(tree, self.mesh, self.places.shape[0])

    def first(self) -> Int[Array, ""] | int:
        """The position of the first client here among all."""
        return shards.first_here(self.mesh, self.X.shape[0])


class Stream(eqx.Module):
    """Samples that are drawn afresh at every local step, by a pure function of key and client."""

    key: PRNGKeyArray
    client: Int[Array, ""]
    size: int = eqx.field(static=True)
    draw: Callable = eqx.field(static=True)

    def batch(self, k: Float[Array, ""]) -> tuple[Array, Array]:
        """The samples of the k-th step."""
        return self.draw(jax.random.fold_in(self.key, k.astype(jnp.int32)), self.client, self.size)


class Steps(eqx.Module):
    """The local steps of one client in one round (the contract is in algorithms/base.py)."""

    problem: Problem
    X: Float[Array, "samples ..."]  # the samples of all clients, one after another; this client's where rows is None
    y: Num[Array, "..."]  # this client's labels: of each batch, or all where gradients are full
    rows: Int[Array, "steps batch"] | None  # where in X the samples of each batch are; None: the full gradient
    share: Float[Array, "..."]  # what each sample counts in the mean
    round: Float[Array, ""]
    count: Float[Array, ""]
    key: PRNGKeyArray  # of the method's own draws
    plan: Plan = eqx.field(static=True)
    stream: Stream | None = None  # where samples come from, if they are drawn afresh at every step

    def batch(self, k: Float[Array, ""]) -> tuple[Array, Array, Array]:
        """The k-th batch: features, labels, and what each sample counts."""
        if self.stream is not None:
            return *self.stream.batch(k), self.share
        if self.rows is None:
            return self.X, self.y, self.share
        i = k.astype(jnp.int32)
        # One gather of the batch's rows out of all clients' data: no client's data is copied.
        X = self.X.at[self.rows[i]].get(mode="promise_in_bounds")
        return X, self.y[i], self.share[i]

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w)"""
        return jax.grad(self.problem.mean_loss)(w, *self.batch(k))

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The mean loss at w on the k-th batch, and G_k(w)"""
        return jax.value_and_grad(self.problem.mean_loss)(w, *self.batch(k))

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The Hessian of that loss at w, on these coordinates"""
        return mean_hessian(self.problem, w, *self.batch(k), where)

    def run(self, step: Callable[[Float[Array, ""], Any], Any], carry: Any) -> Any:
        """carry <- step(k, carry) for k = 0..K_m-1"""

        def body(carry, k):
            new = step(k, carry)
            if not self.plan.equal:  # a client that has finished keeps what it has
                new = jax.tree.map(lambda a, b: jnp.where(k < self.count, a, b), new, carry)
            return new, None

        counter = jnp.arange(self.plan.steps, dtype=self.count.dtype)
        return jax.lax.scan(body, carry, counter)[0]


def make_steps(
    problem: Problem,
    data: Data,
    plan: Plan,
    client: Int[Array, ""],
    own: tuple[Array, Array] | None,
    key: PRNGKeyArray,
    round: Float[Array, ""],
) -> Steps:
    """The local steps of the client at this position. `own` is its data where gradients are full; None: find it."""
    n, dtype = data.sizes[client], data.X.dtype
    most = data.X.shape[1]
    key = draws.client_key(key, data.ids[client])
    own_key, steps = draws.own_key(key), jnp.asarray(plan.steps, dtype)
    if data.draw is not None:
        assert plan.batch is not None
        share = jnp.full(plan.batch, 1 / plan.batch, dtype)
        stream = Stream(key, data.first() + client, plan.batch, data.draw)
        return Steps(problem, data.X[0], data.y[0], None, share, round, steps, own_key, plan, stream)
    if plan.batch is None:
        X, y = (data.X[client], data.y[client]) if own is None else own
        share = means(jnp.arange(most, dtype=jnp.int32) < n, dtype)
        return Steps(problem, X, y, None, share, round, steps, own_key, plan)
    if plan.epochs is None:
        chosen, real = draws.random_batches(key, n, most, plan.batch, plan.steps)
        count = steps
    else:
        chosen, real = draws.epoch_batches(key, n, most, plan.batch, plan.epochs)
        count = (plan.epochs * ((n + plan.batch - 1) // plan.batch)).astype(dtype)
    X, y = (a.reshape((-1, *a.shape[2:])) for a in (data.X, data.y))
    rows = client * most + chosen
    return Steps(problem, X, y[rows], rows, means(real, dtype), round, count, own_key, plan)


def means(real: Bool[Array, "..."], dtype: Any) -> Float[Array, "..."]:
    """What each sample counts in a mean over the real ones along the last axis."""
    counted = jnp.maximum(jnp.sum(real, axis=-1, keepdims=True), 1).astype(dtype)
    return real.astype(dtype) / counted
