"""Paths of a quadratic loss, which the server knows from the survey: no exchange, and none for held-out rows either.

The grid of `grid.py`, with the answers computed from the products of features in place of being asked for.
"""

import warnings
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from cofed.estimators.bundle import Vector
from cofed.estimators.certificate import Assessment, FactoredHessian, factored
from cofed.estimators.grid import Grid
from cofed.estimators.standardized_problem import StandardizedProblem
from cofed.estimators.training_set import TrainingSet
from cofed.solvers.curvature import unpack

ROUNDS = 6  # of candidates


class GramGrid(Grid):
    """A grid that asks nobody."""

    def __init__(self, sets: Sequence[TrainingSet]):
        super().__init__(sets)
        self.factors: dict[int, FactoredHessian] = {}

    def run(self, most: int) -> int:
        """Find the models of all training sets; there is no exchange."""
        for one in self.sets:
            fold = None if one.is_whole else HeldOut(one.problem)
            one.bundle.seen.held[0] = np.nan if fold is None else fold.losses(one.bundle.seen.w)[0]
            self.take(one, list(range(len(one.alphas))), by_coordinates(one), fold)
            self.judge()
            for _ in range(ROUNDS):
                if one.finished:
                    break
                found = one.candidates()
                self.take(one, [i for i, _ in found], np.stack([w for _, w in found]), fold)
                self.judge()
        return 0

    def take(self, one: TrainingSet, strengths: list[int], w: np.ndarray, fold: "HeldOut | None") -> None:
        """Compute what a look would have told."""
        first, H = one.bundle.seen, one.bundle.curvature[0].matrix
        away = w - first.w[0]
        bent = away @ H
        loss = first.loss[0] + away @ first.gradient[0] + np.sum(away * bent, axis=1) / 2
        held = np.full(len(w), np.nan) if fold is None else fold.losses(w)
        one.take(strengths, one.measured(w, np.maximum(loss, 0), first.gradient[0] + bent, held))

    def contenders(self, s: int) -> list[tuple[int, int, int, int]]:
        """As of any grid, for training sets that have begun."""
        return super().contenders(s) if len(self.sets[s].bundle) > 1 else []

    def sharpened(self, s: int, i: int, m: int, seen: Assessment) -> Assessment:
        """The certificate with the Hessian, which is everywhere the same."""
        one = self.sets[s]
        if (not one.is_whole and one.psi_is_coercive) or float(seen.gap) + float(seen.rounding) <= one.target:
            return seen
        if s not in self.factors:
            self.factors[s] = factored(jnp.asarray(one.bundle.curvature[0].matrix))
        return self.sharper(one, i, m, seen, self.factors[s])


class HeldOut:
    """The squared error on the rows of a fold, from the survey's products of features and labels."""

    def __init__(self, problem: StandardizedProblem):
        found, k, units = problem.survey, problem.without, problem.units
        gram, labels, scaling = found.gram, units.labels, units.scaling
        self.n, self.features = float(found.sums.n[k]), len(units.mean)
        width, size = scaling.width, labels.size
        self.off = (found.centre - units.mean) / width
        self.label_off = float((found.label_centre[0] - labels.centre) / size)
        self.sum, self.label_sum = gram.X[k] / width, float(gram.labels[k][0]) / size
        self.label_square = float(gram.label_squares[k][0]) / size**2
        self.cross = gram.cross[k][:, 0] / width / size
        self.products = unpack(np.asarray(gram.products[k]), self.features) / width / width[:, None]
        self.curvature = float(problem.loss.curvature or 1)

    def losses(self, w: np.ndarray) -> Vector:
        """The mean losses of models, a row each."""
        coef, intercept = w[:, : self.features], w[:, self.features :].sum(axis=1)
        rest = self.label_off - coef @ self.off - intercept
        square = self.label_square - 2 * coef @ self.cross + np.sum((coef @ self.products) * coef, axis=1)
        square = square + 2 * rest * (self.label_sum - coef @ self.sum) + self.n * rest**2
        return self.curvature * np.maximum(square, 0) / (2 * self.n)


def by_coordinates(one: TrainingSet) -> np.ndarray:
    """A first guess at the models: scikit-learn's coordinate descent, where the penalty is an elastic net whose
    parts are in proportion; else the model without features.

    It is given the products alone: its one row of features is not read.
    """
    first, H, cut = one.bundle.seen, one.bundle.curvature[0].matrix, one.problem.start.coef.size
    guesses = np.tile(first.w[0], (len(one.alphas), 1))
    if one.pieces is None or not np.all(one.pieces.l1[:cut] > 0) or one.size - cut > 1:
        return guesses
    unit = one.pieces.l1[:cut]
    ridges = one.pieces.ridge[:cut] / unit**2
    ridge = float(ridges[0])
    if not np.allclose(ridges, ridge, rtol=1e-9, atol=0):
        return guesses
    G = H[:cut, :cut]
    tilt = H[:cut, cut:] / H[cut:, cut:] if one.size > cut else np.zeros((cut, 0))
    G = (G - tilt @ H[cut:, :cut]) / unit / unit[:, None]
    y = np.sqrt(2 * max(float(one.problem.null.loss), np.finfo(float).tiny))
    tol = {"tol": 1e-15 if one.problem.without < 0 else 1e-8, "max_iter": 1000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # certificates say how good a guess is
        found = enet_path(
            np.zeros((1, cut)),
            np.array([y]),
            l1_ratio=1 / (1 + ridge),
            alphas=one.alphas * (1 + ridge),  # pyright: ignore[reportArgumentType]
            precompute=np.ascontiguousarray(G),  # pyright: ignore[reportArgumentType]
            Xy=-first.gradient[0][:cut] / unit,
            check_input=False,
            **tol,
        )[1]
    coef = found.T / unit
    guesses[:, :cut] = coef
    guesses[:, cut:] -= coef @ tilt
    return guesses
