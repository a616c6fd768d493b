"""What the figures of Yuan et al. (2021) share: the four algorithms and their grid, the schedule, how curves end."""

from functools import partial

import cofed
from cofed.experiments.measurements import Measurements
from cofed.experiments.specification import Method, Numbers

CLIENT = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
SERVER = (1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
FOUR = ("FedMiD", "FedMiD-OSP", "FedDualAvg", "FedDualAvg-OSP")
PRIMAL = ("FedMiD", "FedMiD-OSP")
SCALE = 0.316  # of the features, at which the rates that the paper prints are the best of its grid
MAKES = {
    "FedMiD": cofed.FedMiD,
    "FedMiD-OSP": partial(cofed.FedMiD, client_prox=False),
    "FedDualAvg": cofed.FedDualAvg,
    "FedDualAvg-OSP": partial(cofed.FedDualAvg, client_prox=False),
}


def four(n: Numbers) -> list[Method]:
    """The four algorithms of the paper, over its grid; then pairs of rates off the grid that are worth showing."""
    grid = {"client_lr": n.client_lrs, "server_lr": n.server_lrs}
    best = vars(n).get("paper", {})
    tuned = [Method(label, make, grid, best.get(label)) for label, make in MAKES.items()]
    return tuned + [off_grid(label, client, server) for label, client, server in vars(n).get("off_grid", ())]


def off_grid(label: str, client: float, server: float) -> Method:
    """One pair of rates beside those that the grid of an algorithm has."""
    pair = {"client_lr": (client,), "server_lr": (server,)}
    return Method(f"{label} at ({client:g}, {server:g})", MAKES[label], pair, beside=label)


def schedule(n: Numbers) -> dict:
    """Ten clients per round, one local epoch in batches of ten."""
    return {
        "rounds": n.rounds,
        "local_epochs": 1,
        "batch_size": 10,
        "clients_per_round": 10,
        "evaluate_every": n.evaluate_every,
    }


def shared(n: Numbers) -> dict:
    """What the paper's synthetic sets have in common, for a generator."""
    return {
        "clients": n.clients,
        "samples": n.samples,
        "d": n.d,
        "test_clients": n.test_clients,
        "scale": n.scale,
    }


def tail(seen: Measurements, column: str, labels: tuple[str, ...] = FOUR) -> dict[str, float]:
    """The mean of a column over the last fifth of the rounds, which is what the paper tunes by."""
    rounds = int(seen.table["round"].max())
    return {label: seen.last(label, column, rounds=rounds // 5) for label in labels}


def when(round: int | None, word: str = "in") -> str:
    """A round, or never."""
    return "never" if round is None else f"{word} round {round}"


def later(theirs: int | None, mine: int | None) -> bool:
    """Whether they came after me, or never."""
    return mine is not None and (theirs is None or theirs > mine)
