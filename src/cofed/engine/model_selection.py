"""Methods that choose: their candidates are trained on one part of every client's data and compared on the rest."""

import dataclasses
from collections.abc import Callable

import jax
import numpy as np
import pandas as pd
from jaxtyping import PyTree

from cofed._util.programs import program
from cofed.algorithms.base import AbstractServerAlgorithm, Candidates
from cofed.engine import evaluate
from cofed.engine.data import Data, data_of
from cofed.engine.history import Outcome, Result
from cofed.engine.job import traced
from cofed.engine.rates import stand_in
from cofed.engine.spec import RunSpec, check_kinds
from cofed.federation import Federation
from cofed.problem import Problem
from cofed.statistics.paired_comparison import PairedComparison, compare


@dataclasses.dataclass(frozen=True)
class Choice:
    """How a method that chooses between a model for all and a model each has chosen.

    Parameters
    ----------
    chosen : {"shared", "local", "by client"}
        What is deployed: one model for all, a model each, or what is better for each client.
    shared_loss, local_loss : float
        The held-out losses, in the weighted mean over the clients.
    difference : float
        The shared loss minus the local one; positive speaks for local models.
    standard_error : float
        Of the difference.
    table : DataFrame
        The same for every client, and what it was given.
    """

    chosen: str
    shared_loss: float
    local_loss: float
    difference: float
    standard_error: float
    table: pd.DataFrame

    def __str__(self) -> str:
        gap = f"{abs(self.difference):.3g} (standard error {self.standard_error:.2g})"
        losses = f"held-out loss {self.shared_loss:.4g} with one model for all, {self.local_loss:.4g} with a model each"
        better = "a model each is better" if self.difference > 0 else "one model for all is better"
        deployed = {
            "shared": "Deployed: the model for all.",
            "local": "Deployed: a model each.",
            "by client": f"Deployed: what is better for each client; {(self.table['chosen'] == 'local').sum()} of "
            f"{len(self.table)} have a model of their own.",
        }
        return f"{losses}: {better} by {gap}. {deployed[self.chosen]}"


def choose(spec: RunSpec, candidates: Candidates, go: Callable[[RunSpec, AbstractServerAlgorithm], Result]) -> Result:
    """Train the candidates, compare them and deploy the better one.

    Parameters
    ----------
    spec : RunSpec
        The run of the method that chooses.
    candidates : Candidates
        What it chooses between.
    go : callable
        Does a run: `choose` calls it with each candidate, whose numbers may be "auto", and a spec with others there.
    """
    check_kinds(spec.problem, spec.federation)
    federation, evaluation = spec.federation, spec.evaluation
    assert isinstance(federation, Federation)
    both = (candidates.shared, candidates.local)
    check_evaluated_clients(federation, evaluation)
    done: list[Result] = []

    def train(part: Federation, held_out: Federation | None, algorithm: AbstractServerAlgorithm) -> Result:
        posed = dataclasses.replace(spec, federation=part, evaluation=held_out, algorithm=stand_in(algorithm))
        result = go(posed, algorithm)
        if result.outcome is Outcome.INTERRUPTED:
            raise Interrupted(result)
        done.append(result)
        return result

    try:
        tried = [
            (test, [train(part, test, one) for one in both]) for part, test in splits(federation, candidates, spec)
        ]
        verdict = compare_on_held_out(spec, tried)
        own = (verdict.table["difference"] > 0).to_numpy()
        if not candidates.by_client:
            own = np.full(federation.n_clients, verdict.difference > 0)
        final: list[Result | None] = list(tried[0][1])
        if candidates.folds is not None:  # what was tried saw only a part of the data
            wanted = (not own.all(), bool(own.any()))
            final = [
                train(federation, evaluation, one) if want else None for one, want in zip(both, wanted, strict=True)
            ]
    except Interrupted as stop:
        return stop.result
    result = deploy(spec, own, final, report(verdict, own, candidates.by_client))
    down, up = (sum(getattr(one.communication, side) for one in done) for side in ("down", "up"))
    total = dataclasses.replace(result.communication, down=down, up=up)  # everything that was trained is counted
    return dataclasses.replace(result, communication=total)


def splits(federation: Federation, candidates: Candidates, spec: RunSpec) -> list[tuple[Federation, Federation]]:
    """What the candidates are trained on and compared on, pair by pair."""
    if candidates.folds is not None:
        return federation.folds(candidates.folds, spec.seed)
    if spec.evaluation is not None:
        return [(federation, spec.evaluation)]
    return [federation.split(candidates.held_out, spec.seed)]


def check_evaluated_clients(federation: Federation, evaluation: Federation | None) -> None:
    """Refuse held-out data of clients that are not trained: they have no model of their own to compare."""
    unknown = [] if evaluation is None else [name for name in evaluation.names if name not in federation.names]
    if unknown:
        raise ValueError(f"the evaluation federation has the client {unknown[0]!r}, which the federation has not")


class Interrupted(Exception):
    """The user has stopped a candidate's run: there is nothing to compare."""

    def __init__(self, result: Result):
        self.result = result


def compare_on_held_out(spec: RunSpec, tried: list[tuple[Federation, list[Result]]]) -> PairedComparison:
    """The two candidates' losses on every held-out sample, compared client by client."""
    names = spec.federation.names
    found: list[dict[str, list[np.ndarray]]] = [{name: [np.zeros(0)] for name in names} for _ in range(2)]
    for test, results in tried:
        for place, result in enumerate(results):
            models = deployed_models(spec, result)
            owners = [names.index(name) for name in test.names]
            losses = sample_losses(spec.problem, test, jax.tree.map(lambda leaf, owners=owners: leaf[owners], models))
            for name, part in zip(test.names, losses, strict=True):
                found[place][name].append(part)
    first, second = ([np.concatenate(by_name[name]) for name in names] for by_name in found)
    return compare(names, first, second, np.asarray(spec.federation.weights(spec.weights)))


def deployed_models(spec: RunSpec, result: Result) -> PyTree:
    """A model for each client, stacked: its own, or the one for all."""
    if result.personal_models is not None:
        return result.personal_models
    # A user's own module comes back whole, with its constants: the parameters are where the start has some.
    start = jax.eval_shape(spec.default_start)
    parameters = jax.tree.map(
        lambda known, leaf: None if known is None else leaf, start, result.model, is_leaf=lambda known: known is None
    )
    clients = spec.federation.n_clients
    return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (clients, *np.shape(leaf))), parameters)


def sample_losses(problem: Problem, federation: Federation, models: PyTree) -> list[np.ndarray]:
    """The loss of each client's own model on each of its samples."""
    found: list[np.ndarray] = [np.zeros(0)] * federation.n_clients
    for places, part in federation.by_size():
        own = jax.tree.map(lambda leaf, places=places: np.asarray(leaf[places], federation.dtype), models)
        losses = np.asarray(losses_by_client(traced(problem, federation.dtype), data_of(part), own))
        for place, row, size in zip(places, losses, np.asarray(part.sizes), strict=True):
            found[place] = row[:size]
    return found


@program
def losses_by_client(problem: Problem, data: Data, models: PyTree) -> PyTree:
    """The loss of each sample, padding included."""
    return evaluate.per_client(lambda w, X, y, _: problem.losses(w, X, y), data, models)


def report(verdict: PairedComparison, own: np.ndarray, by_client: bool) -> Choice:
    """What was chosen and why; `own` says which clients get a model of their own."""
    table = verdict.table.rename(columns={"first": "shared_loss", "second": "local_loss"})
    table["chosen"] = np.where(own, "local", "shared")
    chosen = "by client" if by_client else "local" if own.all() else "shared"
    return Choice(chosen, verdict.first, verdict.second, verdict.difference, verdict.standard_error, table)


def deploy(spec: RunSpec, own: np.ndarray, final: list[Result | None], choice: Choice) -> Result:
    """The result of the choice; `own` says which clients get a model of their own."""
    shared, local = final
    base = local if shared is None or (local is not None and own.all()) else shared
    assert base is not None  # one of the two was wanted
    models = deployed_models(spec, base)
    if shared is not None and local is not None:
        pick = lambda a, b: np.where(own.reshape(-1, *(1,) * (np.ndim(a) - 1)), b, a)  # noqa: E731
        models = jax.tree.map(pick, deployed_models(spec, shared), deployed_models(spec, local))
    clients = base.clients if base is local else None
    return dataclasses.replace(base, personal_models=models, clients=clients, choice=choice)
