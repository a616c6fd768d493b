"""Federated lasso and sparse logistic regression: the mean over clients of their mean losses, plus an L1 penalty."""

import numpy as np
from benchopt import BaseObjective


class Objective(BaseObjective):
    """mean_m F_m(w) + strength ||w||_1, with what it cost to come there: rounds and bytes."""

    name = "Federated sparse regression"
    min_benchopt_version = "1.9"
    requirements = ["numpy"]
    sampling_strategy = "iteration"
    parameters = {"loss": ["squared", "logistic"], "share": [0.1]}  # of the least strength that makes all zero

    def set_data(self, clients, truth):
        """Take the rows; the responses depend on the loss."""
        rng = np.random.default_rng(1)
        self.clients = [(X, self.responses(X @ truth, rng)) for X in clients]
        centre = [y - y.mean() for _, y in self.clients]
        pulls = [X.T @ r / len(r) for (X, _), r in zip(self.clients, centre, strict=True)]
        self.strength = self.share * np.abs(np.mean(pulls, axis=0)).max()

    def responses(self, signal, rng):
        """Responses with noise, or classes 0 and 1."""
        if self.loss == "squared":
            return signal + rng.normal(size=len(signal))
        return (rng.random(len(signal)) < 1 / (1 + np.exp(-signal))).astype(float)

    def get_objective(self):
        """What solvers are given."""
        return {"clients": self.clients, "loss": self.loss, "strength": self.strength}

    def evaluate_result(self, coef, rounds, sent):
        """The objective at a model, and what it cost."""
        losses = []
        for X, y in self.clients:
            z = X @ coef
            each = 0.5 * (z - y) ** 2 if self.loss == "squared" else np.logaddexp(0, z) - y * z
            losses.append(each.mean())
        return {
            "value": float(np.mean(losses) + self.strength * np.abs(coef).sum()),
            "rounds": float(rounds),
            "bytes": float(sent),
            "density": float(np.mean(coef != 0)),
        }

    def get_one_result(self):
        """A model to try the metrics on."""
        return {"coef": np.zeros(self.clients[0][0].shape[1]), "rounds": 0, "sent": 0}
