"""What the methods of bao2022 share: the weights of the gradients, which grow linearly or not at all."""

from typing import NamedTuple

from jaxtyping import Array, Float

from cofed._util.types import Hyperparameter


class LinearWeights(NamedTuple):
    """The weights alpha_t = 1 + a t, t = 0, 1, ...

    Examples
    --------
    >>> from cofed.algorithms.linear_weights import LinearWeights
    >>> LinearWeights(1.0).at(3.0), LinearWeights(1.0).sum(3.0)
    (4.0, 10.0)
    >>> LinearWeights(0.0).at(3.0), LinearWeights(0.0).sum(3.0)
    (1.0, 4.0)
    """

    growth: Hyperparameter  # a

    def at(self, t: Float[Array, ""] | float) -> Hyperparameter:
        """alpha_t"""
        return 1 + self.growth * t

    def sum(self, t: Float[Array, ""] | float) -> Hyperparameter:
        """A_t = alpha_0 + ... + alpha_t"""
        return (t + 1) * (1 + self.growth * t / 2)
