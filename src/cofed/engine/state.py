"""The state of a run: all that it carries from round to round."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

EMPTY_ROUNDS = 3  # so many rounds in a row without one finite update end a run


class State(eqx.Module):
    """All that a run carries from round to round. A checkpoint is this pytree."""

    server: PyTree  # the server's state; () without one
    clients: PyTree  # what each client (or node) keeps, stacked; () where nothing
    key: PRNGKeyArray  # of the seed; rounds and clients are folded into it
    round: Int[Array, ""]  # the next round, over all stages; it does not depend on how the run fares
    begun: Int[Array, ""]  # the round in which the present stage began
    empty: Int[Array, "*grid"]  # rounds in a row without a finite update
    failed_at: Int[Array, "*grid"]  # the round that would have made a state non-finite, or -1; all is frozen from it

    @classmethod
    def before_stage(cls, server: PyTree, clients: PyTree, key: PRNGKeyArray, round: int | Int[Array, ""]) -> "State":
        """The state before the first round of a stage."""
        now, zero = jnp.asarray(round, jnp.int32), jnp.zeros((), jnp.int32)
        return cls(server, clients, key, now, now, zero, zero - 1)

    def holding(self, server: PyTree, clients: PyTree) -> "State":
        """The same moment of the run, with other states of the server and the clients."""
        return State(server, clients, self.key, self.round, self.begun, self.empty, self.failed_at)

    def after_round(self, anyone: Bool[Array, ""], fails: Bool[Array, ""]) -> "State":
        """The next moment: `anyone` sent a finite update, and the round `fails` where what came of it is not finite.

        The states of the server and the clients are left out: what they become depends on whether the round failed.
        """
        empty = jnp.where(anyone, 0, self.empty + 1)
        fails = fails | (empty >= EMPTY_ROUNDS)
        failed_at = jnp.where((self.failed_at < 0) & fails, self.round, self.failed_at)
        return State((), (), self.key, self.round + 1, self.begun, empty, failed_at)

    def failed_where(self, bad: Bool[Array, ""], old: "State") -> "State":
        """Marked as failed in the old state's round, where that round was bad and none before it had failed."""
        failed_at = jnp.where(bad & (self.failed_at < 0), old.round, self.failed_at)
        return State(self.server, self.clients, self.key, self.round, self.begun, self.empty, failed_at)


def copies(one: PyTree, count: int) -> PyTree:
    """The same for every client, stacked."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one)


def select(flags: Bool[Array, " clients"], new: PyTree, old: PyTree) -> PyTree:
    """The new state of the clients whose flag is set, the old one of the others."""
    return jax.tree.map(lambda a, b: jnp.where(flags.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
