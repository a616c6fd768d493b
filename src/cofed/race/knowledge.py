"""What is known of a problem before the race: its curvature, from which step sizes follow, and its optimum."""

import dataclasses
import functools
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import cofed
from cofed._util.files import load_json, write_json
from cofed.race.problems import PosedRace, RaceProblem
from cofed.solvers import curvature

GAPS = (1e-2, 1e-4, 1e-8)  # of the objective to its optimum, relative to the gap at the start
TOLERANCE = 1e-13  # of the optimum: far below the smallest gap


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What the grids of hyperparameters, and the gaps, are made from."""

    L: float  # the largest curvature of a client's loss at the start
    mu: float  # the smallest curvature of the mean loss there, at least 0
    start: float  # the objective at the start
    optimum: float | None  # the least objective; None where it is not known
    support: int  # entries of the optimum that are not zero (of the start, where no optimum is known)
    distance: float  # the 1-norm of the optimum less the start (0 where no optimum is known)

    def within(self, gap: float, best: float | None = None) -> float:
        """The objective at a relative gap to the optimum or, where that is not known, to the best that was seen."""
        optimum = self.optimum if best is None else best
        assert optimum is not None, "without an optimum, the best that was seen is given"
        return optimum + gap * (self.start - optimum)


def known(asked: RaceProblem, folder: Path) -> Knowledge:
    """What is known of a problem: read from the folder or, the first time, computed and written there."""
    path = folder / "problems" / f"{asked.name}.json"
    definition = json.loads(json.dumps(dataclasses.asdict(asked)))
    if path.exists():
        try:
            written = load_json(path)
            if written["definition"] == definition:
                return Knowledge(**written["knowledge"])
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is damaged; delete it to compute it again") from error
    found = compute(asked)
    write_json(path, {"definition": definition, "knowledge": dataclasses.asdict(found)})
    return found


@functools.cache
def posed(asked: RaceProblem) -> PosedRace:
    """The problem and its data, made once in a process."""
    return asked.make()


def compute(asked: RaceProblem) -> Knowledge:
    """Curvature and optimum.

    >>> from cofed.race.knowledge import compute
    >>> from cofed.race.problems import small_battery
    >>> found = compute(small_battery()["logistic-plain"])
    >>> found.L > found.mu > 0, found.optimum < found.start, found.support
    (True, True, 10)
    """
    problem, federation, _ = posed(asked)
    start = problem.start(federation)
    flat, _ = ravel_pytree(start)
    where = jnp.arange(flat.size, dtype=jnp.int32)
    hessian = jax.jit(lambda X, y, share: curvature.mean_hessian(problem, start, X, y, share, where))
    each, losses = [], []
    for client in range(federation.n_clients):
        X, y = (jnp.asarray(part) for part in federation.client(client))
        share = jnp.full(len(y), 1 / len(y), federation.dtype)
        each.append(np.asarray(hessian(X, y, share)))
        losses.append(float(problem.mean_loss(start, X, y, share)))
    objective = float(np.mean(losses)) + float(problem.regularizer.value(start))
    L = max(float(np.linalg.eigvalsh(H)[-1]) for H in each)
    mu = max(float(np.linalg.eigvalsh(np.mean(each, axis=0))[0]), 0.0)
    if not asked.convex:
        return Knowledge(L, mu, objective, None, int(np.count_nonzero(flat)), 0.0)
    solution = cofed.solve_pooled(problem, federation, tol=TOLERANCE)
    best, _ = ravel_pytree(solution.model)
    distance = float(np.abs(np.asarray(best) - np.asarray(flat)).sum())
    return Knowledge(L, mu, objective, solution.objective, int(np.count_nonzero(best)), distance)
