"""What the rounds of a stage work with and can be asked: one contract for rounds with and without a server.

AbstractTask       what every run can be asked: its state, a round, its model, its row of the history, its messages
  ServerTask       rounds through a server (server_rounds.py)
    BufferedTask   the same on a simulated clock, without waiting for everybody (buffered_rounds.py)
  GossipTask       rounds along a graph (gossip_rounds.py)
"""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, PRNGKeyArray, PyTree

from cofed._util.trees import nbytes
from cofed.algorithms.base import AbstractAlgorithm
from cofed.batches import AbstractBatches
from cofed.engine import evaluate
from cofed.engine.client_loop import AbstractClientLoop
from cofed.engine.data import Data
from cofed.engine.history import Communication
from cofed.engine.plan import Plan
from cofed.engine.state import State
from cofed.engine.steps import ClientView, RoundContext, Steps, make_steps
from cofed.problem import Problem

A = TypeVar("A", bound=AbstractAlgorithm)


@dataclasses.dataclass(frozen=True)
class Recording:
    """What a chunk of rounds records: static, so a change of it compiles a new program."""

    per_client: bool = False
    keep_models: bool = False
    capacity: int = 64  # the most rounds of a chunk


class Participation(eqx.Module):
    """Who took part in a round (in the records of a chunk: in each of its rounds)."""

    clients: Int[Array, "*rounds participants"]  # positions
    lost: Bool[Array, "*rounds participants"]  # whether the update was not finite, and so did not count
    present: Int[Array, "*rounds"]  # how many took part
    messages: Int[Array, "*rounds"]  # how many clients (by gossip: links, each way) were served


class Messages(NamedTuple):
    """What is sent in one round, as trees of arrays or of their shapes."""

    down: PyTree  # to one client
    up: PyTree  # from one client; by gossip, along one link
    first: PyTree  # in the exchange before the first round; () where there is none


class PersonalModels(eqx.Module):
    """The clients' own models and how they do, each on its own client's data."""

    models: PyTree  # stacked
    scores: dict[str, Array]  # on the clients' data
    tests: dict[str, Array]  # on the held-out parts, in their order
    sizes: Int[Array, " clients"]  # how many samples each client has


class AbstractTask(eqx.Module, Generic[A]):
    """All that the rounds of a stage work with and never change: arrays, and numbers as arrays."""

    algorithm: A
    problem: Problem
    data: Data
    plan: Plan = eqx.field(static=True)
    held_out: Data | None = None
    metrics: dict[str, Callable] = eqx.field(default_factory=dict)
    recording: Recording = eqx.field(static=True, default=Recording())
    measured: Data | None = None  # what rows are measured on, where that is not the data of the rounds
    batches: AbstractBatches | None = None  # what draws the batches of local steps; None: uniformly

    @abstractmethod
    def spread_start(self, w0: PyTree) -> PyTree:
        """What `begin` takes for the first stage, where everybody begins from the same parameters."""

    @abstractmethod
    def begin(self, starts: PyTree, key: PRNGKeyArray, round: int | Int[Array, ""]) -> State:
        """The state before the first round of the stage."""

    @abstractmethod
    def one_round(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Participation]:
        """The state after one more round, and who took part. `loop` says how clients work; None: in blocks."""

    @abstractmethod
    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        """The state or, where the last round was bad, a failed one with the model of before."""

    @abstractmethod
    def model(self, state: State) -> PyTree:
        """The federation's present model."""

    @abstractmethod
    def average(self, state: State) -> PyTree | None:
        """The averaged model; None where the method defines none."""

    @abstractmethod
    def next_start(self, state: State) -> PyTree:
        """What the next stage begins from."""

    @property
    @abstractmethod
    def is_personal(self) -> bool:
        """Whether each client (or node) has a model of its own."""

    @abstractmethod
    def personal(self, state: State) -> PyTree:
        """These models, stacked."""

    @abstractmethod
    def columns(self, state: State, w: PyTree, data: Data) -> dict[str, Array]:
        """What this kind of run adds to a row of the history; `w` is the present model, measured on `data`."""

    @abstractmethod
    def client_state(self, w0: PyTree) -> PyTree:
        """What one client (or node) keeps between rounds, before its first one."""

    @abstractmethod
    def messages(self, w0: PyTree) -> Messages:
        """What is sent in one round, and before the first."""

    @abstractmethod
    def communication(self, each: tuple[int, int], total: tuple[int, int]) -> Communication:
        """The bytes of a run, from those down to and up from one client in one round, and those of all rounds."""

    def first_messages(self, state: State) -> int:
        """How many messages are sent before the first round of a stage."""
        return 0

    @property
    def ends_locally(self) -> bool:
        """Whether every client works once more after the last round, by `conclude`."""
        return False

    def conclude(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Bool[Array, " clients"]]:
        """The state after the clients' last piece of work, and whose was finite."""
        raise TypeError(f"{self.algorithm.name} has no work after the last round")

    def row(self, state: State) -> dict[str, Array]:
        """The row of the present model in the history."""
        w, data = self.model(state), self.data if self.measured is None else self.measured
        found = evaluate.row(self.problem, data, self.held_out, self.metrics, self.recording.per_client, w)
        return found | self.columns(state, w, data)

    def personal_report(self, state: State) -> PersonalModels:
        """The clients' own models, of a method that has such, and how they do."""
        models = self.personal(state)
        everyone = self.data.everybody(models)
        tests, held_out = {}, self.held_out
        if held_out is not None and held_out.owners is not None:
            tests = evaluate.client_scores(self.problem, held_out, evaluate.owned(everyone, held_out))
        scores = evaluate.client_scores(self.problem, self.data, models)
        return PersonalModels(everyone, scores, tests, self.data.everybody(self.data.sizes))

    def first_steps(self) -> Steps:
        """The first client's local steps in round 0, to look at shapes."""
        return make_steps(self.problem, self.data, self.plan, *self.first_client())

    def first_client(self) -> tuple[ClientView, RoundContext]:
        """The first client, and round 0."""
        context = RoundContext(jax.random.key(0), jnp.zeros((), self.data.dtype), self.batches)
        return ClientView(jnp.zeros((), jnp.int32)), context

    def message_bytes(self, w0: PyTree) -> tuple[int, int, int]:
        """The sizes of a round's messages down and up, and of the one before the first round (see `Messages`)."""
        shapes = jax.eval_shape(lambda w0, data: dataclasses.replace(self, data=data).messages(w0), w0, self.data)
        down, up, first = (nbytes(message) for message in shapes)
        return down, up, first
