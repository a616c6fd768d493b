"""What a run over the network is, before it is known which sites take part: checked before anything is sent."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import numpy.typing as npt
from jaxtyping import PyTree

from cofed._util import checks, naming
from cofed._util.types import Given
from cofed.algorithms.base import AbstractAlgorithm, as_algorithm
from cofed.engine.serialization import encode_or_none
from cofed.flower import wire
from cofed.flower.cohorts import Cohorts, check_rounds, everybody_in, read_cohorts
from cofed.flower.privacy import ClientPrivacy
from cofed.flower.robust import check_robust
from cofed.problem import Problem

Weights = str | npt.ArrayLike | Mapping[str, float]


@dataclasses.dataclass(frozen=True)
class ServeOptions:
    """The options of `cofed.flower.serve` (which documents them), as they were given."""

    rounds: Given[int]
    clients: Given[int | str | Sequence[str] | None] = None
    quorum: Given[int | None] = None
    deadline: Given[float] = 120.0
    patience: Given[float] = 600.0
    checkpoint: Given[str | Path | None] = None
    local_steps: Given[int | None] = None
    local_epochs: Given[int | None] = None
    batch_size: Given[int | None] = None
    clients_per_round: Given[int | None] = None
    weights: Given[Weights] = "uniform"
    w0: Given[PyTree] = None
    seed: Given[int] = 0
    evaluate_every: Given[int | None] = 1
    privacy: Given[ClientPrivacy | None] = None
    plain: Given[bool] = False
    cohorts: Given[str | Sequence[Sequence[str]] | None] = None
    robust: Given[str | None] = None

    def settings(self) -> "ServerSettings":
        """The settings that these options make, or an error that says what is wrong with them."""
        plain, cohorts = checks.flag("plain", self.plain), read_cohorts(self.cohorts)
        names = site_names(self.clients)
        if cohorts:
            names = self.named_in(cohorts, names)
        count = len(names) if names else checks.optional_integer("clients", self.clients) or 0
        asked = checks.optional_integer("clients_per_round", self.clients_per_round) or 0
        needed = checks.optional_integer("quorum", self.quorum) or 0
        if not count and not needed:
            raise ValueError("give clients= (how many sites there are, or their names), or quorum= (how many it needs)")
        if not count and not plain:
            raise ValueError(
                "give clients= (how many sites there are, or their names): whose updates are masked together is known "
                "before the run; or plain=True (--plain)"
            )
        self.check_seconds()
        check_privacy(self.privacy)
        check_weights(self.weights, names)
        if self.local_steps is not None and self.local_epochs is not None:
            raise ValueError(
                f"give local_steps or local_epochs, not both (got {self.local_steps} and {self.local_epochs})"
            )
        every = self.evaluate_every if self.privacy is None else None  # losses would tell of the data
        settings = ServerSettings(
            rounds=checks.integer("rounds", self.rounds),
            names=names,
            clients=count,
            clients_per_round=asked,
            quorum=needed,
            deadline=float(self.deadline),
            patience=float(max(self.patience, self.deadline)),
            local_steps=checks.optional_integer("local_steps", self.local_steps),
            local_epochs=checks.optional_integer("local_epochs", self.local_epochs),
            batch_size=checks.optional_integer("batch_size", self.batch_size),
            seed=checks.seed("seed", self.seed),
            evaluate_every=checks.optional_integer("evaluate_every", every),
            plain=plain,
            cohorts=cohorts,
            robust=check_robust(self.robust, plain, self.weights),
        )
        settings.settled(count or asked or needed)  # which refuses now what it would refuse when the sites are there
        return settings

    def named_in(self, cohorts: Cohorts, names: tuple[str, ...]) -> tuple[str, ...]:
        """The sites of the cohorts, which must be the clients."""
        everybody = everybody_in(cohorts)
        if self.plain:
            raise ValueError("cohorts are of masked updates, and with plain=True none are masked; give one of the two")
        if names not in ((), everybody) or (isinstance(self.clients, int) and self.clients != len(everybody)):
            raise ValueError(
                f"cohorts must hold each of the clients once: {list(everybody)}, and clients={self.clients!r}"
            )
        return everybody

    def check_seconds(self) -> None:
        """Refuse times to wait that are none."""
        for name, value in (("deadline", self.deadline), ("patience", self.patience)):
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e9:
                raise ValueError(f"{name} must be a number of seconds above 0, got {value!r}")


@dataclasses.dataclass(frozen=True)
class ServerSettings:
    """The checked numbers of a run."""

    rounds: int
    names: tuple[str, ...]  # of the sites; none: whoever comes
    clients: int  # 0: as many as there are when the quorum is there
    clients_per_round: int  # 0: all
    quorum: int  # 0: all that are asked
    deadline: float
    patience: float
    local_steps: int | None
    local_epochs: int | None
    batch_size: int | None
    seed: int
    evaluate_every: int | None
    plain: bool  # whether the server sees each site's own updates
    cohorts: Cohorts  # whose updates are masked together; none: everybody's
    robust: str | None  # which mean of plain updates that a few bad ones cannot move far; None: the weighted one

    def due(self, round: int) -> bool:
        """Whether the model after this many rounds is evaluated."""
        return self.evaluate_every is not None and (round % self.evaluate_every == 0 or round == self.rounds)

    def settled(self, clients: int) -> "ServerSettings":
        """The settings with the number of clients known, and with it what "all" means."""
        asked = self.clients_per_round or clients
        if asked > clients:
            raise ValueError(f"clients_per_round is {asked}, but there are only {clients} clients")
        if self.quorum > asked:
            raise ValueError(f"quorum is {self.quorum}, but only {asked} clients are asked in a round")
        quorum = self.quorum or asked
        if not self.plain:
            check_rounds([len(cohort) for cohort in self.cohorts] or [clients], asked, quorum)
        return dataclasses.replace(self, clients=clients, clients_per_round=asked, quorum=quorum)


@dataclasses.dataclass(frozen=True)
class NetworkSpec:
    """A run over the network: all of the engine's `RunSpec` but the sites, and how long to wait for whom."""

    problem: Problem
    algorithm: AbstractAlgorithm
    settings: ServerSettings
    weights: Given[Weights] = "uniform"
    w0: PyTree = None
    privacy: ClientPrivacy | None = None

    @classmethod
    def checked(
        cls, problem: Given[Problem], algorithm: Given[AbstractAlgorithm], options: ServeOptions
    ) -> "NetworkSpec":
        """The spec of a run with these options, or an error that says what is wrong with them."""
        if not isinstance(problem, Problem):
            raise TypeError(f"the problem must be a cofed.Problem, got {type(problem).__name__}")
        algorithm = as_algorithm(algorithm)
        if algorithm.candidates(problem) is not None or not algorithm.has_server:
            raise ValueError(f"{algorithm.name} has no server, and so cannot run over Flower")
        if algorithm.is_row_private:
            raise ValueError(
                f"{algorithm.name} draws its noise from the run's seed, which the server knows: it is for runs in one "
                "process; give privacy=ClientPrivacy(clip, noise) here"
            )
        if options.privacy is not None and algorithm.is_compressed:
            raise ValueError("privacy clips and noises whole updates: it does not go with compressed ones")
        settings = options.settings()
        if not settings.plain and algorithm.is_compressed:
            raise ValueError(
                "compressed updates cannot be masked, as which entries are sent tells of the data; give another "
                "algorithm, or plain=True (--plain)"
            )
        if not settings.plain and not isinstance(options.weights, str):
            raise ValueError(
                "weights must be 'uniform' or 'samples' where updates are masked, as any others would let the server "
                "choose how much of a sum is one site's; or give plain=True (--plain)"
            )
        return cls(problem, algorithm, settings, options.weights, options.w0, options.privacy)

    def description(self) -> dict[str, object]:
        """What makes this run the same as another, as JSON holds it. How long to wait is free to change."""
        settings = dataclasses.asdict(self.settings)
        settings["asked"] = settings.pop("clients_per_round")  # its name in the file
        plain, cohorts, robust = settings.pop("plain"), settings.pop("cohorts"), settings.pop("robust")
        content = {
            "algorithm": type(self.algorithm).__name__,
            "definition": wire.definition(self.problem, self.algorithm),
            "settings": {name: value for name, value in settings.items() if name not in ("deadline", "patience")},
            "weights": encode_or_none(self.weights),
            "privacy": None if self.privacy is None else dataclasses.asdict(self.privacy),
            "masked": None if plain else {"cohorts": cohorts},
            "robust mean": robust,
        }
        return json.loads(json.dumps(content))

    def check_same(self, before: Mapping[str, object] | None, where: Path | None) -> None:
        """Refuse to go on with the run in this folder where that was another one."""
        if before is None:
            return
        for part, value in self.description().items():
            was = before.get(part)
            if was != value:
                words = difference(part, was, value)
                raise ValueError(f"the run in {where} {words}; give the same as before, or another folder")


def difference(part: str, was: object, value: object) -> str:
    """How a run in a folder differs from the one that was asked for."""
    if part == "algorithm":
        return f"is of {was}, and this one is of {value}"
    if part == "definition":
        return "is of another problem, or of an algorithm with other numbers"
    if part == "masked":
        kinds = ["is plain" if one is None else "has masked updates" for one in (was, value)]
        return " and this one ".join(kinds) if kinds[0] != kinds[1] else "has other cohorts than this one"
    if part == "settings" and isinstance(was, dict) and isinstance(value, dict):
        changed = [name for name in value if was.get(name) != value[name]]
        return "has " + ", ".join(f"{name} {was.get(name)!r} (and not {value[name]!r})" for name in changed)
    return f"has another {part} than this one"


def check_privacy(privacy: object) -> None:
    """Refuse what is no `ClientPrivacy`."""
    if privacy is not None and not isinstance(privacy, ClientPrivacy):
        raise TypeError(f"privacy must be a cofed.flower.ClientPrivacy, got {type(privacy).__name__}")


def check_weights(weights: object, names: tuple[str, ...] = ()) -> None:
    """Refuse weights that fit no sites, or lack one of these names.

    Whether they fit the sites that come is seen when those are there.
    """
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
    if isinstance(weights, Mapping) and set(names) - set(weights):
        raise ValueError(f"weights lacks the sites {sorted(set(names) - set(weights))}")


def check_ends(problem: object, algorithm: object) -> None:
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


def site_names(clients: object) -> tuple[str, ...]:
    """The sites' names, where they are given: as a list, or as one text (Flower's configurations hold no lists).

    >>> from cofed.flower.settings import site_names
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
    return tuple(sorted(clients, key=naming.natural))
