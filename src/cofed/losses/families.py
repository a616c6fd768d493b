"""Families by name, as commands and study files give them: `gamma`, `tweedie(1.5)`, `quantile(0.9, 0.1)`."""

import dataclasses
import inspect

from cofed.losses.base import AbstractLoss
from cofed.losses.huber import Huber
from cofed.losses.negative_binomial import NegativeBinomial
from cofed.losses.quantile import SmoothQuantile
from cofed.losses.tweedie import Gamma, Tweedie

FAMILIES: dict[str, type[AbstractLoss]] = {
    "gamma": Gamma,
    "tweedie": Tweedie,
    "huber": Huber,
    "quantile": SmoothQuantile,
    "negbin": NegativeBinomial,
}


@dataclasses.dataclass(frozen=True)
class Family:
    """A family's name, and its numbers.

    Attributes
    ----------
    name : str
        Such as "tweedie".
    numbers : tuple of float
        Those in parentheses.
    """

    name: str
    numbers: tuple[float, ...] = ()

    @classmethod
    def of(cls, text: str) -> "Family":
        """The family that a text names; `ValueError` where it is none.

        >>> from cofed.losses.families import Family
        >>> Family.of("quantile(0.9, 0.1)")
        Family(name='quantile', numbers=(0.9, 0.1))
        """
        name, opened, rest = text.partition("(")
        if not opened:
            return cls(text)
        try:
            numbers = tuple(float(part) for part in rest.removesuffix(")").split(","))
        except ValueError:
            numbers = ()
        if not numbers or not rest.endswith(")"):
            raise ValueError(f"the numbers of a family are given like tweedie(1.5), got {text!r}")
        return cls(name.strip(), numbers)

    def loss(self) -> AbstractLoss:
        """The loss of a family of numbers; `ValueError` where its numbers are none of the loss's.

        >>> from cofed.losses.families import Family
        >>> Family("tweedie", (1.2,)).loss()
        Tweedie(power=1.2)
        >>> Family("gamma", (3.0,)).loss()
        Traceback (most recent call last):
        ValueError: the family gamma takes no number, got 3
        """
        kind = FAMILIES[self.name]
        taken = list(inspect.signature(kind).parameters)
        if len(self.numbers) > len(taken):
            said = ", ".join(f"{number:g}" for number in self.numbers)
            most = f"{len(taken)} at most ({', '.join(taken)})" if taken else "no number"
            raise ValueError(f"the family {self.name} takes {most}, got {said}")
        return kind(*self.numbers)
