"""Standard errors of estimates: as the model says, or robust ones, from the products of the rows' scores.

An estimate changes by `influence @ score` where a row's score is added to the gradient. So its variance is the model's
    phi influence information influence',
or, whatever the variances of the errors, influence meat influence', with the meat
    hc1      n / (n - k) sum_i s_i s_i'
    hc3      sum_i s_i s_i' / (1 - h_i)^2, h_i the row's leverage
    clusters G / (G - 1) (n - 1) / (n - k) sum_g s_g s_g', s_g the sum of the scores of cluster g's rows
of k parameters; clusters compare with Student's t of G - 1 degrees of freedom. Of times to an event there is no factor,
and the normal distribution to compare with, as in R's coxph. References: MacKinnon and White 1985; Liang and Zeger
1986; Lin and Wei 1989; Cameron and Miller 2015.
"""

import dataclasses
import warnings

import numpy as np

from cofed.estimators.inference.likelihood import Likelihood
from cofed.sites.queries import MeatAnswer, MeatMessage, meat
from cofed.solvers.curvature import unpack

FEW = 30  # clusters, below which their intervals are known to be too short
ROBUST = {"hc1": "HC1", "hc3": "HC3"}


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Estimates of chosen parameters in the solver's units, and how they come from the rows' scores."""

    value: np.ndarray  # m
    influence: np.ndarray  # m x s
    theta: np.ndarray  # the model whose scores they come from
    where: np.ndarray  # s: positions of its parameters
    information: np.ndarray  # s x s
    inverse: np.ndarray | None  # of the information, where there is one
    dispersion: float | np.ndarray  # of several responses, m: each has its own
    rank: int  # how many parameters were estimated, of a response where there are several
    freedom: float  # degrees of freedom that are left; infinite where the variance is not estimated
    how: str  # in words
    unknown: dict[int, list[int]]  # columns without an estimate of their own, and those that they depend on
    within: str = ""  # among which rows they do, in words


@dataclasses.dataclass(frozen=True)
class Spread:
    """Standard errors, with the degrees of freedom of the t distribution to compare with."""

    error: np.ndarray
    freedom: float
    how: str


def spread(owner: str, likelihood: Likelihood, found: Estimates, errors: str) -> Spread:
    """The standard errors; by rows' scores they take one exchange."""
    A = found.influence
    if errors == "model":
        variance = found.dispersion * np.einsum("ms,st,mt->m", A, found.information, A)
        return Spread(np.sqrt(variance), found.freedom, "the model's standard errors")
    answer = ask(owner, likelihood, found, errors)
    products = unpack(np.asarray(answer.products), len(found.where)) * likelihood.weight**2
    variance = np.einsum("ms,st,mt->m", A, products, A)
    n, free, of_times = likelihood.n, likelihood.n - found.rank, likelihood.problem.survey.loss.of_times
    if errors in ROBUST:
        factor = n / free if errors == "hc1" and not of_times else 1.0
        words = "Lin and Wei's robust" if of_times else ROBUST[errors]
        return Spread(np.sqrt(factor * variance), found.freedom, f"{words} standard errors")
    count = round(float(answer.terms))
    check_clusters(owner, count, errors)
    kind = "sites" if errors == "site" else "clusters"
    if of_times:
        return Spread(np.sqrt(variance), np.inf, f"Lin and Wei's standard errors by {count} {kind}")
    factor = count / (count - 1) * (n - 1) / free
    return Spread(np.sqrt(factor * variance), count - 1.0, f"standard errors by {count} {kind}")


def ask(owner: str, likelihood: Likelihood, found: Estimates, errors: str) -> MeatAnswer:
    """The products of the rows' or the clusters' scores: one exchange."""
    problem = likelihood.problem
    inverse = np.zeros((0, 0))
    if errors == "hc3":
        if found.inverse is None:
            raise ValueError(
                f"{owner}: errors='hc3' needs several rows for each parameter, for leverages: there are {likelihood.n} "
                f"rows and {likelihood.features} features; errors='hc1' does not"
            )
        inverse = found.inverse * likelihood.weight
    p, k = likelihood.features, likelihood.outputs
    table = found.theta.reshape(-1, k)
    message = MeatMessage(
        coef=table[:p],
        intercept=table[p] if len(table) > p else np.zeros(k),
        where=np.asarray(found.where, np.int32),
        inverse=inverse,
        clustered=errors not in ROBUST,
        scaling=problem.units.scaling,
        loss=problem.asked_loss,
    )
    answer = problem.sites.ask(meat, message)
    lone = round(float(answer.lone))
    if lone:
        raise ValueError(
            f"{owner}: errors='hc3' is not defined where a row decides a coefficient alone (a leverage of 1), as "
            f"{lone} {'row does' if lone == 1 else 'rows do'}; take errors='hc1', or leave out the rare feature"
        )
    return answer


def check_clusters(owner: str, count: int, errors: str) -> None:
    """Refuse a single cluster, and warn of few."""
    kind = "sites" if errors == "site" else "clusters"
    if count < 2:
        raise ValueError(f"{owner}: standard errors by {kind} need at least 2 of them, and there is {count}")
    if count < FEW:
        warnings.warn(
            f"{owner}: standard errors by {kind} rest on many of them, and there are {count}: with fewer than {FEW} "
            "the intervals tend to be too short",
            stacklevel=5,
        )
