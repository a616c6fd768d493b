"""What every method says of itself, and the stages and candidates that it may be made of."""

from typing import TYPE_CHECKING, ClassVar, NamedTuple

import equinox as eqx

from cofed.algorithms.base.curvature import LossCurvature
from cofed.problem import Problem

if TYPE_CHECKING:
    from cofed.algorithms.base.server import AbstractServerAlgorithm


class AbstractAlgorithm(eqx.Module):
    """What every method says of itself, with a server or without.

    `needs` names the traits of the regularizer that it relies on (keys of `TRAITS`), `equal_steps` says whether all
    clients must take the same number of local steps, `one_step` whether they take one per round, `paper` where the
    method comes from, `whole_up` why what clients send cannot be compressed (None: it can), `changeable` names the
    rates that may change from round to round, `counts_rounds` says whether a round's work depends on its number,
    `counts_steps` whether what is kept depends on the number of local steps, and `same_loss` whether it counts on the
    loss being the same function in every step, which that of a model that draws in training is not. `missed_round` says
    what is wrong for the rest of a run with everybody in every round where one update is missing once (None: nothing),
    and `turns` over how many rounds here the work of one round of the paper is spread.

    Examples
    --------
    >>> import cofed
    >>> method = cofed.FedDualAvg(client_lr=0.1)
    >>> method.name, method.needs, method.has_server, method.has_gossip
    ('FedDualAvg', ('convex',), True, False)
    """

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    one_step: ClassVar[bool] = False
    paper: ClassVar[str] = ""
    whole_up: ClassVar[str | None] = None
    changeable: ClassVar[tuple[str, ...]] = ()
    counts_rounds: ClassVar[bool] = False
    counts_steps: ClassVar[bool] = False
    same_loss: ClassVar[bool] = False
    missed_round: ClassVar[str | None] = None
    turns: ClassVar[int] = 1

    @property
    def name(self) -> str:
        """What the method is called in tables and sentences."""
        return type(self).__name__

    @property
    def has_server(self) -> bool:
        """Whether it runs through a server."""
        return False

    @property
    def has_gossip(self) -> bool:
        """Whether it runs along a graph, without a server."""
        return False

    @property
    def is_personal(self) -> bool:
        """Whether each client has a model of its own beside the server's."""
        return False

    @property
    def ends_locally(self) -> bool:
        """Whether every client works once more after the last round."""
        return False

    @property
    def is_compressed(self) -> bool:
        """Whether clients send messages that stand for `up` in fewer bytes."""
        return False

    @property
    def is_row_private(self) -> bool:
        """Whether gradients are noised for rows that are in one local step of a round, from the run's seed."""
        return False

    def refuses(self, problem: Problem) -> str | None:
        """Why a problem does not fit, beyond the traits that `needs` names.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.

        Returns
        -------
        str or None
            The reason, as a sentence; None where the problem fits.
        """
        return None

    def stages(self, problem: Problem, rounds: int, local_steps: int | None) -> "list[Stage]":
        """The method as a list of stages, each begun from the output of the one before. Most methods have one.

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
        return [Stage(self, rounds)]

    def rates(self, curvature: LossCurvature) -> dict[str, float]:
        """What the method's theory gives for hyperparameters that are "auto".

        Parameters
        ----------
        curvature : LossCurvature
            How curved the clients' losses are.

        Returns
        -------
        dict of str to float
            Numbers by the names of fields; those that the method does not have are not looked at.
        """
        return {"client_lr": curvature.drift_free_lr, "server_lr": 1.0, "L": curvature.largest, "mu": curvature.mu}

    def candidates(self, problem: Problem) -> "Candidates | None":
        """The methods that this one chooses between.

        Parameters
        ----------
        problem : Problem
            Model, loss and regularizer, and what server and clients agreed on.

        Returns
        -------
        Candidates or None
            None where it chooses nothing.
        """
        return None


class Candidates(NamedTuple):
    """What a choosing method chooses between, and how."""

    shared: "AbstractServerAlgorithm"  # the algorithm whose model is for all
    local: "AbstractServerAlgorithm"  # the one that gives each client its own
    held_out: float = 0.25  # the part of each client's samples that is kept for the comparison
    folds: int | None = None  # how many folds to cross-validate over instead
    by_client: bool = False  # whether each client gets what is better for it


class Stage(NamedTuple):
    """One stage of a multi-stage method: an algorithm, how many rounds, and its local steps (None: the run's)."""

    algorithm: AbstractAlgorithm
    rounds: int
    local_steps: int | None = None
