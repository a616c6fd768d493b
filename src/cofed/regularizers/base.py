"""The contract of a regularizer."""

import dataclasses
from abc import abstractmethod
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree, Scalar

from cofed._util import trees
from cofed._util.types import Hyperparameter
from cofed.regularizers.leaves import checked


@dataclasses.dataclass(frozen=True)
class PiecewiseQuadratic:
    """psi(w) = sum_j l1_j |w_j| + ridge_j w_j^2 / 2 on low_j <= w_j <= high_j, for a model that is one array.

    Parameters
    ----------
    l1, ridge, low, high : array_like
        Numbers, or arrays that broadcast to the model's shape; bounds may be infinite.
    """

    l1: np.ndarray | float = 0.0
    ridge: np.ndarray | float = 0.0
    low: np.ndarray | float = -np.inf
    high: np.ndarray | float = np.inf


@dataclasses.dataclass(frozen=True)
class RowQuadratic:
    """psi(w) = sum_j l1_j ||w_j|| + ridge_j ||w_j||^2 / 2, for a model that is one array with the rows w_j.

    Parameters
    ----------
    l1, ridge : array_like
        A number for each row.
    """

    l1: np.ndarray
    ridge: np.ndarray


class AbstractRegularizer(eqx.Module):
    """A non-smooth function psi of the model, known by its value, its proximal map and its traits.

    A regularizer of one's own derives from this class and gives `value` and `prox`. Models are pytrees of floating
    arrays. Every method keeps their structure and dtype, is pure, and can be jitted, vmapped (over the model and over
    the hyperparameters) and differentiated, with finite derivatives.

    Traits are what algorithms read to refuse what they cannot treat. Each has a default that promises nothing, so a
    class states only what holds for it.

    Attributes
    ----------
    convex : bool
        Whether psi is convex.
    separable : bool
        Whether psi is a sum over coordinates, so that the prox acts on each coordinate alone.
    is_indicator : bool
        Whether psi is 0 on a set and infinite outside; the prox is the projection for every step >= 0.
    weak_convexity : float
        The least rho for which psi + rho ||w||^2/2 is convex; by default 0.0 if psi is convex, else inf.
    weighted_l1 : bool
        Whether psi(w) = sum_j lambda_j |w_j| with lambda_j >= 0.
    is_zero : bool
        Whether psi = 0.
    is_norm : bool
        Whether psi = norm_strength * R with a norm (or, through `On`, a seminorm) R; then there are `norm_strength`
        and `prox_in_ball`.
    structure : {"density", "rank"} or None
        What is simple about a minimiser: few non-zeros, or a low rank.
    coercive : bool
        Whether psi grows to infinity in every direction (or is infinite), so that a minimum exists for any loss that is
        bounded below.
    sparsifying : bool
        Whether psi is a sum over coordinates, all of which it can set to zero.

    Notes
    -----
    The estimators certify a fit by a duality gap. A convex regularizer takes part if it gives `conjugate`; where the
    conjugate is infinite outside some set, `dual_scaling` should find the way into that set. A regularizer that derives
    from `AbstractNorm` has both from its `dual_norm`.

    Examples
    --------
    >>> import jax, jax.numpy as jnp, cofed
    >>> class Ridge(cofed.AbstractRegularizer):
    ...     convex = True
    ...
    ...     def value(self, w):
    ...         return sum(jnp.sum(leaf**2) for leaf in jax.tree.leaves(w)) / 2
    ...
    ...     def prox(self, v, step):
    ...         return jax.tree.map(lambda leaf: leaf / (1 + step), v)
    >>> Ridge().prox(jnp.array([3.0]), 0.5).tolist(), Ridge().separable
    ([2.0], False)
    """

    convex: ClassVar[bool] = False
    separable: ClassVar[bool] = False
    is_indicator: ClassVar[bool] = False
    weighted_l1: ClassVar[bool] = False
    is_zero: ClassVar[bool] = False
    is_norm: ClassVar[bool] = False
    structure: ClassVar[str | None] = None

    @property
    def weak_convexity(self) -> Hyperparameter:
        """The least rho for which psi + rho ||w||^2/2 is convex."""
        return 0.0 if self.convex else float("inf")

    @property
    def title(self) -> str:
        """What it is called in sentences."""
        return type(self).__name__

    @abstractmethod
    def value(self, w: PyTree) -> Scalar:
        """The value psi(w).

        Parameters
        ----------
        w : pytree of floating arrays
            The model.

        Returns
        -------
        scalar
            psi(w); for an indicator 0 or inf, with the tolerance for round-off that the class states.
        """

    @abstractmethod
    def prox(self, v: PyTree, step: Hyperparameter) -> PyTree:
        """The proximal map, argmin_w ||w - v||^2/2 + step psi(w).

        Parameters
        ----------
        v : pytree of floating arrays
            The point to begin from.
        step : float
            How strongly psi counts, >= 0.

        Returns
        -------
        pytree
            A global minimiser, like v.
        """

    @property
    def has_subgradient(self) -> bool:
        """Whether psi is finite and `subgradient` is given."""
        return not self.is_indicator and type(self).subgradient is not AbstractRegularizer.subgradient

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """An element of the subdifferential.

        Parameters
        ----------
        w : pytree of floating arrays
            The model.

        Returns
        -------
        pytree
            A subgradient, 0 at kinks.

        Raises
        ------
        TypeError
            Where there is none.
        """
        if self.is_indicator:
            raise TypeError(
                f"{self.title} is the indicator of a set and has no subgradient to step along; use its prox"
            )
        raise TypeError(f"{self.title} gives no subgradient; use its prox")

    @property
    def norm_strength(self) -> Hyperparameter:
        """lambda of psi = lambda R, of a regularizer that is a multiple of a norm R."""
        if self.is_norm:
            raise TypeError(f"{self.title} states is_norm but gives no norm_strength")
        raise TypeError(f"{self.title} is not a norm (trait is_norm) and has no strength of one")

    @checked
    def prox_in_ball(self, v: PyTree, step: Hyperparameter, anchor: PyTree, radius: Hyperparameter) -> PyTree:
        """The proximal map within a ball of the norm R of psi = lambda R.

        Parameters
        ----------
        v : pytree of floating arrays
            The point to begin from.
        step : float
            How strongly psi counts, >= 0.
        anchor : pytree like v
            The centre of the ball.
        radius : float
            The radius of the ball, >= 0.

        Returns
        -------
        pytree
            argmin_w ||w - v||^2/2 + step psi(w) subject to R(w - anchor) <= radius.

        Raises
        ------
        TypeError
            Where psi is not a norm, or does not give this.
        """
        if self.is_norm:
            raise TypeError(f"{self.title} states is_norm but gives no prox_in_ball")
        raise TypeError(f"{self.title} is not a norm (trait is_norm) and has no ball")

    def part(self, w: PyTree) -> PyTree:
        """The leaves of the model that psi depends on."""
        return w

    def covers(self, w: PyTree) -> list[bool]:
        """Which leaves, in order, psi depends on."""
        return [not self.is_zero] * len(jax.tree.leaves(w))

    # Duality: what certifies a minimum.

    @property
    def has_dual_norm(self) -> bool:
        """Whether `dual_norm` is given."""
        return type(self).dual_norm is not AbstractRegularizer.dual_norm

    @checked
    def dual_norm(self, z: PyTree) -> Scalar:
        """The dual norm of R, of psi = lambda R: max <z, w> subject to R(w) <= 1.

        Parameters
        ----------
        z : pytree of floating arrays
            A gradient, or another dual point.

        Returns
        -------
        scalar
            The dual norm, infinite where R is 0 in a direction that z has a part in.

        Raises
        ------
        TypeError
            Where psi is not the multiple of a norm, or does not give this.
        """
        if self.is_norm:
            raise TypeError(f"{self.title} states is_norm but gives no dual_norm")
        raise TypeError(f"{self.title} is not a norm and has no dual norm")

    @property
    def has_conjugate(self) -> bool:
        """Whether `conjugate` is given."""
        return type(self).conjugate is not AbstractRegularizer.conjugate

    @checked
    def conjugate(self, u: PyTree, slack: Hyperparameter = 0.0) -> Scalar:
        """The convex conjugate psi*(u) = sup_w <u, w> - psi(w).

        Parameters
        ----------
        u : pytree of floating arrays
            A dual point.
        slack : float or array, default=0.0
            How far u_j may be outside the domain by rounding, in directions in which psi does not grow at all.

        Returns
        -------
        scalar
            The value, infinite outside the domain.

        Raises
        ------
        TypeError
            Where the regularizer does not give it.
        """
        raise TypeError(f"{self.title} gives no conjugate")

    def dual_scaling(self, u: PyTree) -> Scalar:
        """The largest s in [0, 1] for which the conjugate of psi, or of its part that is a norm, is finite at s u.

        Parameters
        ----------
        u : pytree of floating arrays
            A dual point.

        Returns
        -------
        scalar
            s, by default 1.
        """
        return jnp.ones((), trees.dtype(u))

    def excess(self, w: PyTree, gradient: PyTree) -> PyTree:
        """What to take off a gradient at w so that the rest fits psi: optimal, or at least where psi* is finite.

        Parameters
        ----------
        w : pytree of floating arrays
            The model.
        gradient : pytree like w
            The gradient of the smooth part there.

        Returns
        -------
        pytree
            The excess, by default 0.
        """
        return trees.zeros_like(gradient)

    @property
    def coercive(self) -> bool:
        """Whether psi grows to infinity in every direction, or is infinite there."""
        return False

    @property
    def sparsifying(self) -> bool:
        """Whether psi is a sum over coordinates, all of which it can set to zero."""
        return self.separable and self.structure == "density"

    def zeroing_factor(self, gradient: PyTree) -> Scalar:
        """The least factor for which w = 0 minimises <gradient, w> + factor psi(w).

        Parameters
        ----------
        gradient : pytree of floating arrays
            The gradient of the smooth part at 0.

        Returns
        -------
        scalar
            The factor, infinite (the default) where none is known.
        """
        return jnp.full((), jnp.inf, trees.dtype(gradient))

    def scaled(self, factor: Hyperparameter) -> "AbstractRegularizer":
        """factor * psi.

        Parameters
        ----------
        factor : float
            A number > 0.

        Returns
        -------
        AbstractRegularizer
            The same kind of regularizer where it has a strength, else `Scaled`.
        """
        from cofed.regularizers.calculus import Scaled

        return Scaled(self, factor)

    def piecewise_quadratic(self) -> PiecewiseQuadratic | None:
        """psi as a sum of one-dimensional quadratics with kinks and bounds, or None where it is no such sum."""
        return None

    def row_quadratic(self) -> RowQuadratic | None:
        """psi as a sum of lengths of whole rows and their squares, or None where it is not told as such a sum.

        A server that knows a quadratic loss finds the minimum of both together by itself.
        """
        return None
