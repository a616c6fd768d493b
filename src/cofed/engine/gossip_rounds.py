"""Rounds without a server: every node takes part, and what it sends is mixed with what its neighbours send."""

from collections.abc import Callable

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cofed._util import trees
from cofed.algorithms.base import AbstractGossipAlgorithm, LocalSteps
from cofed.engine import evaluate, sampling
from cofed.engine.client_loop import AbstractClientLoop, Vectorized, everyone
from cofed.engine.data import Data
from cofed.engine.halo import HaloLinks
from cofed.engine.history import Communication
from cofed.engine.state import State, copies, select
from cofed.engine.steps import ClientView, RoundContext
from cofed.engine.task import AbstractTask, Messages, Participation
from cofed.gossip.topologies import Links
from cofed.problem import Problem

NODE_EVALUATIONS = 10**7  # up to so many (node, sample) pairs, every node's own objective is in the history

NodeWork = Callable[[Problem, PyTree, LocalSteps], tuple[PyTree, PyTree]]  # what a node keeps, and what it sends


class GossipTask(AbstractTask[AbstractGossipAlgorithm]):
    """Rounds along a graph: local steps of all nodes, then one exchange with their neighbours."""

    links: Links | HaloLinks = eqx.field(kw_only=True)
    failure: Float[Array, ""] | None = eqx.field(kw_only=True, default=None)  # that a link fails in a round

    def alive(self, key: PRNGKeyArray, heard: Bool[Array, " nodes"]) -> Bool[Array, " edges"]:
        """Which links work in a round: those that do not fail, between nodes that have something finite to say."""
        works = heard[self.links.first] & heard[self.links.second]
        if self.failure is None:
            return works
        return works & sampling.working_links(key, self.failure, works.shape[0])

    def spread_start(self, w0: PyTree) -> PyTree:
        return copies(w0, self.plan.clients)

    def begin(self, starts: PyTree, key: PRNGKeyArray, round: int | Int[Array, ""]) -> State:
        """The state before a stage, after the exchange that some methods begin with."""
        algorithm, problem, data = self.algorithm, self.problem, self.data
        if data.mesh is not None:  # of everybody's starts, those of the nodes that live here
            own = jnp.clip(data.first() + jnp.arange(data.clients, dtype=jnp.int32), 0, self.plan.clients - 1)
            starts = jax.tree.map(lambda leaf: leaf[own], starts)
        nodes = jax.vmap(self.client_state)(starts)
        if algorithm.exchanges_first:
            # Rounds before the first have negative numbers, so that their draws are their own.
            at = -1 - jnp.asarray(round, jnp.int32)
            context = RoundContext(sampling.round_key(key, at), at.astype(data.dtype), self.batches)
            began, up = self.each_node(algorithm.first_node, nodes, context, Vectorized())
            heard = jax.vmap(trees.all_finite)((began, up))
            alive = self.alive(context.key, data.everybody(heard))
            mixed = self.links.mix(select(heard, up, trees.zeros_like(up)), alive)
            began = jax.vmap(lambda node, m: algorithm.mix_first(problem, node, m))(began, mixed)
            nodes = select(heard, began, nodes)
        return State.before_stage((), nodes, key, round)

    def each_node(
        self, work: NodeWork, nodes: PyTree, context: RoundContext, loop: AbstractClientLoop
    ) -> tuple[PyTree, PyTree]:
        """The work of every node."""

        def one(client: ClientView, node: PyTree) -> tuple[PyTree, PyTree]:
            return work(self.problem, node, loop.steps(self, client, context))

        return loop.map(one, self, everyone(self.data, self.plan), nodes)

    def one_round(self, state: State, loop: AbstractClientLoop | None = None) -> tuple[State, Participation]:
        algorithm, problem, data = self.algorithm, self.problem, self.data
        key = sampling.round_key(state.key, state.round)
        context = RoundContext(key, state.number(data.dtype), self.batches)
        nodes, up = self.each_node(algorithm.local_node, state.clients, context, loop or Vectorized(self.plan.block))
        heard = jax.vmap(trees.all_finite)((nodes, up))
        all_heard = data.everybody(heard)
        alive = self.alive(key, all_heard)
        # A node that is not finite talks to nobody in this round and stays as it was.
        up = select(heard, up, trees.zeros_like(up))
        mixed = self.links.mix(up, alive)
        nodes = jax.vmap(lambda node, m: algorithm.mix(problem, node, m))(nodes, mixed)
        fine = heard & jax.vmap(trees.all_finite)(nodes)
        anyone = jnp.any(all_heard)
        new = state.after_round(anyone, anyone & ~jnp.any(data.everybody(fine)), ~anyone)
        nodes = select(fine & (new.failed_at < 0), nodes, state.clients)
        who = jnp.arange(self.plan.clients, dtype=jnp.int32)
        messages = 2 * jnp.sum(alive.astype(jnp.int32)).astype(jnp.int32)
        present = jnp.asarray(self.plan.clients, jnp.int32)
        return new.holding((), nodes), Participation(who, ~all_heard, present, messages)

    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        return state.holding((), trees.where(bad, old.clients, state.clients)).failed_where(bad, old)

    def mean_node(self, state: State) -> PyTree:
        """The node that would be, if all had agreed."""
        return jax.tree.map(self.links.mean, state.clients)

    def model(self, state: State) -> PyTree:
        """The federation's model: that of the mean of all nodes."""
        return self.algorithm.model_node(self.problem, self.mean_node(state))

    def average(self, state: State) -> PyTree | None:
        return self.algorithm.average_node(self.problem, self.mean_node(state))

    def next_start(self, state: State) -> PyTree:
        """What each node's next stage begins from, stacked."""

        def own(node: PyTree) -> PyTree:
            average = self.algorithm.average_node(self.problem, node)
            return self.algorithm.model_node(self.problem, node) if average is None else average

        return jax.vmap(own)(state.clients)

    @property
    def is_personal(self) -> bool:
        return True

    def personal(self, state: State) -> PyTree:
        """Every node's model, stacked."""
        return jax.vmap(lambda node: self.algorithm.model_node(self.problem, node))(state.clients)

    def columns(self, state: State, w: PyTree, data: Data) -> dict[str, Array]:
        """How far the nodes are from each other, and the best, mean and worst of them."""
        problem, models = self.problem, self.personal(state)
        apart = data.everybody(jax.vmap(lambda own: trees.dot(d := trees.sub(own, w), d))(models))
        found = {"consensus": jnp.sqrt(jnp.mean(apart))}
        own = evaluate.of_models(self.metrics)
        over_nodes = {name: data.everybody(jax.vmap(metric)(models)) for name, metric in own.items()}
        if self.links.nodes * data.room(self.links.nodes) <= NODE_EVALUATIONS:
            each, all_models = jax.vmap(problem.mean_loss, in_axes=(0, None, None, None)), data.everybody(models)
            losses = evaluate.by_blocks(lambda X, y, s: each(all_models, X, y, s), data)
            over_nodes["objective"] = losses + jax.vmap(problem.regularizer.value)(all_models)
        for name, values in over_nodes.items():
            found |= evaluate.spread_of(name, values.astype(data.dtype))
        return found

    def client_state(self, w0: PyTree) -> PyTree:
        return self.algorithm.init_node(self.problem, w0)

    def messages(self, w0: PyTree) -> Messages:
        """What goes along a link, each way; nothing comes down."""
        _, up = self.algorithm.local_node(self.problem, self.client_state(w0), self.first_steps())
        return Messages((), up, w0 if self.algorithm.exchanges_first else ())

    def first_messages(self, state: State) -> int:
        if self.failure is None:
            return 2 * self.links.first.shape[0]
        key = sampling.round_key(state.key, -1 - state.begun)
        return 2 * int(jnp.sum(self.alive(key, jnp.ones(self.links.nodes, bool))))

    def communication(self, each: tuple[int, int], total: tuple[int, int]) -> Communication:
        """The bytes of a run, also by link and by node."""
        up = each[1]
        ends = np.concatenate([self.links.first, self.links.second])
        by_node = np.bincount(ends, minlength=self.links.nodes) * up
        return Communication(*each, *total, 2 * up, tuple(by_node.tolist()))
