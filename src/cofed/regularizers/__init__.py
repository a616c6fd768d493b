"""Regularizers and constraints: value, proximal map, traits. See `AbstractRegularizer` for the contract."""

from cofed.regularizers.base import AbstractRegularizer
from cofed.regularizers.box import Box
from cofed.regularizers.calculus import Scaled, Sum, Translated
from cofed.regularizers.elastic_net import ElasticNet
from cofed.regularizers.group_l1 import GroupL1
from cofed.regularizers.l0_ball import L0Ball
from cofed.regularizers.l1 import L1
from cofed.regularizers.l1_ball import L1Ball
from cofed.regularizers.l2_ball import L2Ball
from cofed.regularizers.mcp import MCP
from cofed.regularizers.nonnegative import NonNegative
from cofed.regularizers.norm import AbstractNorm
from cofed.regularizers.nuclear import Nuclear
from cofed.regularizers.on import On
from cofed.regularizers.scad import SCAD
from cofed.regularizers.simplex import Simplex
from cofed.regularizers.sparse_group_l1 import SparseGroupL1
from cofed.regularizers.total_variation import TotalVariation
from cofed.regularizers.zero import Zero

__all__ = [
    "L1",
    "MCP",
    "SCAD",
    "AbstractNorm",
    "AbstractRegularizer",
    "Box",
    "ElasticNet",
    "GroupL1",
    "L0Ball",
    "L1Ball",
    "L2Ball",
    "NonNegative",
    "Nuclear",
    "On",
    "Scaled",
    "Simplex",
    "SparseGroupL1",
    "Sum",
    "TotalVariation",
    "Translated",
    "Zero",
]
