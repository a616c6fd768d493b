"""Paths of a squared loss with many features: columns of the Gram matrix are asked for, then the models are looked at.

The first columns are those of the features that explain most, and of others spread over all, enough of them to know
folds of few rows wholly. Where that does not do, those of further features follow that the models make use of. The
server finds the models by itself; one look at all of them gives certificates and held-out losses.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from cofed.estimators.grid import Grid
from cofed.estimators.wide_set import FoldProducts, WideHessian, WideTrainingSet, fold_products, fold_sums
from cofed.sites.queries import ColumnsMessage, columns

NUMBERS = 10_500_000  # the most in an answer: as many as the products of 2048 features in five folds
KEPT = 6 * NUMBERS  # the most that are asked for in all
LEAST, FIRST = 64, 384  # columns of an answer at least, and of the first one at most
FEW = 8  # every so many strengths tell which features are used


class ColumnGrid(Grid):
    """A grid that asks for columns of the Gram matrix in place of Hessians."""

    sets: Sequence[WideTrainingSet]

    def __init__(self, sets: Sequence[WideTrainingSet], first: int = FIRST):
        super().__init__(sets)
        self.first = first
        survey = sets[0].problem.survey
        self.features, self.rows = survey.sites.n_features, np.asarray(survey.sums.n)
        self.where = np.zeros(0, int)  # the features whose columns are known
        self.columns = np.zeros((len(self.rows), 0, self.features))
        self.folds: list[FoldProducts] = []

    def run(self, most: int) -> int:
        """Ask for columns until the models are known, and look at them, until all are done; how often."""
        spent = 0
        wanted = self.first_columns()
        while spent < most and not (all(one.finished for one in self.sets) and not self.unheld):
            if len(wanted):
                self.ask_columns(wanted)
            else:
                self.look()
                self.judge()
            spent += 1
            wanted = self.further_columns()
        return spent

    @property
    def share(self) -> int:
        """The most columns of one answer."""
        return max(LEAST, NUMBERS // (len(self.rows) * self.features))

    def first_columns(self) -> np.ndarray:
        """The features that matter most, and as many that are spread over the others."""
        size = min(self.features, self.share, self.first, int(1.5 * self.rows.max()) + 32)
        one = self.sets[0]
        assert one.pieces is not None
        pull = np.abs(one.bundle.seen.gradient[0] / np.where(one.pieces.l1 > 0, one.pieces.l1, 1))[: self.features]
        order = np.argsort(-pull, kind="stable")
        first, others = order[: size // 2], np.sort(order[size // 2 :])
        spread = np.linspace(0, len(others) - 1, size - len(first)).round().astype(int)
        return np.append(first, others[spread])

    def further_columns(self) -> np.ndarray:
        """Features that models use and whose columns are not known well enough, the most used first."""
        lacking = np.max([one.rest for one in self.folds], axis=0)[: self.features] > 0
        room = min(self.share, KEPT // (len(self.rows) * self.features) - len(self.where))
        if not lacking.any() or room <= 0:
            return np.zeros(0, int)
        used: Counter[int] = Counter()
        for one in self.sets:
            if not one.finished:
                for _, w in self.candidates_of(one, FEW):
                    used.update(np.flatnonzero(lacking & (w[: self.features] != 0)).tolist())
        return np.array([j for j, _ in used.most_common(room)], int)

    def ask_columns(self, wanted: np.ndarray) -> None:
        """One exchange: columns of further features."""
        problem = self.sets[0].problem
        message = ColumnsMessage(
            np.asarray(wanted, np.int32), scaling=problem.units.scaling, folds=problem.survey.folds, loss=None
        )
        self.columns = np.concatenate([self.columns, problem.sites.ask(columns, message)], axis=1)
        self.where = np.append(self.where, wanted)
        sums, squares = fold_sums(problem)
        self.folds = []
        for k, n in enumerate(self.rows):
            known, where, diagonal = self.columns[k], self.where, squares[k]
            if self.start.intercept is not None:  # the column of ones is known from the survey
                known = np.block([[known, sums[k][where][:, None]], [sums[k], n]])
                where, diagonal = np.append(where, self.features), np.append(diagonal, n)
            self.folds.append(fold_products(known, where, diagonal))

    def look(self) -> None:
        """One exchange: all candidates."""
        models = [(s, 0, self.sets[s].bundle.seen.w[0]) for s in self.unheld]
        for s, one in enumerate(self.sets):
            if not one.finished:
                models += [(s, i, w) for i, w in self.candidates_of(one)]
        nobody, nothing = np.zeros(0, np.int32), np.zeros((0, 0), np.int32)
        self.keep(models, self.ask(models, nobody, nothing), nobody, nothing)

    def candidates_of(self, one: WideTrainingSet, every: int = 1) -> list[tuple[int, np.ndarray]]:
        """The next models of a training set, whose Hessian is there meanwhile."""
        without, curvature = one.problem.without, float(one.problem.loss.curvature or 1)
        learnt = [fold for k, fold in enumerate(self.folds) if k != without]
        one.hessian = WideHessian(learnt, curvature / one.problem.weight)
        found = one.candidates(every)
        one.hessian = None
        return found
