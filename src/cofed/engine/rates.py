"""Rates that nobody gives: from the curvature of the clients' losses, by the theory of each method.

Hyperparameters that are "auto" are settled here, before a run, and nowhere else. The curvature at the start is found by
Lanczos' method and power iterations, of which every step is an exchange: a vector goes to the clients, each sends back
its Hessian times that vector. These bytes count among the run's.
"""

import contextlib
import dataclasses
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from cofed._util.programs import program
from cofed._util.scalars import is_auto
from cofed.algorithms.base import AbstractAlgorithm, LossCurvature
from cofed.engine import evaluate
from cofed.engine.data import Data, data_of
from cofed.engine.ending import judged_by, usual_start
from cofed.engine.job import check, plan_of, prepare, traced
from cofed.engine.spec import RunSpec
from cofed.federation import Federation
from cofed.problem import Problem

T = TypeVar("T")

STEPS = 20  # of Lanczos' method, and of each client's power iteration on its own
DIFFERENCE_STEPS = 10  # of the power iteration for how far clients are apart; each takes two exchanges
PROBES = 32  # vectors for the traces of the clients' Hessians, which their mini-batches ask for
BEGINNINGS = 10  # how often a run begins before it goes on whatever its objective does
NOTICEABLE = 0.1  # of the objective at a problem's own start


class BytesBefore(NamedTuple):
    """Bytes that were sent before a run."""

    down: int = 0
    up: int = 0


NOTHING = BytesBefore()


class Growth:
    """A callback that ends a run whose objective has grown to more than twice its start.

    A run may begin at a model that is almost the optimum, and the noise of its steps is then many times the objective
    there: it has to rise by `NOTICEABLE` of the objective at the problem's own start, too.
    """

    def __init__(self, usual: Callable[[str], float]):
        self.usual = usual
        self.first: dict[str, Any] = {}
        self.grew = False

    def on_row(self, row: dict[str, Any]) -> bool:
        """False where the run is to end."""
        self.first = self.first or row
        column = judged_by(self.first, row)
        start, now = self.first[column], row[column]
        doubled = bool(np.isfinite(start) and not now - start <= abs(start))
        self.grew = doubled and not now - start <= NOTICEABLE * abs(self.usual(column))
        return not self.grew


def usual_level(spec: RunSpec, column: str) -> float:
    """A column at the problem's own start; 0 where a run begins there, whose first row has it."""
    return 0.0 if spec.w0 is None else usual_start(prepare(dataclasses.replace(spec, w0=None)), column)


@contextlib.contextmanager
def quietly(asked: bool) -> Iterator[None]:
    """Without the warning of a run that diverged, where another one is to follow."""
    with warnings.catch_warnings():
        if asked:
            warnings.filterwarnings("ignore", message=".* diverged", category=RuntimeWarning)
        yield


def open_fields(value: object) -> list[str]:
    """The fields of a method that are "auto"; none of what is no method, which `RunSpec` refuses."""
    if not isinstance(value, AbstractAlgorithm):
        return []
    names = [field.name for field in dataclasses.fields(value)]
    return [name for name in names if is_auto(getattr(value, name))]


def inner(value: object) -> dict[str, AbstractAlgorithm]:
    """The methods that a method is made of, such as the one that `Compressed` compresses."""
    if not isinstance(value, AbstractAlgorithm):
        return {}
    parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return {name: part for name, part in parts.items() if isinstance(part, AbstractAlgorithm)}


def is_open(algorithm: object) -> bool:
    """Whether a number of the method, or of one that it is made of, is still to be settled."""
    return bool(open_fields(algorithm)) or any(is_open(part) for part in inner(algorithm).values())


def stand_in(algorithm: T) -> T:
    """The method with 1 for every number that is to be settled, to check the rest of a run with."""
    return filled(algorithm, lambda method, name: 1.0) if is_open(algorithm) else algorithm


def settled(algorithm: T, curvature: LossCurvature) -> T:
    """The method with the numbers that its theory gives."""

    def number(method: AbstractAlgorithm, name: str) -> float:
        found = method.rates(curvature)
        if name not in found:
            raise ValueError(f"{method.name} has no rule for {name}='auto': give a number")
        return float(found[name])

    return filled(algorithm, number)


def filled(method: T, number: Callable[[AbstractAlgorithm, str], float]) -> T:
    """The method with this number for each field that is "auto"."""
    assert isinstance(method, AbstractAlgorithm)
    new: dict[str, Any] = {name: number(method, name) for name in open_fields(method)}
    new |= {name: filled(part, number) for name, part in inner(method).items() if is_open(part)}
    return dataclasses.replace(method, **new)


def measured(spec: RunSpec) -> tuple[LossCurvature, BytesBefore]:
    """The curvature of the clients' losses at the start of a run, and the bytes that it takes to know it."""
    plan = plan_of(spec, spec.local_steps)
    check(spec, plan)
    federation = spec.federation
    if not isinstance(federation, Federation) or federation.draw is not None:
        raise ValueError(
            "'auto' looks at all clients' losses before the run, which clients on disk and streams do not have at "
            "hand: give numbers"
        )
    data = data_of(federation, spec.weights)
    flat, back = ravel_pytree(spec.start())
    problem, weights = traced(spec.problem, data.dtype), np.asarray(data.weights, float)

    def each(vectors: np.ndarray) -> np.ndarray:
        return np.asarray(products(problem, data, back, flat, jnp.asarray(vectors, flat.dtype)), float)

    def mean(vector: np.ndarray) -> np.ndarray:
        return weights @ each(np.broadcast_to(vector, (data.clients, flat.size)))

    first = np.random.default_rng(0).standard_normal(flat.size)
    values = ritz_values(mean, first, min(STEPS, flat.size))
    noise = batch_noise(each, np.asarray(data.sizes), flat.size, plan.batch)
    L = float(np.abs(values).max() + weights**2 @ noise)
    largest = max(L, float((largest_of_each(each, data.clients, first) + noise).max()))
    apart = difference(mean, each, weights, first)
    sent = flat.nbytes * (min(STEPS, flat.size) + 2 * DIFFERENCE_STEPS)
    number = flat.dtype.itemsize * (1 if plan.batch is None else 2)  # each client's largest curvature, and its noise
    curvature = LossCurvature(L, largest, max(0.0, float(values.min())), apart, plan.steps)
    if not np.isfinite(curvature).all() or largest <= 0:
        raise ValueError("the loss has no curvature at the start from which rates could follow: give numbers")
    return curvature, BytesBefore(data.clients * sent, data.clients * (sent + number))


@program
def products(
    problem: Problem, data: Data, back: Callable, w: Float[Array, " d"], vectors: Float[Array, "clients d"]
) -> Float[Array, "clients d"]:
    """The Hessian of each client's loss at w, times its vector."""

    def product(v, *own):
        gradient = jax.grad(lambda x: problem.mean_loss(back(x), *own))
        return jax.jvp(gradient, (w,), (v,))[1]

    return evaluate.per_client(product, data, vectors)


def ritz_values(product: Callable[[np.ndarray], np.ndarray], first: np.ndarray, steps: int) -> np.ndarray:
    """Eigenvalues of a symmetric matrix, its ends first found, by Lanczos' method with whole orthogonalisation."""
    basis = [first / np.linalg.norm(first)]
    images = []
    for _ in range(steps):
        images.append(product(basis[-1]))
        rest = images[-1]
        for _ in range(2):  # once more against what rounding leaves
            rest = rest - np.array(basis).T @ (np.array(basis) @ rest)
        length = float(np.linalg.norm(rest))
        if not length > 1e-10 * np.linalg.norm(images[-1]):
            break
        basis.append(rest / length)
    T = np.array(basis[: len(images)]) @ np.array(images).T
    return np.linalg.eigvalsh((T + T.T) / 2) if np.isfinite(T).all() else np.array([np.nan])


def batch_noise(each: Callable[[np.ndarray], np.ndarray], sizes: np.ndarray, d: int, batch: int | None) -> np.ndarray:
    """What mini-batches add to each client's curvature: (n - b)/(b (n - 1)) times that of a single sample.

    So says the expected smoothness of Gower et al. 2019, ICML (Proposition 3.8), with the mean over samples, the trace
    of the Hessian, in place of the largest. The trace is exact for few parameters, else from random signs; each client
    finds its own.
    """
    if batch is None:
        return np.zeros(len(sizes))
    signs = np.random.default_rng(1).choice([-1.0, 1.0], size=(PROBES, d))
    probes = np.eye(d) if d <= PROBES else signs / np.sqrt(PROBES)
    traces = sum((each(np.broadcast_to(v, (len(sizes), d))) @ v for v in probes), np.zeros(len(sizes)))
    return np.maximum(traces, 0) * np.maximum(sizes - batch, 0) / (batch * np.maximum(sizes - 1, 1))


def largest_of_each(each: Callable[[np.ndarray], np.ndarray], clients: int, first: np.ndarray) -> np.ndarray:
    """The largest curvature of each client, by a power iteration of its own."""
    vectors, norms = np.broadcast_to(first, (clients, first.size)), np.ones(clients)
    for _ in range(STEPS):
        lengths = np.linalg.norm(vectors, axis=1)
        vectors = each(vectors / np.where(lengths > 0, lengths, 1)[:, None])
        norms = np.linalg.norm(vectors, axis=1)
    return norms


def difference(
    mean: Callable[[np.ndarray], np.ndarray],
    each: Callable[[np.ndarray], np.ndarray],
    weights: np.ndarray,
    first: np.ndarray,
) -> float:
    """The root of the norm of mean (H_m - H)^2: that of mean H_m (H_m - H), as the differences add up to zero."""
    vector, norm = first, 0.0
    for _ in range(DIFFERENCE_STEPS):
        vector = vector / np.linalg.norm(vector)
        own = each(np.broadcast_to(vector, (weights.size, vector.size)))
        vector = weights @ each(own - weights @ own)
        norm = float(np.linalg.norm(vector))
        if not norm > 0:
            break
    return norm**0.5
