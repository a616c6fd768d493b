"""What the server's loop acts through (the network, the disk, the log), and the arrays that it sends to sites."""

import dataclasses
import functools
from collections.abc import Iterable

from jaxtyping import PyTree

from cofed.flower import wire
from cofed.flower.flwr_types import ArrayRecord
from cofed.flower.membership import Membership
from cofed.flower.messages import RoundInstructions
from cofed.flower.progress import Event, ProgressLog
from cofed.flower.run_folder import RunFolder
from cofed.flower.state import NetworkState
from cofed.flower.transport import Transport


@dataclasses.dataclass(frozen=True)
class ServerIO:
    """Everything outside the state that the server's loop reads or writes."""

    transport: Transport
    folder: RunFolder
    progress: ProgressLog

    def tell(self, state: NetworkState, events: Iterable[Event]) -> None:
        """Tell what happened in the present round."""
        self.progress.tell(state.round, events)

    def write_definition(self, membership: Membership) -> None:
        """Write what the run is, and what its sites have said of themselves."""
        cards = [info.entries() for info in membership.infos.values()]
        self.folder.write_definition({**membership.spec.description(), "run": self.transport.run, "cards": cards})

    def save(self, state: NetworkState) -> None:
        """Write a checkpoint; this comes before anybody is asked for the next round."""
        self.folder.save(state.checkpoint(), state.log)


@dataclasses.dataclass(frozen=True)
class RoundArrays:
    """The arrays of a round's messages: each is packed once for all sites, when it is first needed."""

    state: NetworkState
    other: PyTree = None  # a model to evaluate instead of a round's work

    @property
    def only_model(self) -> bool:
        """Whether there is nothing to do but to evaluate a model."""
        return self.other is not None

    @functools.cached_property
    def down(self) -> ArrayRecord:
        """What the algorithm broadcasts."""
        return wire.pack(self.state.stage.algorithm.broadcast(self.state.server))

    @functools.cached_property
    def start(self) -> ArrayRecord:
        """Where a client without a state begins."""
        return wire.pack(self.state.stage.start)

    @functools.cached_property
    def model(self) -> ArrayRecord:
        """The model to evaluate."""
        return wire.pack(self.other if self.only_model else self.state.model)

    def for_site(self, instructions: RoundInstructions) -> dict[str, ArrayRecord]:
        """The arrays that a site with these instructions needs."""
        if self.only_model:
            return {"model": self.model}
        arrays = {"down": self.down}
        if self.state.stage.keeps_state and (instructions.counted < 0 or instructions.clip):
            arrays["start"] = self.start
        if instructions.evaluate or instructions.last:
            arrays["model"] = self.model
        return arrays
