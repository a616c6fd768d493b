"""How far slopes may be moved within the domain of a conjugate."""

from typing import NamedTuple

from jaxtyping import Array, Bool, Scalar


class DualRoom(NamedTuple):
    """How slopes of a loss may be moved; see `AbstractLoss.dual_room`.

    Parameters
    ----------
    growth : scalar
        The conjugate grows by at most its first-order change plus growth * f''(z) e^2 / 2.
    shrink : scalar
        Times the moved slopes, and all of them are in the conjugate's domain.
    known : scalar
        Whether that holds for so large a move.
    """

    growth: Scalar
    shrink: Scalar
    known: Bool[Array, ""]
