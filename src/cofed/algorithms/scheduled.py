"""Scheduled: a method whose rates change from round to round.

Round r     the method's own, with rate f(r) in place of rate, for each rate that has a schedule f; r = 0, 1, ...
Wire        nothing beside the method's own: clients know the round
Fits        rates that a method uses within one round only (`changeable`). Where clients read one round's step out of
            what the next one sends, as in FedDecouple and ProxSkip, or a sum over all rounds is weighted by it, a rate
            that changes would be another method, so these are refused.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.types import Given
from cofed.algorithms.base import AbstractServerAlgorithm, AbstractWrapper, LocalSteps, Stage, to_wrap
from cofed.problem import Problem

Schedule = Callable[[Any], Any]  # of the round, as a floating array
LOOKED_AT = 2**20  # rounds of a run that are tried before it


class Server(NamedTuple):
    own: PyTree  # the state of the method's server
    r: Float[Array, ""]  # r, the round


def pairs(given: object) -> tuple[tuple[str, Schedule], ...]:
    """The schedules by the names of rates, in an order of their own."""
    if isinstance(given, tuple):  # made already
        return given
    if not isinstance(given, Mapping) or not given or not all(isinstance(name, str) for name in given):
        raise TypeError(
            'Scheduled: schedules must be a mapping such as {"client_lr": lambda r: 1 / (1 + r)}, got ' + shown(given)
        )
    for name, schedule in given.items():
        if not callable(schedule):
            raise TypeError(f"Scheduled: {name} of schedules must be a function of the round, got {shown(schedule)}")
    return tuple(sorted(given.items()))


class Scheduled(AbstractWrapper):
    """A method whose rates are multiplied by functions of the round (see cofed.algorithms.scheduled).

    Parameters
    ----------
    algorithm : AbstractServerAlgorithm
        The method, with its rates of round 0 where the functions begin at 1.
    schedules : mapping of str to callable
        For each rate that changes, what it is multiplied by: a JAX function of the round (0, 1, ...), such as
        ``lambda r: 1 / (1 + r)`` or ``optax.cosine_decay_schedule(1.0, 100)``. The rates themselves stay traced
        numbers: a grid of them is one program.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.ones(2)), (np.eye(2), np.zeros(2))])
    >>> falling = cofed.Scheduled(cofed.FedAvg(1.0), {"client_lr": lambda r: 0.5**r})
    >>> result = cofed.run(
    ...     cofed.Problem(cofed.Linear(intercept=False)), federation, falling, rounds=3, keep_models=True
    ... )
    >>> [float(model.coef[0].round(4)) for model in result.models]
    [0.0, 0.25, 0.3125, 0.3359]
    """

    algorithm: AbstractServerAlgorithm = eqx.field(converter=lambda given: to_wrap(given, "Scheduled"))
    schedules: Given[tuple[tuple[str, Schedule], ...]] = eqx.field(converter=pairs, static=True)  # given as a mapping

    def __check_init__(self):
        method = self.algorithm
        if not self.schedules:
            raise ValueError("Scheduled: schedules is empty: give the name of a rate and a function of the round")
        for name, schedule in dict(self.schedules).items():
            if name not in method.changeable:
                may = f"may change {' and '.join(method.changeable)}" if method.changeable else "has no rate that may"
                raise ValueError(f"Scheduled: {name} of {method.name} cannot change from round to round; it {may}")
            check_schedule(name, schedule)

    @property
    def name(self) -> str:
        return f"{self.algorithm.name}, scheduled"

    @property
    def counts_rounds(self) -> bool:
        return True

    @property
    def has_free_model(self) -> bool:
        return self.algorithm.has_free_model

    def own_server(self, server: Server) -> PyTree:
        return server.own

    def own_client(self, client: PyTree) -> PyTree:
        return client

    def at(self, r: Float[Array, ""]) -> AbstractServerAlgorithm:
        """The method with its rates of round r"""
        now = {name: getattr(self.algorithm, name) * factor(f, r) for name, f in dict(self.schedules).items()}
        return dataclasses.replace(self.algorithm, **now)

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        """The one stage, where the rates of all its rounds can be ones."""
        for name, schedule in dict(self.schedules).items():
            check_rounds(name, schedule, rounds)
        return super().stages(problem, rounds, local_steps)

    def init(self, problem: Problem, w0: PyTree) -> Server:
        return Server(self.algorithm.init(problem, w0), jnp.zeros((), trees.dtype(w0)))

    def init_client(self, problem: Problem, w0: PyTree) -> PyTree:
        return self.algorithm.init_client(problem, w0)

    def local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        return self.at(steps.round).local(problem, down, client, steps)

    def aggregate(self, problem: Problem, server: Server, up: PyTree, share: Float[Array, ""]) -> Server:
        return Server(self.at(server.r).aggregate(problem, server.own, up, share), server.r + 1)

    def with_model(self, server: Server, w: PyTree) -> Server:
        return server._replace(own=self.algorithm.with_model(server.own, w))

    def last_local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree:
        return self.at(steps.round).last_local(problem, down, client, steps)

    def origin(self, problem: Problem, server: Server) -> PyTree | None:
        return self.at(server.r).origin(problem, server.own)

    def local_origin(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree | None:
        return self.at(steps.round).local_origin(problem, down, client, steps)


def factor(schedule: Schedule, r: Float[Array, ""]) -> Float[Array, ""]:
    """What a schedule gives in round r, of the data's dtype"""
    with jax.numpy_dtype_promotion("standard"):  # a user's function may mix what it likes
        return jnp.asarray(schedule(r), r.dtype)


def check_schedule(name: str, schedule: Schedule) -> None:
    """Refuse a function that JAX cannot compute, that gives more than a number, or none that is positive at round 0."""
    try:
        value = jax.eval_shape(lambda r: factor(schedule, r), jnp.zeros(()))
        first = float(factor(schedule, jnp.zeros(())))
    except Exception as error:
        why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"  # JAX's errors go on for a page
        raise ValueError(f"Scheduled: {name} of schedules fails in round 0 ({why})") from error
    if value.shape != () or not (np.isfinite(first) and first >= 0):
        raise ValueError(f"Scheduled: {name} of schedules must give one number >= 0, got {first} in round 0")


def check_rounds(name: str, schedule: Schedule, rounds: int) -> None:
    """Refuse a function that makes a rate negative, or no number, in some round: steps would go uphill."""
    values = np.asarray(jax.vmap(lambda r: factor(schedule, r))(jnp.arange(min(rounds, LOOKED_AT), dtype=float)))
    wrong = ~(np.isfinite(values) & (values >= 0))
    if wrong.any():
        r = int(np.argmax(wrong))
        raise ValueError(f"Scheduled: {name} of schedules must give a number >= 0, got {values[r]:.4g} in round {r}")
