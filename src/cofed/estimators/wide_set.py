"""Training sets of a squared loss with so many features that their Gram matrix is not asked for as a whole.

Columns of it are, by fold. With C the columns of the features S, and W their rows S, C W^+ C' is the whole matrix as
far as S spans the features (Nystrom's approximation; a fold of n rows is spanned by any n columns that are
independent), and is right on S in any case. What is missing elsewhere is added on the diagonal, which is known from
the survey. So the server has rows of its own with the same products, no more than there are columns, and finds the
models of all strengths by itself; a look at them says whether they are right.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cofed._util.rounding import EPS
from cofed.estimators.bundle import Vector
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.training_set import TrainingSet
from cofed.solvers import active_set
from cofed.solvers.active_set import ElasticQuadratic

FLAT = 1e-11  # curvature, beside the largest, that may be rounding
SLIGHT = 1e-9  # of a diagonal entry, which may lack that much by rounding
NEARLY = 0.9  # of the slope at which a coefficient is used
SOME = 128  # coefficients that come into use at once, where few are
ROUNDS = 50  # of coefficients that come into use, at most


class FoldProducts(NamedTuple):
    """The products of all parameters' columns, of a fold's rows: rows' rows + diag(rest)."""

    rows: np.ndarray  # r x d
    rest: Vector  # d


def fold_products(columns: np.ndarray, where: np.ndarray, diagonal: Vector) -> FoldProducts:
    """The products from some columns of them (as rows, of the parameters `where`) and the diagonal.

    >>> import numpy as np
    >>> from cofed.estimators.wide_set import fold_products
    >>> A = np.array([[1.0, 2.0, 0.0], [0.0, 1.0, 1.0]])
    >>> G = A.T @ A
    >>> found = fold_products(G[:2], np.arange(2), G.diagonal())
    >>> np.allclose(found.rows.T @ found.rows, G), found.rest.tolist()
    (True, [0.0, 0.0, 0.0])
    """
    values, vectors = np.linalg.eigh(columns[:, where])
    keep = values > FLAT * values.max(initial=0)
    rows = (vectors[:, keep] / np.sqrt(values[keep])).T @ columns
    rest = diagonal - np.sum(rows**2, axis=0)
    return FoldProducts(rows, np.where(rest > SLIGHT * diagonal, rest, 0))


class WideHessian:
    """A Hessian of which no more is written out than is used."""

    def __init__(self, folds: Sequence[FoldProducts], scale: float):
        self.rows = np.concatenate([one.rows for one in folds]) * np.sqrt(scale)
        self.rest = np.sum([one.rest for one in folds], axis=0) * scale
        self.place = np.full(len(self.rest), -1)  # of the parameters in the matrix
        self.used = np.zeros(0, int)
        self.matrix = np.zeros((0, 0))

    def times(self, v: Vector) -> Vector:
        """H v"""
        some = np.flatnonzero(v)
        return (self.rows[:, some] @ v[some]) @ self.rows + self.rest * v

    def block(self, own: np.ndarray) -> np.ndarray:
        """The rows and columns of some parameters."""
        new = own[self.place[own] < 0]
        if len(new):
            before, count = len(self.used), len(self.used) + len(new)
            self.used = np.append(self.used, new)
            self.place[new] = np.arange(before, count)
            if count > len(self.matrix):
                larger = np.zeros((2 * count, 2 * count))
                larger[:before, :before] = self.matrix[:before, :before]
                self.matrix = larger
            beside = self.rows[:, self.used].T @ self.rows[:, new]
            beside[np.arange(before, count), np.arange(len(new))] += self.rest[new]
            self.matrix[:count, before:count] = beside
            self.matrix[before:count, :count] = beside.T
        place = self.place[own]
        return self.matrix[np.ix_(place, place)]


class WideTrainingSet(TrainingSet):
    """A training set whose Hessian is a `WideHessian`, while it is needed."""

    hessian: WideHessian | None = None

    def minimiser(self, i: int, x: Vector, guess: Vector | None) -> Vector:
        """The minimiser of the penalised quadratic model at x, on the coefficients that come into use."""
        H, pieces = self.hessian, self.pieces
        assert H is not None
        assert pieces is not None
        g, alpha = self.bundle.seen.gradient[self.standing.best[i]], self.alphas[i]
        l1, ridge = alpha * pieces.l1, alpha * pieces.ridge
        z = x if guess is None else guess
        inside = (x != 0) | (z != 0) | (l1 == 0)
        inside |= strongest(~inside, g + H.times(z - x) + ridge * z, NEARLY * l1)
        for _ in range(ROUNDS):
            own = np.flatnonzero(inside)
            q = ElasticQuadratic(H.block(own), g[own], x[own], l1[own], ridge[own])
            starts = (x[own], z[own])
            z = np.zeros_like(x)
            z[own] = active_set.minimise(q, min(starts, key=q.value))
            slope = g + H.times(z - x) + ridge * z
            more = strongest(~inside, slope, l1 + 64 * EPS * (np.abs(g) + l1))
            if not more.any():
                break
            inside |= more
        return z


def strongest(among: np.ndarray, slope: Vector, least: Vector) -> np.ndarray:
    """Of some coefficients those whose slope is above the least, the strongest, about as many as the others are."""
    pull = np.where(among, np.abs(slope), 0) / np.where(least > 0, least, 1)
    order = np.argsort(-pull, kind="stable")[: max(SOME, int(np.sum(~among)))]
    found = np.zeros(len(slope), bool)
    found[order] = pull[order] > 1
    return found


def fold_sums(problem: StandardizedProblem) -> tuple[np.ndarray, np.ndarray]:
    """By fold, the sums of the features in the problem's units, and of their squares: from the survey."""
    found, unit = problem.survey, problem.units
    width, off, n = unit.scaling.width, found.centre - unit.mean, np.asarray(found.sums.n)[:, None]
    plain, square = np.asarray(found.gram.X), np.asarray(found.gram.squares)
    return (plain + n * off) / width, (square + 2 * off * plain + n * off**2) / width**2
