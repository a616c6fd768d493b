"""The algorithms with a server, one file each; `base` says what an algorithm is."""

from cofed.algorithms.accsdane import AccSDANE
from cofed.algorithms.alternative import Alternative
from cofed.algorithms.cfedda import CFedDA
from cofed.algorithms.fastfedda import FastFedDA
from cofed.algorithms.fedadmm import FedADMM
from cofed.algorithms.fedavg import FedAvg
from cofed.algorithms.feddecouple import FedDecouple
from cofed.algorithms.feddr import FedDR
from cofed.algorithms.feddualavg import FedDualAvg
from cofed.algorithms.fedfista import FedFISTA
from cofed.algorithms.fedmid import FedMiD
from cofed.algorithms.fednewton import FedNewton
from cofed.algorithms.fednl import FedNL
from cofed.algorithms.fedprox import FedProx
from cofed.algorithms.mcfedda import MCFedDA
from cofed.algorithms.normalmap import NormalMap
from cofed.algorithms.proxskip import ProxSkip
from cofed.algorithms.purelocal import PureLocal
from cofed.algorithms.scaffold import Scaffold
from cofed.algorithms.sdane import SDANE

__all__ = [
    "SDANE",
    "AccSDANE",
    "Alternative",
    "CFedDA",
    "FastFedDA",
    "FedADMM",
    "FedAvg",
    "FedDR",
    "FedDecouple",
    "FedDualAvg",
    "FedFISTA",
    "FedMiD",
    "FedNL",
    "FedNewton",
    "FedProx",
    "MCFedDA",
    "NormalMap",
    "ProxSkip",
    "PureLocal",
    "Scaffold",
]
