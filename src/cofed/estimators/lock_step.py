"""Whole paths, with or without folds, and single fits, by grids: which grid serves, and what comes of it."""

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from cofed.estimators.bundle import Vector
from cofed.estimators.column_grid import ColumnGrid
from cofed.estimators.gram_path import GramGrid
from cofed.estimators.grid import WHOLE, Grid
from cofed.estimators.progress import CertifiedFit, FitProgress
from cofed.estimators.standardized_problem import StandardizedProblem, n_parameters
from cofed.estimators.training_set import TrainingSet, elastic_pieces
from cofed.estimators.wide_set import WideTrainingSet
from cofed.models import Linear
from cofed.regularizers import AbstractRegularizer

Penalty = Callable[[StandardizedProblem, float], AbstractRegularizer]

LOOKS = 60  # the most exchanges
FOLDS = 1e-5  # the gap of models of cross-validation, beside what the features explain
DOWN = 8  # strengths on the way to that of a single fit
BELOW = 0.9 ** np.arange(1, 3)  # strengths below the last, for its certificate
LARGEST = 512  # the most parameters of a model whose Hessians are whole


@dataclasses.dataclass(frozen=True)
class PathsAnswer:
    """Models by strength; with folds, those without each fold, and the mean losses of the rows held out."""

    models: list[CertifiedFit]
    of_folds: list[list[CertifiedFit]]  # by fold
    held: np.ndarray  # folds x strengths


def serves(problem: StandardizedProblem, psi: AbstractRegularizer) -> bool:
    """Whether a grid can solve a problem: a convex penalty, and Hessians that are known, or not too large, or can be
    asked for in parts. Where some coefficients are not penalised, certificates need whole Hessians."""
    if not (psi.convex and psi.has_conjugate and (psi.coercive or penalises_some(psi))):
        return False
    if problem.loss.quadratic:
        return problem.hessian is not None or (psi.coercive and is_wide(problem, psi))
    most = LARGEST if psi.coercive else WHOLE
    return isinstance(problem.model, Linear) and (psi.sparsifying or n_parameters(problem.start) <= most)


def penalises_some(psi: AbstractRegularizer) -> bool:
    """Whether some coefficients have an l1 norm, each of its own."""
    form = psi.piecewise_quadratic()
    return form is not None and bool(np.any(np.asarray(form.l1) > 0))


def is_wide(problem: StandardizedProblem, psi: AbstractRegularizer) -> bool:
    """Whether columns of the Gram matrix are asked for: a squared loss of too many features for all of it."""
    if not problem.loss.quadratic or problem.hessian is not None or not isinstance(problem.model, Linear):
        return False
    return psi.sparsifying and elastic_pieces(psi, problem.start) is not None


def solve_paths(
    parts: Sequence[StandardizedProblem], grids: Sequence[tuple[Penalty, Vector]], tol: float, most: int
) -> list[PathsAnswer]:
    """The models of all strengths for all rows, the first of the parts, and for those without a fold, the others.

    Those of several penalties are looked at together. (Where columns of products are asked for, each penalty's ask
    for their own.) Strengths are above 0, the strongest first; `most` is how many exchanges there may be.
    """
    sets = [training_sets(parts, penalty, alphas, tol) for penalty, alphas in grids]
    if isinstance(sets[0][0], WideTrainingSet):
        left = [run(own, most) for own in sets]
    else:
        left = [run([one for own in sets for one in own], most)] * len(sets)
    return [
        answered(own, penalty, alphas, rest) for own, (penalty, alphas), rest in zip(sets, grids, left, strict=True)
    ]


def solve_parts(
    parts: Sequence[StandardizedProblem], penalty: Penalty, alphas: Vector, tol: float, most: int
) -> list[list[CertifiedFit]]:
    """The models of all strengths for each of several parts of the rows, all as exact."""
    kind = WideTrainingSet if is_wide(parts[0], penalty(parts[0], 1.0)) else TrainingSet
    sets = [kind(one, penalty(one, 1.0), alphas, np.ones(len(alphas), bool), tol) for one in parts]
    left = run(sets, most)
    return [finished(one, penalty(one.problem, 1.0), left) for one in sets]


def training_sets(
    parts: Sequence[StandardizedProblem], penalty: Penalty, alphas: Vector, tol: float
) -> list[TrainingSet]:
    """All rows, and those without each fold, with a penalty."""
    every, asked = np.append(alphas, alphas[-1] * BELOW), np.arange(len(alphas) + len(BELOW)) < len(alphas)
    kind = WideTrainingSet if is_wide(parts[0], penalty(parts[0], 1.0)) else TrainingSet
    sets = [kind(parts[0], penalty(parts[0], 1.0), every, asked, tol)]
    for part in parts[1:]:
        sets.append(kind(part, penalty(part, 1.0), alphas, np.ones(len(alphas), bool), FOLDS))
        sets[-1].lender = sets[0]
    return sets


def answered(sets: list[TrainingSet], penalty: Penalty, alphas: Vector, left: int) -> PathsAnswer:
    """The answers of all rows, and of those without each fold."""
    answers = [finished(one, penalty(one.problem, 1.0), left) for one in sets]
    held = [one.bundle.seen.held[one.standing.best] for one in sets[1:]]
    return PathsAnswer(answers[0], answers[1:], np.reshape(held, (len(held), len(alphas))))


def solve_one(problem: StandardizedProblem, psi: AbstractRegularizer, tol: float, most: int) -> CertifiedFit:
    """The model of one penalty, together with those of stronger ones, which lead to it."""
    top = max(float(psi.zeroing_factor(problem.null.gradient.coef)), 1.0)
    way = np.geomspace(top, 1, DOWN + 1)[1:] if np.isfinite(top) else 2.0 ** np.arange(DOWN - 1, -1, -1)
    alphas = np.append(way, BELOW)
    kind = WideTrainingSet if is_wide(problem, psi) else TrainingSet
    one = kind(problem, psi, alphas, np.arange(len(alphas)) == DOWN - 1, tol)
    return finished(one, psi, run([one], most))[0].on_device()


def run(sets: list[TrainingSet], most: int) -> int:
    """Solve for all; how many exchanges there may be still."""
    wide = [one for one in sets if isinstance(one, WideTrainingSet)]
    if wide:
        return most - ColumnGrid(wide).run(min(most, LOOKS))
    if sets[0].problem.loss.quadratic:
        GramGrid(sets).run(0)
        return most
    return most - Grid(sets).run(min(most, LOOKS))


def finished(one: TrainingSet, psi: AbstractRegularizer, left: int) -> list[CertifiedFit]:
    """The answers of a training set, with a penalty of some strength."""
    answers, progress = [], FitProgress(one.problem, psi, one.tol, left)
    for i in np.flatnonzero(one.asked).tolist():
        seen = one.standing.seen[i]
        assert seen is not None
        answers.append(progress.finished(one.model(i), seen, "newton"))
    return answers
