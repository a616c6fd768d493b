"""Rounds without a server: along a graph, with the same methods as `rounds.Centre`."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms.base import AbstractGossipAlgorithm
from cofed.engine import evaluate, sampling
from cofed.engine.data import Data
from cofed.engine.halo import HaloLinks
from cofed.engine.history import Communication
from cofed.engine.plan import Plan
from cofed.engine.server_rounds import (
    Roll,
    State,
    at,
    called,
    copies,
    failed_where,
    first_steps,
    moved,
    select,
    started,
    together,
)
from cofed.engine.steps import make_steps
from cofed.gossip.topologies import Links
from cofed.problem import Problem

NODE_EVALUATIONS = 10**7  # up to so many (node, sample) pairs, every node's own objective is in the history


class Peers(eqx.Module):
    """Rounds along a graph: every node takes part, and what it sends is mixed with what its neighbours send."""

    links: Links | HaloLinks
    failure: Float[Array, ""] | None = None  # the probability that a link fails in a round

    def alive(self, key: PRNGKeyArray, heard: Bool[Array, " nodes"]) -> Bool[Array, " edges"]:
        """Which links work in a round: those that do not fail, between nodes that have something finite to say."""
        works = heard[self.links.first] & heard[self.links.second]
        if self.failure is None:
            return works
        return works & sampling.working_links(key, self.failure, works.shape[0])

    def starts(self, w0: PyTree, plan: Plan) -> PyTree:
        """Where the first stage of each node begins, stacked."""
        return copies(w0, plan.clients)

    def fresh(
        self,
        algorithm: AbstractGossipAlgorithm,
        problem: Problem,
        w0: PyTree,
        data: Data,
        key: PRNGKeyArray,
        round: Any,
        plan: Plan,
    ) -> State:
        """The state before a stage, after the exchange that some methods begin with."""
        if data.mesh is not None:  # of everybody's starts, those of the nodes that live here
            own = jnp.clip(data.first() + jnp.arange(data.clients, dtype=jnp.int32), 0, plan.clients - 1)
            w0 = jax.tree.map(lambda leaf: leaf[own], w0)
        nodes = jax.vmap(lambda one: algorithm.init_node(problem, one))(w0)
        if algorithm.exchanges_first:
            # Rounds before the first have negative numbers, so that their draws are their own.
            at = -1 - jnp.asarray(round, jnp.int32)
            fresh_key = sampling.round_key(key, at)
            began, up = self.each_node(
                algorithm.first_node, problem, data, plan, nodes, fresh_key, at, together, make_steps
            )
            heard = jax.vmap(trees.all_finite)((began, up))
            alive = self.alive(fresh_key, data.everybody(heard))
            mixed = self.links.mix(select(heard, up, trees.zeros_like(up)), alive)
            began = jax.vmap(lambda node, m: algorithm.mix_first(problem, node, m))(began, mixed)
            nodes = select(heard, began, nodes)
        return started((), nodes, key, round)

    def each_node(self, work, problem, data, plan, nodes, key, stage_round, for_each, make) -> tuple[PyTree, PyTree]:
        """The work of every node."""
        r = stage_round.astype(data.dtype)

        def one(position, node, own, width):
            return work(problem, node, make(problem, data, plan, position, own, key, r, width))

        return for_each(one, data, plan, called(None, data, plan), nodes)

    def one_round(
        self,
        algorithm: AbstractGossipAlgorithm,
        problem: Problem,
        data: Data,
        state: State,
        plan: Plan,
        for_each: Callable = together,
        make: Callable = make_steps,
    ) -> tuple[State, Roll]:
        """Local steps of all nodes, then one exchange with their neighbours."""
        key = sampling.round_key(state.key, state.round)
        nodes, up = self.each_node(
            algorithm.local_node, problem, data, plan, state.clients, key, state.round - state.begun, for_each, make
        )
        heard = jax.vmap(trees.all_finite)((nodes, up))
        everyone = data.everybody(heard)
        alive = self.alive(key, everyone)
        # A node that is not finite talks to nobody in this round and stays as it was.
        up = select(heard, up, trees.zeros_like(up))
        mixed = self.links.mix(up, alive)
        nodes = jax.vmap(lambda node, m: algorithm.mix(problem, node, m))(nodes, mixed)
        fine = heard & jax.vmap(trees.all_finite)(nodes)
        anyone = jnp.any(everyone)
        new = moved(state, (), (), anyone, anyone & ~jnp.any(data.everybody(fine)))
        nodes = select(fine & (new.failed_at < 0), nodes, state.clients)
        who = jnp.arange(plan.clients, dtype=jnp.int32)
        return at(new, (), nodes), Roll(who, everyone, 2 * jnp.sum(alive.astype(jnp.int32)).astype(jnp.int32))

    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        """The state, or, where the round was bad, a failed one with the nodes of before."""
        return failed_where(bad, at(state, (), trees.where(bad, old.clients, state.clients)), old)

    def first_messages(self, state: State) -> int:
        """How many messages go before the first round of a stage."""
        key = sampling.round_key(state.key, -1 - state.begun)
        return 2 * int(jnp.sum(self.alive(key, jnp.ones(self.links.nodes, bool))))

    def communication(self, down_each: int, up_each: int, down: int, up: int) -> Communication:
        """The bytes of a run, also by link and by node."""
        ends = np.concatenate([self.links.first, self.links.second])
        by_node = np.bincount(ends, minlength=self.links.nodes) * up_each
        return Communication(down_each, up_each, down, up, 2 * up_each, tuple(by_node.tolist()))

    def mean_node(self, state: State) -> PyTree:
        """The node that would be, if all had agreed."""
        return jax.tree.map(self.links.mean, state.clients)

    def model(self, algorithm: AbstractGossipAlgorithm, problem: Problem, state: State) -> PyTree:
        """The federation's model: that of the mean of all nodes."""
        return algorithm.model_node(problem, self.mean_node(state))

    def average(self, algorithm: AbstractGossipAlgorithm, problem: Problem, state: State) -> PyTree:
        """The averaged model of the mean node, or None where the method defines none."""
        return algorithm.average_node(problem, self.mean_node(state))

    def output(self, algorithm: AbstractGossipAlgorithm, problem: Problem, state: State) -> PyTree:
        """What each node's next stage begins from, stacked."""

        def own(node: PyTree) -> PyTree:
            average = algorithm.average_node(problem, node)
            return algorithm.model_node(problem, node) if average is None else average

        return jax.vmap(own)(state.clients)

    def has_personal(self, algorithm: AbstractGossipAlgorithm) -> bool:
        """Whether the method has a model per node: always."""
        return True

    def talks_first(self, algorithm: AbstractGossipAlgorithm) -> bool:
        """Whether there is an exchange before the first round."""
        return algorithm.exchanges_first

    def personal(self, algorithm: AbstractGossipAlgorithm, problem: Problem, state: State) -> PyTree:
        """Every node's model, stacked."""
        return jax.vmap(lambda node: algorithm.model_node(problem, node))(state.clients)

    def columns(
        self,
        algorithm: AbstractGossipAlgorithm,
        problem: Problem,
        data: Data,
        held_out: Data | None,
        metrics: dict[str, Callable],
        per_client: bool,
        state: State,
    ) -> dict[str, Array]:
        """How far the nodes are from each other, and the best, mean and worst of them."""
        models = self.personal(algorithm, problem, state)
        centre = self.model(algorithm, problem, state)
        apart = data.everybody(jax.vmap(lambda w: trees.dot(d := trees.sub(w, centre), d))(models))
        found = {"consensus": jnp.sqrt(jnp.mean(apart))}
        over_nodes = {name: data.everybody(jax.vmap(metric)(models)) for name, metric in metrics.items()}
        if self.links.nodes * data.room(self.links.nodes) <= NODE_EVALUATIONS:
            each, everyone = jax.vmap(problem.mean_loss, in_axes=(0, None, None, None)), data.everybody(models)
            losses = evaluate.by_blocks(lambda X, y, s: each(everyone, X, y, s), data)
            over_nodes["objective"] = losses + jax.vmap(problem.regularizer.value)(everyone)
        for name, values in over_nodes.items():
            values = values.astype(data.dtype)
            found |= {f"{name}_min": values.min(), f"{name}_mean": values.mean(), f"{name}_max": values.max()}
        return found

    def keeps(self, algorithm: AbstractGossipAlgorithm, problem: Problem, w0: PyTree) -> PyTree:
        """What one node keeps between rounds."""
        return algorithm.init_node(problem, w0)

    def messages(
        self, algorithm: AbstractGossipAlgorithm, problem: Problem, data: Data, plan: Plan, w0: PyTree
    ) -> tuple[PyTree, PyTree]:
        """What goes along a link, each way, in one round; nothing comes down."""
        return (), algorithm.local_node(problem, algorithm.init_node(problem, w0), first_steps(problem, data, plan))[1]
