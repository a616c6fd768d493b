"""The contract of a regularizer."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import equinox as eqx
import jax
from jaxtyping import PyTree, Scalar

from cofed._util.checks import shown
from cofed._util.contracts import adopted, as_given, lacking
from cofed.regularizers.leaves import checked


class AbstractRegularizer(eqx.Module):
    """A non-smooth function psi of the model, known by its value, its proximal map and its traits.

    A regularizer of one's own derives from this class and gives `value` and `prox`. Models are pytrees of floating
    arrays. Every method keeps their structure and dtype, is pure, and can be jitted, vmapped (over the model and over
    the hyperparameters) and differentiated, with finite derivatives.

    Traits are what algorithms read to refuse what they cannot treat. Each has a default that promises nothing, so a
    class states only what holds for it:

    - `convex`
    - `separable`: psi is a sum over coordinates, so the prox acts on each coordinate alone.
    - `is_indicator`: psi is 0 on a set and infinite outside; the prox is the projection for every step >= 0.
    - `weak_convexity`: the least rho for which psi + rho ||w||^2/2 is convex; by default 0.0 if psi is convex, else
      inf.
    - `weighted_l1`: psi(w) = sum_j lambda_j |w_j| with lambda_j >= 0.
    - `is_zero`: psi = 0.
    - `is_norm`: psi = norm_strength * R with a norm (or, through `On`, a seminorm) R; then there are
      `norm_strength` and `prox_in_ball`.
    - `structure`: what is simple about a minimiser: "density" (few non-zeros), "rank", or None.

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
    def weak_convexity(self) -> Any:
        """The least rho for which psi + rho ||w||^2/2 is convex."""
        return 0.0 if self.convex else float("inf")

    @property
    def title(self) -> str:
        """What it is called in sentences."""
        return type(self).__name__

    @abstractmethod
    def value(self, w: PyTree) -> Scalar:
        """psi(w); for an indicator 0 or inf, with the tolerance for round-off that the class states."""

    @abstractmethod
    def prox(self, v: PyTree, step: Any) -> PyTree:
        """argmin_w ||w - v||^2/2 + step psi(w), a global minimiser, for every step >= 0."""

    @property
    def has_subgradient(self) -> bool:
        """Whether psi is finite and `subgradient` is given."""
        return not self.is_indicator and type(self).subgradient is not AbstractRegularizer.subgradient

    @checked
    def subgradient(self, w: PyTree) -> PyTree:
        """An element of the subdifferential, 0 at kinks; a TypeError where there is none."""
        if self.is_indicator:
            raise TypeError(
                f"{self.title} is the indicator of a set and has no subgradient to step along; use its prox"
            )
        raise TypeError(f"{self.title} gives no subgradient; use its prox")

    @property
    def norm_strength(self) -> Any:
        """lambda of psi = lambda R, of a regularizer that is a multiple of a norm R."""
        raise TypeError(f"{self.title} is not a norm (trait is_norm) and has no strength of one")

    @checked
    def prox_in_ball(self, v: PyTree, step: Any, anchor: PyTree, radius: Any) -> PyTree:
        """argmin_w ||w - v||^2/2 + step psi(w) subject to R(w - anchor) <= radius, of psi = lambda R with a norm R."""
        raise TypeError(f"{self.title} is not a norm (trait is_norm) and has no ball")

    def part(self, w: PyTree) -> PyTree:
        """The leaves of the model that psi depends on."""
        return w

    def covers(self, w: PyTree) -> list[bool]:
        """Which leaves, in order, psi depends on."""
        return [not self.is_zero] * len(jax.tree.leaves(w))


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

    def prox(self, v: PyTree, step: Any) -> PyTree:
        return self.own.prox(v, step)

    def subgradient(self, w: PyTree) -> PyTree:
        return self.own.subgradient(w) if self.has_subgradient else AbstractRegularizer.subgradient(self, w)


def stated(own: object, trait: str) -> Any:
    """A trait as the user's object states it, or the contract's default."""
    return getattr(own, trait, getattr(AbstractRegularizer, trait))


def as_regularizer(value: object, owner: str = "regularizer") -> AbstractRegularizer:
    """The regularizer, or a sentence on why it is none.

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
    """A regularizer that another one is made of, or a sentence."""
    if not isinstance(value, type) and (isinstance(value, eqx.Module) or not lacking(value, AbstractRegularizer)):
        return as_regularizer(value, f"{owner}: regularizer")
    what = "one of its parts" if owner == "Sum" else "its regularizer"
    raise TypeError(f"{owner} combines regularizers such as L1(0.1), got {shown(value)} as {what}")
