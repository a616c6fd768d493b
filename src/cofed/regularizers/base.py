"""The contract of a regularizer. It has no behaviour: any class with these members is one."""

from typing import Any, Protocol, runtime_checkable

from jaxtyping import PyTree, Scalar


@runtime_checkable
class Regularizer(Protocol):
    """A non-smooth function psi of the model, known by its value, its proximal map and its traits.

    Models are pytrees of floating arrays. Every method keeps their structure and dtype, is pure, and can be
    jitted, vmapped (over the model and over the hyperparameters) and differentiated, with finite derivatives.

    Traits, read by algorithms to refuse what they cannot treat:

    - `convex`
    - `separable`: psi is a sum over coordinates, so the prox acts on each coordinate alone.
    - `is_indicator`: psi is 0 on a set and infinite outside; the prox is the projection for every step >= 0.
    - `weak_convexity`: the least rho for which psi + rho ||w||^2/2 is convex; 0.0 if psi is, inf if there is
      none.
    - `weighted_l1`: psi(w) = sum_j lambda_j |w_j| with lambda_j >= 0.
    - `is_zero`: psi = 0.
    - `is_norm`: psi = strength * R with a norm (or, through `On`, a seminorm) R; then there is
      `prox_in_ball(v, step, anchor, radius)` = argmin ||w - v||^2/2 + step psi(w) subject to R(w - anchor) <=
      radius.
    - `structure`: what is simple about a minimiser: "density" (few non-zeros), "rank", or None.

    Some norms also have `dual_norm(z)`, the dual of R (not of psi): psi*(z) = 0 if and only if dual_norm(z)
    <= strength.
    """

    @property
    def convex(self) -> bool: ...

    @property
    def separable(self) -> bool: ...

    @property
    def is_indicator(self) -> bool: ...

    @property
    def weak_convexity(self) -> Any: ...

    @property
    def weighted_l1(self) -> bool: ...

    @property
    def is_zero(self) -> bool: ...

    @property
    def is_norm(self) -> bool: ...

    @property
    def structure(self) -> str | None: ...

    def value(self, w: PyTree) -> Scalar:
        """psi(w); for an indicator 0 or inf, with the tolerance for round-off that the class states."""
        ...

    def prox(self, v: PyTree, step: Any) -> PyTree:
        """argmin_w ||w - v||^2/2 + step psi(w), a global minimiser, for every step >= 0."""
        ...

    def subgradient(self, w: PyTree) -> PyTree:
        """An element of the subdifferential, 0 at kinks; a TypeError for indicators."""
        ...
