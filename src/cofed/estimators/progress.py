"""How far a fit has come: the rounds that are left, what is known of the curvature, and the certificate so far."""

import dataclasses
import functools
import warnings
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from cofed._util.rounding import EPS
from cofed.estimators.certificate import (
    Assessment,
    Certificate,
    FactoredHessian,
    FirstOrder,
    factored,
    factored_beside,
)
from cofed.estimators.class_shifts import sparsest_shift
from cofed.estimators.standardized_problem import Hessian, StandardizedProblem, assess_known, n_parameters
from cofed.models import Weights
from cofed.regularizers import AbstractRegularizer

LARGEST = 2048  # the most parameters whose Hessian is sent once, for a path or for intervals
SEPARABLE = 1e-7  # the least curvature, beside that of the model without features, of data that are not separable

SETTLED = 1e-9  # how exactly numbers of a loss are estimated

Assessed = tuple[Weights, Assessment]


@dataclasses.dataclass(frozen=True)
class CertifiedFit:
    """An answer with its certificate."""

    w: Weights
    assessment: Assessment
    certificate: Certificate
    algorithm: str
    cause: str  # why it is not converged, "" where it is

    def on_device(self) -> "CertifiedFit":
        """The same with JAX's arrays, for what goes on from it. (A path keeps NumPy's: to move each number of hundreds
        of models takes longer than to find them.)"""
        w, seen = jax.tree.map(jnp.asarray, (self.w, self.assessment))
        return dataclasses.replace(self, w=w, assessment=seen)

    def warn(self, stacklevel: int = 3) -> None:
        """Give a warning where the answer is not good enough."""
        if self.cause:
            warnings.warn(self.cause, ConvergenceWarning, stacklevel=stacklevel)


Solve = Callable[[StandardizedProblem, CertifiedFit | None], CertifiedFit]  # a problem, begun from a like one's answer
Solved = tuple[StandardizedProblem, CertifiedFit]


@dataclasses.dataclass
class FitProgress:
    """The rounds of one fit: how many are left, what is known of the curvature, and when it is done."""

    problem: StandardizedProblem
    psi: AbstractRegularizer
    tol: float
    rounds_left: int
    factors: FactoredHessian | None = None  # of that Hessian
    null_factors: FactoredHessian | None = None  # of the Hessian at the model without features
    separable: bool = False
    failed: bool = False
    latest: tuple[Weights, tuple[FirstOrder, Hessian]] | None = None  # the last model whose Hessian was sent, and that

    @functools.cached_property
    def hessian(self) -> Hessian | None:
        """Of a quadratic loss: the same everywhere, and known from the survey."""
        return self.problem.hessian

    @property
    def target(self) -> float:
        """The gap to reach. A model without features that is perfect to rounding leaves nothing to explain."""
        return self.tol * max(float(self.problem.null.loss), EPS)

    def done(self, seen: Assessment) -> bool:
        """Whether the certificate is good enough."""
        return not self.separable and float(seen.gap) + float(seen.rounding) <= self.target

    def over(self, seen: Assessment) -> bool:
        """Whether there is nothing left to do: the fit is done, or has no end, or no rounds are left."""
        return self.rounds_left <= 0 or self.done(seen) or self.separable

    def assess(self, w: Weights) -> Assessment:
        """The certificate of a model, which is one round."""
        self.rounds_left -= 1
        seen = self.problem.assess(self.psi, w)
        scale = max(float(self.problem.null.loss), EPS)
        self.problem.sites.exchanges.tell("gap", gap=float(seen.gap) / scale, target=self.tol)
        return seen

    def sharpened(self, w: Weights, seen: Assessment) -> Assessment:
        """The certificate with the Hessian, by one exchange where that is not known; as it is where it is too large."""
        quadratic = self.problem.loss.quadratic
        # A small gap alone does not tell that there is a minimum: separable data come as near as one likes to none.
        endless = not self.psi.coercive and not quadratic
        if (self.done(seen) and not endless) or n_parameters(w) > LARGEST:
            return seen
        problem, null = self.problem.problem(self.psi), self.problem.null
        at, hessian = self.second_order(w, seen)
        if quadratic:
            self.factors = factored(hessian) if self.factors is None else self.factors
            return assess_known(problem, null, at, self.factors)
        if not endless:
            return assess_known(problem, null, at, factored(hessian))
        if self.null_factors is None:
            self.null_factors = factored(self.problem.second_order(self.problem.start)[1])
        curved, least = factored_beside(hessian, self.null_factors)
        self.separable = least < SEPARABLE
        return assess_known(problem, null, at, curved)

    def second_order(self, w: Weights, seen: Assessment) -> tuple[FirstOrder, Hessian]:
        """The loss, gradient and Hessian at w, by one exchange unless they are known."""
        known = self.hessian
        if known is not None:
            return FirstOrder(w, seen.loss, seen.gradient), known
        if self.latest is None or self.latest[0] is not w:
            self.latest = w, self.problem.second_order(w)
        return self.latest[1]

    def certificate(self, w: Weights, seen: Assessment) -> Certificate:
        """The certificate of what was seen, in the user's units."""
        units, labels = self.problem.units, self.problem.units.labels
        coef, intercept = self.problem.original(w)
        # The user's own coefficients are rounded once more: that moves all predictions by a like amount.
        moved = EPS * (np.abs(units.mean) @ np.abs(coef) + np.abs(intercept) + np.abs(labels.shift)) / labels.stretch
        gap, rounding = float(seen.gap), float(seen.rounding) + float(np.sum(moved**2)) / 2
        converged = not self.separable and gap + rounding <= self.target
        limited = not converged and not self.separable and (bool(seen.settled) or gap <= self.target)
        limited = limited and self.psi.has_conjugate  # without one there is no bound that rounding could limit
        size = units.objective
        return Certificate(
            objective=size * float(seen.objective) + labels.least,
            gap=size * gap,
            prox_gradient=float(seen.prox_gradient),
            scale=size * float(self.problem.null.loss),
            tol=self.tol,
            converged=converged,
            rounding=size * rounding,
            limited_by_rounding=limited,
        )

    def finished(self, w: Weights, seen: Assessment, name: str) -> CertifiedFit:
        """The answer."""
        if self.problem.loss.any_shift:
            w = Weights(sparsest_shift(self.psi, np.asarray(w.coef)), w.intercept)
        certificate = self.certificate(w, seen)
        cause = self.cause(certificate) if certificate.outcome == "not converged" else ""
        return CertifiedFit(w, seen, certificate, name, cause)

    def cause(self, certificate: Certificate) -> str:
        """Why it stopped where it did, as a sentence."""
        size = self.problem.units.objective
        reached = (
            f"stopped after {self.problem.n_rounds} rounds at a duality gap of {certificate.gap:.3g} and a "
            f"prox-gradient norm of {certificate.prox_gradient:.3g}; the gap was to be at most tol * scale = "
            f"{size * self.target:.3g}. "
        )
        if self.separable:
            what = "classes, or rows without a count" if not self.problem.loss.of_times else "who has the next event"
            return (
                f"the data are separable (a combination of features tells apart {what}), so "
                "without a penalty the coefficients grow without end and there is no best model: "
                f"{reached}alpha > 0 helps."
            )
        if not self.psi.has_conjugate:
            return f"{self.psi.title} gives no conjugate, so no duality gap can certify the fit: {reached}"
        if self.failed:
            return f"the rounds failed, as the model was no longer finite: {reached}A smaller step may help."
        if self.rounds_left <= 0:
            return f"max_rounds is used up: {reached}More rounds (max_rounds) or a larger tol may help."
        return f"no further step lowers the objective: {reached}{self.problem.loss.of_rows.advice}"
