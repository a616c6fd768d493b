"""cofed: federated composite optimization, for data that stays with its owners."""

import importlib
from typing import TYPE_CHECKING, Any

from cofed import datasets, loggers, metrics, partition
from cofed.algorithms import (
    CFedDA,
    FastFedDA,
    FedADMM,
    FedAvg,
    FedDecouple,
    FedDR,
    FedDualAvg,
    FedFISTA,
    FedMiD,
    FedNewton,
    MCFedDA,
    Scaffold,
)
from cofed.baselines import Solution, solve_local, solve_pooled
from cofed.engine.debug import DebugFailure
from cofed.engine.history import Communication, History, LeftOut, Outcome, Result
from cofed.engine.run import resume, run
from cofed.engine.tune import Tuning, tune
from cofed.federation import Federation
from cofed.gossip import DASM, DFedDA, DFedMiD, DScaffold, MReFedDAGT, ReFedDAGT, topologies
from cofed.losses import Huber, Logistic, Poisson, Softmax, Squared
from cofed.mirrors import Entropy, Euclidean, PNorm
from cofed.models import CNN, MLP, Linear, Trace
from cofed.personal import Alternative, ExcessRisk, FedProx, Heterogeneity, PureLocal, excess_risk, heterogeneity
from cofed.problem import Problem
from cofed.regularizers import (
    L1,
    MCP,
    SCAD,
    Box,
    ElasticNet,
    GroupL1,
    L0Ball,
    L1Ball,
    L2Ball,
    NonNegative,
    Nuclear,
    On,
    Scaled,
    Simplex,
    SparseGroupL1,
    Sum,
    TotalVariation,
    Translated,
    Zero,
)

if TYPE_CHECKING:
    from cofed import estimators

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """The estimators bring scikit-learn and matplotlib, which take longer to import than all the rest: they come when
    they are first asked for, so that the command line and every process of a network run start fast."""
    if name == "estimators":
        return importlib.import_module("cofed.estimators")
    raise AttributeError(f"module 'cofed' has no attribute {name!r}")
