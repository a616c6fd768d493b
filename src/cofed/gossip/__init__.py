"""Without a server: topologies, and the algorithms that gossip along them, one file each."""

from cofed.gossip import topologies
from cofed.gossip.dasm import DASM
from cofed.gossip.dfedda import DFedDA
from cofed.gossip.dfedmid import DFedMiD
from cofed.gossip.dscaffold import DScaffold
from cofed.gossip.mrefeddagt import MReFedDAGT
from cofed.gossip.nids import NIDS
from cofed.gossip.pgextra import PGExtra
from cofed.gossip.refeddagt import ReFedDAGT

__all__ = ["DASM", "NIDS", "DFedDA", "DFedMiD", "DScaffold", "MReFedDAGT", "PGExtra", "ReFedDAGT", "topologies"]
