"""Theorem 3.2: how the risks of the two baselines fall with the samples and with the clients."""

import numpy as np

from cofed.experiments.chen2021.common import LOCAL, PROBLEM, SHARED, aer, data
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Experiment, Numbers, Sweep, Verdict, View
from cofed.solvers.joint import joint_path


def rates(n: Numbers, point: tuple[str, int], seed: int) -> list[dict]:
    """The AER of both minimisers at R = 0 and at a large R, with so many samples per client, or so many clients."""
    axis, size = point
    samples, clients = (size, n.clients) if axis == "n" else (n.fixed, size)
    rows = []
    for repeat in range(n.repeats):
        for R, panel in ((0.0, "R = 0"), (n.large, "R large")):
            drawn = data(n, samples, clients, R, 1000 * seed + repeat)
            path = joint_path(PROBLEM, drawn.federation, [0.0, np.inf])
            for label, place in ((LOCAL, 0), (SHARED, 1)):
                row = {"algorithm": label, "x": size, "aer": aer(drawn, path.models(place)), "repeat": repeat}
                rows.append(row | {"panel": f"{panel}, {axis} varies"})
    return rows


def falls(seen: Measurements) -> Verdict:
    """Slopes of log AER against log n and against log m."""
    slopes = {
        f"{label}, {panel}": seen.slope(label, "aer", panel)
        for panel in ("R = 0, n varies", "R large, n varies", "R = 0, m varies", "R large, m varies")
        for label in (SHARED, LOCAL)
    }
    expected = {
        f"{SHARED}, R = 0, n varies": -1,
        f"{SHARED}, R = 0, m varies": -1,
        f"{LOCAL}, R = 0, n varies": -1,
        f"{LOCAL}, R large, n varies": -1,
        f"{LOCAL}, R = 0, m varies": 0,
        f"{LOCAL}, R large, m varies": 0,
    }
    return Verdict(
        all(abs(slopes[name] - slope) <= 0.15 for name, slope in expected.items()),
        f"Slopes: {each(slopes, '{:.3f}')}.",
        slopes,
    )


RATES = Experiment(
    id="chen2021-rates",
    title="Average excess risk against samples and clients",
    measure=Sweep(
        "samples per client (n), or clients (m)",
        lambda n: [*(("n", samples) for samples in n.samples), *(("m", clients) for clients in n.m)],
        rates,
    ),
    full={
        "samples": (100, 200, 400, 800, 1600),
        "clients": 20,
        "m": (5, 10, 20, 40, 80),
        "fixed": 200,
        "d": 5,
        "large": 1.5,
        "fresh": 20_000,
        "repeats": 20,
    },
    quick={"samples": (100, 400, 1600), "m": (5, 20, 80), "repeats": 8, "fresh": 10_000},
    views=tuple(
        View(
            "aer",
            f"{R}, {'samples per client' if axis == 'n' else 'clients'}",
            f"{R}, {axis} varies",
            label="average excess risk",
            log=True,
            log_x=True,
        )
        for axis in ("n", "m")
        for R in ("R = 0", "R large")
    ),
    panels={"": {}},
    claims=(
        Claim(
            "FedAvg's AER falls like 1/N at R = 0, local training's like 1/n (Theorem 3.2; slopes -1 +- 0.15).",
            falls,
            quote="E[AER(FedAvg)] <~ beta |l|/(mu N) + beta R^2, (3.3) "
            "E[AER(PureLocalTraining)] <~ beta |l|/(mu N/m) (3.4)",
            criterion="""Slopes of log AER. With the clients fixed, N and n grow together: -1 for both. With n fixed and
            the clients growing, only N grows: -1 for FedAvg at R = 0 and 0 for local training. Each within 0.15: over
            a factor of 16 that is a factor of 1.5, and 1/N, 1/n and their square roots are told apart.""",
        ),
    ),
    note="Clients are 20 where n varies, and n is 200 where m varies. Both minimisers are exact (Newton's method).",
)
