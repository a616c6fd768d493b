"""Theorem 3.4: FedProx with the lambda of its proof, by the paper's algorithm, on clients of unequal size."""

from functools import partial

import numpy as np

import cofed
from cofed.experiments.chen2021.common import LOCAL, PROBLEM, PROX, SHARED, data
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Experiment, Numbers, Sweep, Verdict, View
from cofed.solvers.joint import joint_path

EXACT = "FedProx, exact"
LABELS = (PROX, EXACT, LOCAL, SHARED)


def sizes(m: int, mean: int) -> list[int]:
    """n_i: half of the clients have half of the mean, the others one and a half times it."""
    return [mean // 2 if i % 2 else 3 * mean // 2 for i in range(m)]


def convexity(drawn: cofed.datasets.Synthetic) -> float:
    """mu: the smallest eigenvalue of the clients' Hessians, at the models that they were drawn from."""
    assert drawn.local is not None
    lowest = []
    for i, w in enumerate(drawn.local["coef"]):
        X = np.asarray(drawn.federation.client(i)[0])
        p = 1 / (1 + np.exp(-X @ w))
        lowest.append(np.linalg.eigvalsh(X.T @ (X * (p * (1 - p))[:, None]) / len(X))[0])
    return float(min(lowest))


def theorems_strength(R: float, mu: float, counts: list[int]) -> float:
    """lambda as in the proof of Theorem 4.4, with p_i = n_i/N: sum p_i/n_i = m/N and sum p_i^2/n_i = 1/N."""
    m, N = len(counts), sum(counts)
    imbalance = m * max(counts) / N  # C_p
    if np.sqrt(m / N) <= R:
        return mu / (16 * R**2) * m / N
    if 1 / m <= R:
        return mu / (16 * imbalance * R) * float(np.sqrt(m / N))
    return mu * m / (16 * imbalance)


def risks(n: Numbers, point: tuple[int, int, float], seed: int) -> list[dict]:
    """The risks of FedProx, by the algorithm and exactly, and of the two baselines, over the theorem's rates."""
    m, mean, R = point
    counts = sizes(m, mean)
    rows = []
    for repeat in range(n.repeats):
        drawn = data(n, counts, m, R, 1000 * seed + repeat)
        mu = convexity(drawn)
        strength = theorems_strength(R, mu, counts)
        path = joint_path(PROBLEM, drawn.federation, [0.0, strength, np.inf])
        trained = cofed.run(
            PROBLEM,
            drawn.federation,
            cofed.FedProx(strength, mu=mu, radius=n.radius),
            rounds=n.rounds,
            local_steps=round(n.steps_per_sample * mean),  # (4.15): at least of the order of N/m
            batch_size=n.batch,
            weights="samples",
            evaluate_every=n.rounds,
            seed=seed,
            progress=False,
        )
        found = {PROX: trained.personal_models, EXACT: path.models(1), LOCAL: path.models(0), SHARED: path.models(2)}
        same = {"x": R, "panel": f"m = {m}, n = {mean}", "repeat": repeat, "mu": mu, "strength": strength}
        rows += [{"algorithm": label} | over_rates(drawn, R, counts, models) | same for label, models in found.items()]
    return rows


def over_rates(drawn: cofed.datasets.Synthetic, R: float, counts: list[int], models: object) -> dict[str, float]:
    """The AER, and the AER and the mean IER of small and of large clients over the theorem's rates (3.8) and (3.9)."""
    assert drawn.test is not None
    assert drawn.local is not None
    size, m, N = np.array(counts), len(counts), sum(counts)
    risk = cofed.excess_risk(PROBLEM, drawn.test, models, drawn.local, weights=size)
    furthest = np.linalg.norm(drawn.local["coef"] - drawn.truth["coef"], axis=1).max()  # the R of Assumption B(b)
    over = risk.individual / (np.minimum(1 / size, furthest / np.sqrt(size)) + np.sqrt(m) / N)
    return {
        "aer": risk.average,
        "aer_over_rate": risk.average / (min(m / N, R * float(np.sqrt(m / N))) + 1 / N),
        "ier_small": float(over[size == size.min()].mean()),
        "ier_large": float(over[size == size.max()].mean()),
    }


def highest(seen: Measurements, label: str, *columns: str) -> dict[str, float]:
    """The highest value of these columns over R, for each federation."""
    return {
        panel: max(float(seen.curve(label, column, panel).max()) for column in columns)
        for panel in seen.table["panel"].unique()
    }


def growth_of(found: dict[str, float]) -> float:
    """The highest over that of the first federation."""
    return max(found.values()) / next(iter(found.values()))


def of_the_rate(columns: tuple[str, ...], seen: Measurements) -> Verdict:
    """The highest risk over the theorem's rate, and how much it grows with the federation."""
    found = {label: highest(seen, label, *columns) for label in LABELS}
    grown = {label: growth_of(values) for label, values in found.items()}
    return Verdict(
        grown[PROX] <= 1.4,
        f"FedProx's highest risk over the rate, at any R: {each(found[PROX])}. From the first federation to the others "
        f"this grows at most by a factor of: {each(grown)}.",
        {f"highest, {panel}": value for panel, value in found[PROX].items()}
        | {f"growth, {label}": value for label, value in grown.items()},
    )


def as_good_as_exact(seen: Measurements) -> Verdict:
    """The algorithm's AER over that of the exact minimiser."""
    ratios = {}
    for panel in seen.table["panel"].unique():
        trained, exact = (seen.curve(label, "aer", panel) for label in (PROX, EXACT))
        ratios[panel] = float((trained / exact).max())
    return Verdict(
        max(ratios.values()) <= 1.5,
        f"At worst, over R, the algorithm's AER is that of the exact minimiser times: {each(ratios)}.",
        {f"ratio, {panel}": ratio for panel, ratio in ratios.items()},
    )


FEDERATIONS = ((20, 200), (80, 200), (20, 800))  # clients and their mean n_i: four times the clients, or the samples
GROWTH = """the highest ratio over all R does not grow, by more than a factor of 1.4, when clients or samples grow
            four-fold: a rate that were wrong by the power 1/2 of either would grow two-fold."""

FEDPROX = Experiment(
    id="chen2021-fedprox",
    title="FedProx with the theorem's strength",
    measure=Sweep(
        "R",
        lambda n: [(*federation, R) for federation in n.federations for R in n.R],
        risks,
    ),
    full={
        "federations": FEDERATIONS,
        "R": (0.0, 0.02, 0.05, 0.2, 0.5, 1.5),
        "d": 5,
        "fresh": 4000,
        "rounds": 100,
        "steps_per_sample": 1.0,
        "batch": 10,
        "radius": 6.0,
        "repeats": 3,
    },
    quick={"federations": FEDERATIONS[:1], "R": (0.0, 0.2, 1.5), "steps_per_sample": 0.5, "fresh": 1000, "repeats": 1},
    views=(
        *(
            View("aer", f"m = {m}, n = {n}", f"m = {m}, n = {n}", label="average excess risk", log=True, log_x=True)
            for m, n in FEDERATIONS
        ),
        *(
            View(column, "m = 80, n = 200", "m = 80, n = 200", label=label, log=True, log_x=True)
            for column, label in (
                ("aer_over_rate", "AER over the rate"),
                ("ier_small", "IER over the rate, few samples"),
                ("ier_large", "IER over the rate, many samples"),
            )
        ),
    ),
    claims=(
        Claim(
            "FedProx's AER is of the order of m/N ^ R sqrt(m/N) + 1/N, at every R (Theorem 3.4).",
            partial(of_the_rate, ("aer_over_rate",)),
            quick=False,
            quote="E[AER(FP)] <~ (mu + beta |l|/mu) (1/(N/m) ^ R/sqrt(N/m) + 1/N) (3.8)",
            criterion=f"AER over that rate: {GROWTH}",
        ),
        Claim(
            "Every client's risk (IER) is of the order of 1/n_i ^ R/sqrt(n_i) + sqrt(m)/N (Theorem 3.4).",
            partial(of_the_rate, ("ier_small", "ier_large")),
            quick=False,
            quote="and under Assumption B(b), for any i in [m] we have E[IER_i(FP)] <~ [...] (1/n_i ^ R/sqrt(n_i) + "
            "sqrt(m)/N) (3.9)",
            criterion=f"""The mean IER over that rate, of the clients with few and with many samples, whichever is
            higher: {GROWTH}""",
        ),
        Claim(
            "The algorithm with its falling steps is of the order of the exact minimiser (Theorem 4.4).",
            as_good_as_exact,
            quick=False,
            quote="is upper bounded by a constant multiple of",
            criterion="""The algorithm's AER is at most 1.5 times that of the exact minimiser at every R: with K = n
            steps a round the theorem's optimization error is of the order of the statistical one, here below half.""",
        ),
    ),
    note="""lambda is that of the proof of Theorem 4.4, with p_i = n_i/N and mu the smallest eigenvalue of the clients'
    Hessians: it depends on R, mu, m and n and is not tuned. The algorithm is Algorithm 3 with the theorem's steps, on
    batches of 10, in a ball of radius 6, with as many local steps as a client has samples on average. Half of the
    clients have half of the mean number of samples, the others one and a half times it, so that n_i >= 100, about
    4 beta / mu. AER weighs clients by n_i.""",
)
