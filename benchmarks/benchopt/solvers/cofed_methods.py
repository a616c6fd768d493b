"""cofed's methods, each with the step that theory gives it: 1/L, over K local steps 1/(K L)."""

import numpy as np
from benchopt import BaseSolver

import cofed

METHODS = {
    "FedAvg": lambda L, K: cofed.FedAvg(1 / (K * L)),
    "FedMiD": lambda L, K: cofed.FedMiD(1 / (K * L)),
    "FedDualAvg": lambda L, K: cofed.FedDualAvg(1 / (K * L)),
    "FedDecouple": lambda L, K: cofed.FedDecouple(1 / (K * L)),
    "ProxSkip": lambda L, K: cofed.ProxSkip(1 / L, probability=1 / K),
    "FedFISTA": lambda L, K: cofed.FedFISTA(L=L),
    "FedNewton": lambda L, K: cofed.FedNewton(),
    "FedNL": lambda L, K: cofed.FedNL(cofed.TopK(0.1)),
    "SDANE": lambda L, K: cofed.SDANE(),
    "AccSDANE": lambda L, K: cofed.AccSDANE(),
    # Of a strong convexity of L/100 where none is known; the local problem has the curvature L + 1/eta.
    "FedDR": lambda L, K: cofed.FedDR(1 / (1.1 * L), eta=10 / L),
    "FedADMM": lambda L, K: cofed.FedADMM(1 / (1.1 * L), eta=10 / L),
    "Scaffold": lambda L, K: cofed.Scaffold(1 / (K * L)),
}
# One gradient a round suffices where clients do not move; a drawn number of steps needs room.
STEPS = {"FedFISTA": lambda K: 1, "FedNewton": lambda K: 1, "FedNL": lambda K: 1, "ProxSkip": lambda K: 5 * K}


class Solver(BaseSolver):
    """A method of cofed, run for a number of rounds."""

    name = "cofed"
    requirements = ["pip::cofed"]
    parameters = {"method": list(METHODS), "local_steps": [10]}
    test_parameters = {"method": ["FedDecouple"]}

    def skip(self, clients, loss, strength):
        """Scaffold knows no penalty."""
        if self.method == "Scaffold" and strength > 0:
            return True, "Scaffold is for smooth problems: share=0"
        return False, None

    def set_objective(self, clients, loss, strength):
        """Pose the problem."""
        smooth = cofed.Squared() if loss == "squared" else cofed.Logistic()
        penalty = cofed.L1(float(strength)) if strength > 0 else cofed.Zero()
        self.problem = cofed.Problem(cofed.Linear(intercept=False), smooth, penalty)
        labels = [(X, y if loss == "squared" else y.astype(int)) for X, y in clients]
        self.federation = cofed.Federation.from_arrays(labels)
        bound = 1.0 if loss == "squared" else 0.25  # of the loss's second derivative
        L = bound * max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X, _ in clients)
        self.algorithm = METHODS[self.method](L, self.local_steps)
        self.steps = STEPS.get(self.method, lambda K: K)(self.local_steps)

    def get_next(self, stop_val):
        """Twice as many rounds."""
        return max(1, 2 * stop_val)

    def pre_run_hook(self, stop_val):
        """Compile, so that the time is that of the rounds."""
        self.run(stop_val)

    def run(self, n_rounds):
        """So many rounds."""
        if n_rounds == 0:
            self.coef, self.rounds, self.sent = np.zeros(self.federation.n_features), 0, 0
            return
        result = cofed.run(
            self.problem,
            self.federation,
            self.algorithm,
            rounds=n_rounds,
            local_steps=self.steps,
            evaluate_every=n_rounds,
            progress=False,
        )
        self.coef, self.rounds, self.sent = np.asarray(result.model.coef), n_rounds, result.communication.total

    def get_result(self):
        """The model, and what it cost."""
        return {"coef": self.coef, "rounds": self.rounds, "sent": self.sent}
