"""What a site keeps between rounds: in its node's `Context.state`, and in a folder where one is given.

A state is kept under the round whose work it came from. The server says in every message which round of this client
counted last, so the right state is found after an update that came too late, for a round that is asked for twice, and
when a server was killed and started again. `Context.state` is lost with the node and is new in every run of Flower; the
folder outlives both.
"""

from pathlib import Path

import jax
import numpy as np
from jaxtyping import PyTree
from safetensors.numpy import load_file, save_file

from cofed._util.files import atomically
from cofed.engine.checkpoint import unflatten
from cofed.flower import wire
from cofed.flower.flwr_types import Context


class Lost(ValueError):
    """A state that the server counts on is not here."""


class ClientStates:
    """The states of one run at one site, by round."""

    def __init__(self, context: Context, folder: Path | None, run: str):
        self.context, self.folder, self.run = context, folder, run

    def recall(self, round: int, template: PyTree) -> PyTree:
        """The state after the client's work in this round."""
        if self.name(round) in self.context.state.array_records:
            return wire.unpack(self.context.state, self.name(round), template)
        path = self.path(round)
        if path is not None and path.exists():
            tensors = {name.partition("/")[2]: array for name, array in load_file(path).items()}
            shape = jax.tree.map(lambda leaf: np.empty(leaf.shape, leaf.dtype), template)
            return jax.tree.map(np.asarray, unflatten(shape, tensors, path))
        raise Lost("it has lost what it kept between rounds")

    def keep(self, round: int, state: PyTree, counted: int) -> None:
        """Keep the state after this round and the one that counted last, and drop all others."""
        if not jax.tree.leaves(state):
            return
        self.context.state[self.name(round)] = wire.pack(state)
        path = self.path(round)
        if path is not None:
            leaves = [np.asarray(leaf, order="C") for leaf in jax.tree.leaves(state)]
            tensors = dict(zip(wire.leaf_names(state), leaves, strict=True))
            atomically(path, lambda file: save_file(tensors, file))
        wanted = {self.name(round), self.name(counted)}
        for name in [name for name in self.context.state.array_records if name.startswith("after-")]:
            if name not in wanted:
                del self.context.state[name]
        if self.folder is not None:
            for file in self.folder.glob(f"{self.run}-after-*.safetensors"):
                if file.stem.removeprefix(f"{self.run}-") not in wanted:
                    file.unlink()

    def name(self, round: int) -> str:
        """The name of a state."""
        return f"after-{round}"

    def path(self, round: int) -> Path | None:
        """The file of a state."""
        return None if self.folder is None else self.folder / f"{self.run}-{self.name(round)}.safetensors"
