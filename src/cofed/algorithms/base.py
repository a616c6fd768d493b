"""The contract between an algorithm and an engine.

An algorithm owns only mathematics: a frozen `equinox.Module` whose fields are hyperparameters (so they are traced:
a grid of learning rates is one `vmap`, and changing one never recompiles) and whose methods are pure functions on
pytrees. An engine owns the loop, the sampling, the randomness, the wire and the disk, and knows an algorithm only
through the classes that this file gathers:

    AbstractAlgorithm             what every method says of itself
      AbstractServerAlgorithm     rounds through a server
      AbstractGossipAlgorithm     rounds along a graph; a method may have both forms
      AbstractStagedAlgorithm     a list of stages, each one of the above
      AbstractChoice              trains two methods and deploys the better

Every such class is abstract, every algorithm is final. What a method *may* offer beside its abstract methods has a
default that says "none", so that no engine has to look for it.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from cofed._util.checks import shown
from cofed._util.contracts import adopted, lacking
from cofed.algorithms.abstract import AbstractAlgorithm, Candidates, Stage
from cofed.algorithms.abstract_gossip import AbstractGossipAlgorithm
from cofed.algorithms.abstract_server import AbstractServerAlgorithm
from cofed.algorithms.local_steps import LocalSteps as LocalSteps
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer


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
    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        """The stages.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        rounds : int
            The run's rounds.
        local_steps : int or None
            The run's local steps; None where clients take different numbers.

        Returns
        -------
        list of Stage
            Their rounds add up to the run's.
        """


class AbstractChoice(AbstractAlgorithm):
    """A method that trains two others and deploys what does better on held-out data, such as Alternative."""

    @property
    def has_server(self) -> bool:
        return True

    @abstractmethod
    def candidates(self, problem: Problem) -> Candidates:
        """The two methods, and how they are compared.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.

        Returns
        -------
        Candidates
            What it chooses between.
        """


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
    """The value as an algorithm; refused where it is none.

    A user's equinox module that has the methods of a contract without deriving from it is taken as if it did.
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
    """The `up` that each of the clients' stacked messages stands for."""
    if not algorithm.is_compressed or not jax.tree.leaves(messages):  # a method such as PureLocal sends nothing
        return messages
    return jax.vmap(algorithm.expand)(messages)


def refusal(algorithm: AbstractAlgorithm, problem: Problem) -> str | None:
    """Why this algorithm does not fit this problem, naming both and the missing trait; None where it does."""
    return lacks(algorithm, problem, algorithm.needs) or algorithm.refuses(problem)


def lacks(algorithm: AbstractAlgorithm, problem: Problem, needs: tuple[str, ...]) -> str | None:
    """The first of these traits that the problem's regularizer lacks, in a sentence; None where it has them all."""
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
