"""The server's end: settings checked, a ServerApp made, a run served."""

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cofed.engine.history import Result
from cofed.engine.job import check_algorithm
from cofed.engine.plan import check_seed, optional_integer, positive_integer
from cofed.flower.client import of
from cofed.flower.coordinator import Coordinator, Settings
from cofed.flower.privacy import Privacy
from cofed.problem import Problem
from cofed.programs import keep_programs


def serve(
    grid: Any,
    problem: Problem,
    algorithm: Any,
    *,
    rounds: int,
    clients: int,
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
    clients: how many sites there are. The run begins when all have told their names and sizes.
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
    if not isinstance(problem, Problem):
        raise TypeError(f"the problem must be a cofed.Problem, got {type(problem).__name__}")
    check_algorithm(algorithm)
    form = getattr(algorithm, "stage_form", algorithm)
    if not hasattr(form, "local"):
        raise ValueError(f"{type(algorithm).__name__} has no server, and so cannot run over Flower")
    clients = positive_integer("clients", clients)
    asked = optional_integer("clients_per_round", clients_per_round) or clients
    needed = optional_integer("quorum", quorum) or asked
    if asked > clients:
        raise ValueError(f"clients_per_round is {asked}, but there are only {clients} clients")
    if needed > asked:
        raise ValueError(f"quorum is {needed}, but only {asked} clients are asked in a round")
    for name, value in (("deadline", deadline), ("patience", patience)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ValueError(f"{name} must be a number of seconds above 0, got {value!r}")
    if privacy is not None and not isinstance(privacy, Privacy):
        raise TypeError(f"privacy must be a cofed.flower.Privacy, got {type(privacy).__name__}")
    if privacy is not None and hasattr(algorithm, "expand"):
        raise ValueError("privacy clips and noises whole updates: it does not go with compressed ones")
    settings = Settings(
        rounds=positive_integer("rounds", rounds),
        clients=clients,
        asked=asked,
        quorum=needed,
        deadline=float(deadline),
        patience=float(max(patience, deadline)),
        local_steps=optional_integer("local_steps", local_steps),
        local_epochs=optional_integer("local_epochs", local_epochs),
        batch_size=optional_integer("batch_size", batch_size),
        seed=check_seed(seed),
        evaluate_every=None if privacy is not None else optional_integer("evaluate_every", evaluate_every),
    )
    if isinstance(weights, str) and weights not in ("uniform", "samples"):
        raise ValueError(f"weights must be 'uniform', 'samples' or one number per site, got {weights!r}")
    weights = dict(weights) if isinstance(weights, Mapping) else weights
    keep_programs()
    return Coordinator(grid, problem, algorithm, settings, weights, w0, privacy, checkpoint).run()


SETTINGS = tuple(inspect.signature(serve).parameters)[3:]


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
    app = ServerApp()

    @app.main()
    def main(grid: Any, context: Any) -> None:
        config = {name.replace("-", "_"): value for name, value in context.run_config.items()}
        chosen: dict[str, Any] = settings | {name: config[name] for name in SETTINGS if name in config}
        chosen = {name: None if isinstance(value, str) and value == "" else value for name, value in chosen.items()}
        serve(grid, of(problem, context.run_config), of(algorithm, context.run_config), **chosen)

    return app
