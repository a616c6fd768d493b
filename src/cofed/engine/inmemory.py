"""Where a run's data lie: the contract of a storage, and the storage in memory, of one device or of several."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import numpy.typing as npt
from jaxtyping import Array, PRNGKeyArray, PyTree

from cofed.engine.chunk_loop import ChunkRecords, ChunkSchedule, enter, glance, looked_at, run_chunk
from cofed.engine.debug import debug_advance
from cofed.engine.mesh import everywhere
from cofed.engine.state import State
from cofed.engine.task import AbstractTask


class AbstractStorage(ABC):
    """All that a run does with data. `InMemory` is here, `on_disk.OnDisk` is for clients on disk."""

    @abstractmethod
    def enter(self, task: AbstractTask, starts: PyTree, key: PRNGKeyArray, round: Array) -> State:
        """The state before a stage's first round."""

    @abstractmethod
    def look(self, task: AbstractTask, state: State) -> Mapping[str, npt.ArrayLike]:
        """The row of the present model."""

    @abstractmethod
    def advance(self, task: AbstractTask, state: State, schedule: ChunkSchedule) -> tuple[State, ChunkRecords]:
        """Rounds up to schedule.stop; all arguments are on the devices of the task."""

    @abstractmethod
    def steady(self, state: State) -> State:
        """The state, such that no later round changes it."""

    @abstractmethod
    def debug(
        self, task: AbstractTask, state: State, schedule: ChunkSchedule, names: Sequence[str]
    ) -> tuple[State, ChunkRecords]:
        """The same eagerly, with failures named."""

    @abstractmethod
    def template(self, state: State, shapes: dict[str, list[int]]) -> State:
        """A state with the shapes of a checkpoint's."""


class InMemory(AbstractStorage):
    """The compiled loop as it stands."""

    def enter(self, task: AbstractTask, starts: PyTree, key: PRNGKeyArray, round: Array) -> State:
        return enter(task, *everywhere(task, (starts, key, round)))

    def look(self, task: AbstractTask, state: State) -> Mapping[str, npt.ArrayLike]:
        return looked_at(self.advance(task, state, everywhere(task, glance())))

    advance = staticmethod(run_chunk)

    def steady(self, state: State) -> State:
        return state

    def debug(
        self, task: AbstractTask, state: State, schedule: ChunkSchedule, names: Sequence[str]
    ) -> tuple[State, ChunkRecords]:
        return debug_advance(task, state, schedule, names)

    def template(self, state: State, shapes: dict[str, list[int]]) -> State:
        return state
