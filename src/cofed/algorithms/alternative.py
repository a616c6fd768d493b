"""Alternative: one model for all, or a model each, whichever does better on held-out data.

Problem     the average excess risk (AER), sum_i p_i E[loss of client i's model - loss of its best model on a fresh
            sample of client i], as small as possible
When        it is not clear whether one model can serve all clients, and held-out data shall decide.
Method      train FedAvg and PureLocal on every client's training part, compare their losses on its held-out part,
            and deploy the better: for the system, by the weighted mean (the run's weights: n_i/N or uniform), or for
            each client on its own. A tie goes to the model for all.
Reference   chen2021, Section 3.3 (the dichotomous strategy, which needs no knowledge of R) and Corollary 3.1.
Deviations  With `folds` the comparison is cross-validated, and the winner is trained on all data; without, the models
            deployed are those compared, as in the paper. Any two methods may be compared.
"""

from typing import ClassVar

import equinox as eqx

from cofed._util import checks
from cofed._util.scalars import optional_rate, rate, require_positive
from cofed._util.types import Given, Hyperparameter
from cofed.algorithms.base import AbstractChoice, AbstractServerAlgorithm, Candidates, as_algorithm
from cofed.algorithms.fedavg import FedAvg
from cofed.algorithms.purelocal import PureLocal
from cofed.problem import Problem


def with_server(name: str, method: object) -> AbstractServerAlgorithm | None:
    """A field converter: the method, checked to have a server, or None."""
    if method is None:
        return None
    found = as_algorithm(method, f"Alternative: {name}") if isinstance(method, eqx.Module) else None
    if not isinstance(found, AbstractServerAlgorithm):
        raise TypeError(f"Alternative: {name} must be an algorithm with a server, got {checks.shown(method)}")
    return found


class Alternative(AbstractChoice):
    """FedAvg or PureLocal, whichever does better on held-out data (see cofed.algorithms.alternative).

    Parameters
    ----------
    client_lr : float, optional
        eta_c of FedAvg and PureLocal; needed unless both methods are given.
    server_lr : float, default 1.0
        eta_s of FedAvg.
    held_out : float, default 0.25
        The part of each client's samples kept for the comparison; a run's `evaluation=` takes its place.
    folds : int, optional
        Cross-validate over so many folds instead, then train the winner on all data.
    by_client : bool, default False
        Whether each client gets what is better for it; otherwise all get what is better in the weighted mean.
    shared : AbstractServerAlgorithm, optional
        The method that gives one model for all, instead of FedAvg.
    local : AbstractServerAlgorithm, optional
        The method that gives a model for each client, instead of PureLocal.

    Examples
    --------
    >>> import numpy as np, cofed
    >>> rng = np.random.default_rng(0)
    >>> clients = [(X := rng.normal(size=(60, 2)), X @ w) for w in ([1.0, 2.0], [-3.0, 0.5])]
    >>> federation = cofed.Federation.from_arrays(clients)
    >>> result = cofed.run(cofed.Problem(), federation, cofed.Alternative(client_lr=0.3), rounds=100)
    >>> result.choice.chosen, result.personal_models.coef.round(1).tolist()
    ('local', [[1.0, 2.0], [-3.0, 0.5]])
    """

    client_lr: Hyperparameter | None = eqx.field(converter=optional_rate, default=None)
    server_lr: Hyperparameter = eqx.field(converter=rate, default=1.0)
    held_out: float = eqx.field(static=True, default=0.25)
    folds: int | None = eqx.field(static=True, default=None)
    by_client: Given[bool] = eqx.field(static=True, default=False)
    shared: AbstractServerAlgorithm | None = eqx.field(converter=lambda m: with_server("shared", m), default=None)
    local: AbstractServerAlgorithm | None = eqx.field(converter=lambda m: with_server("local", m), default=None)

    needs: ClassVar[tuple[str, ...]] = ()
    equal_steps: ClassVar[bool] = False
    paper: ClassVar[str] = "chen2021"

    def __check_init__(self):
        if self.client_lr is None and (self.shared is None or self.local is None):
            raise ValueError(
                "Alternative: give client_lr, or both methods, such as shared=FedAvg(0.1), local=PureLocal(0.1)"
            )
        if self.client_lr is not None:
            require_positive("Alternative", client_lr=self.client_lr)
        require_positive("Alternative", server_lr=self.server_lr)
        checks.share("Alternative: held_out", self.held_out)
        checks.optional_integer("Alternative: folds", self.folds, least=2)
        checks.flag("Alternative: by_client", self.by_client)
        if self.local is not None and not self.local.is_personal:
            raise TypeError(f"Alternative: local must give a model for each client, which {self.local!r} does not")

    def candidates(self, problem: Problem) -> Candidates:
        return Candidates(
            FedAvg(self.client_lr, self.server_lr) if self.shared is None else self.shared,  # type: ignore[arg-type]
            PureLocal(self.client_lr) if self.local is None else self.local,
            self.held_out,
            self.folds,
            self.by_client,
        )
