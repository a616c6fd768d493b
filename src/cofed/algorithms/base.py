"""The contract between an algorithm and an engine.

An algorithm owns only mathematics: a frozen `equinox.Module` whose fields are hyperparameters (so they are traced:
a grid of learning rates is one `vmap`, and changing one never recompiles) and whose methods are pure functions on
pytrees. An engine owns the loop, the sampling, the randomness, the wire and the disk, and knows an algorithm only
through the classes of this file:

    AbstractAlgorithm             what every method says of itself
      AbstractServerAlgorithm     rounds through a server
      AbstractGossipAlgorithm     rounds along a graph; a method may have both forms
      AbstractStagedAlgorithm     a list of stages, each one of the above
      AbstractChoice              trains two methods and deploys the better

Every class here is abstract, every algorithm is final. What a method *may* offer beside its abstract methods has a
default that says "none", so that no engine has to look for it.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple, Protocol, TypeVar, runtime_checkable

import equinox as eqx
import jax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from cofed._util.checks import shown
from cofed._util.contracts import adopted, lacking
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer

Carry = TypeVar("Carry")


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


class AbstractAlgorithm(eqx.Module):
    """What every method says of itself, with a server or without.

    Examples
    --------
    >>> import cofed
    >>> method = cofed.FedDualAvg(client_lr=0.1)
    >>> method.name, method.needs, method.has_server, method.has_gossip
    ('FedDualAvg', ('convex',), True, False)
    """

    needs: ClassVar[tuple[str, ...]] = ()  # traits of the regularizer, keys of TRAITS
    equal_steps: ClassVar[bool] = False  # whether all clients must take the same number of local steps
    paper: ClassVar[str] = ""  # where the method comes from
    whole_up: ClassVar[str | None] = None  # why what a client sends cannot be compressed; None: it can

    @property
    def name(self) -> str:
        """What the method is called in tables and sentences."""
        return type(self).__name__

    @property
    def has_server(self) -> bool:
        """Whether it runs through a server."""
        return False

    @property
    def has_gossip(self) -> bool:
        """Whether it runs along a graph, without a server."""
        return False

    @property
    def is_personal(self) -> bool:
        """Whether each client has a model of its own beside the server's."""
        return False

    @property
    def ends_locally(self) -> bool:
        """Whether every client works once more after the last round."""
        return False

    @property
    def is_compressed(self) -> bool:
        """Whether clients send messages that stand for `up` in fewer bytes."""
        return False

    def refuses(self, problem: Problem) -> str | None:
        """Why the problem does not fit, in a sentence, beyond the traits that `needs` names; None where it does."""
        return None

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> "list[Stage]":
        """The method as a list of stages, each begun from what the one before hands over. Most have one."""
        return [Stage(self, rounds)]

    def candidates(self, problem: Problem) -> "Candidates | None":
        """The methods that this one chooses between; None where it chooses nothing."""
        return None


class AbstractServerAlgorithm(AbstractAlgorithm):
    """An algorithm with a server. `up` is what ONE client sends; `aggregate` sees only its weighted mean.

    An own algorithm derives from this class, gives the six abstract methods, and says in `needs` which traits of the
    regularizer it relies on (see `docs/adding-an-algorithm.md`).

    Examples
    --------
    >>> import cofed
    >>> isinstance(cofed.FedAvg(client_lr=0.1), cofed.AbstractServerAlgorithm)
    True
    """

    @property
    def has_server(self) -> bool:
        return True

    @abstractmethod
    def init(self, problem: Problem, w0: PyTree) -> PyTree:
        """The server's state before round 0."""

    @abstractmethod
    def init_client(self, problem: Problem, w0: PyTree) -> PyTree:
        """What ONE client keeps between rounds, before its first; () where nothing."""

    @abstractmethod
    def broadcast(self, server: PyTree) -> PyTree:
        """Exactly what goes over the wire to a client."""

    @abstractmethod
    def local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """One client's round: what it sends up, and what it keeps."""

    @abstractmethod
    def aggregate(self, problem: Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        """The server's step. `up` is the weighted mean over this round's participants, and `share` their part of
        all clients' weight (participants / clients where weights are uniform)."""

    @abstractmethod
    def model(self, problem: Problem, server: PyTree) -> PyTree:
        """The primal model, ready to use."""

    def average(self, problem: Problem, server: PyTree) -> PyTree | None:
        """An averaged model beside `model`, which is also what the next stage begins from; None where there is none."""
        return None

    @property
    def is_personal(self) -> bool:
        return type(self).personal_model is not AbstractServerAlgorithm.personal_model

    def personal_model(self, server: PyTree, client: PyTree) -> PyTree:
        """A client's own model, of a method that has such."""
        raise TypeError(f"{self.name} has one model for all clients")

    @property
    def ends_locally(self) -> bool:
        return type(self).last_local is not AbstractServerAlgorithm.last_local

    def last_local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree:
        """The work of a client after the last round, of which nothing is sent: what it keeps."""
        return client

    @property
    def is_compressed(self) -> bool:
        return type(self).expand is not AbstractServerAlgorithm.expand

    def expand(self, message: PyTree) -> PyTree:
        """`up`, from ONE client's message: the message is what is sent and counted, the mean is that of `up`."""
        return message

    def origin(self, problem: Problem, server: PyTree) -> PyTree | None:
        """What `up` is where nothing changes any more, known to the server before the round; None is zero.

        `Compressed` sends the difference to it, so it must be what `local_origin` gives each client."""
        return None

    def local_origin(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree | None:
        """The same point, as a client knows it before its round; None is zero."""
        return None


class AbstractGossipAlgorithm(AbstractAlgorithm):
    """An algorithm without a server. A method may have both forms, so the names differ from the server's.

    Examples
    --------
    >>> import cofed
    >>> isinstance(cofed.DFedDA(client_lr=0.1), cofed.AbstractGossipAlgorithm)
    True
    """

    @property
    def has_gossip(self) -> bool:
        return True

    @abstractmethod
    def init_node(self, problem: Problem, w0: PyTree) -> PyTree:
        """A node's state before round 0."""

    @abstractmethod
    def local_node(self, problem: Problem, node: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """One node's round: what it keeps, and what it sends to its neighbours."""

    @abstractmethod
    def mix(self, problem: Problem, node: PyTree, mixed: PyTree) -> PyTree:
        """The node's step after the exchange: `mixed` is sum_j u_jm up^j."""

    @abstractmethod
    def model_node(self, problem: Problem, node: PyTree) -> PyTree:
        """The node's model; of the mean of all nodes, the federation's."""

    def average_node(self, problem: Problem, node: PyTree) -> PyTree | None:
        """A node's averaged model, which is also what its next stage begins from; None where there is none."""
        return None

    @property
    def exchanges_first(self) -> bool:
        """Whether the nodes talk once before round 0, by `first_node` and `mix_first`."""
        return False

    def first_node(self, problem: Problem, node: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """The node's work before round 0: what it keeps, and what it sends."""
        raise TypeError(f"{self.name} has no exchange before round 0")

    def mix_first(self, problem: Problem, node: PyTree, mixed: PyTree) -> PyTree:
        """The node's step after the exchange before round 0."""
        raise TypeError(f"{self.name} has no exchange before round 0")


class AbstractStagedAlgorithm(AbstractAlgorithm):
    """A method that is a list of stages, each an algorithm with its rounds, such as MCFedDA."""

    stage_form: ClassVar[type[AbstractAlgorithm]]  # the class of the stages

    @property
    def has_server(self) -> bool:
        return issubclass(self.stage_form, AbstractServerAlgorithm)

    @property
    def has_gossip(self) -> bool:
        return issubclass(self.stage_form, AbstractGossipAlgorithm)

    @abstractmethod
    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> "list[Stage]":
        """The stages; their rounds add up to the run's."""


class AbstractChoice(AbstractAlgorithm):
    """A method that trains two others and deploys what does better on held-out data, such as Alternative."""

    @property
    def has_server(self) -> bool:
        return True

    @abstractmethod
    def candidates(self, problem: Problem) -> "Candidates":
        """The two methods, and how they are compared."""


class Candidates(NamedTuple):
    """What a choosing method chooses between, and how."""

    shared: AbstractServerAlgorithm  # the algorithm whose model is for all
    local: AbstractServerAlgorithm  # the one that gives each client its own
    held_out: float = 0.25  # the part of each client's samples that is kept for the comparison
    folds: int | None = None  # so many folds instead, each held out once
    by_client: bool = False  # whether each client gets what is better for it


class Stage(NamedTuple):
    """One stage of a multi-stage method: an algorithm, how many rounds, and its local steps (None: the run's)."""

    algorithm: AbstractAlgorithm
    rounds: int
    local_steps: int | None = None


class Trait(NamedTuple):
    """A property of the regularizer that an algorithm may need."""

    holds: Callable[[AbstractRegularizer], bool]
    words: str


TRAITS: dict[str, Trait] = {
    "convex": Trait(lambda psi: psi.convex, "a convex regularizer"),
    "finite": Trait(
        lambda psi: psi.has_subgradient,
        "a finite regularizer with a subgradient (an indicator of a set has none)",
    ),
    "zero": Trait(lambda psi: psi.is_zero, "no regularizer, that is Zero()"),
    "norm": Trait(
        lambda psi: psi.is_norm,
        "a regularizer that is a multiple of a norm, with prox_in_ball",
    ),
}


def as_algorithm(value: object, given: str = "algorithm: the third argument") -> AbstractAlgorithm:
    """The algorithm, or a sentence on why it is none.

    An equinox module of one's own that has the methods of a contract without deriving from it is taken as if it did.
    """
    if isinstance(value, AbstractAlgorithm):
        algorithm = value
    else:
        forms = [form for method, form in FORMS.items() if callable(getattr(value, method, None))]
        if isinstance(value, type) or not forms:
            raise TypeError(f"{given} must be an algorithm such as cofed.FedDualAvg(client_lr=0.1), got {shown(value)}")
        name, missing = type(value).__name__, [name for form in forms for name in lacking(value, form)]
        if missing or not isinstance(value, eqx.Module):
            what = f"lacks {', '.join(missing)}" if missing else "is no equinox.Module"
            raise TypeError(
                f"algorithm: {name} {what}; an algorithm of your own derives from {forms[0].__name__}, which says what "
                "each method is"
            )
        algorithm = adopted(value, *forms)
    unknown = [need for need in algorithm.needs if need not in TRAITS]
    if isinstance(algorithm.needs, str) or unknown:
        raise ValueError(
            f"algorithm: {algorithm.name} needs {shown(algorithm.needs)} of the regularizer, expected a tuple of "
            f"{', '.join(map(repr, TRAITS))}"
        )
    return algorithm


# The method by which an object of the user's own shows which form it has.
FORMS: dict[str, type[AbstractAlgorithm]] = {
    "local": AbstractServerAlgorithm,
    "local_node": AbstractGossipAlgorithm,
    "stages": AbstractStagedAlgorithm,
    "candidates": AbstractChoice,
}


def expanded(algorithm: AbstractServerAlgorithm, messages: PyTree) -> PyTree:
    """What the clients' messages, stacked, stand for."""
    if not algorithm.is_compressed or not jax.tree.leaves(messages):  # a method such as PureLocal sends nothing
        return messages
    return jax.vmap(algorithm.expand)(messages)


def refusal(algorithm: AbstractAlgorithm, problem: Problem) -> str | None:
    """Why this algorithm does not fit this problem, naming both and the missing trait; None where it does."""
    return lacks(algorithm, problem, algorithm.needs) or algorithm.refuses(problem)


def lacks(algorithm: AbstractAlgorithm, problem: Problem, needs: tuple[str, ...]) -> str | None:
    """The first of these traits that the problem's regularizer has not, in a sentence; None where it has them all."""
    psi = problem.regularizer
    for need in needs:
        if not TRAITS[need].holds(psi):
            pair = f"{algorithm.name} does not fit the regularizer {psi.title}"
            return f"{pair}: it needs {TRAITS[need].words} (trait {need!r})"
    return None


def output(algorithm: AbstractServerAlgorithm, problem: Problem, server: PyTree) -> PyTree:
    """What a stage hands to the next: the averaged model where the method defines one, else the model."""
    average = algorithm.average(problem, server)
    return algorithm.model(problem, server) if average is None else average
