"""The settings of a network run: checked before anything is sent, and as they are written into its folder."""

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import numpy as np

from cofed._util import checks, intake
from cofed.algorithms.base import as_algorithm
from cofed.engine.serialization import encode_or_none
from cofed.flower import wire
from cofed.flower.privacy import Privacy
from cofed.problem import Problem

MOST = 2**31 - 1


@dataclasses.dataclass(frozen=True)
class Settings:
    """The numbers of a run."""

    rounds: int
    names: tuple[str, ...]  # of the sites; none: whoever comes
    clients: int  # 0: as many as there are when the quorum is there
    asked: int  # clients per round; 0: all
    quorum: int  # 0: all that are asked
    deadline: float
    patience: float
    local_steps: int | None
    local_epochs: int | None
    batch_size: int | None
    seed: int
    evaluate_every: int | None

    def due(self, round: int) -> bool:
        """Whether the model after so many rounds is evaluated."""
        return self.evaluate_every is not None and (round % self.evaluate_every == 0 or round == self.rounds)

    def settled(self, clients: int) -> "Settings":
        """With the number of clients known, and with it what "all" means."""
        asked = self.asked or clients
        if asked > clients:
            raise ValueError(f"clients_per_round is {asked}, but there are only {clients} clients")
        if self.quorum > asked:
            raise ValueError(f"quorum is {self.quorum}, but only {asked} clients are asked in a round")
        return dataclasses.replace(self, clients=clients, asked=asked, quorum=self.quorum or asked)


def check_settings(problem: Any, algorithm: Any, *, privacy: Any = None, **numbers: Any) -> Settings:
    """The settings of a run of this problem and algorithm, or a sentence on what is wrong with them."""
    if not isinstance(problem, Problem):
        raise TypeError(f"the problem must be a cofed.Problem, got {type(problem).__name__}")
    algorithm = as_algorithm(algorithm)
    if algorithm.candidates(problem) is not None or not algorithm.has_server:
        raise ValueError(f"{algorithm.name} has no server, and so cannot run over Flower")
    if privacy is not None and algorithm.is_compressed:
        raise ValueError("privacy clips and noises whole updates: it does not go with compressed ones")
    return check_numbers(privacy=privacy, **numbers)


def check_numbers(
    *,
    rounds: Any,
    clients: Any = None,
    quorum: Any = None,
    deadline: Any = 120.0,
    patience: Any = 600.0,
    local_steps: Any = None,
    local_epochs: Any = None,
    batch_size: Any = None,
    clients_per_round: Any = None,
    weights: Any = "uniform",
    seed: Any = 0,
    evaluate_every: Any = 1,
    privacy: Any = None,
) -> Settings:
    """The settings of a run, or a sentence on what is wrong with them."""
    names = site_names(clients)
    count = len(names) if names else checks.optional_integer("clients", clients) or 0
    asked = checks.optional_integer("clients_per_round", clients_per_round) or 0
    needed = checks.optional_integer("quorum", quorum) or 0
    if not count and not needed:
        raise ValueError("give clients= (how many sites there are, or their names), or quorum= (how many it needs)")
    for name, value in (("deadline", deadline), ("patience", patience)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
            raise ValueError(f"{name} must be a number of seconds above 0, got {value!r}")
    if privacy is not None and not isinstance(privacy, Privacy):
        raise TypeError(f"privacy must be a cofed.flower.Privacy, got {type(privacy).__name__}")
    check_weights(weights)
    if local_steps is not None and local_epochs is not None:
        raise ValueError(f"give local_steps or local_epochs, not both (got {local_steps} and {local_epochs})")
    if isinstance(weights, Mapping) and names and set(names) - set(weights):
        raise ValueError(f"weights lacks the sites {sorted(set(names) - set(weights))}")
    for name, value in (
        *(("rounds", rounds), ("clients", clients), ("quorum", quorum), ("clients_per_round", clients_per_round)),
        *(("local_steps", local_steps), ("local_epochs", local_epochs), ("batch_size", batch_size)),
        ("evaluate_every", evaluate_every),
    ):
        if isinstance(value, int) and value > MOST:  # Flower's messages hold no larger ones
            raise ValueError(f"{name} must be at most {MOST}, got {value}")
    settings = Settings(
        rounds=checks.integer("rounds", rounds),
        names=names,
        clients=count,
        asked=asked,
        quorum=needed,
        deadline=float(deadline),
        patience=float(max(patience, deadline)),
        local_steps=checks.optional_integer("local_steps", local_steps),
        local_epochs=checks.optional_integer("local_epochs", local_epochs),
        batch_size=checks.optional_integer("batch_size", batch_size),
        seed=checks.seed("seed", seed),
        evaluate_every=None if privacy is not None else checks.optional_integer("evaluate_every", evaluate_every),
    )
    settings.settled(count or asked or needed)  # whose sentences come now, not when the sites are there
    return settings


def check_weights(weights: Any) -> None:
    """Refuse what cannot weigh any sites; whether it fits those that come is seen when they are there."""
    refusal = f"weights must be 'uniform', 'samples', or finite numbers >= 0, one per site, got {weights!r}"
    if isinstance(weights, str):
        if weights not in ("uniform", "samples"):
            raise ValueError(refusal)
        return
    values = list(weights.values()) if isinstance(weights, Mapping) else weights
    if not isinstance(values, (list, tuple, np.ndarray, jax.Array)) or len(np.shape(values)) != 1:
        raise TypeError(refusal)
    for value in values:
        if isinstance(value, (bool, str)) or not np.isrealobj(value) or not 0 <= float(value) < np.inf:
            raise ValueError(refusal)
    if not len(values) or not sum(float(value) for value in values):
        raise ValueError(f"weights must not all be zero, and there must be some, got {weights!r}")


def check_ends(problem: Any, algorithm: Any) -> None:
    """Refuse what is neither a problem and an algorithm nor functions of a run's configuration that give them."""
    for name, value, kind in (
        ("problem", problem, "a cofed.Problem"),
        ("algorithm", algorithm, "an algorithm such as cofed.FedAvg(0.1)"),
    ):
        words = f"{name} must be {kind}, or a function of the run's configuration that gives it, got {value!r}"
        if isinstance(value, type):
            raise TypeError(words)
        if callable(value) and not isinstance(value, eqx.Module):
            continue
        if name == "problem" and not isinstance(value, Problem):
            raise TypeError(words)
        if name == "algorithm":
            as_algorithm(value)


def site_names(clients: Any) -> tuple[str, ...]:
    """The sites' names, where they are given: as a list, or as one text (Flower's settings hold no lists).

    >>> site_names("oslo, rome"), site_names(["oslo"]), site_names(3)
    (('oslo', 'rome'), ('oslo',), ())
    """
    if isinstance(clients, str):
        clients = clients.replace(",", " ").split()
    if not isinstance(clients, (list, tuple)):
        return ()
    if not clients or not all(isinstance(name, str) and name and name.isprintable() for name in clients):
        raise ValueError(f"clients must be an integer >= 1 or the sites' names, got {list(clients)!r}")
    twice = [name for name in clients if list(clients).count(name) > 1]
    if twice:
        raise ValueError(f"clients must be different names, but {twice[0]!r} is given twice")
    return tuple(sorted(clients, key=intake.natural))


def description(
    problem: Problem, algorithm: Any, settings: Settings, weights: Any, privacy: Privacy | None
) -> dict[str, Any]:
    """What makes a run the same as another; how long to wait is free to change."""
    numbers = dataclasses.asdict(settings)
    free = ("deadline", "patience")
    content = {
        "algorithm": type(algorithm).__name__,
        "definition": wire.definition(problem, algorithm),
        "settings": {name: value for name, value in numbers.items() if name not in free},
        "weights": encode_or_none(weights),
        "privacy": None if privacy is None else dataclasses.asdict(privacy),
    }
    return json.loads(json.dumps(content))  # as it is read from a file


def check_same(before: dict[str, Any] | None, now: dict[str, Any], where: Any) -> None:
    """Refuse to go on with a run that was another one."""
    if before is None:
        return
    for part, value in now.items():
        was = before.get(part)
        if was == value:
            continue
        words = f"has another {part} than this one"
        if part == "algorithm":
            words = f"is of {was}, and this one is of {value}"
        elif part == "definition":
            words = "is of another problem, or of an algorithm with other numbers"
        elif part == "settings" and isinstance(was, dict):
            changed = [name for name in value if was.get(name) != value[name]]
            words = "has " + ", ".join(f"{name} {was.get(name)!r} (and not {value[name]!r})" for name in changed)
        raise ValueError(f"the run in {where} {words}; give the same as before, or another folder")
