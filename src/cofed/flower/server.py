"""The server's end: settings checked, a ServerApp made, a run served."""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from cofed._util import checks
from cofed._util.programs import keep_programs
from cofed.algorithms.base import as_algorithm
from cofed.engine.history import Result
from cofed.flower.client import of
from cofed.flower.coordinator import Coordinator
from cofed.flower.lock import alone
from cofed.flower.privacy import Privacy
from cofed.flower.settings import check_ends, check_numbers, check_settings
from cofed.problem import Problem


def serve(
    grid: Any,
    problem: Problem,
    algorithm: Any,
    *,
    rounds: int,
    clients: int | str | Sequence[str] | None = None,
    quorum: int | None = None,
    deadline: float = 120.0,
    patience: float = 600.0,
    checkpoint: str | Path | None = None,
    local_steps: int | None = None,
    local_epochs: int | None = None,
    batch_size: int | None = None,
    clients_per_round: int | None = None,
    weights: Any = "uniform",
    w0: Any = None,
    seed: int = 0,
    evaluate_every: int | None = 1,
    privacy: Privacy | None = None,
) -> Result:
    """Run an algorithm over the sites of a Flower Grid; what `server_app` does when it is started.

    rounds, local_steps, local_epochs, batch_size, clients_per_round, weights, w0, seed: as in `cofed.run`; weights may
        also be a mapping from sites to numbers.
    clients: the sites' names, as a list or as one text: the run begins when all are there, or at the deadline if the
        quorum is, and the others may come later; or how many sites there are: it begins when all have come, whatever
        their names; or None: it begins with those that are there when the quorum is and nobody new comes.
    quorum: how many updates a round needs; None is all of them, and then methods may rely on everybody. With fewer,
        a round goes on without the sites that are absent, late or faulty, and the history names them.
    deadline: seconds after which a round goes on without those that have not answered.
    patience: seconds to wait for the quorum, then the run stops with all that it has.
    checkpoint: a folder. Started again with the same folder, the run goes on where it was.
    evaluate_every: rounds between evaluations at the sites; None: never. A model is sent along with the next round.
    privacy: clip and noise of every update, see `Privacy`; without evaluations, which would tell of the data too.

    >>> import cofed
    >>> from cofed.flower import serve
    >>> serve(None, cofed.Problem(), cofed.FedAvg(0.1), rounds=5, clients=3, quorum=4)
    Traceback (most recent call last):
    ValueError: quorum is 4, but only 3 clients are asked in a round
    """
    weights = dict(weights) if isinstance(weights, Mapping) else weights
    settings = check_settings(
        problem,
        algorithm,
        rounds=rounds,
        clients=clients,
        quorum=quorum,
        deadline=deadline,
        patience=patience,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=weights,
        seed=seed,
        evaluate_every=evaluate_every,
        privacy=privacy,
    )
    from flwr.serverapp import Grid

    if not isinstance(grid, Grid):
        raise TypeError(f"grid must be the flwr.serverapp.Grid that a ServerApp is given, got {type(grid).__name__}")
    folder = None if checkpoint is None else checks.folder("checkpoint", checkpoint)
    keep_programs()
    with alone(folder):
        method = as_algorithm(algorithm)
        return Coordinator(grid, problem, method, settings, weights, w0, privacy, folder).run()


SETTINGS = tuple(inspect.signature(serve).parameters)[3:]


def check_early(problem: Any, algorithm: Any, settings: dict[str, Any]) -> None:
    """Refuse at once what would be refused when the app is started; what is not given may come from its run."""
    check_ends(problem, algorithm)
    if settings.get("checkpoint") is not None:
        checks.folder("checkpoint", settings["checkpoint"])
    known = {"rounds": 1} | {name: value for name, value in settings.items() if name not in ("checkpoint", "w0")}
    if known.get("clients") is None and known.get("quorum") is None:
        known["quorum"] = 1
    check_numbers(**known)


def server_app(problem: Any, algorithm: Any, **settings: Any) -> Any:
    """A Flower ServerApp; the settings are those of `serve`.

    Problem and algorithm may be functions of the run's configuration. Entries of that configuration that are named
    like settings (`rounds`, `quorum`, `deadline`, `checkpoint`, ...) go before what is given here, so
    `flwr run . --run-config "rounds=20"` does what it says. An empty text stands for None.

    >>> import cofed
    >>> from cofed.flower import server_app
    >>> app = server_app(cofed.Problem(), cofed.FedAvg(0.1), rounds=5, clients=3)  # doctest: +SKIP
    """
    from flwr.serverapp import ServerApp

    unknown = sorted(set(settings) - set(SETTINGS))
    if unknown:
        raise TypeError(f"server_app knows no {unknown}; it knows {list(SETTINGS)}")
    check_early(problem, algorithm, settings)
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        config = {name.replace("-", "_"): value for name, value in context.run_config.items()}
        chosen: dict[str, Any] = settings | {name: config[name] for name in SETTINGS if name in config}
        chosen = {name: None if isinstance(value, str) and value == "" else value for name, value in chosen.items()}
        serve(grid, of(problem, context.run_config), of(algorithm, context.run_config), **chosen)

    return app
