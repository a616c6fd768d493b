"""Proximal Newton rounds on working sets, and the two ways out where those do not get there."""

import jax
import numpy as np

from cofed.algorithms import FedNewton
from cofed.estimators.certificate import Assessment, FirstOrder, gradient_rounding
from cofed.estimators.loops import newton_rounds
from cofed.estimators.polish import by_pieces
from cofed.estimators.progress import LARGEST, Assessed, CertifiedFit, FitProgress
from cofed.estimators.quadratic import Quadratic, refined
from cofed.estimators.standardized_problem import assess_known, n_parameters
from cofed.models import Weights

WHOLE = 128  # parameters from which on a working set serves
BATCH = 60  # the most Newton rounds before a certificate is looked at
POLISH = 50  # the most steps of `polished`


def newton(fit: FitProgress, w: Weights, seen: Assessment) -> CertifiedFit:
    """Proximal Newton rounds, checked by certificates; down the path of strengths where they do not get there."""
    w, seen = newton_batches(fit, w, seen, 3 if n_parameters(w) <= WHOLE else 12)
    w, seen = polished(fit, w, seen)
    if not (fit.done(seen) or fit.separable):
        # With a weak penalty and few rows, steps lose themselves among models that fit alike: see `path_down`.
        other_way = path_down(fit)
        if other_way is not None:
            w, seen = sharper_of((w, seen), improved(fit, *other_way))
    return fit.finished(w, fit.sharpened(w, seen), "newton")


def sharper_of(*candidates: Assessed) -> Assessed:
    """The model with the best certificate."""
    return min(candidates, key=lambda one: float(one[1].gap) + float(one[1].rounding))


def newton_batches(fit: FitProgress, w: Weights, seen: Assessment, most: int = 30) -> Assessed:
    """Batches of rounds, each checked by a certificate, the working set growing as needed."""
    size = n_parameters(w)
    whole = size <= WHOLE or not fit.psi.sparsifying or fit.hessian is not None
    set_size = size if whole else min(size, fitting_set(w))
    # A quadratic loss is its own model: no second step is better than the first. For others, Newton's error is squared
    # by each step.
    enough = np.inf if fit.problem.loss.quadratic else fit.target
    for _ in range(most):
        if fit.over(seen):
            break
        if fit.hessian is None:
            algorithm = FedNewton(working_set=None if set_size == size else set_size)
            new = newton_rounds(fit, algorithm, (w, seen.gradient), enough, min(fit.rounds_left, BATCH))
        else:  # the server knows the loss, and solves by itself
            quadratic = Quadratic(fit.hessian, seen.gradient, w, seen.loss)
            new = refined(fit.problem.problem(fit.psi).regularizer, quadratic, w)
        found = fit.assess(new)
        better, nearer = progress(fit, seen, found)
        if better or nearer:
            w, seen = new, found
        if set_size == size or found.settled:  # the rest may be a matter of the dual point
            seen = fit.sharpened(w, seen)
        if not better and set_size == size:  # neither a step nor a larger set brings anything
            break
        set_size = max(set_size, min(size, fitting_set(w)))
    return w, seen


def progress(fit: FitProgress, seen: Assessment, found: Assessment) -> tuple[bool, bool]:
    """Whether a new model is worth another batch, and whether it is at least nearer to the minimum."""
    change = float(found.objective) - float(seen.objective)
    nearer = change <= float(seen.rounding) and float(found.prox_gradient) < float(seen.prox_gradient)
    halved = nearer and float(found.prox_gradient) < float(seen.prox_gradient) / 2
    return change < -fit.target / 100 or fit.done(found) or halved, nearer


def improved(fit: FitProgress, w: Weights, seen: Assessment, most: int = 30) -> Assessed:
    """Steps by the more exact of the two ways that the penalty allows."""
    pieces = fit.psi.piecewise_quadratic()
    return newton_batches(fit, w, seen, most) if pieces is None else polished(fit, w, seen)


def polished(fit: FitProgress, w: Weights, seen: Assessment) -> Assessed:
    """Newton steps whose quadratic models are solved directly, as far as the gradient is known."""
    if fit.psi.piecewise_quadratic() is None or n_parameters(w) > LARGEST:
        return w, seen
    for _ in range(POLISH):
        if fit.over(seen):
            break
        at, hessian = fit.second_order(w, seen)
        noise = gradient_rounding(fit.problem.loss, fit.problem.null, w, at.loss)
        z = by_pieces(fit.psi, hessian, at.gradient, w, noise)
        for t in (1.0, 1 / 4, 1 / 16):
            new = jax.tree.map(lambda a, b, t=t: a + t * (b - a), w, z) if t < 1 else z
            found = fit.assess(new)
            change = float(found.objective) - float(seen.objective)
            nearer = float(found.prox_gradient) < float(seen.prox_gradient) / 2
            if change < -float(seen.rounding) or (nearer and change <= float(seen.rounding)):
                break
        else:
            break
        w, seen = new, fit.sharpened(new, found)
    return w, seen


def path_down(fit: FitProgress) -> Assessed | None:
    """A better start: the answers of ever weaker penalties, from one at which no feature is used, each begun from the
    one before. Supports stay small that way. A quadratic loss is known by its Hessian, and takes no exchange."""
    problem, w = fit.problem, fit.problem.start
    reach = fit.psi.dual_scaling(-problem.null.gradient.coef)
    if not fit.psi.coercive or not 0 < reach < 1 or n_parameters(w) > LARGEST:
        return None
    steps = int(np.ceil(-np.log(float(reach)) / np.log(4)))
    quadratic = None
    if problem.loss.quadratic:
        hessian = problem.second_order(w)[1] if fit.hessian is None else fit.hessian
        quadratic = Quadratic(hessian, problem.null.gradient, w, problem.null.loss)
    for k in range(steps, -1, -1):
        psi = fit.psi.scaled(4.0**k)
        if quadratic is not None:
            w = refined(problem.problem(psi).regularizer, quadratic, w)
            continue
        near = FitProgress(problem, psi, 1e-6, fit.rounds_left)
        if k == steps:
            begin = assess_known(
                problem.problem(psi), problem.null, FirstOrder(w, problem.null.loss, problem.null.gradient)
            )
        else:
            begin = problem.assess(psi, w)
        w = improved(near, w, begin, 1)[0]
        fit.rounds_left = near.rounds_left
        if fit.rounds_left <= 0:
            return None
    return w, fit.assess(w)


def fitting_set(w: Weights) -> int:
    """A power of two, at least twice the support."""
    needed = 2 * int(np.count_nonzero(np.asarray(w.coef))) + 8
    return max(WHOLE, 1 << (needed - 1).bit_length())
