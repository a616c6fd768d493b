"""What is minimised: models with their losses, and regularizers, as plain descriptions that every framework reads."""

import dataclasses
import itertools
import math

import numpy as np

Leaves = dict[str, np.ndarray]  # parameters by name, named as cofed names them


@dataclasses.dataclass(frozen=True)
class Squares:
    """Linear regression without an intercept: (<x, coef> - y)^2 / 2."""

    shape: tuple[int, ...]  # of a sample, and of coef

    def start(self) -> Leaves:
        """Zeros."""
        return {"coef": np.zeros(self.shape, np.float32)}

    def flops(self) -> int:
        """Multiplications and additions of the gradient for one sample."""
        return 4 * math.prod(self.shape)


@dataclasses.dataclass(frozen=True)
class Multinomial:
    """Multinomial logistic regression with an intercept."""

    shape: tuple[int, ...]
    classes: int

    def start(self) -> Leaves:
        """Zeros."""
        coef = np.zeros((*self.shape, self.classes), np.float32)
        return {"coef": coef, "intercept": np.zeros(self.classes, np.float32)}

    def flops(self) -> int:
        """Of the two matrix products of the gradient, for one sample."""
        return 4 * math.prod(self.shape) * self.classes


@dataclasses.dataclass(frozen=True)
class Network:
    """The CNN of zhang2025: 3x3 convolutions with padding, each with ReLU and 2x2 max pooling, then dense layers,
    cross-entropy."""

    shape: tuple[int, ...]
    classes: int
    maps: tuple[int, ...] = (32, 32)
    hidden: tuple[int, ...] = (64, 32)

    def kernels(self) -> list[tuple[int, ...]]:
        """The shapes of the kernels, (height, width, in, out) of a convolution, (in, out) of a dense layer."""
        height, width, channels, shapes = *self.shape, 1, []
        for maps in self.maps:
            shapes.append((3, 3, channels, maps))
            height, width, channels = height // 2, width // 2, maps
        return shapes + list(itertools.pairwise([height * width * channels, *self.hidden, self.classes]))

    def start(self) -> Leaves:
        """He's initialisation: the variance of a kernel is 2 over the number of its inputs."""
        rng, leaves = np.random.default_rng(1), {}
        for i, shape in enumerate(self.kernels()):
            scale = math.sqrt(2 / math.prod(shape[:-1]))
            leaves[f"layers.{i}.kernel"] = (rng.normal(size=shape) * scale).astype(np.float32)
            leaves[f"layers.{i}.bias"] = np.zeros(shape[-1], np.float32)
        return leaves

    def flops(self) -> int:
        """Of the products of the gradient, for one sample: forward, and backward to weights and inputs (the first
        layer needs none to its inputs)."""
        height, width, total = *self.shape, 0
        for i, shape in enumerate(self.kernels()):
            places = 1
            if len(shape) == 4:
                places, height, width = height * width, height // 2, width // 2
            total += (2 if i == 0 else 3) * 2 * places * math.prod(shape)
        return total


@dataclasses.dataclass(frozen=True)
class L1:
    """strength * the sum of absolute values, over all leaves."""

    strength: float


@dataclasses.dataclass(frozen=True)
class Nuclear:
    """strength * the sum of singular values, of each leaf."""

    strength: float
