"""What has been looked at: models with their losses and gradients, some with their Hessians; each serves every strength."""

import dataclasses

import numpy as np

Vector = np.ndarray


@dataclasses.dataclass(frozen=True)
class Curvature:
    """A Hessian of the mean loss, on some parameters."""

    where: np.ndarray  # positions of parameters
    matrix: np.ndarray


class Bundle:
    """All models of one training set that were looked at, the model without features first.

    Models are laid out as vectors: coefficients by feature and output, then the intercepts.
    """

    def __init__(self, start: Vector, loss: float, gradient: Vector, penalty: float, zeroing: float):
        self.w, self.gradient = start[None], gradient[None]
        self.loss, self.penalty = np.array([loss]), np.array([penalty])  # of the penalty of strength 1
        self.zeroing = np.array([zeroing])  # the least strength at which the gradient is in the dual ball
        self.held = np.array([np.nan])  # mean losses of held-out rows
        self.curvature: dict[int, Curvature] = {}

    def __len__(self) -> int:
        return len(self.loss)

    def add(
        self, w: np.ndarray, loss: Vector, gradient: np.ndarray, penalty: Vector, zeroing: Vector, held: Vector
    ) -> np.ndarray:
        """Take in models; their positions."""
        before = len(self)
        self.w, self.gradient = np.vstack([self.w, w]), np.vstack([self.gradient, gradient])
        self.loss, self.penalty = np.append(self.loss, loss), np.append(self.penalty, penalty)
        self.zeroing, self.held = np.append(self.zeroing, zeroing), np.append(self.held, held)
        return np.arange(before, len(self))

    def objective(self, alpha: float) -> Vector:
        """Of every model, at this strength."""
        return np.where(np.isfinite(self.loss), self.loss + alpha * self.penalty, np.inf)
