"""Norms of whole groups of coefficients, each group with a weight of its own that may be 0: it is not penalised."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import pandas as pd
from jaxtyping import Array, Float, Scalar

from cofed._util.types import Given, Hyperparameter
from cofed.estimators.feature_options import FeatureOptions
from cofed.estimators.penalty import LARGEST, elastic_net
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.regularizers import AbstractRegularizer, GroupL1
from cofed.regularizers.groups import expand, group_norm, group_soft
from cofed.regularizers.thresholds import elastic_conjugate
from cofed.sites.intake import is_list

Coefficients = Float[Array, "p ..."]


class WeightedGroups(AbstractRegularizer):
    """psi(w) = sum_g l1_g ||w_g||, groups of the rows of w. It is no norm where a weight is 0, as GroupL1 is one.

    >>> import jax.numpy as jnp
    >>> from cofed.estimators.group_penalty import WeightedGroups
    >>> groups = WeightedGroups(jnp.array([2.5, 0.0]), (0, 0, 1))
    >>> groups.prox(jnp.array([3.0, 4.0, 0.5]), 1.0).tolist()
    [1.5, 2.0, 0.5]
    """

    l1: Float[Array, " g"]
    groups: tuple[int, ...] = eqx.field(static=True)

    convex = True
    structure = "density"

    def value(self, w: Coefficients) -> Scalar:
        """sum_g l1_g ||w_g||"""
        return jnp.sum(self.l1 * group_norm(w, self.groups))

    def prox(self, v: Coefficients, step: Hyperparameter) -> Coefficients:
        """Every group shortened by step l1_g."""
        return group_soft(v, step * self.l1, self.groups)

    def subgradient(self, w: Coefficients) -> Coefficients:
        """l1_g w_g / ||w_g||, and 0 for a group of zeros"""
        size = group_norm(w, self.groups)
        return w * expand(self.l1 / jnp.where(size > 0, size, 1), self.groups, w)

    def conjugate(self, u: Coefficients, slack: Hyperparameter = 0.0) -> Scalar:
        """0 where ||u_g|| <= l1_g for every group, else inf; `slack` forgives rounding where l1_g is 0"""
        room = group_norm(jnp.broadcast_to(jnp.asarray(slack, u.dtype), u.shape), self.groups)
        return elastic_conjugate(group_norm(u, self.groups), self.l1, jnp.zeros_like(self.l1), room)

    def dual_scaling(self, u: Coefficients) -> Scalar:
        """min_g l1_g / ||u_g||, at most 1"""
        size = group_norm(u, self.groups)
        return jnp.min(jnp.where(size > self.l1, self.l1 / jnp.where(size > 0, size, 1), 1), initial=1)

    def excess(self, w: Coefficients, gradient: Coefficients) -> Coefficients:
        """What violates optimality: of groups in use, all of it; of others, what is longer than l1_g."""
        size = expand(group_norm(w, self.groups), self.groups, w)
        return jnp.where(size > 0, gradient + self.subgradient(w), group_soft(gradient, self.l1, self.groups))

    @property
    def coercive(self) -> bool:
        """Whether every group is penalised."""
        return bool(np.all(np.asarray(self.l1) > 0))

    def zeroing_factor(self, gradient: Coefficients) -> Scalar:
        """max_g ||gradient_g|| / l1_g; infinite where a group without a weight is pulled"""
        size, kinked = group_norm(gradient, self.groups), self.l1 > 0
        return jnp.max(jnp.where(kinked, size / jnp.where(kinked, self.l1, 1), jnp.where(size > 0, jnp.inf, 0)))

    def scaled(self, factor: Hyperparameter) -> "WeightedGroups":
        """With factor times the weights."""
        return WeightedGroups(self.l1 * factor, self.groups)


def group_labels(owner: str, groups: Given[npt.ArrayLike | None], features: int) -> np.ndarray:
    """The group 0, 1, ... of each feature; the user's labels may be anything."""
    if groups is None:
        return np.arange(features)
    labels = pd.Series(groups) if is_list(groups) else None
    if labels is None or len(labels) != features or labels.isna().any():
        raise ValueError(f"{owner}: groups must be one label per feature ({features}), got {groups!r}")
    return pd.factorize(labels)[0]


def group_penalty(
    alpha: float, labels: np.ndarray, problem: StandardizedProblem, options: FeatureOptions | None = None
) -> AbstractRegularizer:
    """alpha sum_g factor_g sqrt(size of g) ||w_g|| of the user's coefficients; the features of a group share a unit.

    Without a fold their standard deviations change, and not in one proportion: the penalty keeps those of all rows. A
    group of one feature has those of the rows that are learnt from, as a lasso has. `options` have the same factor for
    all features of a group, infinite where it is left out.
    """
    if alpha == 0:
        return elastic_net(0.0, 1.0, problem.units, np.ndim(problem.start.coef), options)
    sizes, standard = np.bincount(labels), problem.units.standard
    if problem.standardize:
        standard = np.where(sizes[labels] > 1, problem.survey.part().columns.scale, standard)
    unit = np.bincount(labels, standard * problem.units.coef) / sizes
    outputs = np.size(problem.start.coef) // len(labels)
    weights, groups = np.sqrt(sizes * outputs) * unit, tuple(labels.tolist())
    if options is None:
        return GroupL1(alpha / problem.units.objective, groups, weights)
    factor = options.factor[np.unique(labels, return_index=True)[1]]
    out = np.isinf(factor)
    l1 = np.where(out, LARGEST, alpha / problem.units.objective * np.where(out, 1.0, factor) * weights)
    return WeightedGroups(jnp.asarray(np.minimum(l1, LARGEST)), groups)
