"""`cofed algorithms`: every method in words, read from its class."""

import dataclasses
import inspect
import json
import re
from typing import TYPE_CHECKING, Annotated, TypedDict

import typer
from rich.console import Console

if TYPE_CHECKING:
    from cofed.algorithms.base import AbstractAlgorithm

# The papers' symbols of hyperparameters; those that are not here go by their name.
SYMBOLS = {
    "client_lr": "η_c",
    "server_lr": "η_s",
    "mu": "μ",
    "working_set": "s",
    "eta": "η",
    "alpha": "α",  # noqa: RUF001
    "mirror": "h",
    "radius": "ε",
    "strength": "λ",
    "strengths": "λ_m",
    "radii": "ε_m",
    "sparsity": "Ψ², s",
    "radius_squared": "Q",
    "step": "a",
}
PAPERS = {
    "yuan2021": "Yuan et al. 2021",
    "bao2022": "Bao et al. 2022",
    "liang2023": "Liang et al. 2023",
    "zhang2025": "Zhang et al. 2025",
    "chen2021": "Chen et al. 2021",
}


class HyperparameterInfo(TypedDict):
    """A hyperparameter; the default is as it is written in a call."""

    name: str
    symbol: str | None
    required: bool
    default: str | None


class AlgorithmInfo(TypedDict):
    """A method in words. Vectors are what one client receives and sends in one round, in sizes of the model."""

    name: str
    description: str
    hyperparameters: list[HyperparameterInfo]
    needs: list[str]
    talks: list[str]
    vectors_down: int
    vectors_up: int
    paper: str


def algorithms(
    as_json: Annotated[bool, typer.Option("--json", help="As JSON, for programs.")] = False,
) -> None:
    """List the methods: what each does, its hyperparameters, what it needs, what it sends.

    Example: cofed algorithms --json > algorithms.json
    """
    methods = describe_all()
    if as_json:
        print(json.dumps(methods, indent=2, ensure_ascii=False))
        return
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, caption_justify="left", show_lines=True)
    table.caption = (
        "Vectors: what one client receives and sends in one round (by gossip: sends to each neighbour), in sizes of "
        "the model, where everybody takes part.\n"
        "Example: cofed.FedDualAvg(client_lr=0.01, server_lr=1.0). More: help(cofed.FedDualAvg)."
    )
    table.add_column("method", style="bold", no_wrap=True)
    table.add_column("what it does, what it needs, paper", ratio=5)
    table.add_column("hyperparameters", ratio=4)
    table.add_column("vectors\ndown/up", justify="center", no_wrap=True)
    for method in methods:
        needs = "; ".join(method["needs"])
        table.add_row(
            method["name"],
            method["description"]
            + (f"\nNeeds {needs}." if needs else "")
            + f"\n[dim]{method['paper']}; through {' or '.join(method['talks'])}[/dim]",
            "\n".join(written(entry) for entry in method["hyperparameters"]),
            f"{method['vectors_down']}/{method['vectors_up']}",
        )
    Console().print(table)


def written(entry: HyperparameterInfo) -> str:
    """A hyperparameter in the table: its name, its symbol and its default."""
    symbol = f" ({entry['symbol']})" if entry["symbol"] else ""
    return entry["name"] + symbol + ("" if entry["required"] else f" = {entry['default']}")


def describe_all() -> list[AlgorithmInfo]:
    """All methods, in words: those with a server, then those by gossip.

    >>> from cofed.cli.algorithms import describe_all
    >>> [method["name"] for method in describe_all()][:2]
    ['AccSDANE', 'Alternative']
    """
    import cofed
    from cofed import algorithms, gossip

    by_gossip = (name for name in gossip.__all__ if name != "topologies")
    names = [*sorted(algorithms.__all__, key=str.lower), *sorted(by_gossip, key=str.lower)]
    return [describe(getattr(cofed, name)) for name in names]


def describe(method: "type[AbstractAlgorithm]") -> AlgorithmInfo:
    """One method in words.

    >>> import cofed
    >>> from cofed.cli.algorithms import describe
    >>> about = describe(cofed.FedAvg)
    >>> about["description"], about["vectors_up"], about["needs"]
    ('Local subgradient steps, averaged.', 1, ['a finite regularizer with a subgradient'])
    """
    import cofed
    from cofed.algorithms.base import TRAITS

    entries = [described_field(field) for field in dataclasses.fields(method)]
    # Those that are no rates: one counts something, one is a compressor.
    others = {"sparsity": 1, "compressor": cofed.TopK(0.1)}
    given = [entry["name"] for entry in entries if entry["required"] or entry["name"] == "client_lr"]
    example = method(**{name: others.get(name, 1.0) for name in given})
    # What stands in brackets in a docstring's first line or in a trait is for its reader there.
    plain = lambda text: re.sub(r"\s+\([^)]*\)", "", text).strip()  # noqa: E731
    needs = [plain(TRAITS[need].words) for need in example.needs]
    if method.equal_steps:
        needs.append("the same number of local steps on all clients")
    talks = ["a server"] * example.has_server + ["a topology"] * example.has_gossip
    down, up = vectors(example)
    return {
        "name": method.__name__,
        "description": plain((inspect.getdoc(method) or "").splitlines()[0]),
        "hyperparameters": entries,
        "needs": needs,
        "talks": talks,
        "vectors_down": down,
        "vectors_up": up,
        "paper": PAPERS.get(method.paper, method.paper),
    }


def described_field(field: dataclasses.Field) -> HyperparameterInfo:
    """A hyperparameter, from the field of its class."""
    required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
    value = field.default if field.default_factory is dataclasses.MISSING else field.default_factory()
    default = None if required else repr(value)
    return {"name": field.name, "symbol": SYMBOLS.get(field.name), "required": required, "default": default}


def vectors(algorithm: "AbstractAlgorithm") -> tuple[int, int]:
    """Count the vectors of the model's size that go down to and up from one client in one round.

    The count is the engine's; by gossip it is of what goes to each neighbour.
    """
    import numpy as np

    import cofed
    from cofed.engine.job import prepare
    from cofed.engine.spec import RunSpec

    candidates = algorithm.candidates(cofed.Problem())
    if candidates is not None:  # it trains them all
        each = [vectors(one) for one in (candidates.shared, candidates.local)]
        return sum(down for down, _ in each), sum(up for _, up in each)
    d = 1000
    federation = cofed.Federation.from_arrays([(np.ones((1, d), np.float32), np.ones(1, np.float32))] * 2)
    regularizer = cofed.Zero() if "zero" in algorithm.needs else cofed.L1(1.0)
    problem = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), regularizer)
    topology = None if algorithm.has_server else cofed.topologies.ring(2)
    stage = prepare(RunSpec(problem, federation, algorithm, rounds=10, local_steps=1, topology=topology)).stages[0]
    size = d * federation.dtype.itemsize
    return round(stage.down / size), round(stage.up / size)
