"""Chen, Zheng, Long, Su (2021), A Theorem of the Alternative for Personalized Federated Learning: theory, measured.

The logistic model of Section 4.1 with features uniform on [-1, 1]^5. AER is the average excess risk over the clients,
measured on fresh samples; "shared" is the minimiser of the pooled loss, to which FedAvg is run with one full gradient
per round, "local" the clients' own.
"""

import numpy as np

import cofed
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Experiment, Method, Numbers, Sweep, Verdict, View
from cofed.solvers.joint import joint_path

PROBLEM = cofed.Problem(cofed.Linear(intercept=False), cofed.Logistic())
STEP = 4.0  # the Hessian is below 1/4 * 2: about a third of the largest stable step with any 40 samples
SHARED, LOCAL, CHOICE, PROX = "FedAvg", "PureLocal", "Alternative", "FedProx"


def data(n: Numbers, samples: int, clients: int, R: float, seed: int) -> "cofed.datasets.Synthetic":
    """One data set, with fresh samples to measure on."""
    return cofed.datasets.chen_logistic(
        clients=clients, samples=samples, d=n.d, heterogeneity=R, test_samples=n.fresh, seed=seed
    )


def aer(drawn: "cofed.datasets.Synthetic", models: object) -> float:
    """The average excess risk of models, on fresh samples."""
    assert drawn.test is not None
    return cofed.excess_risk(PROBLEM, drawn.test, models, drawn.local, weights="uniform").average


def train(
    n: Numbers, federation: "cofed.Federation", algorithm: "cofed.AbstractAlgorithm", seed: int
) -> "cofed.Result":
    """A run to the minimiser: full gradients, one step per round."""
    return cofed.run(
        PROBLEM,
        federation,
        algorithm,
        rounds=n.rounds,
        weights="samples",
        evaluate_every=n.rounds,
        seed=seed,
        progress=False,
    )


# The theorem of the alternative


def alternative(n: Numbers, R: float, seed: int) -> list[dict]:
    """The AER of both baselines, trained on the same part of the data, and of Alternative, which chooses."""
    rows = []
    for repeat in range(n.repeats):
        drawn = data(n, n.samples, n.clients, R, 1000 * seed + repeat)
        part, _ = drawn.federation.split(0.25, seed)
        chosen = train(n, drawn.federation, cofed.Alternative(STEP), seed)
        found = {
            SHARED: train(n, part, cofed.FedAvg(STEP), seed).model,
            LOCAL: train(n, part, cofed.PureLocal(STEP), seed).personal_models,
            CHOICE: chosen.personal_models,
        }
        took = float(chosen.choice.chosen == "local")
        rows += [
            {"algorithm": label, "x": R, "aer": aer(drawn, models), "repeat": repeat, "took_local": took}
            for label, models in found.items()
        ]
    return rows


def crossing(seen: Measurements, panel: str) -> float:
    """The R at which the two baselines' AER cross, between the points by straight lines."""
    shared, local = (seen.curve(label, "aer", panel) for label in (SHARED, LOCAL))
    gap = (shared - local).to_numpy()
    above = np.flatnonzero(gap > 0)
    if not above.size or above[0] == 0:
        return float("nan")
    i = above[0]
    x = shared.index.to_numpy(float)
    return float(x[i - 1] + (x[i] - x[i - 1]) * gap[i - 1] / (gap[i - 1] - gap[i]))


def growth(seen: Measurements) -> Verdict:
    """FedAvg's AER minus that at R = 0 against R; local training's highest over its lowest."""
    slopes, flat = {}, {}
    for panel in seen.table["panel"].unique():
        shared, local = (seen.curve(label, "aer", panel) for label in (SHARED, LOCAL))
        rise = (shared - shared.iloc[0]).iloc[1:]
        rise = rise[(rise.index >= 0.5) & (rise.index <= 1.5)]
        slopes[panel] = float(np.polyfit(np.log(rise.index.to_numpy(float)), np.log(rise.to_numpy()), 1)[0])
        inside = local[local.index <= 1.5]
        flat[panel] = float(inside.max() / inside.min())
    return Verdict(
        all(abs(slope - 2) <= 0.3 for slope in slopes.values()) and all(ratio <= 1.25 for ratio in flat.values()),
        f"FedAvg's AER minus that at R = 0 grows like R to the power {each(slopes)} (0.5 <= R <= 1.5); local "
        f"training's highest is {each(flat)} times its lowest.",
        {f"slope, {panel}": slope for panel, slope in slopes.items()}
        | {f"highest over lowest, {panel}": ratio for panel, ratio in flat.items()},
    )


def crosses(seen: Measurements) -> Verdict:
    """R^2 N/m at the crossing, for each number of samples."""
    panels = list(seen.table["panel"].unique())
    samples = {panel: int(panel.split("=")[1]) for panel in panels}
    at = {panel: crossing(seen, panel) for panel in panels}
    scaled = {panel: at[panel] ** 2 * samples[panel] for panel in panels}
    low, high = min(scaled.values()), max(scaled.values())
    return Verdict(
        bool(np.isfinite(high) and high <= 2 * low),
        f"The curves cross at R = {each(at)}; R^2 N/m there is {each(scaled)}: the same to a factor of "
        f"{high / low:.2f}, while n changes by a factor of four.",
        {f"crossing, {panel}": value for panel, value in at.items()},
    )


def chooses_well(seen: Measurements) -> Verdict:
    """Alternative's AER over the lower of the two baselines', at every R."""
    ratios = {}
    for panel in seen.table["panel"].unique():
        shared, local, choice = (seen.curve(label, "aer", panel) for label in (SHARED, LOCAL, CHOICE))
        lower = np.minimum(shared, local)
        ratios |= {f"{panel}, R = {x:g}": float(choice[x] / lower[x]) for x in choice.index}
    worst = max(ratios, key=lambda key: ratios[key])
    return Verdict(
        ratios[worst] <= 1.1,
        f"At worst {ratios[worst]:.3f} times the lower one ({worst}).",
        {"worst ratio": ratios[worst]},
    )


ALTERNATIVE = Experiment(
    id="chen2021-alternative",
    title="One model or a model each",
    measure=Sweep(
        "R",
        lambda n: n.R,
        alternative,
        lambda n: [
            Method(SHARED, cofed.FedAvg, {"client_lr": (STEP,)}),
            Method(LOCAL, cofed.PureLocal, {"client_lr": (STEP,)}),
            Method(CHOICE, cofed.Alternative, {"client_lr": (STEP,)}),
        ],
    ),
    full={
        "R": (0.0, 0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0),
        "clients": 100,
        "samples": 80,
        "d": 5,
        "fresh": 2000,
        "rounds": 300,
        "repeats": 10,
    },
    quick={"R": (0.0, 0.5, 1.0, 1.5, 2.0), "clients": 50, "repeats": 2, "fresh": 1000},
    panels={"n = 80": {"samples": 80}, "n = 320": {"samples": 320}},
    views=(
        View("aer", "80 samples per client", "n = 80", label="average excess risk", log=True),
        View("aer", "320 samples per client", "n = 320", label="average excess risk", log=True),
    ),
    claims=(
        Claim("FedAvg's AER grows like 1/N + R^2; local training's is flat in R (Theorem 3.2).", growth),
        Claim("The two curves cross where R^2 is of order m/N (Theorem 3.3).", crosses),
        Claim(
            "The dichotomous strategy (Alternative) is within 10 % of the lower of the two at every R (Corollary 3.1).",
            chooses_well,
            quick=False,
        ),
    ),
    note="Baselines and Alternative train on the same three quarters of every client's samples. The bounds hold for "
    "small R: with a large R the logistic loss is no longer quadratic between the models, and FedAvg's AER saturates. "
    "So growth is judged over 0.5 <= R <= 1.5, by a power of 2 +- 0.3 and a highest at most 1.25 times the lowest.",
)


# The rates


def rates(n: Numbers, samples: int, seed: int) -> list[dict]:
    """The AER of both minimisers at R = 0 and at a large R, with so many samples per client."""
    rows = []
    for repeat in range(n.repeats):
        for R, panel in ((0.0, "R = 0"), (n.large, "R large")):
            drawn = data(n, samples, n.clients, R, 1000 * seed + repeat)
            path = joint_path(PROBLEM, drawn.federation, [0.0, np.inf])
            for label, place in ((LOCAL, 0), (SHARED, 1)):
                row = {"algorithm": label, "x": samples, "aer": aer(drawn, path.models(place)), "repeat": repeat}
                rows.append(row | {"panel": panel})
    return rows


def falls(seen: Measurements) -> Verdict:
    """Slopes of log AER against log n."""
    shared = seen.slope(SHARED, "aer", "R = 0")
    local = {panel: seen.slope(LOCAL, "aer", panel) for panel in ("R = 0", "R large")}
    stays = seen.slope(SHARED, "aer", "R large")
    return Verdict(
        abs(shared + 1) <= 0.15 and all(abs(slope + 1) <= 0.15 for slope in local.values()),
        f"Slopes in n: one model for all at R = 0 {shared:.3f} (at large R {stays:.3f}: heterogeneity stays), local "
        f"training {each(local, '{:.3f}')}.",
        {"FedAvg, R = 0": shared, "FedAvg, R large": stays}
        | {f"PureLocal, {panel}": slope for panel, slope in local.items()},
    )


RATES = Experiment(
    id="chen2021-rates",
    title="Average excess risk against samples",
    measure=Sweep("samples per client", lambda n: n.samples, rates),
    full={"samples": (100, 200, 400, 800, 1600), "clients": 20, "d": 5, "large": 1.5, "fresh": 20_000, "repeats": 20},
    quick={"samples": (100, 400, 1600), "repeats": 8, "fresh": 10_000},
    views=(
        View("aer", "R = 0", "R = 0", label="average excess risk", log=True, log_x=True),
        View("aer", "R large", "R large", label="average excess risk", log=True, log_x=True),
    ),
    panels={"": {}},
    claims=(
        Claim(
            "FedAvg's AER falls like 1/N at R = 0, local training's like 1/n (Theorem 3.2; slopes -1 +- 0.15).", falls
        ),
    ),
    note="The number of clients is fixed, so N grows with n. Both minimisers are exact (Newton's method).",
)


# FedProx


def prox(n: Numbers, strength: float, seed: int) -> list[dict]:
    """The AER of FedProx's exact solution at one strength, at every R; and of the two baselines."""
    rows = []
    for R in n.R:
        for repeat in range(n.repeats):
            drawn = data(n, n.samples, n.clients, R, 1000 * seed + repeat)
            path = joint_path(PROBLEM, drawn.federation, [0.0, strength, np.inf])
            values = {LOCAL: 0, PROX: 1, SHARED: 2}
            apart = [float(np.abs(path.theta[1] - path.theta[other]).max()) for other in (0, 2)]
            for label, place in values.items():
                row = {"algorithm": label, "x": strength, "aer": aer(drawn, path.models(place)), "panel": f"R = {R:g}"}
                rows.append(row | {"repeat": repeat, "to_local": apart[0], "to_shared": apart[1]})
    return rows


def extremes(seen: Measurements) -> Verdict:
    """How the distances to the extremes fall over the last two strengths on either side."""
    table = seen.table[seen.table["algorithm"] == PROX]
    near = table.groupby("x")[["to_local", "to_shared"]].max()
    x = near.index.to_numpy(float)
    local = float(near["to_local"].iloc[1] / near["to_local"].iloc[0] / (x[1] / x[0]))
    shared = float(near["to_shared"].iloc[-2] / near["to_shared"].iloc[-1] / (x[-1] / x[-2]))
    return Verdict(
        abs(local - 1) <= 0.1 and abs(shared - 1) <= 0.1,
        f"The models are within {near['to_local'].iloc[0]:.2g} of local training's at strength {x[0]:g}, a distance "
        f"that falls like lambda (by {local:.3f} of that), and within {near['to_shared'].iloc[-1]:.2g} of the model "
        f"for all at {x[-1]:g}, a distance that falls like 1/lambda (by {shared:.3f} of that).",
        {"to local": float(near["to_local"].iloc[0]), "to shared": float(near["to_shared"].iloc[-1])},
    )


def best_strength(seen: Measurements) -> Verdict:
    """The AER at the best strength over the lower of the two baselines', at every R."""
    ratios = {}
    for panel in seen.table["panel"].unique():
        lower = min(float(seen.curve(label, "aer", panel).mean()) for label in (SHARED, LOCAL))
        ratios[panel] = float(seen.curve(PROX, "aer", panel).min()) / lower
    worst = max(ratios.values())
    return Verdict(
        worst <= 1.1,
        f"The best strength gives {each(ratios)} times the lower baseline's AER.",
        {f"ratio, {panel}": ratio for panel, ratio in ratios.items()},
    )


FEDPROX = Experiment(
    id="chen2021-fedprox",
    title="FedProx between a model each and one for all",
    measure=Sweep("strength", lambda n: n.strengths, prox),
    full={
        "strengths": tuple(float(s) for s in np.geomspace(1e-6, 1e2, 17)),
        "R": (0.0, 0.75, 3.0),
        "clients": 30,
        "samples": 80,
        "d": 5,
        "fresh": 4000,
        "repeats": 10,
    },
    quick={"strengths": (1e-6, 1e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0), "repeats": 3, "fresh": 2000},
    views=tuple(
        View("aer", f"R = {R}", f"R = {R}", label="average excess risk", log_x=True) for R in ("0", "0.75", "3")
    ),
    claims=(
        Claim(
            "Strength 0 is local training, a large one is one model for all (distances like lambda and 1/lambda).",
            extremes,
        ),
        Claim(
            "The best strength is within 10 % of the lower baseline, or below it, at every R (Theorem 3.4).",
            best_strength,
        ),
    ),
    note="Each point is the exact minimiser of FedProx's objective (Newton's method); that the algorithm reaches it is "
    "tested to 1e-6 against an independent solver.",
)


# The estimate of R^2


def covers(n: Numbers, R: float, seed: int) -> list[dict]:
    """The estimates of R^2 and their intervals over many data sets."""
    rows = []
    for repeat in range(n.repeats):
        drawn = cofed.datasets.chen_logistic(
            clients=n.clients, samples=n.samples, d=n.d, heterogeneity=R, seed=10_000 * seed + repeat
        )
        found = cofed.heterogeneity(PROBLEM, drawn.federation)
        low, high = found.interval
        rows.append(
            {
                "algorithm": "estimate",
                "x": R,
                "covered": float(low <= R**2 <= high),
                "R_squared": found.R_squared,
                "low": low,
                "high": high,
                "threshold": found.threshold,
                "repeat": repeat,
            }
        )
    return rows


def coverage(seen: Measurements) -> Verdict:
    """In how many of a hundred data sets the interval covers R^2."""
    found = {
        f"{panel}, R = {x:g}": 100 * float(rate)
        for panel in seen.table["panel"].unique()
        for x, rate in seen.curve("estimate", "covered", panel).items()
    }
    return Verdict(
        min(found.values()) >= 90, f"The interval covers R^2 in {each(found, '{:.0f}')} % of the data sets.", found
    )


HETEROGENEITY = Experiment(
    id="chen2021-heterogeneity",
    title="How often the interval of R² covers it",
    measure=Sweep("R", lambda n: n.R, covers),
    full={"R": (0.0, 0.25, 0.5, 1.0, 2.0), "clients": 10, "samples": 50, "d": 5, "repeats": 100},
    quick={"R": (0.0, 1.0), "repeats": 25},
    panels={f"m = {m}, n = {samples}": {"clients": m, "samples": samples} for m in (10, 100) for samples in (50, 500)},
    views=tuple(
        View("covered", f"m = {m}, n = {samples}", f"m = {m}, n = {samples}", label="part covered", limits=(0.0, 1.02))
        for m in (10, 100)
        for samples in (50, 500)
    ),
    claims=(Claim("The 95 % interval covers R^2 in at least 90 of 100 data sets.", coverage),),
    note="The paper leaves the estimation of R open (Section 5); the estimate is cofed.heterogeneity.",
)

EXPERIMENTS = [ALTERNATIVE, RATES, FEDPROX, HETEROGENEITY]
