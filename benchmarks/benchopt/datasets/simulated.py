"""Clients of equal size (so that the pooled problem is the same), whose rows have scales of their own."""

import numpy as np
from benchopt import BaseDataset


class Dataset(BaseDataset):
    """Gaussian rows, and a sparse truth; heterogeneity h spreads the clients' scales from (1+h)^-1/2 to (1+h)^1/2."""

    name = "simulated"
    requirements = ["numpy"]
    parameters = {"n_clients": [8], "n_samples": [50], "n_features": [40], "heterogeneity": [0.0, 2.0]}
    test_parameters = {"n_clients": [3], "n_samples": [10], "n_features": [5], "heterogeneity": [0.0]}

    def get_data(self):
        """The clients' rows, and the truth."""
        rng = np.random.default_rng(0)
        scales = (1 + self.heterogeneity) ** np.linspace(-0.5, 0.5, self.n_clients)
        clients = [scale * rng.normal(size=(self.n_samples, self.n_features)) for scale in scales]
        return {"clients": clients, "truth": (np.arange(self.n_features) < self.n_features // 8).astype(float)}
