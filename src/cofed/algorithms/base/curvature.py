"""How curved the clients' losses are, from which a method's theory says its rates."""

from typing import NamedTuple

from cofed._util.types import Hyperparameter

MOST_OF_THE_WAY = 1.8  # what a server's step may make of the steepest part of a way: at 2 it would swing for ever


class LossCurvature(NamedTuple):
    """What a federation's second derivatives are like at the start of a run.

    Where steps are taken on mini-batches, L and `largest` are those of the batches, which are steeper.

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
    >>> from cofed.algorithms.base.curvature import LossCurvature
    >>> curvature = LossCurvature(L=2.0, largest=4.0, mu=0.5, difference=1.0, local_steps=10)
    >>> curvature.drift_free_lr, curvature.steeper().drift_free_lr
    (0.1, 0.05)
    >>> round(curvature.server_lr(0.1), 3), round(curvature.server_lr(0.001), 1)
    (1.546, 80.6)
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

    def server_lr(self, client_lr: float) -> float:
        """The step of the server along the clients' mean move that goes best with this local step.

        K local steps along an eigenvector of curvature l bring a client g(l) = 1 - (1 - client_lr l)^K of the way to
        its minimum, so a server that multiplies the way by s leaves |1 - s g(l)| of the error. The worst of the
        curvatures between mu and L is least for s = 2/(g(mu) + g(L)); g(L) s is kept below 1.8, since curvatures grow
        on the way and mu is often nearly 0.
        """
        lowest, highest = (1 - (1 - client_lr * curvature) ** self.local_steps for curvature in (self.mu, self.L))
        if not 0 < highest <= 1:  # the clients overshoot by themselves
            return 1.0
        return min(2 / (max(0.0, lowest) + highest), MOST_OF_THE_WAY / highest)

    def steps(self, client_lr: Hyperparameter | str) -> dict[str, float]:
        """Both step sizes of a method with local steps, by the names of its fields.

        Parameters
        ----------
        client_lr : float or "auto"
            The local step, where it is given.
        """
        local = self.drift_free_lr if isinstance(client_lr, str) else float(client_lr)
        return {"client_lr": local, "server_lr": self.server_lr(local)}

    def steeper(self) -> "LossCurvature":
        """The same with twice the curvature: rates halve."""
        return self._replace(L=2 * self.L, largest=2 * self.largest, difference=2 * self.difference)
