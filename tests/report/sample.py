"""Folders of runs in the format of the experiments, from real runs on small data."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

import cofed

METHODS = {
    "FedAvg": cofed.FedAvg(client_lr=0.01),
    "FedMiD": cofed.FedMiD(client_lr=0.01),
    "FedDualAvg": cofed.FedDualAvg(client_lr=0.01),
}
ROUNDS, SEEDS = 40, (0, 1, 2)
HOSTILE = '</script><b id="broken">&amp;<img src=x onerror=alert(1)>'


def write_run(folder: Path, numbers: pd.DataFrame, config: dict[str, Any], claims: list[dict[str, Any]]) -> Path:
    """A run's folder."""
    folder.mkdir(parents=True)
    numbers.to_parquet(folder / "numbers.parquet", index=False)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "claims.json").write_text(json.dumps(claims))
    return folder


def config(name: str, title: str, **more: Any) -> dict[str, Any]:
    """A configuration, as the experiments write it."""
    return {
        "id": name,
        "title": title,
        "paper": "Yuan et al. 2021",
        "size": "quick",
        "seeds": list(SEEDS),
        "cofed": cofed.__version__,
        "created": "2026-01-02T03:04:05+00:00",
        "seconds": 12.5,
        "note": "",
        "rounds": ROUNDS,
        "data": {"generator": "yuan_lasso", "clients": 8, "samples": 32, "features": 64},
        "problem": {"loss": "Squared", "regularizer": {"name": "L1", "strength": 0.1, "leaf": "coef"}},
        **more,
    }


def entries(labels: list[str]) -> list[dict[str, Any]]:
    """What the configuration says of each algorithm."""
    return [
        {
            "label": label,
            "algorithm": label,
            "hyperparameters": {"client_lr": 0.01, "server_lr": 1.0},
            "tuned": True,
            "paper_hyperparameters": {"client_lr": 0.001, "server_lr": 0.3},
            "grid": {"client_lr": [0.001, 0.01, 0.1]},
        }
        for label in labels
    ]


def histories() -> pd.DataFrame:
    """The curves of three methods, three seeds each, on a small federated LASSO."""
    parts = []
    for seed in SEEDS:
        data = cofed.datasets.yuan_lasso(8, 32, 64, 8, test_clients=0, seed=seed)
        problem = cofed.Problem(cofed.Linear(), cofed.Squared(), cofed.On(cofed.L1(0.1), "coef"))
        for label, method in METHODS.items():
            metrics = {"f1": cofed.metrics.f1(data.truth, 1e-2)}
            result = cofed.run(
                problem, data.federation, method, rounds=ROUNDS, local_steps=5, seed=seed, metrics=metrics
            )
            parts.append(result.history.to_pandas().assign(panel="", algorithm=label, seed=seed))
    return pd.concat(parts, ignore_index=True)


def claims(numbers: pd.DataFrame) -> list[dict[str, Any]]:
    """A claim of each verdict, judged by the last round."""
    ends = numbers[numbers["round"] == ROUNDS].groupby("algorithm")[["f1", "density"]].mean()
    f1, density = ends["f1"].to_dict(), ends["density"].to_dict()
    said = ", ".join(f"{label} {value:.3f}" for label, value in f1.items())
    return [
        {
            "claim": "FedAvg with subgradients finds no zeros.",
            "holds": density["FedAvg"] == 1,
            "measured": f"Density in the end: {density['FedAvg']:.3f}.",
            "figures": {f"density {label}": value for label, value in density.items()},
            "why": "",
        },
        {
            "claim": "FedDualAvg reaches the best F1.",
            "holds": max(f1, key=f1.__getitem__) == "FedDualAvg",
            "measured": f"F1 in the end: {said}.",
            "figures": {f"F1 {label}": value for label, value in f1.items()},
            "why": "All methods run with the same step size here; none is tuned.",
        },
        {
            "claim": "F1 is 1 in fewer than 100 rounds.",
            "holds": None,
            "measured": "",
            "figures": {},
            "why": f"The quick size has {ROUNDS} rounds.",
        },
    ]


TRUTH = {"density": 8 / 64, "f1": 1.0}


def write_all(folder: Path) -> pd.DataFrame:
    """A curve with seeds, one with panels, a sweep, and one with labels that try to break the page."""
    numbers = histories()
    labels, judged = list(METHODS), claims(numbers)
    about = config("lasso", "A federated LASSO", algorithms=entries(labels))
    lasso = write_run(folder / "lasso", numbers, about | {"references": {"": {"truth": TRUTH}}}, judged)
    ends = numbers[numbers["round"] == ROUNDS].groupby("algorithm", as_index=False)["objective"].mean()
    ends.assign(panel="", client_lr=0.01, diverged=False).to_parquet(lasso / "tuning.parquet", index=False)
    panels = pd.concat(
        [numbers[numbers["seed"] == seed].assign(panel=f"data set {seed + 1}", seed=0) for seed in SEEDS]
    )
    write_run(
        folder / "panels",
        panels.drop(columns=["bytes_down", "bytes_up"]),
        config("panels", "Three data sets", algorithms=entries(labels)),
        judged[:1],
    )
    few = numbers[numbers["round"].isin([5, 10, 20, 40])]
    sweep = few.assign(x=few["round"], x_name="rounds allowed").drop(columns="round")
    write_run(folder / "sweep", sweep, config("sweep", "A sweep", paper="Chen et al. 2021"), judged[2:])
    renamed = numbers[numbers["seed"] == 0].replace({"algorithm": {"FedMiD": HOSTILE}}).rename(columns={"f1": HOSTILE})
    write_run(
        folder / "hostile",
        renamed.assign(panel=HOSTILE),
        config(HOSTILE, HOSTILE, paper=HOSTILE, note=HOSTILE, algorithms=entries([HOSTILE])),
        [dict.fromkeys(("claim", "measured", "why"), HOSTILE) | {"holds": True, "figures": {HOSTILE: 1.0}}],
    )
    return numbers
