"""Yuan, Zaheer, Reddi (2021), Federated Composite Optimization: Section 5 and Appendix B.

Open in the paper, chosen here: the strengths lambda (the paper: "so that the centralized solver can successfully
recover the sparse pattern"; here: the one with the best F1, or the smallest with the true rank, of a pooled solver),
and how the validation data are drawn (fresh clients). "FedMiD-OSP" and "FedDualAvg-OSP" take proximal steps on the
server only.
"""

from functools import partial

import cofed
from cofed.experiments.declare import Claim, Comparison, Experiment, Method, Numbers, Setup, Verdict, View
from cofed.experiments.seen import Seen, each

CLIENT = (1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1, 1.0)
SERVER = (1e-2, 3e-2, 1e-1, 3e-1, 1.0, 3.0, 10.0)
FOUR = ("FedMiD", "FedMiD-OSP", "FedDualAvg", "FedDualAvg-OSP")
PRIMAL = ("FedMiD", "FedMiD-OSP")
ONE = 0.995  # an F1 that is 1 to two digits


def four(n: Numbers) -> list[Method]:
    """The four algorithms of the paper, over its grid."""
    grid = {"client_lr": n.client_lrs, "server_lr": n.server_lrs}
    best = n.paper if hasattr(n, "paper") else {}
    makes = {
        "FedMiD": cofed.FedMiD,
        "FedMiD-OSP": partial(cofed.FedMiD, client_prox=False),
        "FedDualAvg": cofed.FedDualAvg,
        "FedDualAvg-OSP": partial(cofed.FedDualAvg, client_prox=False),
    }
    return [Method(label, make, grid, best.get(label)) for label, make in makes.items()]


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
    return {"clients": n.clients, "samples": n.samples, "d": n.d, "test_clients": n.test_clients}


# Federated LASSO: figures 3, 6, 7, 8


def lasso(n: Numbers, seed: int) -> Setup:
    """Squared loss without the half, an unpenalised intercept; features below 0.01 count as zero."""
    data = cofed.datasets.yuan_lasso(**shared(n), nonzeros=n.nonzeros, seed=seed)
    problem = cofed.Problem(cofed.Linear(), cofed.Squared(half=False), cofed.On(cofed.L1(n.strength), "coef"))
    metrics = cofed.metrics.support(data.truth, 1e-2) | {"density": cofed.metrics.density(1e-2, "coef")}
    pooled = lambda: cofed.solve_pooled(problem, data.federation, tol=1e-5).model  # noqa: E731
    return Setup(
        problem, data.federation, schedule(n), metrics, data.test, {"pooled": pooled}, f"yuan_lasso, seed {seed}"
    )


def tail(seen: Seen, column: str, labels: tuple[str, ...] = FOUR) -> dict[str, float]:
    """The mean of a column over the last fifth of the rounds, which is what the paper tunes by."""
    rounds = int(seen.table["round"].max())
    return {label: seen.last(label, column, rounds=rounds // 5) for label in labels}


def best_f1(seen: Seen) -> Verdict:
    """The highest F1 in the end."""
    f1, pooled = tail(seen, "f1"), seen.reference("pooled", "f1")
    return Verdict(
        f1["FedDualAvg"] >= max(f1.values()) - 5e-4,
        f"F1 in the end: {each(f1, '{:.4f}')}; the pooled solver's F1 is {pooled:.4f}.",
        {f"f1 {label}": value for label, value in f1.items()} | {"pooled f1": pooled},
    )


def first_to_find(seen: Seen) -> Verdict:
    """The first to come within 1 % of the best F1 of all."""
    level = 0.99 * max(tail(seen, "f1").values())
    rounds = {label: seen.first(label, "f1", at_least=level) for label in FOUR}
    return Verdict(
        all(later(r, rounds["FedDualAvg"]) for label, r in rounds.items() if label != "FedDualAvg"),
        f"First round with F1 >= {level:.3f}: {each(rounds, '{:d}')}.",
        {f"round {label}": value for label, value in rounds.items()},
    )


def fedmid_is_densest(seen: Seen) -> Verdict:
    """The largest density at the end."""
    density = tail(seen, "density")
    holds = density["FedMiD"] >= max(density.values()) - 5e-4
    return Verdict(
        holds,
        f"Density in the end: {each(density)}; the truth's is {seen_density(seen):.3g}.",
        {f"density {label}": value for label, value in density.items()},
    )


def seen_density(seen: Seen) -> float:
    """The truth's density: what precision, recall and density of the pooled model imply."""
    row = {name: seen.reference("pooled", name) for name in ("precision", "recall", "density")}
    return row["precision"] * row["density"] / row["recall"]


def perfect_within(rounds: int, seen: Seen) -> Verdict:
    """F1 of 1 (to two digits) before a round."""
    at, best = seen.first("FedDualAvg", "f1", at_least=ONE), seen.best("FedDualAvg", "f1", maximise=True)
    pooled = seen.reference("pooled", "f1")
    level = seen.first("FedDualAvg", "f1", at_least=min(pooled, ONE))
    return Verdict(
        at is not None and at < rounds,
        f"FedDualAvg's F1 reaches 1 (>= {ONE}) {when(at)}; its best is {best:.3f}, its last "
        f"{seen.last('FedDualAvg', 'f1'):.3f}; "
        f"the pooled solver's F1 is {pooled:.3f}, which it reaches in round {level}.",
        {"round": at, "best f1": best, "pooled f1": pooled, "round of the pooled f1": level},
    )


def ahead_of_primal(seen: Seen) -> Verdict:
    """A higher F1 in the end than FedMiD's, with and without client prox, and sooner there."""
    f1 = tail(seen, "f1")
    level = 0.99 * f1["FedDualAvg"]
    rounds = {label: seen.first(label, "f1", at_least=level) for label in ("FedDualAvg", *PRIMAL)}
    mine = rounds["FedDualAvg"]
    sooner = mine is not None and all(rounds[label] is None or rounds[label] > mine for label in PRIMAL)
    higher = all(f1["FedDualAvg"] >= f1[label] - 5e-4 for label in PRIMAL)
    return Verdict(
        higher and sooner,
        f"F1 in the end: {each(f1)}; first round with F1 >= {level:.3f}: {each(rounds, '{:d}')}.",
        {f"f1 {label}": value for label, value in f1.items()}
        | {f"round {label}": value for label, value in rounds.items()},
    )


def osp_close_to_one(seen: Seen) -> Verdict:
    """FedDualAvg-OSP's F1 in the end is at least 0.95."""
    last = seen.last("FedDualAvg-OSP", "f1")
    return Verdict(last >= 0.95, f"FedDualAvg-OSP's last F1 is {last:.3f}.", {"f1": last})


def far_behind(seen: Seen) -> Verdict:
    """FedMiD and FedMiD-OSP are at least 0.05 below FedDualAvg's F1."""
    f1 = tail(seen, "f1")
    gap = {label: f1["FedDualAvg"] - f1[label] for label in PRIMAL}
    return Verdict(
        min(gap.values()) >= 0.05,
        f"F1 in the end: {each(f1)}.",
        {f"gap {label}": value for label, value in gap.items()},
    )


F1_NOT_ONE = """The optimum itself does not have F1 = 1 on these data: the clients' means make the features
correlated (64 or 256 random directions of variance), so that at every strength a few false coefficients of the
pooled solution exceed 0.01 (its F1 is at most about 0.997, 0.977, 1 and 0.993 on sets I to IV, over strengths from
0.05 to 1)."""
LASSO = {
    "clients": 64,
    "samples": 128,
    "d": 1024,
    "nonzeros": 512,
    "strength": 0.1,
    "test_clients": 8,
    "rounds": 500,
    "evaluate_every": 5,
    "tune_every": 20,
    "tuned_over": 100,
    "client_lrs": CLIENT,
    "server_lrs": SERVER,
    "paper": {label: {"client_lr": 0.001, "server_lr": 0.3} for label in FOUR}
    | {"FedDualAvg": {"client_lr": 0.01, "server_lr": 1.0}},
}
# Rounds are cheap and compiling is not: the quick size has the paper's data, and fewer rounds and rates.
QUICK = {
    "rounds": 150,
    "tuned_over": 40,
    "client_lrs": (1e-3, 3e-3),
    "server_lrs": (0.3, 1.0, 3.0),
}
LASSO_VIEWS = (View("f1"), View("density"), View("precision"), View("recall"))
LASSO_NOTE = """The features are not scaled, so the largest stable client step on these data is near 0.001, the
smallest of the paper's grid; the paper's best pair for FedDualAvg (0.01, 1) diverges here. Below the grid, at
client_lr 0.0003 and server_lr 3, FedMiD and FedAvg reach an F1 of 0.99 on data set I as well, in two to three times
FedDualAvg's rounds."""


def sparse_recovery(number: int, words: str, claims: tuple[Claim, ...], **full) -> Experiment:
    """One of the LASSO figures."""
    return Experiment(
        id=f"yuan2021-fig{number}",
        title=f"Federated LASSO, {words}",
        measure=Comparison(lasso, four, score="f1", maximise=True, ties=0.002),
        full=LASSO | full,
        quick=QUICK,
        views=LASSO_VIEWS,
        claims=claims,
        note=LASSO_NOTE,
    )


AHEAD = Claim("FedDualAvg is ahead of FedMiD and FedMiD-OSP.", ahead_of_primal)
LASSOS = [
    sparse_recovery(
        3,
        "512 of 1024 features count (data set I)",
        (
            Claim(
                "FedDualAvg identifies most of the sparsity pattern: the best F1.",
                best_f1,
                why="""FedDualAvg-OSP ends 0.002 higher. Both are as good as perfect: the pooled optimum itself has
                a few false coefficients above 0.01 (F1 0.997), and FedDualAvg, which is at that optimum, has them
                too.""",
            ),
            Claim("FedDualAvg is the fastest of the four to find it.", first_to_find),
            Claim("FedMiD has the densest solution of the four (the curse of primal averaging).", fedmid_is_densest),
        ),
    ),
    sparse_recovery(
        6,
        "64 of 1024 features count (data set II)",
        (Claim("FedDualAvg reaches F1 = 1 in less than 100 rounds.", partial(perfect_within, 100), F1_NOT_ONE), AHEAD),
        nonzeros=64,
        strength=0.15,
    ),
    sparse_recovery(
        7,
        "8 of 1024 features count (data set III)",
        (Claim("FedDualAvg reaches F1 = 1 in less than 100 rounds.", partial(perfect_within, 100), F1_NOT_ONE), AHEAD),
        nonzeros=8,
        strength=0.3,
    ),
    sparse_recovery(
        8,
        "256 clients of 32 samples (data set IV)",
        (
            Claim("FedDualAvg reaches F1 = 1 in less than 200 rounds.", partial(perfect_within, 200), F1_NOT_ONE),
            Claim("FedDualAvg-OSP is close to 1 after 500 rounds.", osp_close_to_one),
            Claim("FedMiD and FedMiD-OSP are far behind.", far_behind),
        ),
        clients=256,
        samples=32,
    ),
]

# Nuclear norm: figures 4, 9, 10, 11


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


def exact_rank_within(rank: int, rounds: int, seen: Seen) -> Verdict:
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


def when(round: int | None, word: str = "in") -> str:
    """A round, or never."""
    return "never" if round is None else f"{word} round {round}"


def primal_slower(rank: int, seen: Seen) -> Verdict:
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


def later(theirs: int | None, mine: int | None) -> bool:
    """Whether they came after me, or never."""
    return mine is not None and (theirs is None or theirs > mine)


def osp_low_rank_less_accurate(seen: Seen) -> Verdict:
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
        quick=QUICK | {"rounds": 100, "client_lrs": (1e-3,)},
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

EXPERIMENTS = [LASSOS[0], NUCLEARS[0], *LASSOS[1:], *NUCLEARS[1:]]
