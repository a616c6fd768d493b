"""The state of a run: all that it carries from round to round."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

EMPTY_ROUNDS = 3  # so many rounds in a row without one finite update end a run


class State(eqx.Module):
    """All that a run carries from round to round. A checkpoint is this pytree."""

    server: PyTree  # the server's state; () without one
    clients: PyTree  # what each client (or node) keeps, stacked; () where nothing
    key: PRNGKeyArray  # of the seed; rounds and clients are folded into it
    round: Int[Array, ""]  # the next round, over all stages; it does not depend on how the run fares
    begun: Int[Array, ""]  # the round in which the present stage began
    empty: Int[Array, "*grid"]  # rounds in a row without a finite update
    idle: Int[Array, "*grid"]  # rounds of the stage in which the server stood still, as nobody came who counts
    failed_at: Int[Array, "*grid"]  # the round that would have made a state non-finite, or -1; all is frozen from it

    @classmethod
    def before_stage(cls, server: PyTree, clients: PyTree, key: PRNGKeyArray, round: int | Int[Array, ""]) -> "State":
        """The state before the first round of a stage."""
        now, zero = jnp.asarray(round, jnp.int32), jnp.zeros((), jnp.int32)
        return cls(server, clients, key, now, now, zero, zero, zero - 1)

    def holding(self, server: PyTree, clients: PyTree) -> "State":
        """The same moment of the run, with other states of the server and the clients."""
        return dataclasses.replace(self, server=server, clients=clients)

    def number(self, dtype: np.dtype) -> Float[Array, ""]:
        """What the next round is to a method: which step of the stage, 0 the first. Rounds that changed nothing do not
        count: server and clients would disagree, as only clients hear of the round."""
        return (self.round - self.begun - self.idle).astype(dtype)

    def after_round(self, anyone: Bool[Array, ""], fails: Bool[Array, ""], idle: Bool[Array, ""]) -> "State":
        """The next moment: `anyone` sent a finite update, the round `fails` where what came of it is not finite, and
        was `idle` where nothing can come of it.

        The states of the server and the clients are left out: what they become depends on whether the round failed.
        """
        empty = jnp.where(anyone, 0, self.empty + 1)
        fails = fails | (empty >= EMPTY_ROUNDS)
        failed_at = jnp.where((self.failed_at < 0) & fails, self.round, self.failed_at)
        idle = self.idle + idle.astype(jnp.int32)
        return State((), (), self.key, self.round + 1, self.begun, empty, idle, failed_at)

    def failed_where(self, bad: Bool[Array, ""], old: "State") -> "State":
        """Marked as failed in the old state's round, where that round was bad and none before it had failed."""
        failed_at = jnp.where(bad & (self.failed_at < 0), old.round, self.failed_at)
        return dataclasses.replace(self, failed_at=failed_at)


def copies(one: PyTree, count: int) -> PyTree:
    """The same for every client, stacked."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one)


def select(flags: Bool[Array, " clients"], new: PyTree, old: PyTree) -> PyTree:
    """The new state of the clients whose flag is set, the old one of the others."""
    return jax.tree.map(lambda a, b: jnp.where(flags.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
