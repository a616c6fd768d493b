"""How curved the clients' losses are, from which a method's theory says its rates."""

from typing import NamedTuple


class LossCurvature(NamedTuple):
    """What a federation's second derivatives are like at the start of a run.

    Parameters
    ----------
    L : float
        The largest curvature of the mean loss.
    largest : float
        The largest curvature of any client's loss.
    mu : float
        The smallest curvature of the mean loss, 0 where it is not convex.
    difference : float
        How far clients' Hessians are from their mean: the norm of the mean of (H_m - H)^2, its root taken.
    local_steps : int
        K, the most local steps of any client.

    Examples
    --------
    >>> curvature = LossCurvature(L=2.0, largest=4.0, mu=0.5, difference=1.0, local_steps=10)
    >>> curvature.drift_free_lr, curvature.steeper().drift_free_lr
    (0.1, 0.05)
    """

    L: float
    largest: float
    mu: float
    difference: float
    local_steps: int

    @property
    def drift_free_lr(self) -> float:
        """The longest local step with which K of them neither overshoot nor drift: min(1/L_max, 1/(K difference)).

        For K = 1 it is 1/L. The form is that of Karimireddy et al. 2020, Theorem IV, without its constants, which are
        for the worst case.
        """
        if self.local_steps == 1:  # all at one point: the step is one on the mean loss
            return 1 / self.L
        return 1 / max(self.largest, self.local_steps * self.difference)

    def steeper(self) -> "LossCurvature":
        """The same with twice the curvature: rates halve."""
        return self._replace(L=2 * self.L, largest=2 * self.largest, difference=2 * self.difference)
