"""Who takes part, one file each. A contender added here needs a file `with_NAME.py` with its `prepare`."""

import dataclasses

from benchmarks.peers.environments import Environment

TORCH = ("torch==2.13.0",)  # first and pinned: as a dependency it may come with gigabytes for GPUs


@dataclasses.dataclass(frozen=True)
class Contender:
    """A contender: its module, its environment (None: the one that runs the benchmark) and what it cannot do."""

    key: str
    title: str
    environment: Environment | None = None
    ours: bool = False  # cofed, in one way or another
    peer: bool = False  # another federated library
    gossip: bool = False  # whether clients can talk to each other without a server

    @property
    def module(self) -> str:
        """Run in the contender's process."""
        return f"{__name__}.with_{self.key}"


CONTENDERS = {
    contender.key: contender
    for contender in (
        Contender("cofed", "cofed", ours=True, gossip=True),
        Contender("cofed_mesh", "cofed, all cores", ours=True, gossip=True),
        Contender("numpy", "NumPy loop", gossip=True),
        Contender("fedjax", "FedJAX", Environment("fedjax", (("fedjax==0.0.17", "jax[cpu]==0.4.38"),)), peer=True),
        Contender("pfl", "pfl", Environment("pfl", (TORCH, ("pfl[pytorch]==0.6.0", *TORCH))), peer=True),
        Contender("flower", "Flower", Environment("flower", (TORCH, ("flwr[simulation]==1.41.0", *TORCH))), peer=True),
    )
}
