"""Paths of a quadratic loss, which the server knows from the survey: no exchange, and none for held-out rows either.

The grid of `grid.py`, with the answers computed from the products of features in place of being asked for.
"""

import warnings
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import enet_path

from cofed._util.rounding import EPS
from cofed._util.threads import one_thread
from cofed.estimators.bundle import Vector
from cofed.estimators.certificate import Assessment, FactoredHessian, factored
from cofed.estimators.grid import Grid
from cofed.estimators.standardized_problem import StandardizedProblem, second_moments
from cofed.estimators.training_set import TrainingSet
from cofed.regularizers.base import RowQuadratic
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
            with one_thread():  # a product with a vector for every strength
                guesses = by_coordinates(one)
            self.take(one, list(range(len(one.alphas))), guesses, fold)
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
        self.label_off = (found.label_centre - labels.centre) / size
        self.sum, self.label_sum = gram.X[k] / width, gram.labels[k] / size
        self.label_square = gram.label_squares[k] / size**2
        self.cross = gram.cross[k] / width[:, None] / size
        self.products = unpack(np.asarray(gram.products[k]), self.features) / width / width[:, None]
        self.curvature = float(problem.loss.curvature or 1)

    def losses(self, w: np.ndarray) -> Vector:
        """The mean losses of models, a row each."""
        outputs = len(self.label_off)
        cut = self.features * outputs
        coef = w[:, :cut].reshape(-1, self.features, outputs).swapaxes(1, 2)  # models x responses x features
        intercept = w[:, cut:].reshape(len(w), -1) if w.shape[1] > cut else np.zeros((len(w), outputs))
        rest = self.label_off - coef @ self.off - intercept
        # One product of matrices for all models: NumPy would take as many with vectors.
        bent = (coef.reshape(-1, self.features) @ self.products).reshape(coef.shape)
        square = self.label_square + np.sum((bent - 2 * self.cross.T) * coef, axis=2)
        square = square + 2 * rest * (self.label_sum - coef @ self.sum) + self.n * rest**2
        return self.curvature * np.maximum(square, 0).sum(axis=1) / (2 * self.n)


def by_coordinates(one: TrainingSet) -> np.ndarray:
    """A first guess at the models: scikit-learn's coordinate descent, where the penalty is an elastic net (of
    coefficients, or of rows of them) whose parts are in proportion; else the model without features.

    It is given the products alone: its one row of features is not read.
    """
    rows = one.psi.row_quadratic()
    if rows is not None:
        return by_rows(one, rows)
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


def by_rows(one: TrainingSet, rows: RowQuadratic) -> np.ndarray:
    """The same for rows of coefficients, which coordinate descent takes as wholes. It knows no products, and is given
    rows of features that have them."""
    first, moments = one.bundle.seen, second_moments(one.problem)
    guesses = np.repeat(first.w[:1], len(one.alphas), axis=0)
    p, unit = len(one.problem.units.mean), rows.l1
    ridges = rows.ridge / np.where(unit > 0, unit, 1) ** 2
    if moments is None or not unit.all() or not np.allclose(ridges, ridges[0], rtol=1e-9, atol=0):
        return guesses
    tilt = moments[:p, p:]  # of an intercept
    curvature = float(one.problem.loss.curvature or 1)
    values, vectors = np.linalg.eigh(curvature * (moments[:p, :p] - tilt @ tilt.T) / unit / unit[:, None])
    kept = values > 4 * EPS * p * values.max(initial=0)
    cut = one.problem.start.coef.size
    pulls = -first.gradient[0][:cut].reshape(p, -1) / unit[:, None]
    if not kept.any():
        return guesses
    root, scale = np.sqrt(values[kept]), np.sqrt(kept.sum())  # it divides squares by how many rows there are
    X = np.asfortranarray(scale * root[:, None] * vectors[:, kept].T)
    y = np.asfortranarray(scale * (vectors[:, kept].T @ pulls) / root[:, None])
    tol = {"tol": 1e-15 if one.problem.without < 0 else 1e-8, "max_iter": 1000}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        found = enet_path(
            X,
            y,
            l1_ratio=1 / (1 + ridges[0]),
            alphas=one.alphas * (1 + ridges[0]),  # pyright: ignore[reportArgumentType]
            check_input=False,
            **tol,
        )[1]
    coef = np.moveaxis(found, 2, 0).swapaxes(1, 2) / unit[:, None]  # strengths x features x responses
    guesses[:, :cut] = coef.reshape(len(coef), -1)
    guesses[:, cut:] -= (tilt.T @ coef)[:, 0] if tilt.size else 0.0
    return guesses
