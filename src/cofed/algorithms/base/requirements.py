"""What an algorithm needs of a problem, and whether an object is an algorithm."""

from collections.abc import Callable
from typing import NamedTuple

import equinox as eqx
import jax
from jaxtyping import PyTree

from cofed._util.checks import shown
from cofed._util.contracts import adopted, lacking
from cofed._util.scalars import is_auto
from cofed.algorithms.base.algorithm import AbstractAlgorithm
from cofed.algorithms.base.compound import AbstractChoice, AbstractStagedAlgorithm
from cofed.algorithms.base.gossip import AbstractGossipAlgorithm
from cofed.algorithms.base.server import AbstractServerAlgorithm
from cofed.problem import Problem
from cofed.regularizers import AbstractRegularizer


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
        forms = forms_of(value)
        if isinstance(value, type) or not forms:
            raise TypeError(f"{given} must be an algorithm such as cofed.FedDualAvg(client_lr=0.1), got {shown(value)}")
        name, missing = type(value).__name__, [name for form in forms for name in lacking(value, form)]
        if missing or not isinstance(value, eqx.Module):
            what = f"lacks {', '.join(missing)}" if missing else "is no equinox.Module"
            raise TypeError(
                f"{name} {what}; an algorithm of your own derives from {forms[0].__name__}, which says what "
                "each method is"
            )
        algorithm = adopted(value, *forms)
    unknown = [need for need in algorithm.needs if need not in TRAITS]
    if isinstance(algorithm.needs, str) or unknown:
        raise ValueError(
            f"{algorithm.name} needs {shown(algorithm.needs)} of the regularizer, expected a tuple of "
            f"{', '.join(map(repr, TRAITS))}"
        )
    check_fields(algorithm)
    return algorithm


def forms_of(value: object) -> list[type[AbstractAlgorithm]]:
    """The contracts that an object (or a class) which derives from none has the main method of."""
    return [form for method, form in FORMS.items() if callable(getattr(value, method, None))]


def check_fields(algorithm: AbstractAlgorithm) -> None:
    """Refuse a text where a traced number belongs: JAX can neither trace it nor compare it between configurations."""
    for path, value in jax.tree_util.tree_leaves_with_path(algorithm):
        name = jax.tree_util.keystr(path).lstrip(".")
        if is_auto(value):
            raise ValueError(
                f"{algorithm.name}: {name}='auto' is settled by cofed.run, from the clients' data; give a number here"
            )
        if isinstance(value, (str, bytes)):
            raise TypeError(
                f"{algorithm.name}: {name} is {shown(value)}, which is no number; a hyperparameter is a "
                "number, and a field that holds a text is declared with equinox.field(static=True)"
            )


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
    missing = lacks(algorithm, problem, algorithm.needs)
    if missing is None and algorithm.one_step and problem.local_steps not in (None, 1):
        return f"{algorithm.name} takes one step per round, not {problem.local_steps}; give local_steps=1"
    if missing is None and algorithm.same_loss and problem.model.is_random:
        return (
            f"{algorithm.name} counts on a loss that is the same in every step, but the model {problem.model.title} "
            "draws in training; take FedAvg or FedDualAvg, or a model without draws"
        )
    return missing or algorithm.refuses(problem)


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
