"""The optimum that FedProx's convergence is measured against."""

from types import SimpleNamespace

import numpy as np

from cofed.experiments.chen2021.convergence import PROBLEM, quadratics
from cofed.solvers.joint import joint_path


def test_the_optimum_is_that_of_the_joint_solver():
    n = SimpleNamespace(clients=5, samples=30, d=3, R=0.5, noise=0.5, ratio=2.0)
    posed = quadratics(n, seed=4)
    models = joint_path(PROBLEM, posed.federation, [posed.strength]).theta[0]
    np.testing.assert_allclose(posed.prox(posed.optimum()), models, atol=1e-10)
    np.testing.assert_allclose(posed.optimum(), models.mean(axis=0), atol=1e-10)
