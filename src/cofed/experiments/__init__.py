"""The papers' figures and theorems as experiments that run, draw and check the claim: one file per paper.

Adding a paper is adding a file with a list `EXPERIMENTS`, and its name to `PAPERS`.
"""

import importlib
from typing import Any

PAPERS = ("yuan2021", "bao2022", "liang2023", "zhang2025", "chen2021")


def everything() -> dict[str, Any]:
    """All experiments by id, paper by paper.

    >>> "yuan2021-fig3" in everything()
    True
    """
    modules = [importlib.import_module(f"cofed.experiments.{paper}") for paper in PAPERS]
    return {experiment.id: experiment for module in modules for experiment in module.EXPERIMENTS}
