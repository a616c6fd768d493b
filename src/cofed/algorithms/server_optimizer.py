"""ServerOptimizer: a method whose server takes its steps by an optimizer, such as Adam: FedAdam, FedYogi, FedAdagrad.

Round       the method's own: clients work, the server makes w' of its model w
Server      g = w - w', the pseudo-gradient;  w <- w + optimizer(g), whose state stays with the server
Named       FedAvgM    optax.sgd, {"learning_rate": 1.0, "momentum": 0.9}
            FedAdam    optax.adam, {"learning_rate": 0.1, "b1": 0.9, "b2": 0.99, "eps": 1e-3}
            FedYogi    optax.yogi, {"learning_rate": 0.1, "b1": 0.9, "b2": 0.99, "eps": 1e-3}
            FedAdagrad optax.adagrad, {"learning_rate": 0.1, "eps": 1e-3}
Psi         is where the method has it at its clients: FedAvg's subgradients. A prox at the server would be undone by a
            step after it, so a method with one is refused: FedMiD, FedDualAvg, FedDecouple.
Fits        a method whose model is a part of the server's state that may be set (`with_model`): FedAvg, Scaffold,
            FedProx's common model, and one of your own. What else its server keeps, such as Scaffold's c, is its own.
Reference   Reddi et al. 2021, ICLR, Algorithm 2; Hsu, Qi, Brown 2019 (FedAvgM).
Deviations  optax's Adam and Yogi correct the bias of their first moments, and begin their second ones in their own way.

sgd with the rate 1 gives w', so the method itself, to round-off.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.scalars import entries, is_numbers, number
from cofed._util.types import Given, Hyperparameter
from cofed.algorithms.base import AbstractServerAlgorithm, AbstractWrapper, LocalSteps, to_wrap
from cofed.problem import Problem


class Server(NamedTuple):
    own: PyTree  # the state of the method's server
    memory: PyTree  # the optimizer's state: moments, counts


def steerable(given: object) -> AbstractServerAlgorithm:
    """The method, checked: its server's model must be one that can be set."""
    method = to_wrap(given, "ServerOptimizer")
    if not method.has_free_model:
        raise ValueError(
            f"ServerOptimizer: the model of {method.name} follows from its server's state, by a prox or by averages, "
            "so that no optimizer can move it by itself; FedAvg, Scaffold and FedProx can be moved"
        )
    return method


def options_of(given: object) -> dict[str, Any]:
    """The optimizer's numbers; whole ones become floats, so that another value compiles nothing."""
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise TypeError(
            f'ServerOptimizer: options must be a mapping such as {{"learning_rate": 0.1}}, got {shown(given)}'
        )
    return {name: value if isinstance(value, bool) else number(value) for name, value in given.items()}


@dataclasses.dataclass(frozen=True)
class Made:
    """What makes an optimizer that is made already: of no numbers, itself."""

    optimizer: Any

    def __call__(self) -> Any:
        return self.optimizer


def made_by(given: object) -> Callable[..., Any]:
    """What makes the optimizer; one that is made already is itself, with its numbers fixed."""
    if is_transformation(given):
        return Made(given)
    if not callable(given):
        raise TypeError(
            "ServerOptimizer: optimizer must be what makes one, with its numbers as options, such as optax.adam, "
            f'{{"learning_rate": 0.1}}, or an optax transformation such as optax.adam(0.1); got {shown(given)}'
        )
    return given


def is_transformation(value: object) -> bool:
    """Whether this is an optax transformation: a pair of functions `init` and `update`."""
    return callable(getattr(value, "init", None)) and callable(getattr(value, "update", None))


class ServerOptimizer(AbstractWrapper):
    """A method whose server moves its model by an optimizer (see cofed.algorithms.server_optimizer for the update).

    Parameters
    ----------
    algorithm : AbstractServerAlgorithm
        A method whose model the server may set: `FedAvg`, `Scaffold`, `FedProx`, or one of your own with `with_model`.
    optimizer : callable or optax.GradientTransformation
        What makes an optax transformation of numbers, such as ``optax.adam``, or a function of your own. A
        transformation, such as ``optax.adam(0.1)`` or a chain, is taken as it is: its numbers are fixed then.
    options : dict of str to float
        The numbers that it is made of, by name: traced, so a grid of them is one program.

    Examples
    --------
    FedAdam:

    >>> import numpy as np, optax, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(20, 3)), X @ np.array([1.0, 0.0, 2.0])) for _ in range(4)]
    >>> federation = cofed.Federation.from_arrays(clients)
    >>> fedadam = cofed.ServerOptimizer(cofed.FedAvg(0.05), optax.adam, {"learning_rate": 0.1, "b2": 0.99})
    >>> problem = cofed.Problem(cofed.Linear(intercept=False))
    >>> cofed.run(problem, federation, fedadam, rounds=200, local_steps=2).model.coef.round(2).tolist()
    [1.0, 0.0, 2.0]
    """

    algorithm: AbstractServerAlgorithm = eqx.field(converter=steerable)
    optimizer: Given[Callable[..., Any]] = eqx.field(converter=made_by, static=True)
    options: Given[Mapping[str, Hyperparameter | bool]] = eqx.field(converter=options_of, default_factory=dict)

    def __check_init__(self):
        for name, value in self.options.items():
            if not isinstance(value, bool) and not (is_numbers(value) and (abs(entries(value)) < float("inf")).all()):
                raise TypeError(f"ServerOptimizer: {name} of options must be a finite number, got {shown(value)}")
        if self.options and isinstance(self.optimizer, Made):
            raise TypeError(
                "ServerOptimizer: options are the numbers that an optimizer is made of, and "
                f"{shown(self.optimizer.optimizer)} is made already: give what makes it, such as optax.adam"
            )
        if all(isinstance(value, (bool, float)) for value in self.options.values()):
            check_made(self.optimizer, self.options)

    @property
    def name(self) -> str:
        return f"{self.algorithm.name} + {getattr(self.optimizer, '__name__', 'optimizer')}"

    @property
    def paper(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  (and the method's own)
        return f"Reddi et al. 2021 around {self.algorithm.paper}"

    def own_server(self, server: Server) -> PyTree:
        return server.own

    def own_client(self, client: PyTree) -> PyTree:
        return client

    def init(self, problem: Problem, w0: PyTree) -> Server:
        own = self.algorithm.init(problem, w0)
        with jax.numpy_dtype_promotion("standard"):  # optax counts in integers, and powers numbers by them
            return Server(own, self.optimizer(**self.options).init(self.algorithm.model(problem, own)))

    def init_client(self, problem: Problem, w0: PyTree) -> PyTree:
        return self.algorithm.init_client(problem, w0)

    def local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        return self.algorithm.local(problem, down, client, steps)

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        method = self.algorithm
        own = method.aggregate(problem, server.own, up, share)
        w, aim = method.model(problem, server.own), method.model(problem, own)
        with jax.numpy_dtype_promotion("standard"):
            move, memory = self.optimizer(**self.options).update(trees.sub(w, aim), server.memory, w)
        move = jax.tree.map(lambda change, leaf: change.astype(leaf.dtype), move, w)
        return Server(method.with_model(own, trees.add(w, move)), memory)

    def last_local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree:
        return self.algorithm.last_local(problem, down, client, steps)

    def origin(self, problem: Problem, server: Server) -> PyTree | None:
        return self.algorithm.origin(problem, server.own)

    def local_origin(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree | None:
        return self.algorithm.local_origin(problem, down, client, steps)


def check_made(optimizer: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Refuse an optimizer that cannot be made of these numbers, or what is none."""
    called = f"{getattr(optimizer, '__name__', 'optimizer')}({', '.join(f'{n}={v!r}' for n, v in options.items())})"
    try:
        made = optimizer(**options)
    except Exception as error:
        raise TypeError(f"ServerOptimizer: optimizer with these options, {called}, fails: {error}") from error
    if not is_transformation(made):
        raise TypeError(
            f"ServerOptimizer: optimizer with these options, {called}, gives no optax transformation but {shown(made)}"
        )
