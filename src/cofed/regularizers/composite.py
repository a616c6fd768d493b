"""What regularizers made of others share."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING

import jax.numpy as jnp
from jaxtyping import PyTree

from cofed._util.types import Hyperparameter
from cofed.regularizers.base import AbstractRegularizer


class AbstractComposite(AbstractRegularizer):
    """A regularizer made of others: it has the traits that all of them have."""

    @property
    @abstractmethod
    def inner(self) -> tuple[AbstractRegularizer, ...]:
        """The regularizers that it is made of."""

    if not TYPE_CHECKING:  # a type checker keeps the types that the contract declares
        convex = property(lambda self: all(one.convex for one in self.inner))
        separable = property(lambda self: all(one.separable for one in self.inner))
        is_indicator = property(lambda self: all(one.is_indicator for one in self.inner))
        weighted_l1 = property(lambda self: all(one.weighted_l1 for one in self.inner))
        is_zero = property(lambda self: all(one.is_zero for one in self.inner))
        is_norm = property(lambda self: all(one.is_norm for one in self.inner))
        structure = property(lambda self: common(one.structure for one in self.inner))

    @property
    def weak_convexity(self) -> Hyperparameter:
        """The largest of the parts': on disjoint leaves they do not add up."""
        constants = [one.weak_convexity for one in self.inner]
        if all(isinstance(constant, float) for constant in constants):
            return max(constants)
        return jnp.max(jnp.stack([jnp.asarray(constant, float) for constant in constants]))

    @property
    def title(self) -> str:
        """Its own name, and those of the parts."""
        return f"{type(self).__name__}({', '.join(one.title for one in self.inner)})"

    @property
    def has_subgradient(self) -> bool:
        """Whether all parts have one."""
        return all(one.has_subgradient for one in self.inner)

    @property
    def has_conjugate(self) -> bool:
        """Whether all parts have one."""
        return all(one.has_conjugate for one in self.inner)

    @property
    def has_dual_norm(self) -> bool:
        """Whether it is a norm, and the parts give their dual norms."""
        return self.is_norm and all(one.has_dual_norm for one in self.inner)

    def covers(self, w: PyTree) -> list[bool]:
        """Which leaves, in order, one of the parts depends on."""
        return [any(marks) for marks in zip(*(one.covers(w) for one in self.inner), strict=True)]


def common(values: Iterable[str | None]) -> str | None:
    """What all have in common, or None."""
    found = set(values)
    return found.pop() if len(found) == 1 else None
