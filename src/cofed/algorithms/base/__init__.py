"""The contract between an algorithm and an engine.

An algorithm owns only mathematics: a frozen `equinox.Module` whose fields are hyperparameters (so they are traced:
a grid of learning rates is one `vmap`, and changing one never recompiles) and whose methods are pure functions on
pytrees. An engine owns the loop, the sampling, the randomness, the wire and the disk, and knows an algorithm only
through the classes that this room gathers:

    AbstractAlgorithm             what every method says of itself
      AbstractServerAlgorithm     rounds through a server
        AbstractWrapper           the rounds of another method, changed
      AbstractGossipAlgorithm     rounds along a graph; a method may have both forms
      AbstractStagedAlgorithm     a list of stages, each one of the above
      AbstractChoice              trains two methods and deploys the better

Every such class is abstract, every algorithm is final. What a method *may* offer beside its abstract methods has a
default that says "none", so that no engine has to look for it.
"""

from cofed.algorithms.base.algorithm import AbstractAlgorithm, Candidates, Stage
from cofed.algorithms.base.compound import AbstractChoice, AbstractStagedAlgorithm
from cofed.algorithms.base.curvature import LossCurvature
from cofed.algorithms.base.gossip import AbstractGossipAlgorithm
from cofed.algorithms.base.local_steps import LocalSteps
from cofed.algorithms.base.requirements import FORMS, TRAITS, as_algorithm, expanded, forms_of, lacks, output, refusal
from cofed.algorithms.base.server import AbstractServerAlgorithm
from cofed.algorithms.base.wrapper import AbstractWrapper, to_wrap

__all__ = [
    "FORMS",
    "TRAITS",
    "AbstractAlgorithm",
    "AbstractChoice",
    "AbstractGossipAlgorithm",
    "AbstractServerAlgorithm",
    "AbstractStagedAlgorithm",
    "AbstractWrapper",
    "Candidates",
    "LocalSteps",
    "LossCurvature",
    "Stage",
    "as_algorithm",
    "expanded",
    "forms_of",
    "lacks",
    "output",
    "refusal",
    "to_wrap",
]
