"""What an engine gives a client for one round."""

from collections.abc import Callable
from typing import Protocol, TypeVar, runtime_checkable

from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

Carry = TypeVar("Carry")


@runtime_checkable
class LocalSteps(Protocol):
    """What an engine gives a client for one round: its gradients, and the loop over its K local steps.

    Counters are floating scalars of the model's dtype, so that they enter formulas as they stand.
    """

    round: Float[Array, ""]  # r, counted from the start of the stage; a round that nobody came to does not count
    count: Float[Array, ""]  # K_m, how many local steps this client takes in this round

    @property
    def key(self) -> PRNGKeyArray:
        """For a method's own random draws: folded by (seed, round, client id), and independent of the batches."""
        ...

    @property
    def shared_key(self) -> PRNGKeyArray:
        """For draws that all clients share: folded by (seed, round) alone."""
        ...

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w): the gradient of the client's smooth loss at w on its k-th batch.

        Of a model that draws in training (by dropout, say) it is the gradient with the draws of the k-th step, the same
        at every w, and so are the loss, the gradient with it and those of `clipped_sum`.
        """
        ...

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The client's mean loss at w on its k-th batch, and G_k(w)."""
        ...

    def full_gradient(self, w: PyTree) -> PyTree:
        """The gradient of the client's smooth loss at w on all of its samples, whatever its batches are.

        It is that of the model without draws, like `hessian`.
        """
        ...

    def clipped_sum(self, w: PyTree, k: Float[Array, ""], clip: Float[Array, ""]) -> tuple[PyTree, Float[Array, ""]]:
        """The sum of the gradients at w of the samples of the k-th batch, each cut to a norm; a whole batch's size."""
        ...

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The Hessian of that loss at w, on these coordinates of the parameters laid out as one vector."""
        ...

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        """carry <- step(k, carry) for k = 0..K_m-1."""
        ...
