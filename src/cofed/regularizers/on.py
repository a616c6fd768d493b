"""A regularizer on some of the model's leaves."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import PyTree, Scalar

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.types import Given, Hyperparameter
from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.composite import AbstractComposite
from cofed.regularizers.leaves import checked, indicator
from cofed.regularizers.own import part_of


class On(AbstractComposite):
    """psi(w) = the sum of regularizer(leaf) over the named leaves, each on its own; the others are free.

    Parameters
    ----------
    regularizer : AbstractRegularizer
        What acts on each of the leaves.
    *names : str
        A leaf's path in dots ("layers.0.weight"), or a part of it between dots ("weight": every weight; "layers":
        everything in there). A name that is nowhere in the model is refused.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> model = {"coef": jnp.array([3.0, -0.5]), "intercept": jnp.array(0.5)}
    >>> shrunk = cofed.On(cofed.L1(1.0), "coef").prox(model, 1.0)
    >>> shrunk["coef"].tolist(), float(shrunk["intercept"])
    ([2.0, 0.0], 0.5)
    """

    regularizer: AbstractRegularizer
    names: tuple[str, ...] = eqx.field(static=True)

    def __init__(self, regularizer: Given[AbstractRegularizer | eqx.Module], *names: Given[str]):
        regularizer = part_of("On", regularizer)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ValueError(f"On: give the names of leaves, such as On(L1(0.1), 'coef'), got {shown(names)}")
        self.regularizer = regularizer
        self.names = names

    @property
    def inner(self) -> tuple[AbstractRegularizer, ...]:
        return (self.regularizer,)

    @property
    def norm_strength(self) -> Hyperparameter:
        """As the regularizer's: a seminorm on the whole model."""
        return self.regularizer.norm_strength

    def covers(self, w: PyTree) -> list[bool]:
        """Which leaves, in order, are named."""
        paths = trees.names(w)
        for name in self.names:
            if not any(_within(name, path) for path in paths):
                known = ", ".join(path or "(one array without a name)" for path in paths)
                raise ValueError(f"On: no leaf of the model is named {name!r}; its leaves are: {known}")
        return [any(_within(name, path) for name in self.names) for path in paths]

    def part(self, w: PyTree) -> list:
        """The named leaves."""
        return self._chosen(w)

    @checked
    def value(self, w: PyTree) -> Scalar:
        """The sum over the named leaves"""
        values = [self.regularizer.value(leaf) for leaf in self._chosen(w)]
        return jnp.sum(jnp.stack(values))

    @checked
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The prox of each named leaf; the other leaves as they are."""
        return self._replaced(v, [self.regularizer.prox(leaf, step) for leaf in self._chosen(v)], v)

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """The subgradient of each named leaf; 0 for the other leaves."""
        parts = [self.regularizer.subgradient(leaf) for leaf in self._chosen(w)]
        return self._replaced(w, parts, trees.zeros_like(w))

    @checked
    def prox_in_ball(self, v: PyTree, step: Hyperparameter, anchor: PyTree, radius: Hyperparameter) -> PyTree:
        """The named leaves together within one ball around the anchor; the other leaves as they are."""
        return self._replaced(v, self.regularizer.prox_in_ball(self._chosen(v), step, self._chosen(anchor), radius), v)

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """The largest of the named leaves'; infinite where another leaf is not 0."""
        largest = jnp.max(jnp.stack([self.regularizer.dual_norm(leaf) for leaf in self._chosen(z)]))
        return largest + self._others_zero(z)

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """The sum over the named leaves; infinite where another leaf is not 0."""
        values = [self.regularizer.conjugate(leaf, slack) for leaf in self._chosen(u)]
        return jnp.sum(jnp.stack(values)) + self._others_zero(u)

    def _others_zero(self, u: PyTree) -> Scalar:
        """0 where all leaves without a name are 0, else inf."""
        others = [leaf for leaf, named in zip(jax.tree.leaves(u), self.covers(u), strict=True) if not named]
        zero = jnp.stack([jnp.all(jnp.asarray(leaf) == 0) for leaf in others]) if others else jnp.ones(1, bool)
        return indicator(jnp.all(zero), trees.dtype(u))

    def _chosen(self, w: PyTree) -> list:
        return [leaf for leaf, named in zip(jax.tree.leaves(w), self.covers(w), strict=True) if named]

    def _replaced(self, w: PyTree, parts: list, others: PyTree) -> PyTree:
        left = iter(parts)
        leaves = zip(jax.tree.leaves(others), self.covers(w), strict=True)
        filled = [next(left) if named else jnp.asarray(leaf) for leaf, named in leaves]
        return jax.tree.unflatten(jax.tree.structure(w), filled)


def _within(name: str, path: str) -> bool:
    return f".{name}." in f".{path}."
