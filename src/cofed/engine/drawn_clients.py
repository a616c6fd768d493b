"""Who takes part in which round, drawn again when asked for: a draw depends on (seed, round) alone."""

import dataclasses
from collections.abc import Iterator, Sequence

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from cofed.engine import sampling
from cofed.engine.spec import RunSpec
from cofed.samplers import AbstractSampler, Draw

BLOCK = 512  # rounds that are drawn at once


@dataclasses.dataclass(frozen=True)
class DrawnClients:
    """The draws of a run's clients."""

    sampler: AbstractSampler
    seed: int
    names: Sequence[str]  # of the clients, by their ids

    @classmethod
    def of(cls, spec: RunSpec) -> "DrawnClients":
        """Those of a run."""
        return cls(spec.sampler, spec.seed, spec.names_by_id)

    def rounds(self, first: int, count: int) -> Draw:
        """The draws of rounds first, first + 1, ..., stacked."""
        return draws(self.sampler, jax.random.key(self.seed), jnp.asarray(first, jnp.int32), len(self.names), count)

    def participants(self, rounds: int) -> Iterator[tuple[int, str]]:
        """Every round before `rounds`, with each client that took part in it."""
        for first in range(0, rounds, BLOCK):
            drawn = jax.tree.map(np.asarray, self.rounds(first, BLOCK))
            for i in range(min(BLOCK, rounds - first)):
                who = drawn.clients[i] if drawn.present is None else drawn.clients[i][drawn.present[i]]
                yield from ((first + i, self.names[int(m)]) for m in np.sort(who))


@eqx.filter_jit
def draws(sampler: AbstractSampler, key: PRNGKeyArray, first: Int[Array, ""], clients: int, rounds: int) -> Draw:
    """The draws of some rounds."""
    one = lambda r: sampler.draw(sampling.sampler_key(sampling.round_key(key, r)), r, clients)  # noqa: E731
    return jax.vmap(one)(first + jnp.arange(rounds, dtype=jnp.int32))
