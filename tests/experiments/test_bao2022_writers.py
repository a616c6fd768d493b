"""The judges of the figures on digits by writer, on curves that are made up."""

import numpy as np
import pandas as pd

from cofed.experiments.bao2022.common import BASELINES, OURS
from cofed.experiments.bao2022.writers import better, sooner
from cofed.experiments.measurements import Measurements


def seen_of(speeds: dict[str, float]) -> Measurements:
    """Objectives that fall, and accuracies that rise, at these speeds."""
    rounds = np.arange(0, 101, 5)
    tables = [
        pd.DataFrame(
            {"round": rounds, "objective": np.exp(-speed * rounds), "test_accuracy": 1 - np.exp(-speed * rounds)}
        )
        for speed in speeds.values()
    ]
    named = [table.assign(algorithm=label, panel="", seed=0) for label, table in zip(speeds, tables, strict=True)]
    return Measurements(pd.concat(named), {})


def test_a_method_is_better_and_sooner_than_both_baselines_or_not_at_all():
    same = dict.fromkeys((*OURS, *BASELINES), 0.01)
    fast = seen_of(same | {"FastFedDA": 0.02})
    for judge in (better, sooner):
        assert judge(("FastFedDA",), fast).holds
        assert not judge(("FastFedDA", "CFedDA"), fast).holds
        assert not judge(("FastFedDA",), seen_of(same | {"FastFedDA": 0.02, "FedMiD": 0.03})).holds
    never = sooner(("FastFedDA",), seen_of(same | {"FastFedDA": 0.001}))
    assert not never.holds
    assert "FastFedDA never" in never.measured
