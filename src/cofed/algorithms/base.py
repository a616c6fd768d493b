"""The contract between an algorithm and an engine.

An algorithm owns only mathematics: a frozen `equinox.Module` whose fields are hyperparameters (so they are traced:
a grid of learning rates is one `vmap`, and changing one never recompiles) and whose methods are pure functions on
pytrees. An engine owns the loop, the sampling, the randomness, the wire and the disk, and knows an algorithm only
through what this file says.
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple, Protocol, runtime_checkable

import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cofed.problem import Problem

Carry = Any


@runtime_checkable
class LocalSteps(Protocol):
    """What an engine gives a client for one round: its gradients, and the loop over its K local steps.

    Counters are floating scalars of the model's dtype, so that they enter formulas as they stand.
    """

    round: Float[Array, ""]  # r, counted from the start of the stage
    count: Float[Array, ""]  # K_m, how many local steps this client takes in this round

    @property
    def key(self) -> PRNGKeyArray:
        """For a method's own draws: by (seed, round, client id), apart from those of the batches."""
        ...

    def gradient(self, w: PyTree, k: Float[Array, ""]) -> PyTree:
        """G_k(w): the gradient of the client's smooth loss at w on its k-th batch."""
        ...

    def loss_and_gradient(self, w: PyTree, k: Float[Array, ""]) -> tuple[Float[Array, ""], PyTree]:
        """The client's mean loss at w on its k-th batch, and G_k(w)."""
        ...

    def hessian(self, w: PyTree, k: Float[Array, ""], where: Int[Array, " s"]) -> Float[Array, "s s"]:
        """The Hessian of that loss at w, on these coordinates of the parameters laid out as one vector."""
        ...

    def run(self, step: Callable[[Float[Array, ""], Carry], Carry], carry: Carry) -> Carry:
        """carry <- step(k, carry) for k = 0..K_m-1."""
        ...


@runtime_checkable
class Algorithm(Protocol):
    """What every algorithm with a server offers. `up` is what ONE client sends; `aggregate` sees only its mean.

    Optional: `average(problem, server)`, a second output (an averaged model), which is also what a multi-stage method
    hands to its next stage; `refuses(problem)`, a sentence on why a problem does not fit; `stages(problem, rounds,
    local_steps)`, for methods that are a list of stages, with `stage_form`, the class of those. Methods with a model
    for each client add `personal_model(server, client)`, and may add `last_local(problem, down, client, steps) ->
    client`, a last piece of local work that every client does after the last round. Methods that choose between others
    offer `candidates(problem)` in place of all this (see `Candidates`).

    For messages that are not what is averaged, `expand(message) -> up`: `local` then gives ONE client's message, which
    is what goes over the wire and is counted, and the mean is that of the expanded ones.

    For `Compressed`, which sends changes: `origin(problem, server)` and `local_origin(problem, down, client, steps)`,
    the same point on both ends, known before the round: what `up` is where nothing changes any more (zero where a
    method does not say). And `whole_up`, a sentence on why a method's `up` must come as it is. `name` is what a method
    is called where it is not the name of its class.
    """

    needs: ClassVar[tuple[str, ...]]  # traits of the regularizer, keys of TRAITS
    equal_steps: ClassVar[bool]  # whether all clients must take the same number of local steps
    paper: ClassVar[str]  # where the method comes from

    def init(self, problem: Problem, w0: PyTree) -> PyTree:
        """The server's state before round 0."""
        ...

    def init_client(self, problem: Problem, w0: PyTree) -> PyTree:
        """What ONE client keeps between rounds, before its first; () where nothing."""
        ...

    def broadcast(self, server: PyTree) -> PyTree:
        """Exactly what goes over the wire to a client."""
        ...

    def local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """One client's round: what it sends up, and what it keeps."""
        ...

    def aggregate(self, problem: Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        """The server's step. `up` is the weighted mean over this round's participants, and `share` their part of
        all clients' weight (participants / clients where weights are uniform)."""
        ...

    def model(self, problem: Problem, server: PyTree) -> PyTree:
        """The primal model, ready to use."""
        ...


@runtime_checkable
class GossipAlgorithm(Protocol):
    """What every algorithm without a server offers. A method may offer both contracts, so the names differ.

    Optional: `exchanges_first` with `first_node(problem, node, steps) -> (node, up)` and `mix_first(problem, node,
    mixed) -> node`, an exchange before round 0; `average_node(problem, node)`, what `average` is with a server.
    """

    def init_node(self, problem: Problem, w0: PyTree) -> PyTree:
        """A node's state before round 0."""
        ...

    def local_node(self, problem: Problem, node: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """One node's round: what it keeps, and what it sends to its neighbours."""
        ...

    def mix(self, problem: Problem, node: PyTree, mixed: PyTree) -> PyTree:
        """The node's step after the exchange: `mixed` is sum_j u_jm up^j."""
        ...

    def model_node(self, problem: Problem, node: PyTree) -> PyTree:
        """The node's model; of the mean of all nodes, the federation's."""
        ...


class Candidates(NamedTuple):
    """What a choosing method chooses between. Beside `candidates(problem)` it has `held_out`, the part of each client's
    samples that is kept for the comparison, `folds` (None, or cross-validated) and `by_client` (a choice for each)."""

    shared: Any  # the algorithm whose model is for all
    local: Any  # the one that gives each client its own


class Stage(NamedTuple):
    """One stage of a multi-stage method: an algorithm, how many rounds, and its local steps (None: the run's)."""

    algorithm: Any
    rounds: int
    local_steps: int | None = None


class Trait(NamedTuple):
    """A property of the regularizer that an algorithm may need."""

    holds: Callable[[Any], bool]
    words: str


TRAITS: dict[str, Trait] = {
    "convex": Trait(lambda psi: getattr(psi, "convex", False), "a convex regularizer"),
    "finite": Trait(
        lambda psi: not getattr(psi, "is_indicator", False) and hasattr(psi, "subgradient"),
        "a finite regularizer with a subgradient (an indicator of a set has none)",
    ),
    "zero": Trait(lambda psi: getattr(psi, "is_zero", False), "no regularizer, that is Zero()"),
    "norm": Trait(
        lambda psi: getattr(psi, "is_norm", False),
        "a regularizer that is a multiple of a norm, with prox_in_ball",
    ),
}


def name_of(algorithm: Any) -> str:
    """What a method is called."""
    return getattr(algorithm, "name", type(algorithm).__name__)


def expanded(algorithm: Any, messages: PyTree) -> PyTree:
    """What the clients' messages, stacked, stand for."""
    if not hasattr(algorithm, "expand") or not jax.tree.leaves(messages):  # a method such as PureLocal sends nothing
        return messages
    return jax.vmap(algorithm.expand)(messages)


def refusal(algorithm: Any, problem: Problem) -> str | None:
    """Why this algorithm does not fit this problem, naming both and the missing trait; None where it does."""
    psi = problem.regularizer
    pair = f"{name_of(algorithm)} does not fit the regularizer {type(psi).__name__}"
    for need in algorithm.needs:
        if not TRAITS[need].holds(psi):
            return f"{pair}: it needs {TRAITS[need].words} (trait {need!r})"
    if hasattr(algorithm, "refuses"):
        return algorithm.refuses(problem)
    return None


def stages_of(algorithm: Any, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
    """A method as a list of stages; most have one."""
    if hasattr(algorithm, "stages"):
        return algorithm.stages(problem, rounds, local_steps)
    return [Stage(algorithm, rounds)]


def output(algorithm: Any, problem: Problem, server: PyTree) -> PyTree:
    """What a stage hands to the next: the averaged model where the method defines one, else the model."""
    if hasattr(algorithm, "average"):
        return algorithm.average(problem, server)
    return algorithm.model(problem, server)
