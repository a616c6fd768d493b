"""Figures 1 and 2: sparse regression and low-rank matrices, with generated data, as printed.

Their claims are here too; released.py judges them with the settings of the authors' code.
"""

from collections.abc import Callable
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

import cofed
from cofed.experiments.bao2022.common import BASELINES, OURS
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Comparison, Experiment, Method, Numbers, Setup, Verdict, View

CONSTANT = "FastFedDA, constant weights"  # beside the paper's methods: what its growing weights do
TWICE = "pooled, twice the strength"  # FedMiD's fixed point: it takes two proximal steps per gradient step
LOCAL_STEPS = 10


def schedule(n: Numbers) -> dict:
    """Ten clients per round, ten local steps on batches of ten."""
    return {
        "rounds": n.rounds,
        "local_steps": LOCAL_STEPS,
        "batch_size": 10,
        "clients_per_round": 10,
        "evaluate_every": n.evaluate_every,
    }


def five(n: Numbers) -> list[Method]:
    """The paper's three with its values of mu and L, the baselines with tuned client rates, and a control."""
    third = {"mu": 0.1, "L": 600.0}
    fixed = {"mu": (0.1,), "L": (600.0 / LOCAL_STEPS,)}
    rates = {"client_lr": n.client_lrs, "server_lr": (1.0,)}
    found = {"client_lr": 0.001, "server_lr": 1.0}
    return [
        Method("FastFedDA", cofed.FastFedDA, {"mu": (0.1,), "L": (550.0,)}, {"mu": 0.1, "L": 550.0}),
        Method("CFedDA", cofed.CFedDA, fixed, third),
        Method("MCFedDA", partial(cofed.MCFedDA, strengths=n.strengths), fixed, third | {"strengths": n.strengths}),
        Method("FedDualAvg", cofed.FedDualAvg, rates, found),
        Method("FedMiD", cofed.FedMiD, rates, found),
        Method(CONSTANT, partial(cofed.FastFedDA, growth=0.0), {"mu": (0.1,), "L": (550.0,)}, beside="FastFedDA"),
    ]


def sparse(n: Numbers, seed: int) -> Setup:
    """Sparse linear regression; a coefficient counts as found above 0.01."""
    data = cofed.datasets.bao_sparse(d=n.d, nonzeros=n.d // 2, seed=seed)

    def problem(strength: float) -> cofed.Problem:
        return cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), cofed.L1(strength))

    def pooled(strength: float) -> PyTree:
        return cofed.solve_pooled(problem(strength), data.federation, tol=1e-5).model

    target = n.strengths[-1]
    baselines = {"pooled": partial(pooled, target), TWICE: partial(pooled, 2 * target)}
    metrics = {
        "f1": cofed.metrics.f1(data.truth, 1e-2),
        "l1_error": cofed.metrics.distance(data.truth, 1),
        "l2_error": cofed.metrics.distance(data.truth, 2),
    }
    source = f"bao_sparse, seed {seed}"
    return Setup(problem(target), data.federation, schedule(n), metrics, None, baselines, source)


def low_rank(n: Numbers, seed: int) -> Setup:
    """Low-rank matrix estimation; the rank counts singular values above 0.01."""
    data = cofed.datasets.bao_low_rank(d=n.d, rank=n.d // 2, seed=seed)
    return matrices(n, data.federation, cofed.metrics.rank(1e-2), f"bao_low_rank, seed {seed}")


def matrices(n: Numbers, federation: cofed.Federation, rank: Callable, source: str) -> Setup:
    """Low-rank matrix estimation on these data, with this count of the rank."""
    problem = cofed.Problem(cofed.Trace(n.d, n.d), cofed.Squared(), cofed.Nuclear(n.strengths[-1]))
    truth = low_rank_truth(n)
    metrics = {
        "recovered_rank": rank,
        "frobenius_error": cofed.metrics.distance({"coef": truth}),
        "operator_error": lambda w: jnp.linalg.norm(w.coef - jnp.asarray(truth, w.coef.dtype), ord=2),
    }
    pooled = lambda: cofed.solve_pooled(problem, federation, tol=1e-5).model  # noqa: E731
    return Setup(problem, federation, schedule(n), metrics, None, {"pooled": pooled}, source)


def low_rank_truth(n: Numbers) -> np.ndarray:
    """W = diag(1, ..., 1, 0, ..., 0), half of them."""
    return np.diag((np.arange(n.d) < n.d // 2).astype(float))


def everything(seen: Measurements) -> list[str]:
    """The five methods, and what was measured beside them."""
    return list(dict.fromkeys(seen.table["algorithm"]))


def near_perfect_support(seen: Measurements) -> Verdict:
    """F1 of at least 0.97 in the end for all but FedMiD, and less for FedMiD."""
    f1 = {label: seen.last(label, "f1") for label in (*OURS, *BASELINES)}
    others = [value for label, value in f1.items() if label != "FedMiD"]
    references = {label: seen.reference(label, "f1") for label in ("pooled", TWICE)}
    return Verdict(
        min(others) >= 0.97 and f1["FedMiD"] < 0.97,
        f"F1 in the end: {each(f1)}; of the exact solutions: {each(references)}.",
        {f"f1 {label}": value for label, value in f1.items()},
    )


def true_rank(rank: int, seen: Measurements) -> Verdict:
    """The true rank in the end for all but FedMiD."""
    ranks = {label: seen.last(label, "recovered_rank") for label in everything(seen)}
    pooled = seen.reference("pooled", "recovered_rank")
    exact = {label for label in (*OURS, *BASELINES) if abs(ranks[label] - rank) < 1e-6}
    return Verdict(
        exact == {*OURS, *BASELINES} - {"FedMiD"},
        f"Rank in the end: {each(ranks, '{:g}')}; the truth's is {rank}, the pooled solver's {pooled:g}.",
        {f"rank {label}": value for label, value in ranks.items()},
    )


def fewer_rounds(column: str, seen: Measurements) -> Verdict:
    """Rounds until the error is within 10 % of the pooled solution's, or of the best of the five."""
    ends = {label: seen.last(label, column) for label in everything(seen)}
    level = 1.1 * max(seen.reference("pooled", column), min(ends[label] for label in (*OURS, *BASELINES)))
    rounds = {label: seen.first(label, column, at_most=level) for label in ends}
    theirs = [rounds[label] for label in BASELINES if rounds[label] is not None]
    holds = all(
        rounds[label] is not None and all(rounds[label] < other for other in theirs)  # type: ignore[operator]
        for label in OURS
    )
    return Verdict(
        holds,
        f"First round with {column.replace('_', ' ')} <= {level:.3g}: {each(rounds, '{:d}')}; in the end: "
        f"{each(ends)}.",
        {f"round {label}": value for label, value in rounds.items()}
        | {f"end {label}": value for label, value in ends.items()},
    )


def one_after_first_stage(seen: Measurements) -> Verdict:
    """MC-FedDA's F1 in the last round of its first stage is 1, in 32 bits."""
    f1 = {label: after_first_stage(seen, label) for label in everything(seen) if label.startswith("MCFedDA")}
    return Verdict(
        f1["MCFedDA"] >= 1 - 1e-6,
        f"F1 in the last round of the first stage: {each(f1, '{:.4f}')}.",
        {f"f1 {label}": value for label, value in f1.items()},
    )


def after_first_stage(seen: Measurements, label: str) -> float:
    """F1 in the last round of a method's first stage."""
    rows = seen.rows(label)
    stage = rows[rows["stage"] == 0]
    return float(stage[stage["round"] == stage["round"].max()]["f1"].mean())


def support_claim(why: str = "") -> Claim:
    """What the paper says of the support."""
    return Claim(
        "All but FedMiD reach nearly perfect support.",
        near_perfect_support,
        quick=False,
        why=why,
        quote="Except FedMiD, other methods nearly achieve perfect support recovery.",
        criterion="""F1 in the last round at least 0.97 for each of the four, and below it for FedMiD: 0.97 is about 32
        wrong entries of 1024, more than a reader of the figure would call nearly perfect, so it is a mild bound.""",
    )


def speed_claim(column: str, why: str = "") -> Claim:
    """What the paper says of the speed."""
    return Claim(
        "Fast-FedDA, C-FedDA and MC-FedDA converge in fewer rounds than FedDA and FedMiD.",
        partial(fewer_rounds, column),
        quick=False,
        why=why,
        quote="our proposed three algorithms show faster convergence than FedDA and FedMiD",
        criterion=f"""The first round in which the {column.replace("_", " ")} is at most 1.1 times the exact solution's
        (or the best of the five in the end, where none comes that close): each of the three before both baselines.
        Within 10 % the curves of the figure are flat.""",
    )


def stage_claim(why: str = "") -> Claim:
    """What the paper says of MC-FedDA's first stage."""
    return Claim(
        "MC-FedDA's F1 is 1 already after its first stage.",
        one_after_first_stage,
        quick=False,
        why=why,
        quote="F_1 score of MC-FedDA already converges to 1 after the first stage",
        criterion="F1 in the last round of the first stage is 1 but for rounding: not one entry of 1024 is wrong.",
    )


def rank_claim(why: str = "") -> Claim:
    """What the paper says of the rank."""
    return Claim(
        "All but FedMiD recover the true rank.",
        partial(true_rank, 16),
        quick=False,
        why=why,
        quote="Except FedMiD, other methods all recover the true rank of W*.",
        criterion="The rank in the last round is 16 for each of the four and another for FedMiD, with no tolerance.",
    )


FOUND_BY_ALL = """FedMiD reaches it too, not for its doubled penalty: F1 is 1 in the end whether its server thresholds
for the K steps of a round (as printed), for one (as released) or not at all (with the printed start and seed 0, at l2
errors of 0.71, 0.49 and 0.46). The support is easy on these data: the exact solutions have it at lambda and at twice
lambda, so whatever comes near them has it."""
SLOWER = """With growing weights a step is 1/L on the present gradient while the start keeps the weight L/t: a ridge
towards w_0 that fades like 1/t, and on these data that bias, not the noise, is what is left. With constant weights and
all else equal it is gone, and Fast-FedDA is faster than FedDA at 0.001. Another L or mu does not help (figure 1, seed
0): Fast-FedDA diverges at L = 350 and 450, C-FedDA at 40, and at 50 it ends at 0.83 in place of 0.92; with mu 1 and 10
Fast-FedDA ends at 1.0 and 2.6 in place of 0.88."""
ON_ITS_WAY = """With growing weights MC-FedDA is still on its way when the stage ends, and a few of the 1024 entries are
above 0.01. With constant weights, from the same start, F1 is 1 in round 250 (see bao2022-fig1-released, "MCFedDA, from
0")."""

RANK_OF_ALL = """It is the cut above which singular values count, not the data and not FedMiD's server threshold: with
seed 0 FedMiD has 16 of them above 0.01 but 27 above 1e-5, the cut of the released form, on the data of both forms; with
the released threshold 17 and 16 above 0.01, 32 and 31 above 1e-5."""
RANK_LATER = """ Where one of the three has a larger one, its growing weights are the cause: with constant weights and
all else equal Fast-FedDA has the true rank."""

SPARSE_VIEWS = (View("l2_error"), View("l1_error"), View("f1"), View("objective", label="training loss"))
LOW_RANK_VIEWS = (
    View("frobenius_error", label="error (Frobenius)"),
    View("operator_error", label="error (operator norm)"),
    View("recovered_rank", label="rank"),
    View("objective", label="training loss"),
)
NOTE = """Squared loss with the half. C-FedDA and MC-FedDA have L = 600/K, since the printed prox has a factor K. Rounds
and start are not stated in the paper; here the start is 0. "FastFedDA, constant weights" has growth = 0, and all else
is equal."""

FIG1 = Experiment(
    id="bao2022-fig1",
    title="Sparse linear regression, p = 1024, s = 512",
    measure=Comparison(sparse, five, score="l2_error"),
    full={
        "d": 1024,
        "strengths": (0.5**3, 0.5**4, 0.5**5),
        "rounds": 1000,
        "evaluate_every": 10,
        "client_lrs": (1e-4, 1e-3, 1e-2, 1e-1),
    },
    quick={"rounds": 300, "client_lrs": (1e-3,)},
    views=SPARSE_VIEWS,
    claims=(support_claim(FOUND_BY_ALL), speed_claim("l2_error", SLOWER), stage_claim(ON_ITS_WAY)),
    note=NOTE,
)
FIG2 = Experiment(
    id="bao2022-fig2",
    title="Low-rank matrix estimation, 32 x 32, rank 16",
    measure=Comparison(low_rank, five, score="frobenius_error"),
    full={
        "d": 32,
        "strengths": (0.3, 0.15, 0.1),
        "rounds": 1000,
        "evaluate_every": 10,
        "client_lrs": (1e-4, 1e-3, 1e-2, 1e-1),
    },
    quick={"rounds": 60, "client_lrs": (1e-3,)},
    views=LOW_RANK_VIEWS,
    claims=(rank_claim(RANK_OF_ALL + RANK_LATER), speed_claim("frobenius_error", SLOWER)),
    note=NOTE + " The rank counts singular values above 0.01.",
)
