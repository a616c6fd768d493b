"""What a generator returns, and the draws that several papers share."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from cofed._util import checks, machine
from cofed._util.checks import shown
from cofed.federation import Federation
from cofed.federation.arrays import floating


@dataclass(frozen=True)
class Synthetic:
    """Generated clients, with the truth that they were drawn from.

    All draws are made in 64 bits and then rounded, so the float32 set is the float64 set, rounded.

    Parameters
    ----------
    federation
        The clients.
    truth
        The model to recover, in 64 bits: "coef", and "intercept" where there is one.
    local
        The clients' own models, stacked first, where these differ.
    test
        Fresh data from the same truth.
    R
        The heterogeneity of the clients' models, where the paper defines it.

    Examples
    --------
    >>> import cofed
    >>> data = cofed.datasets.yuan_lasso(clients=2, samples=3, d=4, nonzeros=2, test_clients=0)
    >>> data.truth["coef"], data.test is None
    (array([1., 1., 0., 0.]), True)
    """

    federation: Federation
    truth: Mapping[str, Any]
    local: Mapping[str, Any] | None = None
    test: Federation | None = None
    R: float | None = None


Pair = tuple[np.ndarray, np.ndarray]


def federation(pairs: Iterable[Pair], dtype: str, prefix: str = "") -> Federation:
    """The clients drawn one after the other, each rounded at once so that memory holds one 64-bit client."""
    clients = {f"{prefix}{m}": (X.astype(dtype), y) for m, (X, y) in enumerate(pairs)}
    return Federation.from_arrays(clients, dtype=dtype)


def shifted_clients(
    rng: np.random.Generator,
    clients: int,
    samples: int,
    coef: np.ndarray,
    intercept: float,
    noise: Callable[[tuple[int, ...]], np.ndarray],
) -> Iterable[Pair]:
    """x = mu_m + noise with mu_m ~ N(0, I) fixed per client, y = <x, coef> + intercept + N(0, 1)."""
    for _ in range(clients):
        X = rng.standard_normal(coef.shape) + noise((samples, *coef.shape))
        yield X, X.reshape(samples, -1) @ coef.ravel() + intercept + rng.standard_normal(samples)


def sigmoid(z: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-z)), through tanh, which does not overflow."""
    return (1 + np.tanh(z / 2)) / 2


def check_sizes(owner: str, **sizes: int) -> None:
    """Refuse sizes below 1, and clients whose samples would not fit into memory."""
    for name, value in sizes.items():
        if not checks.is_integer(value) or value < 1:
            raise ValueError(f"{owner}: {name} must be a whole number >= 1, got {shown(value)}")
    check_room(owner, *(int(sizes.get(name, 1)) for name in ("clients", "samples", "d")))


def check_room(owner: str, clients: int, samples: int, features: int) -> None:
    """Refuse, before anything is drawn, clients whose samples would not fit into memory in 32 bits."""
    counts = [f"{count:,}" if count < 10**15 else f"10^{len(str(count)) - 1}" for count in (clients, samples, features)]
    what = f"{owner}: {counts[0]} clients with {counts[1]} samples of {counts[2]} features (d)"
    machine.require(4 * clients * samples * features, what, "ask for fewer")


def check_counts(owner: str, **counts: int) -> None:
    """Refuse what is not a whole number >= 0."""
    for name, value in counts.items():
        checks.integer(f"{owner}: {name}", value, least=0)


def check_choices(owner: str, seed: int, dtype: str) -> None:
    """Refuse a seed or a dtype that is none."""
    checks.generator_seed(owner, seed)
    floating(f"{owner}: dtype", dtype)


def check_scale(owner: str, **scales: object) -> None:
    """Refuse what is not a number >= 0, and such as make data that overflow."""
    for name, value in scales.items():
        if checks.nonnegative(f"{owner}: {name}", value) > 1e15:
            raise ValueError(f"{owner}: {name} must be a number from 0 to 1e15, got {shown(value)}")


def check_at_most(owner: str, name: str, value: int, bound_name: str, bound: int) -> None:
    """Refuse a number of non-zeros or a rank beyond the dimension."""
    if not checks.is_integer(value) or not 0 <= value <= bound:
        raise ValueError(f"{owner}: {name} must be between 0 and {bound_name}={bound}, got {shown(value)}")
