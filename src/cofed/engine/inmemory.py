"""Where a run's data lie, in memory, of one device or of several: the compiled loop as it stands."""

from typing import Any

from jaxtyping import Array, PyTree

from cofed.engine.chunk_loop import Clock, Records, Task, enter, look, run_chunk
from cofed.engine.debug import debug_advance
from cofed.engine.mesh import everywhere
from cofed.engine.server_rounds import State


class InMemory:
    """All that a run does with data. `ondisk.OnDisk` offers the same for clients on disk."""

    def enter(self, task: Task, starts: PyTree, key: Array, round: Array) -> State:
        """The state before a stage's first round."""
        return enter(task, *everywhere(task, (starts, key, round)))

    def look(self, task: Task, state: State) -> dict[str, Any]:
        """The row of the present model."""
        return look(task, state)

    def advance(self, task: Task, state: State, clock: Clock) -> tuple[State, Records]:
        """Rounds up to clock.stop."""
        return run_chunk(task, state, everywhere(task, clock))

    def debug(self, task: Task, state: State, clock: Clock, names: Any) -> tuple[State, Records]:
        """The same eagerly, with failures named."""
        return debug_advance(task, state, clock, names)

    def template(self, state: State, shapes: dict[str, list[int]]) -> State:
        """A state with the shapes of a checkpoint's."""
        return state
