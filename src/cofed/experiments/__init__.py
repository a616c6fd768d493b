"""The papers' figures and theorems as experiments that run, draw and check the claim: a file or folder per paper.

To add a paper, add a file with a list `EXPERIMENTS` and put its name, with authors and title, into `PAPERS`. How the
other files work together:

    specification      what an experiment is: data, methods, panels, claims
    registry, schema, import_path, build      from a user's experiment file to such a specification
    measure, parts, gather      the loops, finished pieces on disk, and all pieces put together
    results, verdicts, figure      what is written: an experiment's folder, its claims and its figure
    page, sections      the page of all experiments
    reproduce, experiment_file, plan, expected      what the commands call
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cofed.experiments.specification import Experiment

PAPERS = {
    "yuan2021": "Yuan, Zaheer, Reddi (2021), Federated Composite Optimization",
    "bao2022": "Bao, Crawshaw, Luo, Liu (2022), Fast Composite Optimization and Statistical Recovery in Federated "
    "Learning",
    "liang2023": "Liang, Peng, Zhang (2023), Gradient Tracking for High Dimensional Federated Optimization",
    "zhang2025": "Zhang, Hu, Johansson (2025), Non-convex composite federated learning with heterogeneous data",
    "chen2021": "Chen, Zheng, Long, Su (2021), A Theorem of the Alternative for Personalized Federated Learning",
}


def everything() -> "dict[str, Experiment]":
    """All experiments by id, paper by paper.

    >>> "yuan2021-fig3" in everything()
    True
    """
    modules = [importlib.import_module(f"cofed.experiments.{paper}") for paper in PAPERS]
    return {experiment.id: experiment for module in modules for experiment in module.EXPERIMENTS}
