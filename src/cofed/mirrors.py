"""The geometry h of dual averaging, and its dual maps D_t(z) = argmin_w -<z,w> + t psi(w) + h(w)."""

from abc import abstractmethod

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PyTree, Scalar

from cofed._util import trees
from cofed._util.checks import shown
from cofed._util.scalars import entries, number, require_number
from cofed._util.types import Hyperparameter
from cofed.regularizers import AbstractRegularizer, Simplex
from cofed.regularizers.leaves import cast, checked, each, indicator, joint, size, tolerance
from cofed.regularizers.thresholds import safe_norm


class AbstractMirror(eqx.Module):
    """A strongly convex function h of the model, by its gradient and its dual maps.

    A mirror of one's own derives from this class and gives `refuses`, `value`, `to_dual`, `to_primal` and
    `to_primal_smooth`; `norm` only where h is the square of one.

    Examples
    --------
    >>> import cofed
    >>> isinstance(cofed.PNorm(3.0), cofed.AbstractMirror)
    True
    """

    @abstractmethod
    def refuses(self, regularizer: AbstractRegularizer) -> str | None:
        """Why the dual map of this h and a psi is not known.

        Parameters
        ----------
        regularizer : AbstractRegularizer
            psi.

        Returns
        -------
        str or None
            A sentence that names both; None where the dual map is known.
        """

    @abstractmethod
    def value(self, w: PyTree) -> Scalar:
        """The value h(w).

        Parameters
        ----------
        w : pytree of floating arrays
            The model.

        Returns
        -------
        scalar
            h(w).
        """

    @abstractmethod
    def to_dual(self, w: PyTree) -> PyTree:
        """The dual point grad h(w).

        Parameters
        ----------
        w : pytree of floating arrays
            The model.

        Returns
        -------
        pytree
            The gradient, like w.
        """

    @abstractmethod
    def to_primal(self, regularizer: AbstractRegularizer, z: PyTree, t: Hyperparameter) -> PyTree:
        """The dual map D_t(z) = argmin_w -<z, w> + t psi(w) + h(w).

        Parameters
        ----------
        regularizer : AbstractRegularizer
            psi.
        z : pytree of floating arrays
            A dual point.
        t : float
            How strongly psi counts, >= 0.

        Returns
        -------
        pytree
            A model like z.
        """

    @abstractmethod
    def to_primal_smooth(self, z: PyTree) -> PyTree:
        """The dual map without psi, grad h*(z).

        Parameters
        ----------
        z : pytree of floating arrays
            A dual point.

        Returns
        -------
        pytree
            A model like z.
        """

    @property
    def has_norm(self) -> bool:
        """Whether h is the square of a norm, given by `norm`."""
        return type(self).norm is not AbstractMirror.norm

    def norm(self, w: PyTree) -> Scalar:
        """The norm whose square h is a multiple of, where there is one.

        Parameters
        ----------
        w : pytree of floating arrays
            The model.

        Returns
        -------
        scalar
            The norm.
        """
        raise TypeError(f"{type(self).__name__} is not the square of a norm")


def require_mirror(owner: str, mirror: object) -> None:
    """Refuse what is no mirror."""
    if not isinstance(mirror, AbstractMirror):
        raise TypeError(f"{owner}: mirror must be one such as Euclidean() or PNorm(), got {shown(mirror)}")


class Euclidean(AbstractMirror):
    """h(w) = ||w||_2^2 / 2: primal and dual are the same, and D_t is the prox. Takes every regularizer.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Euclidean().to_primal(cofed.L1(1.0), jnp.array([3.0, -0.5]), 1.0).tolist()
    [2.0, 0.0]
    """

    def refuses(self, regularizer: AbstractRegularizer) -> str | None:
        """None: every regularizer is fine."""
        return None

    @checked
    def value(self, w: PyTree) -> Scalar:
        """h(w)"""
        return trees.dot(w, w) / 2

    @checked
    def norm(self, w: PyTree) -> Scalar:
        """||w||_2, with a finite derivative at 0"""
        return safe_norm(joint(w)[0])

    def to_dual(self, w: PyTree) -> PyTree:
        """grad h(w) = w"""
        return each(jnp.asarray, w)

    def to_primal(self, regularizer: AbstractRegularizer, z: PyTree, t: Hyperparameter) -> PyTree:
        """D_t(z) = prox_t(z)"""
        return regularizer.prox(z, t)

    def to_primal_smooth(self, z: PyTree) -> PyTree:
        """grad h*(z) = z"""
        return each(jnp.asarray, z)


class PNorm(AbstractMirror):
    """h(w) = ||w||_q^2 / (2(q - 1)), 1/p + 1/q = 1, over all leaves together: for sparse models.

    Only for psi = sum_j lambda_j |w_j| (trait `weighted_l1`), where D_t(z) = grad h*(soft(z, t lambda)) exactly.

    Parameters
    ----------
    p : float, optional
        A number >= 2; None is max(2, 2 ln d), d the model's number of entries. p = 2 is `Euclidean`.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.PNorm(3.0).to_primal(cofed.L1(1.0), jnp.array([3.0, -0.5]), 1.0).tolist()
    [1.0, 0.0]
    """

    p: Hyperparameter | None = eqx.field(converter=lambda p: None if p is None else number(p), default=None)

    def __check_init__(self):
        if self.p is None:
            return
        require_number("PNorm", "p", self.p)
        found = entries(self.p)
        if not ((found >= 2) & (found < np.inf)).all():
            raise ValueError(f"PNorm: p must be a finite number >= 2 (None for 2 ln d), got {shown(self.p)}")

    def refuses(self, regularizer: AbstractRegularizer) -> str | None:
        """None for a weighted l1 norm; for others why not."""
        if regularizer.weighted_l1:
            return None
        return (
            f"PNorm and {regularizer.title} do not fit: its dual map is known for a weighted l1 norm only, "
            f"and {regularizer.title} lacks the trait weighted_l1"
        )

    @checked
    def value(self, w: PyTree) -> Scalar:
        """h(w)"""
        x, _ = joint(w)
        p = self._p(x)
        top, _, norm = _scaled_norm(x, p / (p - 1))
        return (p - 1) / 2 * (top * norm) ** 2

    @checked
    def norm(self, w: PyTree) -> Scalar:
        """||w||_q"""
        x, _ = joint(w)
        p = self._p(x)
        top, _, norm = _scaled_norm(x, p / (p - 1))
        return top * norm

    def to_dual(self, w: PyTree) -> PyTree:
        """grad h(w) = ||w||_q^{2-q} sign(w) |w|^{q-1} / (q - 1)"""
        x, back = joint(w)
        p = self._p(x)
        return back((p - 1) * _half_square_gradient(x, p / (p - 1)))

    def to_primal(self, regularizer: AbstractRegularizer, z: PyTree, t: Hyperparameter) -> PyTree:
        """D_t(z) = grad h*(soft(z, t lambda)): for a weighted l1 norm the prox is that soft thresholding."""
        return self.to_primal_smooth(regularizer.prox(z, t))

    def to_primal_smooth(self, z: PyTree) -> PyTree:
        """grad h*(z) = ||z||_p^{2-p} sign(z) |z|^{p-1} / (p - 1)"""
        x, back = joint(z)
        p = self._p(x)
        return back(_half_square_gradient(x, p) / (p - 1))

    def _p(self, x: Array) -> Array:
        return cast(max(2.0, 2 * float(np.log(size(x)))) if self.p is None else self.p, x)


class Entropy(AbstractMirror):
    """h(w) = sum_j w_j ln w_j on the simplex, over all leaves together: multiplicative updates.

    For psi = `Simplex(radius)`, where D_t(z) = radius * softmax(z), and for `Zero`, which stands for the unit simplex.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import cofed
    >>> cofed.Entropy().to_primal(cofed.Simplex(2.0), jnp.array([1.0, 1.0]), 1.0).tolist()
    [1.0, 1.0]
    """

    def refuses(self, regularizer: AbstractRegularizer) -> str | None:
        """None for Simplex and Zero; for others why not."""
        if isinstance(regularizer, Simplex) or regularizer.is_zero:
            return None
        return (
            f"Entropy and {regularizer.title} do not fit: its dual map is known only on a simplex, "
            f"and {regularizer.title} is neither Simplex nor Zero"
        )

    @checked
    def value(self, w: PyTree) -> Scalar:
        """sum_j w_j ln w_j, with 0 ln 0 = 0; infinite at a negative entry (beyond 64 units of round-off)"""
        x, _ = joint(w)
        positive = x > 0
        safe = jnp.where(positive, x, 1.0)
        return jnp.sum(safe * jnp.log(safe)) + indicator(jnp.all(x >= -tolerance(x.dtype)), x.dtype)

    def to_dual(self, w: PyTree) -> PyTree:
        """grad h(w) = 1 + ln w; at w = 0 the least finite value instead of -inf"""
        return each(lambda x: 1 + jnp.log(jnp.maximum(x, jnp.finfo(x.dtype).tiny)), w)

    def to_primal(self, regularizer: AbstractRegularizer, z: PyTree, t: Hyperparameter) -> PyTree:
        """D_t(z) = radius * softmax(z), with radius 1 for Zero"""
        radius = regularizer.radius if isinstance(regularizer, Simplex) else 1.0
        return each(lambda x: cast(radius, x) * x, self.to_primal_smooth(z))

    def to_primal_smooth(self, z: PyTree) -> PyTree:
        """grad h*(z) = softmax(z)"""
        x, back = joint(z)
        return back(jax.nn.softmax(x))


def _scaled_norm(x: Float[Array, " n"], p: Array) -> tuple[Array, Array, Array]:
    """max|x| (1 if x = 0), |x| over it, and the p-norm of that: powers neither overflow nor all vanish."""
    # The products of these do not depend on the scale, so its derivative is rightly left out.
    top = jax.lax.stop_gradient(jnp.max(jnp.abs(x), initial=0.0))
    top = jnp.where(top > 0, top, 1.0)
    u = jnp.abs(x) / top
    total = jnp.sum(_power(u, p))
    return top, u, _power(total, 1 / p)


def _half_square_gradient(x: Float[Array, " n"], p: Array) -> Float[Array, " n"]:
    """grad ||x||_p^2 / 2 = ||x||_p^{2-p} sign(x) |x|^{p-1}, and 0 at 0."""
    top, u, norm = _scaled_norm(x, p)
    factor = jnp.where(norm > 0, jnp.where(norm > 0, norm, 1.0) ** (2 - p), 0.0)
    return top * factor * jnp.sign(x) * _power(u, p - 1)


def _power(u: Array, exponent: Array) -> Array:
    """u^exponent for u >= 0, with 0^exponent = 0 and derivative 0 there (a root's would be infinite)."""
    return jnp.where(u > 0, jnp.where(u > 0, u, 1.0) ** exponent, 0.0)
