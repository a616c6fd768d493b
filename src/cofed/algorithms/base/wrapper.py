"""A method around another one, whose rounds it takes over but for what it changes."""

from abc import abstractmethod

import equinox as eqx
from jaxtyping import PyTree

from cofed._util.checks import shown
from cofed.algorithms.base.algorithm import AbstractAlgorithm, Stage
from cofed.algorithms.base.requirements import as_algorithm, refusal
from cofed.algorithms.base.server import AbstractServerAlgorithm
from cofed.problem import Problem


class AbstractWrapper(AbstractServerAlgorithm):
    """A method around another one, such as Scheduled: what it is, sends down and gives as models is the other's.

    A final class says where in its own states those of the method are, and gives the steps that it changes.
    """

    algorithm: eqx.AbstractVar[AbstractAlgorithm]  # the method

    @property
    def method(self) -> AbstractServerAlgorithm:
        """The method, as one with rounds; one of several stages is wrapped stage by stage, and has none of its own."""
        assert isinstance(self.algorithm, AbstractServerAlgorithm)
        return self.algorithm

    @abstractmethod
    def own_server(self, server: PyTree) -> PyTree:
        """The state of the method's server.

        Parameters
        ----------
        server : PyTree
            The state of this one's.

        Returns
        -------
        PyTree
            The part of it that the method made.
        """

    @abstractmethod
    def own_client(self, client: PyTree) -> PyTree:
        """What a client of the method keeps.

        Parameters
        ----------
        client : PyTree
            What a client of this one keeps.

        Returns
        -------
        PyTree
            The part of it that the method made.
        """

    @property
    def equal_steps(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (the method's own)
        return self.algorithm.equal_steps

    @property
    def paper(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]  (the method's own)
        return self.algorithm.paper

    @property
    def whole_up(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]  (the method's own)
        return self.algorithm.whole_up

    @property
    def counts_rounds(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (the method's own)
        return self.algorithm.counts_rounds

    @property
    def counts_steps(self) -> bool:  # pyright: ignore[reportIncompatibleVariableOverride]  (the method's own)
        return self.algorithm.counts_steps

    @property
    def missed_round(self) -> str | None:  # pyright: ignore[reportIncompatibleVariableOverride]  (the method's own)
        return self.algorithm.missed_round

    @property
    def is_personal(self) -> bool:
        return self.algorithm.is_personal

    @property
    def ends_locally(self) -> bool:
        return self.algorithm.ends_locally

    def refuses(self, problem: Problem) -> str | None:
        return refusal(self.algorithm, problem)

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> list[Stage]:
        self.algorithm.stages(problem, rounds, local_steps)  # which may refuse these rounds
        return super().stages(problem, rounds, local_steps)

    def broadcast(self, server: PyTree) -> PyTree:
        return self.method.broadcast(self.own_server(server))

    def model(self, problem: Problem, server: PyTree) -> PyTree:
        return self.method.model(problem, self.own_server(server))

    def average(self, problem: Problem, server: PyTree) -> PyTree | None:
        return self.method.average(problem, self.own_server(server))

    def personal_model(self, server: PyTree, client: PyTree) -> PyTree:
        return self.method.personal_model(self.own_server(server), self.own_client(client))


def to_wrap(method: object, wrapper: str) -> AbstractServerAlgorithm:
    """The method that a wrapper of this name is given, checked: it has a server, and nothing is compressed yet."""
    if not isinstance(method, AbstractAlgorithm) and isinstance(method, eqx.Module) and "local" in dir(method):
        method = as_algorithm(method, f"{wrapper}: algorithm")
    if isinstance(method, AbstractAlgorithm) and method.has_gossip and not method.has_server:
        raise TypeError(
            f"{wrapper}: algorithm must be one with a server, such as cofed.FedAvg(0.1), as {wrapper} changes what a "
            f"server and its clients do; {method.name} has none: begin further runs with shorter steps by "
            "w0=result.model"
        )
    if not isinstance(method, AbstractServerAlgorithm):
        raise TypeError(
            f"{wrapper}: algorithm must be one with a server, such as cofed.FedAvg(0.1), got {shown(method)}"
        )
    if method.is_compressed:
        if isinstance(method, AbstractWrapper):
            raise ValueError(f"{wrapper}: compress what comes of it, as in Compressed({wrapper}(...), TopK(0.1))")
        raise ValueError(
            f"{wrapper} does not go around {method.name}, which compresses its own messages; take a method that sends "
            "vectors, such as FedAvg"
        )
    return method
