"""Loss, gradient and Hessian of many models together, each laid out as one vector."""

import dataclasses
from collections.abc import Sequence

import numpy as np

from cofed.estimators.standardized_problem import StandardizedProblem, n_parameters
from cofed.estimators.training_set import flat, weights
from cofed.solvers.curvature import unpack

BYTES = 8e6  # the most that the Hessians of one exchange may take
LARGEST = 512  # the most parameters of a model whose Hessian is asked for


@dataclasses.dataclass(frozen=True)
class SecondOrder:
    """A model as a vector, and the mean loss around it."""

    theta: np.ndarray
    loss: float
    gradient: np.ndarray
    hessian: np.ndarray


def second_orders(problem: StandardizedProblem, thetas: Sequence[np.ndarray]) -> list[SecondOrder]:
    """The losses of models to second order: by one exchange (by more, where the Hessians would not fit into one), or by
    none of a squared loss that the survey has told."""
    if not len(thetas):
        return []
    if problem.hessian is not None:
        H, begin, first = np.asarray(problem.hessian), flat(problem.start), flat(problem.null.gradient)
        found = []
        for theta in thetas:
            bent = H @ (theta - begin)
            loss = float(problem.null.loss) + float((theta - begin) @ (first + bent / 2))
            found.append(SecondOrder(theta, max(loss, 0.0), first + bent, H))
        return found
    size = n_parameters(problem.start)
    share = max(1, int(BYTES // (4 * size * size)))
    some = [thetas[i : i + share] for i in range(0, len(thetas), share)]
    return [one for part in some for one in looked_at(problem, part)]


def looked_at(problem: StandardizedProblem, thetas: Sequence[np.ndarray]) -> list[SecondOrder]:
    """One exchange."""
    models, size = [weights(theta, problem.start) for theta in thetas], n_parameters(problem.start)
    answer = problem.look(models, range(len(models)))
    seen = [problem.seen(w, answer, i) for i, w in enumerate(models)]
    return [
        SecondOrder(theta, float(at.loss), flat(at.gradient), unpack(np.asarray(packed), size) / problem.weight)
        for theta, at, packed in zip(thetas, seen, answer.hessian, strict=True)
    ]


def check_size(owner: str, what: str, problem: StandardizedProblem) -> None:
    """Refuse models with too many parameters for whole Hessians, and those with several outputs."""
    if np.ndim(problem.start.coef) != 1:
        raise ValueError(f"{owner}: {what} are of models with one vector of coefficients")
    size = n_parameters(problem.start)
    if problem.hessian is None and size > LARGEST:
        raise ValueError(f"{owner}: {what} need Hessians, of at most {LARGEST} parameters, and there are {size}")
