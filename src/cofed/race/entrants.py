"""Who takes part: the algorithms of the public list, and each one's small grid of hyperparameters.

A grid is made by rules for hyperparameters of a name, each around what theory says of it, from the curvature of the
problem. A method whose hyperparameters the rules do not know does not take part, and `cofed race --list` says so.
"""

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import cofed
from cofed import algorithms, gossip
from cofed.algorithms.base import AbstractAlgorithm, refusal
from cofed.problem import Problem
from cofed.race.knowledge import Knowledge

# Multiples of 1/L that are tried as step sizes: theory's for one step is 1, for K local steps 1/K.
FACTORS = (1 / 64, 1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2, 1.0, 2.0)
FEWER = (1 / 16, 1 / 4, 1 / 2, 1.0)  # where a second hyperparameter is tried too

CAP = 5  # where the number of local steps is drawn with mean K, the most is this multiple of K

Rule = Callable[[Knowledge, int], tuple[Any, ...]]
# What is tried for a hyperparameter of this name, from what is known of the problem and the local steps K.
RULES: dict[str, Rule] = {
    "client_lr": lambda known, K: tuple(factor / known.L for factor in FACTORS),
    "L": lambda known, K: tuple(known.L / factor for factor in FACTORS),
    "mu": lambda known, K: (0.0, known.mu) if known.mu > 0 else (0.0,),
    "eta": lambda known, K: tuple(factor / known.L for factor in (1.0, 4.0, 16.0, 64.0)),
    "step": lambda known, K: tuple(factor / known.L for factor in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)),
    "probability": lambda known, K: (1.0 / K,),
    "compressor": lambda known, K: (cofed.TopK(0.05), cofed.TopK(0.2)),
    "strength": lambda known, K: (1.0,),  # of personal methods, which do not race
    "sparsity": lambda known, K: (known.support,),
    "radius_squared": lambda known, K: tuple(factor * known.distance**2 for factor in (1.0, 4.0)),
}
# Required hyperparameters are tried, and these though they have a default.
ALSO = ("client_lr",)
# Flags that make another method of one, and so another entrant; a flag that serves stages only is not among them.
FLAGS = ("client_prox", "gradient_tracking")


@dataclasses.dataclass(frozen=True)
class Entrant:
    """A method of the race: a class of the public list, with its flags."""

    method: type[AbstractAlgorithm]
    flags: tuple[tuple[str, bool], ...] = ()

    @property
    def name(self) -> str:
        """What the method is called in tables: DFedDA (gradient_tracking=True)."""
        written = ", ".join(f"{name}={value}" for name, value in self.flags)
        return self.method.__name__ + (f" ({written})" if written else "")

    @property
    def tried(self) -> list[str]:
        """The names of the hyperparameters that a grid is made of."""
        missing = dataclasses.MISSING
        return [
            field.name
            for field in dataclasses.fields(self.method)
            if field.name in ALSO or (field.default is missing and field.default_factory is missing)
        ]

    def grid(self, known: Knowledge, local_steps: int) -> list[AbstractAlgorithm]:
        """The configurations that are tried on a problem."""
        rules = {name: RULES[name](known, local_steps) for name in self.tried}
        if sum(len(values) > 1 for values in rules.values()) > 1:  # another number multiplies the step sizes
            few = [i for i, factor in enumerate(FACTORS) if factor in FEWER]
            rules |= {name: tuple(rules[name][i] for i in few) for name in ("client_lr", "L") if name in rules}
        chosen = itertools.product(*rules.values())
        return [self.method(**dict(zip(rules, values, strict=True)), **dict(self.flags)) for values in chosen]

    def local_steps(self, steps: tuple[int, ...]) -> tuple[int, ...]:
        """The numbers of local steps that are tried: one where a method takes no more, or gains nothing by more."""
        return (1,) if self.method.one_step or not self.moves_locally else steps

    @property
    def moves_locally(self) -> bool:
        """Whether clients move between rounds: a method without a rate of theirs looks at one point only."""
        return bool({field.name for field in dataclasses.fields(self.method)} & {"client_lr", "mu"})

    def most_steps(self, local_steps: int) -> int:
        """The local steps that a run must allow for so many on average."""
        return CAP * local_steps if "probability" in self.tried and local_steps > 1 else local_steps


def entrants() -> Iterator[Entrant]:
    """Every method of the public list, with each of its flags on and off.

    >>> import cofed
    >>> from cofed.race.entrants import entrants
    >>> [entrant.name for entrant in entrants() if entrant.method is cofed.DFedDA]
    ['DFedDA', 'DFedDA (gradient_tracking=True)']
    """
    for name in (*algorithms.__all__, *gossip.__all__):
        method = getattr(cofed, name, None)
        if isinstance(method, type) and issubclass(method, AbstractAlgorithm):
            yield Entrant(method)
            for field in dataclasses.fields(method):
                if field.name in FLAGS:
                    yield Entrant(method, ((field.name, not field.default),))


def why_not(entrant: Entrant, problem: Problem, gossips: bool) -> str | None:
    """Why a method does not take part in the race of a problem, in a sentence; None where it does."""
    unknown = [name for name in entrant.tried if name not in RULES]
    if unknown:
        return f"the race has no rule for its hyperparameter {unknown[0]}"
    example = entrant.grid(EXAMPLE, 1)[0]
    if example.is_personal or example.candidates(problem) is not None:
        return "it aims at a model for each client"
    if not (example.has_gossip if gossips else example.has_server):
        return "it has no form by gossip" if gossips else "it has no server"
    return refusal(example, problem)


EXAMPLE = Knowledge(L=1.0, mu=0.1, start=1.0, optimum=0.0, support=1, distance=1.0)
