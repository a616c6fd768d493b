"""New regularizers from old: multiples, translations, sums over disjoint leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Scalar

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.scalars import number, require_positive
from cofed._util.types import Given, Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.composite import AbstractComposite
from cofed.regularizers.leaves import (
    cast,
    checked,
    concrete,
    coordinates,
    each,
    require_numbers,
    spread,
    total,
)
from cofed.regularizers.own import part_of


class Scaled(AbstractComposite):
    """psi(w) = factor * regularizer(w).

    Parameters
    ----------
    regularizer : AbstractRegularizer
        What is multiplied.
    factor : float
        A number > 0: a factor of 0 would have to turn the infinite values of an indicator into 0.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Scaled(cofed.L1(0.5), 4.0).prox(jnp.array([3.0, -0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    regularizer: AbstractRegularizer = eqx.field(converter=lambda psi: part_of("Scaled", psi))
    factor: Hyperparameter = eqx.field(converter=number)

    def __check_init__(self):
        require_positive("Scaled", factor=self.factor)

    @property
    def inner(self) -> tuple[AbstractRegularizer, ...]:
        return (self.regularizer,)

    @property
    def weak_convexity(self) -> Hyperparameter:
        """factor * the regularizer's"""
        return self.factor * self.regularizer.weak_convexity

    @property
    def norm_strength(self) -> Hyperparameter:
        """factor * the regularizer's"""
        return self.factor * self.regularizer.norm_strength

    def part(self, w: PyTree) -> PyTree:
        """The leaves that it is on."""
        return self.regularizer.part(w)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """factor * regularizer(w)"""
        inner = self.regularizer.value(w)
        return cast(self.factor, inner) * inner

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The regularizer's prox with step * factor."""
        return self.regularizer.prox(v, self._step(v, step))

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """factor * the regularizer's"""
        return each(lambda x: cast(self.factor, x) * x, self.regularizer.subgradient(w))

    @checked
    def prox_in_ball(self, v: PyTree, step: Hyperparameter, anchor: PyTree, radius: Hyperparameter) -> PyTree:
        """The regularizer's with step * factor; the ball is that of the norm itself and does not scale."""
        return self.regularizer.prox_in_ball(v, self._step(v, step), anchor, radius)

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """The regularizer's: the norm itself does not scale."""
        return self.regularizer.dual_norm(z)

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """factor * the regularizer's at u / factor"""
        inner = self.regularizer.conjugate(each(lambda x: x / cast(self.factor, x), u), slack)
        return cast(self.factor, inner) * inner

    def dual_scaling(self, u: PyTree) -> Scalar:
        """The regularizer's at u / factor"""
        return self.regularizer.dual_scaling(each(lambda x: x / cast(self.factor, x), u))

    @property
    def coercive(self) -> bool:
        """Whether the regularizer is."""
        return self.regularizer.coercive

    def _step(self, v: PyTree, step: Hyperparameter) -> Scalar:
        dtype = trees.dtype(v)
        return jnp.asarray(step, dtype) * jnp.asarray(self.factor, dtype)


class Translated(AbstractComposite):
    """psi(w) = regularizer(w - center).

    Parameters
    ----------
    regularizer : AbstractRegularizer
        What is moved.
    center : float, array or pytree
        A pytree like the model, or one array or number for each leaf.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Translated(cofed.L1(1.0), jnp.array([2.0, 2.0])).prox(jnp.array([5.0, 1.5]), 1.0).tolist()
    [4.0, 2.0]
    """

    regularizer: AbstractRegularizer = eqx.field(converter=lambda psi: part_of("Translated", psi))
    center: PyTree = eqx.field(converter=coordinates)

    # Its kinks are at the center, not at 0.
    weighted_l1 = False
    is_norm = False
    structure = None

    def __check_init__(self):
        require_numbers("Translated", "center", self.center)
        if not all(np.isfinite(leaf).all() for leaf in concrete(self.center)):
            raise ValueError(f"Translated: center must be finite, got {shown(self.center)}")

    @property
    def inner(self) -> tuple[AbstractRegularizer, ...]:
        return (self.regularizer,)

    def part(self, w: PyTree) -> PyTree:
        """The leaves that it is on."""
        return self.regularizer.part(w)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """regularizer(w - center)"""
        return self.regularizer.value(self._moved(w))

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """center + the regularizer's prox at v - center"""
        return each(jnp.add, self.regularizer.prox(self._moved(v), step), self._center(v))

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """The regularizer's at w - center"""
        return self.regularizer.subgradient(self._moved(w))

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """The regularizer's at u, plus <u, center>"""
        inner = self.regularizer.conjugate(u, slack)
        return inner + total(lambda x, c: jnp.sum(x * c), u, self._center(u))

    def dual_scaling(self, u: PyTree) -> Scalar:
        """The regularizer's"""
        return self.regularizer.dual_scaling(u)

    @property
    def coercive(self) -> bool:
        """Whether the regularizer is."""
        return self.regularizer.coercive

    def _moved(self, w: PyTree) -> PyTree:
        return each(jnp.subtract, w, self._center(w))

    def _center(self, w: PyTree) -> PyTree:
        return spread("Translated", "center", self.center, w)


class Sum(AbstractComposite):
    """psi(w) = the sum of the parts, each on leaves of its own, chosen with `On`: their proxes do not meet.

    Parameters
    ----------
    *parts : AbstractRegularizer
        Regularizers on different leaves.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> model = {"coef": jnp.array([3.0, -0.5]), "scale": jnp.array([4.0])}
    >>> both = cofed.Sum(cofed.On(cofed.L1(1.0), "coef"), cofed.On(cofed.L2Ball(1.0), "scale")).prox(model, 1.0)
    >>> both["coef"].tolist(), both["scale"].tolist()
    ([2.0, 0.0], [1.0])
    """

    parts: tuple[AbstractRegularizer, ...]

    is_norm = False

    def __init__(self, *parts: Given[AbstractRegularizer | eqx.Module]):
        if not parts:
            raise ValueError("Sum: give at least one regularizer as parts, got none")
        self.parts = tuple(part_of("Sum", part) for part in parts)

    @property
    def inner(self) -> tuple[AbstractRegularizer, ...]:
        return self.parts

    def part(self, w: PyTree) -> list:
        """The leaves that the parts are on."""
        return [part.part(w) for part in self.parts]

    @checked
    def value(self, w: PyTree) -> Scalar:
        """The sum of the parts' values"""
        self._refuse_overlap(w)
        return jnp.sum(jnp.stack([part.value(w) for part in self.parts]))

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The parts' proxes, one after another."""
        self._refuse_overlap(v)
        for part in self.parts:
            v = part.prox(v, step)
        return v

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """The sum of the parts' subgradients; refused if one part is an indicator."""
        self._refuse_overlap(w)
        parts = [part.subgradient(w) for part in self.parts]
        return jax.tree.map(lambda *leaves: sum(leaves[1:], leaves[0]), *parts)

    @property
    def has_conjugate(self) -> bool:
        """False: the parts' conjugates are infinite on each other's leaves."""
        return False

    def _refuse_overlap(self, w: PyTree) -> None:
        for name, *marks in zip(trees.names(w), *(part.covers(w) for part in self.parts), strict=True):
            if sum(marks) > 1:
                owners = ", ".join(type(part).__name__ for part, mark in zip(self.parts, marks, strict=True) if mark)
                raise ValueError(
                    f"Sum: the parts must lie On disjoint leaves, but {name!r} is in {sum(marks)}: {owners}"
                )
