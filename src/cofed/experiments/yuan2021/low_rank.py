"""Nuclear norm: figures 4, 9, 10, 11."""

from functools import partial

import cofed
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Comparison, Experiment, Numbers, Setup, Verdict, View
from cofed.experiments.yuan2021.common import PRIMAL, four, later, schedule, shared, tail, when
from cofed.experiments.yuan2021.lasso import LASSO, QUICK


def low_rank(n: Numbers, seed: int) -> Setup:
    """Squared loss without the half of <X, W> + b; the rank counts singular values above 0.01."""
    data = cofed.datasets.yuan_low_rank(**shared(n), rank=n.rank, seed=seed)
    nuclear = cofed.On(cofed.Nuclear(n.strength), "coef")
    problem = cofed.Problem(cofed.Trace(n.d, n.d, intercept=True), cofed.Squared(half=False), nuclear)
    metrics = {
        "recovered_rank": cofed.metrics.rank(1e-2),
        "recovery_error": cofed.metrics.distance(data.truth),
    }
    pooled = lambda: cofed.solve_pooled(problem, data.federation, tol=1e-5).model  # noqa: E731
    source = f"yuan_low_rank, seed {seed}"
    return Setup(problem, data.federation, schedule(n), metrics, data.test, {"pooled": pooled}, source)


def exact_rank_within(rank: int, rounds: int, seen: Measurements) -> Verdict:
    """The true rank before a round, and from then on."""
    at = seen.first("FedDualAvg", "recovered_rank", at_least=rank - 1e-6, at_most=rank + 1e-6)
    stays = seen.first("FedDualAvg", "recovered_rank", at_least=rank - 1e-6, at_most=rank + 1e-6, stays=True)
    pooled = seen.reference("pooled", "recovered_rank")
    return Verdict(
        at is not None and at < rounds,
        f"FedDualAvg first has rank {rank} {when(at)} and keeps it {when(stays, 'from')}; the pooled solver's rank is "
        f"{pooled:g}.",
        {"round": at, "stays from": stays, "pooled rank": pooled},
    )


def primal_slower(rank: int, seen: Measurements) -> Verdict:
    """FedMiD and FedMiD-OSP reach FedDualAvg's objective and the true rank later, or never."""
    objective = tail(seen, "objective")
    level = 1.01 * objective["FedDualAvg"]
    labels = ("FedDualAvg", *PRIMAL)
    loss = {label: seen.first(label, "objective", at_most=level) for label in labels}
    exact = {label: seen.first(label, "recovered_rank", at_least=rank - 1e-6, at_most=rank + 1e-6) for label in labels}
    ranks = tail(seen, "recovered_rank")
    holds = all(later(loss[label], loss["FedDualAvg"]) and later(exact[label], exact["FedDualAvg"]) for label in PRIMAL)
    return Verdict(
        holds,
        f"First round with an objective <= {level:.4g}: {each(loss, '{:d}')}; with the true rank: "
        f"{each(exact, '{:d}')}; ranks in the end: {each(ranks)}.",
        {f"round of the loss, {label}": value for label, value in loss.items()}
        | {f"round of the rank, {label}": value for label, value in exact.items()},
    )


def osp_low_rank_less_accurate(seen: Measurements) -> Verdict:
    """FedDualAvg-OSP: a rank at most that of FedMiD, an error above FedDualAvg's."""
    error, ranks = tail(seen, "recovery_error"), tail(seen, "recovered_rank")
    low = ranks["FedDualAvg-OSP"] <= ranks["FedMiD"]
    return Verdict(
        low and error["FedDualAvg-OSP"] > 1.05 * error["FedDualAvg"],
        f"Recovery error in the end: {each(error)}; rank: {each(ranks)}.",
        {f"error {label}": value for label, value in error.items()}
        | {f"rank {label}": value for label, value in ranks.items()},
    )


def rank_recovery(number: int, words: str, rank: int, rounds: int, extra: tuple[Claim, ...] = (), **full) -> Experiment:
    """One of the nuclear-norm figures."""
    return Experiment(
        id=f"yuan2021-fig{number}",
        title=f"Nuclear norm, 32 x 32, {words}",
        measure=Comparison(low_rank, four, score="recovery_error"),
        full=LASSO | {"d": 32, "rank": rank, "nonzeros": None, "paper": {}} | full,
        quick=QUICK | {"rounds": 100, "client_lrs": (1e-3,), "server_lrs": (3.0,)},
        views=(
            View("objective", label="training (regularized) loss"),
            View("test_loss", label="validation mean squared error"),
            View("recovered_rank", label="rank"),
            View("recovery_error", label="recovery error (Frobenius)"),
        ),
        claims=(
            Claim(
                f"FedDualAvg finds the exact rank in less than {rounds} rounds.",
                partial(exact_rank_within, rank, rounds),
            ),
            Claim("FedMiD and FedMiD-OSP converge slower in loss and rank.", partial(primal_slower, rank)),
            *extra,
        ),
        note="Strengths: the smallest of a coarse grid with which the pooled solver has the true rank.",
    )


LESS_ACCURATE = Claim("FedDualAvg-OSP gives low rank, but is far less accurate.", osp_low_rank_less_accurate)
NUCLEARS = [
    rank_recovery(4, "truth of rank 16 (data set I)", 16, 100, (LESS_ACCURATE,), strength=0.2),
    rank_recovery(9, "truth of rank 4 (data set II)", 4, 100, (LESS_ACCURATE,), strength=0.3),
    rank_recovery(10, "truth of rank 1 (data set III)", 1, 100, (LESS_ACCURATE,), strength=0.5),
    rank_recovery(11, "256 clients of 32 samples (data set IV)", 16, 200, strength=0.2, clients=256, samples=32),
]
