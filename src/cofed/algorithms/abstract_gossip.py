"""The contract of an algorithm without a server."""

from abc import abstractmethod

from jaxtyping import PyTree

from cofed.algorithms.abstract import AbstractAlgorithm
from cofed.algorithms.local_steps import LocalSteps
from cofed.problem import Problem


class AbstractGossipAlgorithm(AbstractAlgorithm):
    """An algorithm without a server. A method may have both forms, so the names differ from the server's.

    An algorithm of your own derives from this class and gives the four abstract methods.

    Examples
    --------
    Gradient descent by gossip:

    >>> import jax, numpy as np, cofed
    >>> class GossipDescent(cofed.AbstractGossipAlgorithm):
    ...     lr: float
    ...     needs = ("zero",)
    ...
    ...     def init_node(self, problem, w0):
    ...         return w0
    ...
    ...     def local_node(self, problem, node, steps):
    ...         g = steps.gradient(node, 0 * steps.count)
    ...         return node, jax.tree.map(lambda w, g: w - self.lr * g, node, g)
    ...
    ...     def mix(self, problem, node, mixed):
    ...         return mixed
    ...
    ...     def model_node(self, problem, node):
    ...         return node
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))] * 3)
    >>> problem, ring = cofed.Problem(cofed.Linear(intercept=False)), cofed.topologies.ring(3)
    >>> result = cofed.run(problem, federation, GossipDescent(1.0), rounds=50, topology=ring)
    >>> result.model.coef.round(6).tolist()
    [1.0, 3.0]
    """

    @property
    def has_gossip(self) -> bool:
        return True

    @abstractmethod
    def init_node(self, problem: Problem, w0: PyTree) -> PyTree:
        """A node's state before round 0.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        w0 : PyTree
            The parameters to begin with.

        Returns
        -------
        PyTree
            A NamedTuple or module of arrays.
        """

    @abstractmethod
    def local_node(self, problem: Problem, node: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """One node's round.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        node : PyTree
            The node's state.
        steps : LocalSteps
            The client's gradients, and the loop over its local steps.

        Returns
        -------
        node : PyTree
            What it keeps.
        up : PyTree
            What it sends to its neighbours.
        """

    @abstractmethod
    def mix(self, problem: Problem, node: PyTree, mixed: PyTree) -> PyTree:
        """The node's step after the exchange.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        node : PyTree
            The node's state.
        mixed : PyTree
            sum_j u_jm up^j, the node's mean of what it and its neighbours sent.

        Returns
        -------
        PyTree
            The node's next state.
        """

    @abstractmethod
    def model_node(self, problem: Problem, node: PyTree) -> PyTree:
        """The node's model; that of the mean of all nodes is the federation's.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        node : PyTree
            The node's state.

        Returns
        -------
        PyTree
            The model's parameters.
        """

    def average_node(self, problem: Problem, node: PyTree) -> PyTree | None:
        """A node's averaged model, which is also what its next stage begins from.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        node : PyTree
            The node's state.

        Returns
        -------
        PyTree or None
            None where the method has no such model.
        """
        return None

    @property
    def exchanges_first(self) -> bool:
        """Whether the nodes talk once before round 0, by `first_node` and `mix_first`."""
        return False

    def first_node(self, problem: Problem, node: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """The node's work before round 0.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        node : PyTree
            The node's state.
        steps : LocalSteps
            The client's gradients, and the loop over its local steps.

        Returns
        -------
        node : PyTree
            What it keeps.
        up : PyTree
            What it sends to its neighbours.
        """
        raise TypeError(f"{self.name} has no exchange before round 0")

    def mix_first(self, problem: Problem, node: PyTree, mixed: PyTree) -> PyTree:
        """The node's step after the exchange before round 0.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        node : PyTree
            The node's state.
        mixed : PyTree
            sum_j u_jm up^j, the node's mean of what it and its neighbours sent.

        Returns
        -------
        PyTree
            The node's next state.
        """
        raise TypeError(f"{self.name} has no exchange before round 0")
