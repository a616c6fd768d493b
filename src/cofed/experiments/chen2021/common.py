"""What the experiments of this paper share: the problem, the data, and the risk."""

import cofed
from cofed.experiments.specification import Numbers

PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())
STEP = 4.0  # the Hessian is below 1/4 * 2: about a third of the largest stable step with any 40 samples
SHARED, LOCAL, CHOICE, PROX = "FedAvg", "PureLocal", "Alternative", "FedProx"


def data(n: Numbers, samples: int | list[int], clients: int, R: float, seed: int) -> "cofed.datasets.Synthetic":
    """One data set, with fresh samples to measure on."""
    return cofed.datasets.chen_logistic(
        clients=clients, samples=samples, d=n.d, heterogeneity=R, test_samples=n.fresh, seed=seed
    )


def aer(drawn: "cofed.datasets.Synthetic", models: object) -> float:
    """The average excess risk of models, on fresh samples."""
    assert drawn.test is not None
    return cofed.excess_risk(PROBLEM, drawn.test, models, drawn.local, weights="uniform").average
