"""Who takes part in which round, drawn again when asked for: draws and clocks depend on the seed alone."""

import dataclasses
from collections.abc import Iterator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, PRNGKeyArray

from cofed._util.programs import program
from cofed.clocks import Clock, first_to_finish
from cofed.engine import sampling
from cofed.engine.spec import RunSpec
from cofed.federation import Federation
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


@dataclasses.dataclass(frozen=True)
class ClockedClients:
    """The clients that end the rounds of a run on a clock."""

    clock: Clock  # its numbers of the data's dtype
    seed: int
    names: Sequence[str]  # of the clients, by their positions
    ids: Int[Array, " clients"]
    count: int  # of them in a round

    @classmethod
    def of(cls, spec: RunSpec, clock: Clock) -> "ClockedClients":
        """Those of a run on this clock."""
        federation, count = spec.federation, spec.clients_per_round
        assert isinstance(federation, Federation), "a clock wants clients in memory"
        assert not isinstance(count, AbstractSampler), "and a number of them"
        clock = jax.tree.map(lambda leaf: jnp.asarray(leaf, federation.dtype), clock)
        return cls(clock, spec.seed, federation.names, federation.ids, count or federation.n_clients)

    def participants(self, rounds: int) -> Iterator[tuple[int, str]]:
        """Every round before `rounds`, with each client whose update came in it."""
        found = np.asarray(finishers(self.clock, jax.random.key(self.seed), self.ids, self.count, rounds))
        for r, who in enumerate(found):
            yield from ((r, name) for name in sorted(self.names[int(m)] for m in who))


def attendance(spec: RunSpec) -> DrawnClients | ClockedClients:
    """Who takes part in a run."""
    return DrawnClients.of(spec) if spec.clock is None else ClockedClients.of(spec, spec.clock)


@program
def finishers(
    clock: Clock, key: PRNGKeyArray, ids: Int[Array, " clients"], count: int, rounds: int
) -> Int[Array, "rounds count"]:
    """The positions of those that finish first, round by round."""

    def one(finish, r):
        who = first_to_finish(finish, ids, count)
        work = clock.work(key, jnp.full_like(ids, r + 1), ids)
        return finish.at[who].set(jnp.max(finish[who]) + work[who]), who

    start = clock.work(key, jnp.zeros_like(ids), ids)
    return jax.lax.scan(one, start, jnp.arange(rounds, dtype=jnp.int32))[1]


@program
def draws(sampler: AbstractSampler, key: PRNGKeyArray, first: Int[Array, ""], clients: int, rounds: int) -> Draw:
    """The draws of some rounds."""
    one = lambda r: sampler.draw(sampling.sampler_key(sampling.round_key(key, r)), r, clients)  # noqa: E731
    return jax.vmap(one)(first + jnp.arange(rounds, dtype=jnp.int32))
