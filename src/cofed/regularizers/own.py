"""Regularizers of the user's own that do not derive from the abstract class."""

from typing import TYPE_CHECKING, Any

import equinox as eqx
from jaxtyping import PyTree, Scalar

from cofed._util.checks import shown
from cofed._util.contracts import adopted, as_given, lacking
from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer


class OwnRegularizer(AbstractRegularizer):
    """An object of the user's own with `value` and `prox`, and with the traits that it states."""

    own: Any = eqx.field(static=True, converter=as_given)

    if not TYPE_CHECKING:  # a type checker keeps the types that the contract declares
        convex = property(lambda self: stated(self.own, "convex"))
        separable = property(lambda self: stated(self.own, "separable"))
        is_indicator = property(lambda self: stated(self.own, "is_indicator"))
        weighted_l1 = property(lambda self: stated(self.own, "weighted_l1"))
        is_zero = property(lambda self: stated(self.own, "is_zero"))
        structure = property(lambda self: stated(self.own, "structure"))

    @property
    def title(self) -> str:
        return type(self.own).__name__

    @property
    def has_subgradient(self) -> bool:
        return not self.is_indicator and "subgradient" in dir(self.own)

    def value(self, w: PyTree) -> Scalar:
        return self.own.value(w)

    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        return self.own.prox(v, step)

    def subgradient(self, w: PyTree) -> PyTree:
        return self.own.subgradient(w) if self.has_subgradient else AbstractRegularizer.subgradient(self, w)


def stated(own: object, trait: str) -> bool | str | None:
    """A trait as the user's object states it, or the contract's default."""
    return getattr(own, trait, getattr(AbstractRegularizer, trait))


def as_regularizer(value: object, owner: str = "regularizer") -> AbstractRegularizer:
    """The regularizer that a user gave, or a sentence that says why it is none.

    An object of one's own with `value` and `prox` is taken as one; the traits that it does not state promise nothing.
    """
    if isinstance(value, AbstractRegularizer):
        return value
    if not isinstance(value, type) and not lacking(value, AbstractRegularizer):
        return adopted(value, AbstractRegularizer) if isinstance(value, eqx.Module) else OwnRegularizer(value)
    raise TypeError(
        f"{owner} must have value(w) and prox(v, step), such as L1(0.01), got {shown(value)}; one of your own derives "
        "from cofed.AbstractRegularizer"
    )


def part_of(owner: str, value: object) -> AbstractRegularizer:
    """A regularizer that another one is made of; a sentence where it is none."""
    if not isinstance(value, type) and (isinstance(value, eqx.Module) or not lacking(value, AbstractRegularizer)):
        return as_regularizer(value, f"{owner}: regularizer")
    what = "one of its parts" if owner == "Sum" else "its regularizer"
    raise TypeError(f"{owner} combines regularizers such as L1(0.1), got {shown(value)} as {what}")
