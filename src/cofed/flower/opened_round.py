"""A message of a round at a site: what its work needs, and the reply, plain or under masks."""

import dataclasses
import functools
import logging
import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from cofed.algorithms.base import AbstractServerAlgorithm
from cofed.engine.data import Data
from cofed.engine.history import NOT_FINITE
from cofed.federation import Federation
from cofed.federation.rows import fill
from cofed.flower import wire
from cofed.flower.client_state import ClientStates
from cofed.flower.flwr_types import ArrayRecord, MetricRecord, RecordDict
from cofed.flower.local_work import RoundWork, evaluated
from cofed.flower.messages import Identity, RoundInstructions
from cofed.flower.privacy import Centre, bounded, centre_of, clipped, noised
from cofed.flower.site_sums import SiteSum, UpdateNoise
from cofed.privacy import NoisedSum
from cofed.problem import Problem
from cofed.sites.policy import Policy

log = logging.getLogger("flwr")


class NotFinite(ValueError):
    """An update with NaN or infinite entries."""


class Answer(NamedTuple):
    """What a site replies where all goes well."""

    head: wire.Head
    records: Mapping[str, ArrayRecord | MetricRecord] = MappingProxyType({})


@dataclasses.dataclass(frozen=True)
class OpenedRound:
    """A message of a round, checked, with all that a site's work on it needs."""

    content: RecordDict
    identity: Identity
    instructions: RoundInstructions
    problem: Problem
    algorithm: AbstractServerAlgorithm
    data: Data
    model_shape: PyTree
    folder: Path | None
    states: ClientStates
    total: SiteSum | None  # None: the server sees what this site sends
    rules: Policy  # of this site

    def part(self, name: str, shape: PyTree) -> PyTree:
        """A pytree of the message."""
        return wire.unpack(self.content, name, shape)

    @functools.cached_property
    def shapes(self) -> tuple[PyTree, PyTree]:
        """The shapes of what comes down, and of what a client keeps."""

        def both(w0: PyTree) -> tuple[PyTree, PyTree]:
            down = self.algorithm.broadcast(self.algorithm.init(self.problem, w0))
            return down, self.algorithm.init_client(self.problem, w0)

        return jax.eval_shape(both, self.model_shape)

    def work(self) -> RoundWork:
        """The client's work in the round."""
        instructions, dtype = self.instructions, self.data.X.dtype
        return RoundWork(
            algorithm=self.algorithm,
            problem=self.problem,
            data=self.data,
            plan=instructions.plan,
            seed=jax.random.key(instructions.seed),
            round=jnp.asarray(instructions.round, jnp.int32),
            stage_round=jnp.asarray(instructions.round - instructions.begun, dtype),
            down=self.part("down", self.shapes[0]),
            kept=self.kept(),
        )

    def kept(self) -> PyTree:
        """What the client has kept since the last round that counted."""
        _, shape = self.shapes
        if not jax.tree.leaves(shape) or self.instructions.counted < 0:
            return self.first_state()
        return self.states.recall(self.instructions.counted, shape)

    def first_state(self) -> PyTree:
        """What a client keeps before its first round."""
        _, shape = self.shapes
        if not jax.tree.leaves(shape):
            return shape
        return self.algorithm.init_client(self.problem, self.part("start", self.model_shape))

    def scores(self) -> dict[str, float]:
        """What the model in the message gives on the site's data."""
        scores = evaluated(self.problem, self.data, self.part("model", self.model_shape))
        return {name: float(value) for name, value in scores.items()}

    @functools.cached_property
    def noise(self) -> NoisedSum | None:
        """The noise of the masked sum of updates, where there is such a sum, and it has noise."""
        if self.total is None or not self.instructions.clip or self.instructions.last:
            return None
        leaves = zip(*map(jax.tree.leaves, self.centre), strict=True)
        size = sum(np.size(leaf) for leaf, moves in leaves if moves)
        return self.total.noise(
            self.instructions.clip, self.instructions.noise, max(1, size), self.rules.sums.colluding
        )

    @functools.cached_property
    def centre(self) -> Centre:
        """What a client without any gradient would send."""
        return centre_of(self.work(), self.first_state(), self.instructions.steps)

    def bounded(self, up: PyTree) -> PyTree:
        """The update, cut to the norm that the site's own rules allow, if they say one; its log says so."""
        most = self.rules.updates.norm
        if not most:
            return up
        if self.algorithm.is_compressed:
            raise wire.WireError("this site bounds the norm of its updates (updates.norm), but not of compressed ones")
        cut, length = bounded(self.centre, up, most)
        if length > most:
            log.warning(
                "cofed: the update of this site has the norm %.3g and is cut to %.3g (updates.norm of its policy): "
                "look at its data if that is more than once in a while",
                length,
                most,
            )
        return cut

    def private(self, up: PyTree) -> PyTree:
        """The update, clipped, and with noise where the server sees it; that of a masked sum is added to the sum."""
        centre, moves, clip = *self.centre, self.instructions.clip
        if self.total is not None:
            return clipped(centre, moves, up, clip)
        rng = np.random.default_rng(secrets.randbits(256))
        return noised(centre, moves, up, clip, self.instructions.noise, rng)

    def answer(self, up: PyTree | None, scores: Mapping[str, float], is_finite: bool) -> Answer:
        """The reply with an update and what the model in the message gives: plain, or under masks."""
        from flwr.app import MetricRecord

        if self.total is not None:
            noise = None if up is None or self.noise is None else UpdateNoise(self.noise, self.centre.moves)
            planes, signature = self.total.masked(up, scores, is_finite, noise)
            if not is_finite:
                log.warning("cofed: %s", NOT_FINITE)
            self.total.end()
            masked = wire.pack(planes.view(np.int64))
            return Answer(self.reply_head() | {"signature": signature}, {"masked": masked})
        if not is_finite:
            raise NotFinite(NOT_FINITE)
        records: dict[str, ArrayRecord | MetricRecord] = {}
        if scores:
            records["metrics"] = MetricRecord(dict(scores))
        if up is not None:
            records["up"] = wire.pack(up)
        return Answer(self.reply_head(), records)

    def reply_head(self) -> wire.Head:
        """What the head of the reply says of the round that it belongs to."""
        return self.identity.entries() | {"run": self.states.run, "round": self.instructions.round}


def padded(federation: Federation, instructions: RoundInstructions) -> Data:
    """The site's data as one client of the federation, padded to the size of the largest as the engine pads it."""
    n, most, id, clients = federation.n_samples, instructions.most, instructions.id, instructions.clients
    if n > most or not 0 <= id < clients:
        raise wire.WireError(
            f"the terms speak of at most {most} samples and client {id} of {clients}, but there are {n} samples here"
        )

    def pad(array: np.ndarray) -> Array:
        room = np.empty((1, most, *array.shape[1:]), array.dtype)
        fill(room[0], array)
        return jnp.asarray(room)

    own_X, own_y = federation.pooled()
    X, one = pad(own_X), jnp.ones(1, jnp.int32)
    return Data(X, pad(own_y), n * one, id * one, one.astype(X.dtype))
