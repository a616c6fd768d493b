"""The contract of an algorithm with a server."""

from abc import abstractmethod

from jaxtyping import Array, Float, PyTree

from cofed.algorithms.base.algorithm import AbstractAlgorithm
from cofed.algorithms.base.local_steps import LocalSteps
from cofed.problem import Problem


class AbstractServerAlgorithm(AbstractAlgorithm):
    """An algorithm with a server. `up` is what ONE client sends; `aggregate` sees only its weighted mean.

    An algorithm of your own derives from this class, gives the six abstract methods, and says in `needs` which traits
    of the regularizer it relies on (see the page "adding-an-algorithm").

    Examples
    --------
    Gradient descent, one gradient of every client per round:

    >>> import jax, numpy as np, cofed
    >>> class Descent(cofed.AbstractServerAlgorithm):
    ...     lr: float
    ...     needs = ("zero",)
    ...
    ...     def init(self, problem, w0):
    ...         return w0
    ...
    ...     def init_client(self, problem, w0):
    ...         return ()
    ...
    ...     def broadcast(self, server):
    ...         return server
    ...
    ...     def local(self, problem, down, client, steps):
    ...         return steps.gradient(down, 0 * steps.count), client
    ...
    ...     def aggregate(self, problem, server, up, share):
    ...         return jax.tree.map(lambda w, g: w - self.lr * g, server, up)
    ...
    ...     def model(self, problem, server):
    ...         return server
    >>> federation = cofed.Federation.from_arrays([(np.eye(2), np.array([1.0, 3.0]))])
    >>> result = cofed.run(cofed.Problem(cofed.Linear(intercept=False)), federation, Descent(1.0), rounds=50)
    >>> result.model.coef.round(6).tolist()
    [1.0, 3.0]
    """

    @property
    def has_server(self) -> bool:
        return True

    @abstractmethod
    def init(self, problem: Problem, w0: PyTree) -> PyTree:
        """The server's state before round 0.

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
    def init_client(self, problem: Problem, w0: PyTree) -> PyTree:
        """What ONE client keeps between rounds, before its first.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        w0 : PyTree
            The parameters to begin with.

        Returns
        -------
        PyTree
            Arrays; () where clients keep nothing.
        """

    @abstractmethod
    def broadcast(self, server: PyTree) -> PyTree:
        """Exactly what goes over the wire to a client.

        Parameters
        ----------
        server : PyTree
            The server's state.

        Returns
        -------
        PyTree
            Arrays.
        """

    @abstractmethod
    def local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> tuple[PyTree, PyTree]:
        """One client's round.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        down : PyTree
            What `broadcast` gave.
        client : PyTree
            What the client keeps.
        steps : LocalSteps
            The client's gradients, and the loop over its local steps.

        Returns
        -------
        up : PyTree
            What it sends, of which the server sees the weighted mean.
        client : PyTree
            What it keeps.
        """

    @abstractmethod
    def aggregate(self, problem: Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        """The server's step.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        server : PyTree
            The server's state.
        up : PyTree
            The weighted mean of what this round's participants sent.
        share : scalar array
            Their part of all clients' weight (participants / clients where weights are uniform).

        Returns
        -------
        PyTree
            The server's next state.
        """

    @abstractmethod
    def model(self, problem: Problem, server: PyTree) -> PyTree:
        """The primal model, ready to use.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        server : PyTree
            The server's state.

        Returns
        -------
        PyTree
            The model's parameters.
        """

    @property
    def has_free_model(self) -> bool:
        """Whether the server's model may be set, by `with_model`."""
        return type(self).with_model is not AbstractServerAlgorithm.with_model

    def with_model(self, server: PyTree, w: PyTree) -> PyTree:
        """The server's state with another model, where the model is a part of the state by itself.

        `ServerOptimizer` moves the model by it.

        Parameters
        ----------
        server : PyTree
            The server's state.
        w : PyTree
            What `model` is to give.

        Returns
        -------
        PyTree
            The state, all else as it was.
        """
        raise TypeError(f"{self.name} has a model that follows from its server's state")

    def average(self, problem: Problem, server: PyTree) -> PyTree | None:
        """An averaged model beside `model`, which is also what the next stage begins from.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        server : PyTree
            The server's state.

        Returns
        -------
        PyTree or None
            None where the method has no such model.
        """
        return None

    @property
    def is_personal(self) -> bool:
        return type(self).personal_model is not AbstractServerAlgorithm.personal_model

    def personal_model(self, server: PyTree, client: PyTree) -> PyTree:
        """A client's own model, where the method has one.

        Parameters
        ----------
        server : PyTree
            The server's state.
        client : PyTree
            What the client keeps.

        Returns
        -------
        PyTree
            The model's parameters.
        """
        raise TypeError(f"{self.name} has one model for all clients")

    @property
    def ends_locally(self) -> bool:
        return type(self).last_local is not AbstractServerAlgorithm.last_local

    def last_local(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree:
        """The work of a client after the last round, of which nothing is sent.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        down : PyTree
            What `broadcast` gave.
        client : PyTree
            What the client keeps.
        steps : LocalSteps
            The client's gradients, and the loop over its local steps.

        Returns
        -------
        PyTree
            What it keeps.
        """
        return client

    @property
    def is_compressed(self) -> bool:
        return type(self).expand is not AbstractServerAlgorithm.expand

    def expand(self, message: PyTree) -> PyTree:
        """`up`, from ONE client's message: the message is sent and counted, `up` is averaged.

        Parameters
        ----------
        message : PyTree
            What one client sent.

        Returns
        -------
        PyTree
            `up`.
        """
        return message

    def origin(self, problem: Problem, server: PyTree) -> PyTree | None:
        """What `up` is where nothing changes any more, as the server knows it before the round.

        `Compressed` sends the difference to it, so it must be what `local_origin` gives each client.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        server : PyTree
            The server's state.

        Returns
        -------
        PyTree or None
            None stands for zero.
        """
        return None

    def local_origin(self, problem: Problem, down: PyTree, client: PyTree, steps: LocalSteps) -> PyTree | None:
        """`origin`, as a client knows it before its round.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.
        down : PyTree
            What `broadcast` gave.
        client : PyTree
            What the client keeps.
        steps : LocalSteps
            The client's gradients, and the loop over its local steps.

        Returns
        -------
        PyTree or None
            None stands for zero.
        """
        return None
