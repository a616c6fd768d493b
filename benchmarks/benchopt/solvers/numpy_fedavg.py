"""FedAvg with subgradients, as a loop in NumPy."""

import numpy as np
from benchopt import BaseSolver


class Solver(BaseSolver):
    """K local subgradient steps of every client, then the mean."""

    name = "NumPy-FedAvg"
    requirements = ["numpy"]
    parameters = {"local_steps": [10]}

    def set_objective(self, clients, loss, strength):
        """Take the problem, and the step 1/(K L)."""
        self.clients, self.loss, self.strength = clients, loss, strength
        bound = 1.0 if loss == "squared" else 0.25
        L = bound * max(np.linalg.eigvalsh(X.T @ X / len(X))[-1] for X, _ in clients)
        self.rate = 1 / (self.local_steps * L)

    def get_next(self, stop_val):
        """Twice as many rounds."""
        return max(1, 2 * stop_val)

    def run(self, n_rounds):
        """So many rounds."""
        w = np.zeros(self.clients[0][0].shape[1])
        for _ in range(n_rounds):
            w = np.mean([self.local(X, y, w) for X, y in self.clients], axis=0)
        self.coef, self.rounds = w, n_rounds

    def local(self, X, y, w):
        """A client's steps."""
        for _ in range(self.local_steps):
            z = X @ w
            residual = z - y if self.loss == "squared" else 1 / (1 + np.exp(-z)) - y
            w = w - self.rate * (X.T @ residual / len(y) + self.strength * np.sign(w))
        return w

    def get_result(self):
        """The model, and what it cost: a vector down to and up from every client."""
        return {
            "coef": self.coef,
            "rounds": self.rounds,
            "sent": 2 * self.rounds * len(self.clients) * self.coef.nbytes,
        }
