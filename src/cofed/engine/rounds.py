"""One round as a pure function, all clients as one vmap: through a server (`Centre`) or along a graph (`Peers`).

The two exchanges offer the same: `starts` and `fresh` (the state before a stage), `one_round`, `model` (of the
federation), `average` and `output` (what the next stage begins from), `personal` (a model per client), `columns` (what
they add to the history), `undo` (a round that went wrong), `messages`, `first_messages` and `communication` (what
goes over the wire). All else of the engine is the same for both.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from cofed import trees
from cofed.algorithms import base
from cofed.engine import draws, evaluate
from cofed.engine.history import Communication
from cofed.engine.plan import Plan
from cofed.engine.steps import Data, make_steps
from cofed.gossip.topologies import Links
from cofed.problem import Problem

EMPTY_ROUNDS = 3  # so many rounds in a row without one finite update end a run
NODE_EVALUATIONS = 10**7  # up to so many (node, sample) pairs, every node's own objective is in the history


class State(eqx.Module):
    """All that a run carries from round to round. A checkpoint is this pytree."""

    server: PyTree  # the server's state; () without one
    clients: PyTree  # what each client (or node) keeps, stacked; () where nothing
    key: PRNGKeyArray  # of the seed; rounds and clients are folded into it
    round: Int[Array, ""]  # the next round, over all stages; it does not depend on how the run fares
    begun: Int[Array, ""]  # the round in which the present stage began
    empty: Int[Array, "*grid"]  # rounds in a row without a finite update
    failed_at: Int[Array, "*grid"]  # the round that would have made a state non-finite, or -1; all is frozen from it


class Roll(eqx.Module):
    """Who took part in a round (in the records of a chunk: in each of its rounds)."""

    clients: Int[Array, "*rounds participants"]  # positions
    heard: Bool[Array, "*rounds participants"]  # whether the update was finite and so counted
    messages: Int[Array, "*rounds"]  # how many clients (by gossip: links, each way) were served


def together(client: Callable, *stacked: PyTree) -> PyTree:
    """All participants at once, as one array axis."""
    return jax.vmap(client)(*stacked)


def started(server: PyTree, clients: PyTree, key: PRNGKeyArray, round: Any) -> State:
    """A state before the first round of a stage."""
    at, zero = jnp.asarray(round, jnp.int32), jnp.zeros((), jnp.int32)
    return State(server, clients, key, at, at, zero, zero - 1)


def moved(state: State, server: PyTree, clients: PyTree, anyone: Array, fails: Array) -> State:
    """The state after a round; what a failed run holds stays as it was."""
    empty = jnp.where(anyone, 0, state.empty + 1)
    fails = fails | (empty >= EMPTY_ROUNDS)
    failed_at = jnp.where((state.failed_at < 0) & fails, state.round, state.failed_at)
    return State(server, clients, state.key, state.round + 1, state.begun, empty, failed_at)


class Centre(eqx.Module):
    """Rounds through a server."""

    def starts(self, w0: PyTree, plan: Plan) -> PyTree:
        """Where the first stage begins."""
        return w0

    def fresh(
        self, algorithm: Any, problem: Problem, w0: PyTree, data: Data, key: PRNGKeyArray, round: Any, plan: Plan
    ) -> State:
        """The state before the first round of a stage."""
        one = algorithm.init_client(problem, w0)
        return started(algorithm.init(problem, w0), copies(one, plan.clients), key, round)

    def one_round(
        self,
        algorithm: Any,
        problem: Problem,
        data: Data,
        state: State,
        plan: Plan,
        for_each: Callable = together,
        make: Callable = make_steps,
    ) -> tuple[State, Roll]:
        """Sample, broadcast, local steps of all participants, weighted mean, aggregate.

        `for_each` maps a client's work over the participants, `make` gives a client its local steps.
        """
        key = draws.round_key(state.key, state.round)
        stage_round = (state.round - state.begun).astype(data.X.dtype)
        down = algorithm.broadcast(state.server)

        if plan.everyone:
            who = jnp.arange(plan.clients, dtype=jnp.int32)
            kept, X, y = state.clients, data.X, data.y
        else:
            place = jnp.zeros_like(data.ids).at[data.ids].set(jnp.arange(plan.clients, dtype=jnp.int32))
            who = place[draws.participants(key, plan.clients, plan.participants)]
            kept = jax.tree.map(lambda leaf: leaf[who], state.clients)
            X, y = (data.X[who], data.y[who]) if plan.batch is None else (None, None)

        def client(position, keeps, own):
            steps = make(problem, data, plan, position, own, key, stage_round)
            return algorithm.local(problem, down, keeps, steps)

        up, keeps = for_each(client, who, kept, (X, y) if plan.batch is None else None)
        heard = jax.vmap(trees.all_finite)((up, keeps))
        mean, share = weighted_mean(up, data.weights[who], heard)
        server = algorithm.aggregate(problem, state.server, mean, share)

        new = moved(state, (), (), jnp.any(heard), ~trees.all_finite(server))
        # Participants whose weights are all 0 have nothing to say: the server stays as it is.
        go = (share > 0) & (new.failed_at < 0)
        keeps = select(go & heard, keeps, kept)
        if not plan.everyone:
            keeps = jax.tree.map(lambda everybody, some: everybody.at[who].set(some), state.clients, keeps)
        server = trees.where(go, server, state.server)
        messages = jnp.asarray(plan.participants, jnp.int32)
        return at(new, server, keeps), Roll(who, heard, messages)

    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        """The state, or, where the round was bad, a failed one with the model of before."""
        return failed_where(bad, at(state, trees.where(bad, old.server, state.server), state.clients), old)

    def first_messages(self, state: State) -> int:
        """How many messages go before the first round of a stage."""
        return 0

    def communication(self, down_each: int, up_each: int, down: int, up: int) -> Communication:
        """The bytes of a run."""
        return Communication(down_each, up_each, down, up)

    def model(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """The server's model."""
        return algorithm.model(problem, state.server)

    def average(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """The averaged model, or None where the method defines none."""
        return algorithm.average(problem, state.server) if hasattr(algorithm, "average") else None

    def output(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """What the next stage begins from."""
        return base.output(algorithm, problem, state.server)

    def personal(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """A model per client, stacked, or None where the method has a global one only."""
        return None

    def columns(self, algorithm: Any, problem: Problem, data: Data, metrics: dict[str, Callable], state: State):
        """What a server adds to the history: nothing."""
        return {}

    def messages(self, algorithm: Any, problem: Problem, data: Data, plan: Plan, w0: PyTree) -> tuple[PyTree, PyTree]:
        """What goes down to a client and up from it, in one round."""
        down = algorithm.broadcast(algorithm.init(problem, w0))
        steps = first_steps(problem, data, plan)
        return down, algorithm.local(problem, down, algorithm.init_client(problem, w0), steps)[0]


class Peers(eqx.Module):
    """Rounds along a graph: every node takes part, and what it sends is mixed with what its neighbours send."""

    links: Links
    failure: Float[Array, ""] | None = None  # the probability that a link fails in a round

    def alive(self, key: PRNGKeyArray, heard: Bool[Array, " nodes"]) -> Bool[Array, " edges"]:
        """Which links work in a round: those that do not fail, between nodes that have something finite to say."""
        works = heard[self.links.first] & heard[self.links.second]
        if self.failure is None:
            return works
        return works & draws.working_links(key, self.failure, works.shape[0])

    def starts(self, w0: PyTree, plan: Plan) -> PyTree:
        """Where the first stage of each node begins, stacked."""
        return copies(w0, plan.clients)

    def fresh(
        self, algorithm: Any, problem: Problem, w0: PyTree, data: Data, key: PRNGKeyArray, round: Any, plan: Plan
    ) -> State:
        """The state before a stage, after the exchange that some methods begin with."""
        nodes = jax.vmap(lambda one: algorithm.init_node(problem, one))(w0)
        if getattr(algorithm, "exchanges_first", False):
            # Rounds before the first have negative numbers, so that their draws are their own.
            at = -1 - jnp.asarray(round, jnp.int32)
            fresh_key = draws.round_key(key, at)
            nodes, up = self.each_node(
                algorithm.first_node, problem, data, plan, nodes, fresh_key, at, together, make_steps
            )
            mixed = self.links.mix(up, self.alive(fresh_key, jnp.ones(plan.clients, bool)))
            nodes = jax.vmap(lambda node, m: algorithm.mix_first(problem, node, m))(nodes, mixed)
        return started((), nodes, key, round)

    def each_node(self, work, problem, data, plan, nodes, key, stage_round, for_each, make) -> tuple[PyTree, PyTree]:
        """The work of every node."""
        r = stage_round.astype(data.X.dtype)

        def one(position, node, own):
            return work(problem, node, make(problem, data, plan, position, own, key, r))

        who = jnp.arange(plan.clients, dtype=jnp.int32)
        return for_each(one, who, nodes, (data.X, data.y) if plan.batch is None else None)

    def one_round(
        self,
        algorithm: Any,
        problem: Problem,
        data: Data,
        state: State,
        plan: Plan,
        for_each: Callable = together,
        make: Callable = make_steps,
    ) -> tuple[State, Roll]:
        """Local steps of all nodes, then one exchange with their neighbours."""
        key = draws.round_key(state.key, state.round)
        nodes, up = self.each_node(
            algorithm.local_node, problem, data, plan, state.clients, key, state.round - state.begun, for_each, make
        )
        heard = jax.vmap(trees.all_finite)((nodes, up))
        alive = self.alive(key, heard)
        # A node that is not finite talks to nobody in this round and stays as it was.
        up = select(heard, up, trees.zeros_like(up))
        mixed = self.links.mix(up, alive)
        nodes = jax.vmap(lambda node, m: algorithm.mix(problem, node, m))(nodes, mixed)
        fine = heard & jax.vmap(trees.all_finite)(nodes)
        anyone = jnp.any(heard)
        new = moved(state, (), (), anyone, anyone & ~jnp.any(fine))
        nodes = select(fine & (new.failed_at < 0), nodes, state.clients)
        who = jnp.arange(plan.clients, dtype=jnp.int32)
        return at(new, (), nodes), Roll(who, heard, 2 * jnp.sum(alive.astype(jnp.int32)).astype(jnp.int32))

    def undo(self, bad: Bool[Array, ""], state: State, old: State) -> State:
        """The state, or, where the round was bad, a failed one with the nodes of before."""
        return failed_where(bad, at(state, (), trees.where(bad, old.clients, state.clients)), old)

    def first_messages(self, state: State) -> int:
        """How many messages go before the first round of a stage."""
        key = draws.round_key(state.key, -1 - state.begun)
        return 2 * int(jnp.sum(self.alive(key, jnp.ones(self.links.nodes, bool))))

    def communication(self, down_each: int, up_each: int, down: int, up: int) -> Communication:
        """The bytes of a run, also by link and by node."""
        ends = np.concatenate([self.links.first, self.links.second])
        by_node = np.bincount(ends, minlength=self.links.nodes) * up_each
        return Communication(down_each, up_each, down, up, 2 * up_each, tuple(by_node.tolist()))

    def mean_node(self, state: State) -> PyTree:
        """The node that would be, if all had agreed."""
        return jax.tree.map(lambda leaf: jnp.mean(leaf, axis=0), state.clients)

    def model(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """The federation's model: that of the mean of all nodes."""
        return algorithm.model_node(problem, self.mean_node(state))

    def average(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """The averaged model of the mean node, or None where the method defines none."""
        return algorithm.average_node(problem, self.mean_node(state)) if hasattr(algorithm, "average_node") else None

    def output(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """What each node's next stage begins from, stacked."""
        own = getattr(algorithm, "average_node", algorithm.model_node)
        return jax.vmap(lambda node: own(problem, node))(state.clients)

    def personal(self, algorithm: Any, problem: Problem, state: State) -> PyTree:
        """Every node's model, stacked."""
        return jax.vmap(lambda node: algorithm.model_node(problem, node))(state.clients)

    def columns(self, algorithm: Any, problem: Problem, data: Data, metrics: dict[str, Callable], state: State):
        """How far the nodes are from each other, and the best, mean and worst of them."""
        models = self.personal(algorithm, problem, state)
        centre = self.model(algorithm, problem, state)
        apart = jax.vmap(lambda w: trees.dot(d := trees.sub(w, centre), d))(models)
        found = {"consensus": jnp.sqrt(jnp.mean(apart))}
        over_nodes = {name: jax.vmap(metric)(models) for name, metric in metrics.items()}
        if data.X.shape[0] * data.X.shape[0] * data.X.shape[1] <= NODE_EVALUATIONS:
            each = jax.vmap(problem.mean_loss, in_axes=(0, None, None, None))
            losses = evaluate.by_blocks(lambda X, y, s: each(models, X, y, s), data)
            over_nodes["objective"] = losses + jax.vmap(problem.regularizer.value)(models)
        for name, values in over_nodes.items():
            values = values.astype(data.X.dtype)
            found |= {f"{name}_min": values.min(), f"{name}_mean": values.mean(), f"{name}_max": values.max()}
        return found

    def messages(self, algorithm: Any, problem: Problem, data: Data, plan: Plan, w0: PyTree) -> tuple[PyTree, PyTree]:
        """What goes along a link, each way, in one round; nothing comes down."""
        return (), algorithm.local_node(problem, algorithm.init_node(problem, w0), first_steps(problem, data, plan))[1]


def first_steps(problem: Problem, data: Data, plan: Plan) -> Any:
    """The first client's steps in round 0, to look at shapes."""
    own = (data.X[0], data.y[0]) if plan.batch is None else None
    zero = jnp.zeros((), data.X.dtype)
    return make_steps(problem, data, plan, jnp.zeros((), jnp.int32), own, jax.random.key(0), zero)


def at(state: State, server: PyTree, clients: PyTree) -> State:
    """The state with these parts."""
    return State(server, clients, state.key, state.round, state.begun, state.empty, state.failed_at)


def failed_where(bad: Bool[Array, ""], state: State, old: State) -> State:
    """The state, marked as failed in the old one's round where that was bad and nothing failed before."""
    failed_at = jnp.where(bad & (state.failed_at < 0), old.round, state.failed_at)
    return State(state.server, state.clients, state.key, state.round, state.begun, state.empty, failed_at)


def copies(one: PyTree, count: int) -> PyTree:
    """The same for every client, stacked."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf, (count, *leaf.shape)), one)


def weighted_mean(up: PyTree, weights: Array, heard: Bool[Array, " participants"]) -> tuple[PyTree, Array]:
    """The mean of the finite updates, weights renormalised over them, and their share of all clients' weight."""
    counted = jnp.where(heard, weights, 0)
    share = jnp.sum(counted)
    part = counted / jnp.where(share > 0, share, 1)
    # 0 * NaN is NaN, so what is left out is zeroed first.
    kept = select(heard, up, trees.zeros_like(up))
    return jax.tree.map(lambda leaf: jnp.tensordot(part, leaf, axes=1), kept), share


def select(flags: Bool[Array, " clients"], new: PyTree, old: PyTree) -> PyTree:
    """new for the clients whose flag is set, else old."""
    return jax.tree.map(lambda a, b: jnp.where(flags.reshape(-1, *(1,) * (a.ndim - 1)), a, b), new, old)
