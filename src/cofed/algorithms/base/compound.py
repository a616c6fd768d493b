"""Methods made of others: in stages, or by choosing between two."""

from abc import abstractmethod
from typing import ClassVar

from cofed.algorithms.base.algorithm import AbstractAlgorithm, Candidates, Stage
from cofed.algorithms.base.gossip import AbstractGossipAlgorithm
from cofed.algorithms.base.server import AbstractServerAlgorithm
from cofed.problem import Problem


class AbstractStagedAlgorithm(AbstractAlgorithm):
    """A method that is a list of stages, each an algorithm with its rounds, such as MCFedDA."""

    stage_form: ClassVar[type[AbstractAlgorithm]]  # the class of the stages

    @property
    def has_server(self) -> bool:
        return issubclass(self.stage_form, AbstractServerAlgorithm)

    @property
    def has_gossip(self) -> bool:
        return issubclass(self.stage_form, AbstractGossipAlgorithm)

    @abstractmethod
    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        """The stages.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        rounds : int
            The run's rounds.
        local_steps : int or None
            The run's local steps; None where clients take different numbers.

        Returns
        -------
        list of Stage
            Their rounds add up to the run's.
        """


class AbstractChoice(AbstractAlgorithm):
    """A method that trains two others and deploys what does better on held-out data, such as Alternative."""

    @property
    def has_server(self) -> bool:
        return True

    @abstractmethod
    def candidates(self, problem: Problem) -> Candidates:
        """The two methods, and how they are compared.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.

        Returns
        -------
        Candidates
            What it chooses between.
        """
