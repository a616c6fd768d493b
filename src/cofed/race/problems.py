"""The battery: families of problems, each with dials for heterogeneity, conditioning, noise and graph."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import cofed
from cofed.federation import Federation
from cofed.gossip.topologies import Topology
from cofed.problem import Problem

SIZES = (30, 40, 50, 60, 70, 40, 50, 60)  # samples of the clients
FEATURES = 30
SUPPORT = 6  # entries of the truth that are not zero
SHAPE = (6, 5)  # of the matrices of the low-rank family
HIDDEN = 6  # units of the network

GRAPHS: dict[str, Callable[[int], Topology]] = {"ring": cofed.topologies.ring, "chain": cofed.topologies.chain}


@dataclasses.dataclass(frozen=True)
class RaceProblem:
    """A problem of the battery: a family, and where its dials stand."""

    name: str
    family: str
    heterogeneity: float = 0.5  # how far the clients' truths and scales are apart; 0: clients differ by chance alone
    conditioning: float = 10.0  # the largest eigenvalue of the features' covariance over the smallest
    batch_size: int | None = None  # samples of a gradient; None: all of a client's, so no noise
    graph: str | None = None  # whom nodes talk to; None: a server
    rounds: int = 1024  # how many every configuration is given
    local_steps: tuple[int, ...] = (1, 10)  # K, tried by every method that takes several local steps
    features: int = FEATURES
    seed: int = 1

    @property
    def convex(self) -> bool:
        """Whether the optimum can be computed; else the best that any method saw stands for it."""
        return FAMILIES[self.family].convex

    def make(self) -> "PosedRace":
        """The problem, and its data."""
        problem, federation = FAMILIES[self.family].make(self, np.random.default_rng(self.seed))
        topology = None if self.graph is None else GRAPHS[self.graph](federation.n_clients)
        return PosedRace(problem, federation, topology)


class PosedRace(NamedTuple):
    """A problem of the battery, with its data."""

    problem: Problem
    federation: Federation
    topology: Topology | None


class ProblemKind(NamedTuple):
    """Problems of one kind."""

    words: str
    make: Callable[[RaceProblem, np.random.Generator], tuple[Problem, Federation]]
    kind: str  # "smooth", "sparse", "structured" or "non-convex"
    convex: bool = True


def client_features(asked: RaceProblem, rng: np.random.Generator) -> list[np.ndarray]:
    """The clients' rows: Gaussian, in axes that all share, with eigenvalues from 1 to 1/conditioning.

    With heterogeneity h the clients' rows have scales from (1 + h)^-1/2 to (1 + h)^1/2.
    """
    d = asked.features
    axes = np.linalg.qr(rng.normal(size=(d, d)))[0]
    shape = (axes * asked.conditioning ** (-np.linspace(0, 0.5, d))) @ axes.T
    scales = (1 + asked.heterogeneity) ** np.linspace(-0.5, 0.5, len(SIZES))
    return [scale * rng.normal(size=(n, d)) @ shape for n, scale in zip(SIZES, scales, strict=True)]


def truths(asked: RaceProblem, rng: np.random.Generator) -> list[np.ndarray]:
    """The clients' own truths: one for all on a shared support, plus h times a draw of each client's own."""
    support = np.arange(asked.features) < min(SUPPORT, asked.features // 2)
    common = np.where(support, rng.choice([-1.0, 1.0], asked.features), 0.0)
    return [common + asked.heterogeneity * support * rng.normal(size=asked.features) for _ in SIZES]


def regression(asked: RaceProblem, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows, and responses with noise of half a unit."""
    rows, own = client_features(asked, rng), truths(asked, rng)
    return [(X, X @ w + 0.5 * rng.normal(size=len(X))) for X, w in zip(rows, own, strict=True)]


def classification(asked: RaceProblem, rng: np.random.Generator) -> list[tuple[np.ndarray, np.ndarray]]:
    """Rows, and labels 0 or 1 by a logistic model."""
    rows, own = client_features(asked, rng), truths(asked, rng)
    return [
        (X, (rng.random(len(X)) < 1 / (1 + np.exp(-X @ w))).astype(np.int64)) for X, w in zip(rows, own, strict=True)
    ]


def strength(clients: list[tuple[np.ndarray, np.ndarray]], share: float) -> float:
    """A part of the least strength of L1 for which all coefficients are zero (centred responses)."""
    return share * max(float(np.abs(np.mean([X.T @ (y - y.mean()) / len(y) for X, y in clients], axis=0)).max()), 1e-3)


def linear_family(loss: cofed.Squared | cofed.Logistic, penalty: Callable[[float, int], object]):
    """Linear models without an intercept, by their loss and regularizer (of a strength and the features' number)."""

    def make(asked: RaceProblem, rng: np.random.Generator) -> tuple[Problem, Federation]:
        draw = classification if isinstance(loss, cofed.Logistic) else regression
        clients = draw(asked, rng)
        psi = penalty(strength(clients, 0.1), asked.features)
        return Problem(cofed.Linear(intercept=False), loss, psi), Federation.from_arrays(clients)  # type: ignore[arg-type]

    return make


def low_rank(asked: RaceProblem, rng: np.random.Generator) -> tuple[Problem, Federation]:
    """Trace regression on a matrix of rank 2, and what each client adds to it."""
    rows, size = client_features(dataclasses.replace(asked, features=SHAPE[0] * SHAPE[1]), rng), sum(SHAPE)
    left, right = rng.normal(size=(SHAPE[0], 2)), rng.normal(size=(2, SHAPE[1]))
    clients = []
    for X in rows:
        own = (left + asked.heterogeneity * rng.normal(size=left.shape)) @ right
        clients.append((X.reshape(-1, *SHAPE), X @ own.ravel() + 0.5 * rng.normal(size=len(X))))
    return Problem(cofed.Trace(*SHAPE), cofed.Squared(), cofed.Nuclear(0.5 / size)), Federation.from_arrays(clients)


def network(asked: RaceProblem, rng: np.random.Generator) -> tuple[Problem, Federation]:
    """A small network with smooth units and an L1 penalty, on classes that no linear model tells apart."""
    rows, own = client_features(asked, rng), truths(asked, rng)
    clients = [(X, (np.abs(X @ w) > 1).astype(np.int64)) for X, w in zip(rows, own, strict=True)]
    import jax

    model = cofed.MLP(hidden=(HIDDEN,), activation=jax.nn.tanh)
    return Problem(model, cofed.Logistic(), cofed.L1(1e-3)), Federation.from_arrays(clients)


FAMILIES: dict[str, ProblemKind] = {
    "lasso": ProblemKind("least squares + L1", linear_family(cofed.Squared(), lambda s, d: cofed.L1(s)), "sparse"),
    "sparse-logistic": ProblemKind(
        "logistic + L1", linear_family(cofed.Logistic(), lambda s, d: cofed.L1(s)), "sparse"
    ),
    "logistic": ProblemKind(
        "logistic, no regularizer",
        linear_family(cofed.Logistic(), lambda s, d: cofed.Zero()),
        "smooth",
    ),
    "group-lasso": ProblemKind(
        "least squares + group L1",
        linear_family(
            cofed.Squared(), lambda s, d: cofed.GroupL1(s, groups=tuple(j // 3 for j in range(d)), weights=None)
        ),
        "structured",
    ),
    "low-rank": ProblemKind("trace regression + nuclear norm", low_rank, "structured"),
    "l1-ball": ProblemKind(
        "logistic in an L1 ball", linear_family(cofed.Logistic(), lambda s, d: cofed.L1Ball(2.0)), "structured"
    ),
    "mcp": ProblemKind(
        "least squares + MCP",
        linear_family(cofed.Squared(), lambda s, d: cofed.MCP(s)),
        "non-convex",
        convex=False,
    ),
    "network": ProblemKind("a small network + L1", network, "non-convex", convex=False),
}

# Where the dials stand, beside the middle of the road.
SETTINGS: dict[str, dict[str, float | int]] = {
    "plain": {},
    "different": {"heterogeneity": 2.0},
    "ill-conditioned": {"conditioning": 1000.0},
    "noisy": {"batch_size": 10},
    "alike": {"heterogeneity": 0.0},
}
# The families that are raced in each setting, the others being raced in the first two, and the graphs.
WHOLE = ("lasso", "sparse-logistic", "logistic")
ON_GRAPHS = {
    "plain": (("lasso", "ring"), ("logistic", "ring"), ("lasso", "chain")),
    "different": (("lasso", "ring"), ("logistic", "ring"), ("lasso", "chain")),
    "ill-conditioned": (("lasso", "ring"), ("logistic", "ring")),
    "noisy": (("lasso", "ring"), ("logistic", "ring")),
}


def battery() -> dict[str, RaceProblem]:
    """All problems, by name.

    >>> from cofed.race.problems import battery
    >>> problems = battery()
    >>> problems["lasso-different"].heterogeneity, problems["lasso-on-a-chain"].graph
    (2.0, 'chain')
    """
    found = []
    for setting, dials in SETTINGS.items():
        families = FAMILIES if setting in ("plain", "different") else WHOLE
        places: list[tuple[str, str | None]] = [(family, None) for family in families]
        places += ON_GRAPHS.get(setting, ())
        for family, graph in places:
            parts = [family, f"on-a-{graph}" * (graph is not None), setting if graph is None or dials else ""]
            name = "-".join(part for part in parts if part)
            found.append(RaceProblem(name, family, graph=graph, **dials))  # type: ignore[arg-type]
    return {problem.name: problem for problem in found}


def small_battery() -> dict[str, RaceProblem]:
    """Three of them, smaller, with fewer rounds: for a first look.

    >>> from cofed.race.problems import small_battery
    >>> list(small_battery())
    ['lasso-different', 'logistic-plain', 'lasso-on-a-ring']
    """
    chosen = ("lasso-different", "logistic-plain", "lasso-on-a-ring")
    smaller = {"rounds": 300, "local_steps": (5,), "features": 10}
    return {name: dataclasses.replace(battery()[name], **smaller) for name in chosen}
