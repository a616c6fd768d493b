"""The server's end: a run over Flower's Grid, and a ServerApp that does one."""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxtyping import PyTree

from cofed._util import checks
from cofed._util.programs import keep_programs
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm
from cofed.engine.history import Result
from cofed.flower.coordinator import coordinate
from cofed.flower.flwr_types import Context, Grid, ServerApp
from cofed.flower.lock import exclusive
from cofed.flower.privacy import ClientPrivacy
from cofed.flower.run_folder import RunFolder
from cofed.flower.settings import NetworkSpec, ServeOptions, Weights, check_ends
from cofed.flower.site import FromConfig, from_config
from cofed.problem import Problem


def serve(
    grid: Given[Grid],
    problem: Given[Problem],
    algorithm: Given[AbstractAlgorithm],
    *,
    rounds: Given[int],
    clients: Given[int | str | Sequence[str] | None] = None,
    quorum: Given[int | None] = None,
    deadline: Given[float] = 120.0,
    patience: Given[float] = 600.0,
    checkpoint: Given[str | Path | None] = None,
    local_steps: Given[int | None] = None,
    local_epochs: Given[int | None] = None,
    batch_size: Given[int | None] = None,
    clients_per_round: Given[int | None] = None,
    weights: Given[Weights] = "uniform",
    w0: Given[PyTree] = None,
    seed: Given[int] = 0,
    evaluate_every: Given[int | None] = 1,
    privacy: Given[ClientPrivacy | None] = None,
    plain: Given[bool] = False,
    cohorts: Given[str | Sequence[Sequence[str]] | None] = None,
    robust: Given[str | None] = None,
) -> Result:
    """Run an algorithm over the sites of a Flower Grid; this is what `server_app` does when it is started.

    Parameters
    ----------
    grid : flwr.serverapp.Grid
        The Grid that a ServerApp is given.
    problem : Problem
        The problem, the same as at the sites.
    algorithm : AbstractAlgorithm
        The algorithm, the same as at the sites.
    rounds : int
        As in `cofed.run`.
    clients : int, str or sequence of str, optional
        With the sites' names, as a list or as one text, the run begins when all are there, or at the deadline if the
        quorum is, and the others may come later. With a number, it begins when so many sites have come, whatever their
        names. With None, it begins with those that are there when the quorum is and nobody new comes.
    quorum : int, optional
        How many updates a round needs. None is all of them, and methods may then rely on everybody. With fewer, a round
        goes on without the sites that are absent, late or faulty, and the history names them.
    deadline : float
        Seconds after which a round goes on without those that have not answered.
    patience : float
        Seconds to wait for the quorum; then the run stops with all that it has.
    checkpoint : str or Path, optional
        A folder. Started again with the same folder, the run goes on where it was.
    local_steps, local_epochs, batch_size, clients_per_round : int, optional
        As in `cofed.run`.
    weights : str, array_like or mapping
        As in `cofed.run`, or a mapping of the sites' names to numbers.
    w0 : pytree or mapping, optional
        As in `cofed.run`.
    seed : int
        As in `cofed.run`.
    evaluate_every : int, optional
        Rounds between evaluations at the sites; None: never. A model is evaluated along with the next round.
    privacy : ClientPrivacy, optional
        Clip and noise of every update. There are then no evaluations, which would tell of the data too.
    plain : bool
        Whether the server sees each site's own updates and evaluations. By default they are masked, and it sees their
        sum over all sites of a cohort; a cohort then counts whole or not at all.
    cohorts : sequence of sequence of str, or str, optional
        The sites that are masked together, at least three each, such as `[["a", "b", "c"], ["d", "e", "f"]]` or
        `"a b c; d e f"`. None is everybody together, and each round needs all sites.
    robust : str, optional
        "median" or "trimmed" (the mean without the lowest and the highest fifth), number by number, instead of the
        mean: a few poisoned updates then move the model little. It needs `plain=True`, as masks hide single updates.

    Returns
    -------
    Result
        As from `cofed.run`; the outcome may also be `STARVED`.

    Raises
    ------
    TypeError, ValueError
        Where an argument is wrong, the sites do not fit together, or the folder holds another run.
    RuntimeError
        Where too few sites come within `patience`.

    Examples
    --------
    >>> import cofed
    >>> from cofed.flower import serve
    >>> serve(None, cofed.Problem(), cofed.FedAvg(0.1), rounds=5, clients=3, quorum=4)
    Traceback (most recent call last):
    ValueError: quorum is 4, but only 3 clients are asked in a round
    """
    options = ServeOptions(
        rounds=rounds,
        clients=clients,
        quorum=quorum,
        deadline=deadline,
        patience=patience,
        checkpoint=checkpoint,
        local_steps=local_steps,
        local_epochs=local_epochs,
        batch_size=batch_size,
        clients_per_round=clients_per_round,
        weights=dict(weights) if isinstance(weights, Mapping) else weights,
        w0=w0,
        seed=seed,
        evaluate_every=evaluate_every,
        privacy=privacy,
        plain=plain,
        cohorts=cohorts,
        robust=robust,
    )
    spec = NetworkSpec.checked(problem, algorithm, options)
    from flwr.serverapp import Grid

    if not isinstance(grid, Grid):
        raise TypeError(f"grid must be the flwr.serverapp.Grid that a ServerApp is given, got {type(grid).__name__}")
    folder = None if checkpoint is None else checks.folder("checkpoint", checkpoint)
    keep_programs()
    with exclusive(folder):
        return coordinate(grid, spec, RunFolder(folder))


OPTIONS = tuple(field.name for field in dataclasses.fields(ServeOptions))


def check_early(problem: object, algorithm: object, settings: Mapping[str, object]) -> None:
    """Refuse at once what would be refused when the app is started; what is missing may come from its run."""
    check_ends(problem, algorithm)
    if settings.get("checkpoint") is not None:
        checks.folder("checkpoint", settings["checkpoint"])
    known = {"rounds": 1, **settings}
    if known.get("clients") is None and known.get("quorum") is None:
        known["quorum"] = 1
    checks.flag("plain", known.get("plain", False))
    if known.get("clients") is None and known.get("cohorts") is None:
        known["plain"] = True  # who is masked together is known when the clients are
    ServeOptions(**known).settings()  # pyright: ignore[reportArgumentType]  # it checks what it is given


def server_app(
    problem: Given[FromConfig[Problem]], algorithm: Given[FromConfig[AbstractAlgorithm]], **settings: object
) -> ServerApp:
    """Make a Flower ServerApp.

    Parameters
    ----------
    problem : Problem or callable
        The problem, or a function of the run's configuration that gives it.
    algorithm : AbstractAlgorithm or callable
        The algorithm, or a function of the run's configuration that gives it.
    **settings
        The keyword arguments of `serve`. Entries of the run's configuration with the same names (`rounds`, `quorum`,
        `deadline`, `checkpoint`, ...) go before what is given here, so `flwr run . --run-config "rounds=20"` does what
        it says. An empty text stands for None.

    Returns
    -------
    flwr.serverapp.ServerApp
        The app that `flwr run` starts.

    Raises
    ------
    TypeError, ValueError
        Where an argument is wrong, as far as that can be seen before the run.

    Examples
    --------
    >>> import cofed
    >>> from cofed.flower import server_app
    >>> app = server_app(cofed.Problem(), cofed.FedAvg(0.1), rounds=5, clients=3)  # doctest: +SKIP
    """
    from flwr.serverapp import ServerApp

    unknown = sorted(set(settings) - set(OPTIONS))
    if unknown:
        raise TypeError(f"server_app knows no {unknown}; it knows {list(OPTIONS)}")
    check_early(problem, algorithm, settings)
    app = ServerApp()

    @app.main()
    def main(grid: Grid, context: Context) -> None:
        config = {name.replace("-", "_"): value for name, value in context.run_config.items()}
        chosen = settings | {name: config[name] for name in OPTIONS if name in config}
        chosen = {name: None if isinstance(value, str) and value == "" else value for name, value in chosen.items()}
        serve(grid, from_config(problem, context), from_config(algorithm, context), **chosen)  # pyright: ignore

    return app
