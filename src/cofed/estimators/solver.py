"""From a standardized problem to a certified answer, by cofed's own algorithms, without a number to tune.

The rule of `algorithm="auto"`, the cheapest in bytes, and nearly always in rounds, in `benchmarks.estimators`:

- "newton", FedNewton: proximal Newton steps. Models of up to 128 parameters share their whole Hessian; with a penalty
  that is a sum over coordinates and sets some of them to zero, larger ones share it on a working set of 128
  coordinates, which doubles where the answer needs more than half of it. A squared loss takes one such exchange per
  working set.
- "fista", FedFISTA, one gradient per round, where no working set serves and there are more than 512 parameters: there
  a few Hessians are more bytes than some hundred gradients (but fewer rounds; `algorithm="newton"` if those matter).

Every exchange is counted: sums for the standardisation, the model without features, the search for curvature, rounds,
and the certificate's own.
"""

import math

import jax
import numpy as np

from cofed._util.types import Given
from cofed.algorithms import FedDecouple, FedFISTA
from cofed.algorithms.base import AbstractServerAlgorithm, as_algorithm
from cofed.estimators.certificate import Assessment, FirstOrder
from cofed.estimators.lock_step import serves, solve_one
from cofed.estimators.loops import fista_round, fista_rounds, largest_curvature
from cofed.estimators.newton import newton
from cofed.estimators.progress import CertifiedFit, FitProgress
from cofed.estimators.standardized_problem import StandardizedProblem, assess_known, n_parameters
from cofed.models import Weights
from cofed.regularizers import AbstractRegularizer

DENSE = 512  # the most parameters of a model that is not sparse whose Hessian is sent in every round
LOCAL_STEPS = 5  # of FedDecouple
NAMES = ("auto", "newton", "fista", "decouple")


def check_algorithm(owner: str, algorithm: Given[str | AbstractServerAlgorithm]) -> None:
    """Refuse what is neither one of NAMES nor an algorithm with a server."""
    if algorithm in NAMES if isinstance(algorithm, str) else with_server(algorithm) is not None:
        return
    raise ValueError(
        f"{owner}: algorithm must be one of {', '.join(NAMES)} or an algorithm with a server such as "
        f"cofed.FedDualAvg(client_lr=0.1), got {algorithm!r}"
    )


def with_server(algorithm: object) -> AbstractServerAlgorithm | None:
    """The algorithm, where it is one with a server."""
    try:
        found = as_algorithm(algorithm)
    except (TypeError, ValueError):
        return None
    return found if isinstance(found, AbstractServerAlgorithm) else None


def solve(
    problem: StandardizedProblem,
    psi: AbstractRegularizer,
    algorithm: str | AbstractServerAlgorithm,
    tol: float,
    max_rounds: int,
    warm: CertifiedFit | None = None,
) -> CertifiedFit:
    """Minimise mean loss + psi until gap <= tol * scale; `warm` is an answer to begin from."""
    w, seen = beginning(problem, psi, warm)
    fit = FitProgress(problem, psi, tol, max_rounds)
    if isinstance(algorithm, str):
        name = choose(problem, psi) if algorithm == "auto" else algorithm
        if fit.done(seen):
            return fit.finished(w, seen, name)
        direct = name == "newton" and warm is None and (problem.hessian is None or is_known_by_rows(problem, psi))
        if direct and psi.coercive and serves(problem, psi):
            answer = solve_one(problem, psi, tol, max_rounds)
            if problem.hessian is not None:  # known from products of features: the model itself is looked at
                answer = fit.finished(answer.w, fit.assess(answer.w), name)
            if answer.certificate.outcome != "not converged":
                return answer
            w, seen, fit.rounds_left = answer.w, answer.assessment, max_rounds - looks(problem)
        return {"newton": newton, "fista": fista, "decouple": decouple}[name](fit, w, seen)
    found = with_server(algorithm)
    assert found is not None
    name = type(found).__name__
    return fit.finished(w, seen, name) if fit.done(seen) else by_algorithm(fit, (w, seen), found, name)


def looks(problem: StandardizedProblem) -> int:
    """How often models have been looked at."""
    return sum(one.rounds for one in problem.exchanges if one.what == "look")


def beginning(
    problem: StandardizedProblem, psi: AbstractRegularizer, warm: CertifiedFit | None
) -> tuple[Weights, Assessment]:
    """The model to begin from, inside psi's domain, and its certificate: without an exchange where it is known."""
    posed, null = problem.problem(psi), problem.null
    if warm is not None:
        warm = warm.on_device()
        w = posed.regularizer.prox(warm.w, 0.0)
        return w, assess_known(posed, null, FirstOrder(w, warm.assessment.loss, warm.assessment.gradient))
    w = posed.regularizer.prox(problem.start, 0.0)
    # A start at zero is the model without features, which has been looked at.
    if all(map(np.array_equal, jax.tree.leaves(w), jax.tree.leaves(problem.start))):
        return w, assess_known(posed, null, FirstOrder(w, null.loss, null.gradient))
    return w, problem.assess(psi, w)


def choose(problem: StandardizedProblem, psi: AbstractRegularizer) -> str:
    """The rule of "auto"."""
    served = psi.sparsifying or is_known_by_rows(problem, psi)
    return "newton" if n_parameters(problem.start) <= DENSE or served else "fista"


def is_known_by_rows(problem: StandardizedProblem, psi: AbstractRegularizer) -> bool:
    """Whether the server knows the loss, and solves for whole rows of coefficients by itself."""
    return psi.row_quadratic() is not None and problem.hessian is not None


def fista(fit: FitProgress, w: Weights, seen: Assessment) -> CertifiedFit:
    """Accelerated rounds until their own bound on the gap is small enough, then the certificate."""
    algorithm = FedFISTA(largest_curvature(fit, w))
    server = algorithm.init(fit.problem.problem(fit.psi), w)
    target = fit.target / 2 if fit.psi.coercive else 0.0  # the rest is for rounding
    while fit.rounds_left > 0 and not fit.done(seen) and not seen.settled:
        before = fit.rounds_left
        server = fista_rounds(fit, algorithm, server, target)
        moved = fit.rounds_left < before
        w = server.w
        seen = fit.assess(w)
        target /= 10
        for _ in range(0 if moved else 10):
            server = fista_round(fit, algorithm, server)
    return fit.finished(w, fit.sharpened(w, seen), "fista")


def decouple(fit: FitProgress, w: Weights, seen: Assessment) -> CertifiedFit:
    """FedDecouple, its step from the federation's curvature."""
    lr = 0.5 / (LOCAL_STEPS * largest_curvature(fit, w))
    return by_algorithm(fit, (w, seen), FedDecouple(lr), "decouple", LOCAL_STEPS)


def by_algorithm(
    fit: FitProgress,
    begin: tuple[Weights, Assessment],
    algorithm: AbstractServerAlgorithm,
    name: str,
    local_steps: int = 1,
) -> CertifiedFit:
    """Any algorithm, looked at from time to time. Where it fails, the best model that it came by."""
    w, seen = best = begin
    training = fit.problem.sites.train(fit.problem.training(fit.psi, algorithm, local_steps), w)
    pause, done = 10, 0
    while fit.rounds_left > 0 and (done == 0 or not fit.done(seen)):
        rounds = min(pause, fit.rounds_left)
        w, failed = training.advance(rounds)
        done, fit.rounds_left = done + rounds, fit.rounds_left - rounds
        seen = fit.assess(w)
        if failed or not math.isfinite(float(seen.objective)):
            fit.failed = True
            w, seen = best
            break
        best = min(best, (w, seen), key=lambda one: float(one[1].objective))
        pause = max(10, done // 8)
        if seen.settled:
            break
    return fit.finished(w, fit.sharpened(w, seen), name)
