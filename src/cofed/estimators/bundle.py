"""What has been looked at: models with their losses and gradients, some with Hessians. Each serves every strength.

Models are laid out as vectors: coefficients by feature and output, then the intercepts.
"""

import dataclasses
import functools

import numpy as np

Vector = np.ndarray


@dataclasses.dataclass(frozen=True)
class Curvature:
    """A Hessian of the mean loss, on some parameters."""

    where: np.ndarray  # positions of the parameters
    matrix: np.ndarray

    @functools.cached_property
    def beside_nothing(self) -> np.ndarray:
        """The matrix with one more row and column, of zeros: of parameters that it does not tell of."""
        return np.pad(self.matrix, (0, 1))

    def on(self, own: np.ndarray, size: int) -> np.ndarray:
        """The Hessian on some of `size` parameters. Of what it does not tell, a diagonal that is rather too large."""
        if len(self.where) == len(own) == size:
            return self.matrix
        place = np.full(size, len(self.where))
        place[self.where] = np.arange(len(self.where))
        inner = place[own]
        found = self.beside_nothing.take(inner, axis=0).take(inner, axis=1)
        unknown = np.flatnonzero(inner == len(self.where))
        found[unknown, unknown] = 2 * float(self.matrix.diagonal().max())
        return found


@dataclasses.dataclass(frozen=True)
class Looks:
    """Models of one training set with what was seen of them: means over rows."""

    w: np.ndarray  # M x d
    loss: Vector  # infinite where it was not finite
    gradient: np.ndarray  # M x d
    penalty: Vector  # of strength 1
    zeroing: Vector  # the least strength at which the gradient is in the penalty's dual ball
    held: Vector  # of held-out rows


class Bundle:
    """All models of one training set that were looked at; the first is the model without features."""

    def __init__(self, first: Looks):
        self.seen = first
        self.curvature: dict[int, Curvature] = {}

    def __len__(self) -> int:
        return len(self.seen.loss)

    def add(self, more: Looks) -> np.ndarray:
        """Take in models; their positions."""
        before = len(self)
        pairs = ((getattr(self.seen, f.name), getattr(more, f.name)) for f in dataclasses.fields(Looks))
        self.seen = Looks(*(np.concatenate(pair) for pair in pairs))
        return np.arange(before, len(self))

    def objectives(self, alphas: Vector) -> np.ndarray:
        """Of every strength (rows) and model (columns)."""
        return self.seen.loss[None, :] + alphas[:, None] * self.seen.penalty[None, :]

    def partners(self, alphas: Vector, objectives: np.ndarray) -> np.ndarray:
        """For every strength, the model whose gradient is inside its dual ball at the least cost to a dual value."""
        inside = 1 - self.seen.zeroing[None, :] / alphas[:, None]
        above = objectives - objectives.min(axis=1, keepdims=True)
        return np.argmin(np.where(inside > 0.01, above / np.maximum(inside, 0.01), np.inf), axis=1)
