"""skglm on the pooled rows: what a federation cannot do, and what it is compared with."""

import numpy as np
from benchopt import BaseSolver
from skglm.datafits import Logistic, Quadratic
from skglm.penalties import L1
from skglm.solvers import AndersonCD


class Solver(BaseSolver):
    """Coordinate descent with Anderson acceleration on all rows in one place: one round, which sends the data."""

    name = "skglm-pooled"
    requirements = ["skglm"]
    sampling_strategy = "iteration"

    def set_objective(self, clients, loss, strength):
        """Pool the rows."""
        self.X = np.asfortranarray(np.concatenate([X for X, _ in clients]))
        y = np.concatenate([y for _, y in clients])
        self.y = y if loss == "squared" else 2 * y - 1
        self.datafit = Quadratic() if loss == "squared" else Logistic()
        self.penalty = L1(float(strength))

    def warm_up(self):
        """Compile."""
        self.run(1)

    def run(self, iterations):
        """So many working sets."""
        if iterations == 0:
            self.coef = np.zeros(self.X.shape[1])
            return
        solver = AndersonCD(max_iter=iterations, tol=1e-12, fit_intercept=False, warm_start=False)
        self.coef = solver.solve(self.X, self.y, self.datafit, self.penalty)[0]

    def get_result(self):
        """The model, and what it cost: all rows, sent once."""
        return {"coef": self.coef, "rounds": 1, "sent": self.X.nbytes + self.y.nbytes}
