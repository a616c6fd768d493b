"""FedProx's exact solutions for strengths from 0 to infinity."""

import numpy as np

from cofed.experiments.chen2021.common import LOCAL, PROBLEM, PROX, SHARED, aer, data
from cofed.experiments.measurements import Measurements
from cofed.experiments.specification import Claim, Experiment, Numbers, Sweep, Verdict, View
from cofed.solvers.joint import joint_path


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


PATH = Experiment(
    id="chen2021-path",
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
            quote="by setting lambda = 0, the optimization formulation of PureLocalTraining (1.3) is recovered, and as "
            "lambda -> infinity, the optimization formulation of FedAvg (1.2) is recovered",
            criterion="""Over the last two strengths on either side the distance to the limit changes in proportion to
            lambda, and to 1/lambda, to 10 %: a solver that stops early would leave a floor.""",
        ),
    ),
    note="Each point is the exact minimiser of FedProx's objective (Newton's method); that the algorithm reaches it is "
    "tested to 1e-6 against an independent solver.",
)
