"""Over Flower's messages an algorithm is what it is in process."""

import numpy as np
import pytest
from safetensors.numpy import load_file

import cofed
from cofed.flower import read_saved, serve
from tests import worlds
from tests.flower.loopback import network

L1 = cofed.L1(0.05)
SCHEDULE = {"rounds": 4, "local_steps": 3, "batch_size": 3, "seed": 7}
NAMES = ["a", "b", "c"]
TABLE = [
    (cofed.FedAvg(0.02, 1.2), L1),
    (cofed.FedMiD(0.02, 1.2), L1),
    (cofed.FedDualAvg(0.02, 1.2), L1),
    (cofed.FastFedDA(mu=0.1, L=20.0), L1),
    (cofed.CFedDA(mu=0.1, L=20.0, radius=5.0), L1),
    (cofed.MCFedDA(mu=0.1, L=20.0, strengths=(0.1, 0.05)), L1),
    (cofed.FedDecouple(0.02, 1.2), L1),
    (cofed.Scaffold(0.02, 1.2), cofed.Zero()),
    (cofed.FedDR(0.02, eta=0.5), L1),
    (cofed.FedADMM(0.02, eta=0.5), L1),
    (cofed.ReFedDAGT(0.02, radius_squared=4.0, sparsity=3), cofed.Zero()),
    (cofed.FedProx(strength=0.5, client_lr=0.02), L1),
    (cofed.PureLocal(0.02), L1),
    (cofed.FedFISTA(9.0), L1),
    (cofed.FedNewton(), L1),
    (cofed.FedNL(cofed.TopK(0.5)), L1),
    (cofed.ProxSkip(0.02, 0.4), L1),
    (cofed.SDANE(0.5), L1),
    (cofed.AccSDANE(0.5, 0.1), L1),
    (cofed.Compressed(cofed.FedDualAvg(0.02, 1.2), cofed.RandomK(0.5)), L1),
    (cofed.Compressed(cofed.MCFedDA(mu=0.1, L=20.0, strengths=(0.1, 0.05)), cofed.TopK(0.5)), L1),
    (cofed.Compressed(cofed.FedDecouple(0.02, 1.2), cofed.Quantised(2)), L1),
]


# Stages, states of clients, personal models, messages that are not what is averaged.
QUICK = ("FedDualAvg", "MCFedDA", "FedDecouple", "FedProx", "FedDualAvg + RandomK(share=0.5)")
ROWS = [pytest.param(*row, id=(name := row[0].name), marks=() if name in QUICK else pytest.mark.slow) for row in TABLE]


@pytest.mark.parametrize(("algorithm", "psi"), ROWS)
def test_every_algorithm_has_the_same_trajectory(algorithm, psi, tmp_path):
    problem, federation = worlds.problem(psi), worlds.linear(sizes=(4, 9, 6), names=NAMES)
    grid, _ = network(problem, algorithm, federation, tmp_path / "sites")
    options = SCHEDULE | {"w0": worlds.start(), "weights": "samples"}
    network_options = {"clients": 3, "deadline": 5.0, "patience": 5.0, "plain": True}
    found = serve(grid, problem, algorithm, checkpoint=tmp_path / "run", **network_options, **options)
    expected = cofed.run(problem, federation, algorithm, **options)
    np.testing.assert_allclose(found.model.coef, expected.model.coef, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(found.history["objective"], expected.history["objective"], rtol=1e-12)
    assert found.outcome is cofed.Outcome.COMPLETED
    assert found.communication.up == expected.communication.up
    np.testing.assert_array_equal(read_saved(tmp_path / "run").model["coef"], found.model.coef)
    if expected.personal_models is not None:
        for name, w in zip(NAMES, expected.personal_models.coef, strict=True):
            mine = load_file(tmp_path / "sites" / name / "personal.safetensors")["coef"]
            np.testing.assert_allclose(mine, w, rtol=1e-12, atol=1e-13)
