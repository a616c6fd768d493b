"""Probes of why a claim of a paper does not hold: `python -m benchmarks.causes yuan2021-fig7` runs one.

Each runs an experiment of `cofed reproduce` with a few of its numbers changed, or at other pairs of rates than the
tuned one, and prints the figures that the claims' texts quote on the page of results; "-" is never, or diverged, or not
a number of that method. Without a name it lists them. Those of yuan2021-fig5 read Haxby's scans from COFED_DATA; those
of liang2023-fig1-released and liang2023-fig1-longer take minutes.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import jax.numpy as jnp
import numpy as np
import pandas as pd
from jaxtyping import Array, Float, PyTree

import cofed
from cofed._util import trees
from cofed._util.pandas_types import Frame, Series
from cofed.engine.ranking import AllDiverged
from cofed.experiments import everything
from cofed.experiments.bao2022.released import ReleasedFedMiD
from cofed.experiments.liang2023 import restart
from cofed.experiments.measure import row_of
from cofed.experiments.specification import Comparison, Method, Setup, combinations
from cofed.experiments.yuan2021 import fmri
from cofed.experiments.yuan2021.common import CLIENT, PRIMAL, SERVER
from cofed.federation import Federation

SEEDS = range(5)
Choice = Mapping[str, Any]
Probe = Callable[[], Iterator[dict[str, Any]]]


def numbers(experiment: str, panel: str = "", **changed: Any) -> SimpleNamespace:
    """The numbers of an experiment at the paper's size, some of them changed."""
    return SimpleNamespace(**vars(everything()[experiment].numbers("full", panel)) | changed)


def posed(experiment: str, seed: int, panel: str = "", **changed: Any) -> tuple[Setup, dict[str, Method]]:
    """An experiment's problem on the data of a seed, and its methods by label."""
    what = everything()[experiment].measure
    assert isinstance(what, Comparison)
    n = numbers(experiment, panel, **changed)
    return what.setup(n, seed), {method.label: method for method in what.methods(n)}


def curves(setup: Setup, method: Method, choices: Sequence[Choice], seed: int, **run: Any) -> list[Frame]:
    """What is measured of a method over the rounds at each of some choices of its hyperparameters.

    The choices share the regularizer of the first. From where one has diverged there is NaN.
    """
    given = {"metrics": setup.metrics, "evaluation": setup.evaluation, "seed": seed, **setup.run, **method.run, **run}
    algorithms = [method.make(**{k: v for k, v in c.items() if k != "strength"}) for c in choices]
    try:
        problem = method.posed(setup.problem, choices[0])
        found = cofed.tune(problem, setup.federation, algorithms, score="objective", progress=False, **given)
    except AllDiverged as error:
        found = error.tuning
    return [
        pd.DataFrame({name: values[place] for name, values in found.curves.items()}, index=found.rounds)
        for place in range(len(choices))
    ]


def stays_from(within: Series) -> float:
    """The first round from which a condition is true up to the last; NaN: never."""
    always = within[::-1].cummin()[::-1]
    return float(always.index[always.to_numpy()][0]) if always.iloc[-1] else float("nan")


def pairs(client_lrs: Sequence[float], server_lrs: Sequence[float]) -> list[dict[str, float]]:
    """Every pair of rates."""
    return combinations({"client_lr": client_lrs, "server_lr": server_lrs})


def ranks(experiment: str, rank: int, choices: Sequence[Choice]) -> Iterator[dict[str, Any]]:
    """From which round FedDualAvg keeps the true rank, by pair of rates and seed; beside it the error in the end."""
    for seed in SEEDS:
        setup, methods = posed(experiment, seed)
        for choice, curve in zip(choices, curves(setup, methods["FedDualAvg"], choices, seed), strict=True):
            kept = stays_from((curve["recovered_rank"] - rank).abs() < 1e-6)
            yield {"seed": seed, **choice, "rank kept from": kept, "error": curve["recovery_error"].iloc[-20:].mean()}


def tail(curve: Frame, column: str, share: int = 5) -> float:
    """The mean of a column over the last part of the rounds."""
    return float(curve.loc[curve.index > curve.index[-1] * (1 - 1 / share), column].mean())


def ties(experiment: str, labels: Sequence[str], choices: Sequence[Choice], **changed: Any) -> Iterator[dict[str, Any]]:
    """From which round F1 stays at 0.995, by method, pair of rates and seed; beside it F1 and density in the end."""
    for seed in SEEDS:
        setup, methods = posed(experiment, seed, **changed)
        for label in labels:
            for choice, curve in zip(choices, curves(setup, methods[label], choices, seed), strict=True):
                found = {"F1 kept from": stays_from(curve["f1"] >= 0.995), "F1": tail(curve, "f1")}
                yield {"method": label, "seed": seed, **choice, **found, "density": tail(curve, "density")}


def reached(experiment: str, chosen: Mapping[str, Sequence[Choice]]) -> Iterator[dict[str, Any]]:
    """From which round objective and rank stay where FedDualAvg's end, by method, pair and seed."""
    for seed in (1, 2):
        setup, methods = posed(experiment, seed)
        level = float("inf")
        for label, choices in chosen.items():
            for choice, curve in zip(choices, curves(setup, methods[label], choices, seed), strict=True):
                level = min(level, 1.01 * tail(curve, "objective"))
                loss = stays_from(curve["objective"] <= level)
                rank = stays_from((curve["recovered_rank"] - 1).abs() < 1e-6)
                yield {"method": label, "seed": seed, **choice, "objective kept from": loss, "rank kept from": rank} | {
                    "objective": tail(curve, "objective"),
                    "error": tail(curve, "recovery_error"),
                }


def without_means() -> Iterator[dict[str, Any]]:
    """The pooled solver's F1 on sets II and III, with the clients' means and with features N(0, 2 I) instead."""
    for nonzeros in (64, 8):
        for seed in (0, 1):
            data = cofed.datasets.yuan_lasso(nonzeros=nonzeros, test_clients=0, seed=seed)
            rng = np.random.default_rng(seed)
            X = np.sqrt(2) * rng.standard_normal(data.federation.X.shape)
            y = X @ data.truth["coef"] + rng.standard_normal(X.shape[:2])
            drawn = cofed.Federation.from_arrays(list(zip(X.astype("f4"), y.astype("f4"), strict=True)))
            for strength in (0.1, 0.2):
                problem = cofed.Problem(cofed.Linear(), cofed.Squared(half=False), cofed.On(cofed.L1(strength), "coef"))
                f1 = cofed.metrics.f1(data.truth, 1e-2)
                found = {
                    name: float(f1(cofed.solve_pooled(problem, federation, tol=1e-5).model))
                    for name, federation in (("with means", data.federation), ("without", drawn))
                }
                yield {"nonzeros": nonzeros, "seed": seed, "strength": strength, **found}


def doubling() -> Iterator[dict[str, Any]]:
    """The squared l1 error by stage on the mean over more draws, and with more stages where K does not grow."""
    # The page has the draws of seeds 0 to 4.
    for variant, stages, seeds in ((restart.RESTARTS, 5, range(5, 10)), (restart.NO_GROWTH, 6, range(3))):
        n = numbers("liang2023-restart", stages=stages)
        errors = np.array([[row["squared_error"] for row in restart.stages_of(n, variant, seed)] for seed in seeds])
        ratios = errors[:, 1:].mean(0) / errors[:, :-1].mean(0)
        alone = errors[:, 1:] / errors[:, :-1]
        for stage in range(stages):
            yield {
                "variant": variant,
                "stage": stage + 1,
                "error": errors[:, stage + 1].mean(),
                "left of the mean": ratios[stage],
                "draws that leave more than 0.6": int((alone[:, stage] > restart.HALF).sum()),
                "of": len(errors),
            }


def steps_of(
    chosen: Mapping[str, Sequence[Choice]], rounds: int, seeds: Sequence[int], panels: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The relative optimality of zhang2025-fig3 over the last fifth of the rounds, and of the fifth before it."""
    for panel in panels:
        for seed in seeds:
            setup, methods = posed("zhang2025-fig3", seed, panel, rounds=rounds)
            first = row_of(setup, setup.problem.start(setup.federation))["prox_gradient"]
            for label, choices in chosen.items():
                given = {"evaluate_every": rounds // 200}
                for choice, curve in zip(choices, curves(setup, methods[label], choices, seed, **given), strict=True):
                    parts = np.array_split(curve["prox_gradient"].to_numpy() / first, 5)
                    yield {"panel": panel, "seed": seed, "method": label, **choice} | {
                        "before": float(parts[3].mean()),
                        "last": float(parts[4].mean()),
                    }


def slice_of(classes: tuple[str, str]) -> Iterator[dict[str, Any]]:
    """The methods of yuan2021-fig5 on a pair of categories of the slice, over the whole grid."""
    train, test, _ = cofed.datasets.haxby_split(classes=classes)
    for seed in (0, 1, 2):
        yield from scanned(train, test, pairs(CLIENT, SERVER), seed)


def generated(d: int) -> Iterator[dict[str, Any]]:
    """The same on the generated set of 59 clients with fewer voxels, at a few pairs of rates."""
    made = cofed.datasets.yuan_fmri_like(d=d, seed=0)
    assert made.test is not None
    return scanned(made.federation, made.test, pairs((0.01, 0.1), (0.1, 0.3, 1.0, 3.0)), 0)


def scanned(train: Federation, test: Federation, grid: Sequence[Choice], seed: int) -> Iterator[dict[str, Any]]:
    """The methods of yuan2021-fig5 on some scans.

    Of the pair of rates with the lowest validation loss, what figure 5 is about; of the pairs with a product in [0.003,
    0.3], what figure 12 is about.
    """
    setup, methods = posed("yuan2021-fig5", seed)
    validation = fmri.RegularizedLoss(setup.problem, *map(jnp.asarray, test.pooled()))
    metrics = {**setup.metrics, "validation_loss": validation}
    run = {**setup.run, "clients_per_round": min(20, train.n_clients)}
    setup = replace(setup, federation=train, evaluation=test, metrics=metrics, run=run)
    alone = row_of(setup, fmri.proximal_gradient(setup.problem, train.client(train.names[0]), validation))
    yield {"seed": seed, "method": "one client", "accuracy": alone["test_accuracy"], "density": alone["density"]}
    for label, method in methods.items():
        found = curves(setup, method, grid, seed, evaluate_every=50)
        rows: Frame = pd.DataFrame([{**pair, **curve.iloc[-1]} for pair, curve in zip(grid, found, strict=True)])
        rows = rows.dropna(subset=["validation_loss"])
        best = rows.loc[rows["validation_loss"].idxmin()]
        box = rows[(rows["client_lr"] * rows["server_lr"]).between(0.003 * (1 - 1e-9), 0.3 * (1 + 1e-9))]
        yield {"seed": seed, "method": label, "client_lr": best["client_lr"], "server_lr": best["server_lr"]} | {
            "accuracy": best["test_accuracy"],
            "density": best["density"],
            "median accuracy": box["test_accuracy"].median(),
            "median density": box["density"].median(),
            "denser than 0.5": (box["density"] > 0.5).mean(),
        }


def scans_at(label: str, choices: Sequence[Choice], seeds: Sequence[int] = SEEDS) -> Iterator[dict[str, Any]]:
    """A method of yuan2021-fig5 at some pairs of rates: density in the last rounds, accuracy and losses."""
    for seed in seeds:
        setup, methods = posed("yuan2021-fig5", seed)
        for choice, curve in zip(choices, curves(setup, methods[label], choices, seed), strict=True):
            last = curve.iloc[-10:]
            yield {"seed": seed, **choice, "density": curve["density"].iloc[-1]} | {
                "lowest of the last ten": last["density"].min(),
                "highest": last["density"].max(),
                "accuracy": curve["test_accuracy"].iloc[-1],
                "test_loss": curve["test_loss"].iloc[-1],
                "validation_loss": curve["validation_loss"].iloc[-1],
            }


class NoThreshold(cofed.FedMiD):
    """FedMiD without the server's proximal step."""

    def aggregate(self, problem: cofed.Problem, server: PyTree, up: PyTree, share: Float[Array, ""]) -> PyTree:
        return server._replace(w=trees.axpy(self.server_lr, up.delta, server.w))


def other_weights() -> Iterator[dict[str, Any]]:
    """bao2022-fig1, seed 0: error and F1 in the end with another L or mu, and FedMiD's three thresholds."""
    setup, methods = posed("bao2022-fig1", 0)
    fixed = {"client_lr": 0.001, "server_lr": 1.0}
    tried = [(methods["FastFedDA"], {"mu": 0.1, "L": L}) for L in (350.0, 450.0, 550.0)]
    tried += [(methods["FastFedDA"], {"mu": mu, "L": 550.0}) for mu in (1.0, 10.0)]
    tried += [(methods["CFedDA"], {"mu": 0.1, "L": L}) for L in (40.0, 50.0, 60.0)]
    tried += [(methods["CFedDA"], {"mu": mu, "L": 60.0}) for mu in (1.0, 10.0)]
    tried += [(Method(make.__name__, make, {}), fixed) for make in (cofed.FedMiD, ReleasedFedMiD, NoThreshold)]
    for method, choice in tried:
        (curve,) = curves(setup, method, [choice], 0, evaluate_every=50)
        last = curve.iloc[-1]
        yield {"method": method.label, **choice, "l2_error": last["l2_error"], "f1": last["f1"]}


def cuts() -> Iterator[dict[str, Any]]:
    """bao2022-fig2, seed 0: FedMiD's rank in the end, by form, threshold and the cut above which values count."""
    both = {"above 1e-2": cofed.metrics.rank(1e-2), "above 1e-5": cofed.metrics.rank(1e-5)}
    for form in ("bao2022-fig2", "bao2022-fig2-released"):
        setup, _ = posed(form, 0)
        for make in (cofed.FedMiD, ReleasedFedMiD):
            setup = replace(setup, metrics={**setup.metrics, **both})
            method, choice = Method(make.__name__, make, {}), {"client_lr": 0.001, "server_lr": 1.0}
            (curve,) = curves(setup, method, [choice], 0, evaluate_every=100)
            last = curve.iloc[-1]
            yield {"form": form, "method": method.label, **{name: last[name] for name in both}} | {
                "frobenius_error": last["frobenius_error"],
            }


def recovered(
    experiment: str, tried: Sequence[tuple[str, Choice, Mapping[str, Any]]], seed: int = 0
) -> Iterator[dict[str, Any]]:
    """The errors of methods of liang2023 over the last fifth of the rounds and the fifth before, with other numbers.

    A method's own strength of 0 is no penalty; one that has none gets that of its choice.
    """
    for label, choice, changed in tried:
        setup, methods = posed(experiment, seed, **changed)
        method = methods[label]
        if "strength" in choice:
            method = replace(method, regularizer=cofed.L1 if choice["strength"] else None)
        (curve,) = curves(setup, method, [choice], seed)
        nodes = "_mean" if "l1_error_mean" in curve else ""
        parts = np.array_split(curve[f"l1_error{nodes}"].to_numpy(), 5)
        yield {"method": label, **choice, **changed, "before": parts[3].mean()} | {
            "l1 error": parts[4].mean(),
            "gap": tail(curve, f"gap{nodes}"),
        }


STEPS = {
    "FedDecouple, tuned": pairs((0.1,), (1.0, 2.0, 4.0, 8.0)) + pairs((0.25, 0.5), (1.0,)),
    "FedDualAvg, tuned": pairs((0.1,), (4.0, 8.0, 10.0)),
}
FEWER_STEPS = {
    "FedDecouple, tuned": pairs((0.1,), (2.0, 4.0)) + pairs((0.5,), (1.0,)),
    "FedDualAvg, tuned": pairs((0.1,), (2.0, 4.0, 8.0)),
}
LONG = {"rounds": 1920, "evaluate_every": 48, "tuned_over": 384}
TRIPLE = {"rounds": 2880, "evaluate_every": 48, "tuned_over": 576}
SLOW = [("DFedDA-GT", {"client_lr": rate}, {}) for rate in (0.003, 0.01, 0.03)]
LONGER = [
    ("DFedDA-GT", {"client_lr": 0.03}, LONG),
    ("DFedDA-GT", {"client_lr": 0.01}, LONG),
    ("CFedDA", {"mu": 0.1, "L": 0.3, "strength": 0.03}, LONG),
]
RELEASED = [
    ("FastFedDA", {"mu": 0.1, "L": 300.0, "strength": 0.1}, {}),
    ("FastFedDA", {"mu": 0.1, "L": 10.0, "strength": 0.03}, TRIPLE),
    ("DFedDA-GT", {"client_lr": 0.03}, TRIPLE),
]


BALL = {"radius_squared": 100.0, "sparsity": 16}
LOGISTIC = [
    ("FastFedDA", {"mu": 0.1, "L": 1.0, "strength": 0.0}, {}),
    ("DFedDA-GT, all to all", {"client_lr": 0.3, "strength": 0.001}, {}),
]
ONE_STAGE = [("MReFedDA-GT", {"client_lr": rate, **BALL}, {"stages": 1}) for rate in (0.3, 1.0, 3.0, 10.0)]


PROBES: dict[str, Probe] = {
    "yuan2021-fig3": lambda: ties("yuan2021-fig3", PRIMAL, pairs((0.001,), (0.3,))),
    "yuan2021-fig3-rates": lambda: ties("yuan2021-fig3", ("FedDualAvg",), pairs((0.001,), (0.3, 1.0, 3.0, 10.0))),
    "yuan2021-fig4": lambda: ranks("yuan2021-fig4", 16, pairs((0.001,), (3.0, 10.0))),
    "yuan2021-fig5": lambda: slice_of(("house", "face")),
    "yuan2021-fig5-cats": lambda: slice_of(("cat", "face")),
    "yuan2021-fig5-generated": lambda: generated(4_000),
    "yuan2021-fig5-rates": lambda: scans_at("FedMiD-OSP", pairs((0.3, 1.0), (3.0, 10.0))),
    "yuan2021-fig5-osp": lambda: scans_at("FedDualAvg-OSP", pairs((0.001,), SERVER), (0,)),
    "yuan2021-fig6": without_means,
    "yuan2021-fig6-strength": lambda: ties(
        "yuan2021-fig6", ("FedDualAvg",), pairs((0.001,), (1.0, 10.0)), strength=0.5
    ),
    "yuan2021-fig7": lambda: ties("yuan2021-fig7", ("FedDualAvg",), pairs((0.001,), SERVER)),
    "yuan2021-fig7-ahead": lambda: ties("yuan2021-fig7", PRIMAL, pairs((0.001,), (0.01, 0.03, 0.1, 0.3, 1.0))),
    "yuan2021-fig7-strength": lambda: ties(
        "yuan2021-fig7", ("FedDualAvg",), pairs((0.001,), (0.01, 1.0, 10.0)), strength=0.5
    ),
    "yuan2021-fig9": lambda: ranks("yuan2021-fig9", 4, pairs((0.001,), (3.0, 10.0))),
    "yuan2021-fig10": lambda: ranks("yuan2021-fig10", 1, pairs((0.001,), (3.0, 10.0))),
    "yuan2021-fig10-scaled": lambda: reached(
        "yuan2021-fig10-scaled",
        {"FedDualAvg": pairs((0.001,), (10.0,)) + pairs((0.01,), (3.0,)), "FedMiD-OSP": pairs((0.001,), (3.0,))},
    ),
    "yuan2021-fig11": lambda: ranks("yuan2021-fig11", 16, pairs((0.001,), (3.0, 10.0))),
    "bao2022-fig1": other_weights,
    "bao2022-fig2": cuts,
    "liang2023-fig1": lambda: recovered("liang2023-fig1", SLOW),
    "liang2023-fig1-longer": lambda: recovered("liang2023-fig1", LONGER),
    "liang2023-fig1-released": lambda: recovered("liang2023-fig1-released", RELEASED),
    "liang2023-fig2": lambda: recovered("liang2023-fig2", LOGISTIC + ONE_STAGE),
    "liang2023-fig2-released": lambda: recovered("liang2023-fig2-released", LOGISTIC + ONE_STAGE[:1]),
    "liang2023-restart": doubling,
    "zhang2025-fig3": lambda: steps_of(STEPS, 4000, (3, 4), ("b = 1",)),
    "zhang2025-fig3-longer": lambda: steps_of(FEWER_STEPS, 16_000, (3, 4), ("b = 1",)),
}


def main() -> None:
    """Run a probe and print its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probes", nargs="*", metavar="PROBE", help="which to run")
    chosen = parser.parse_args().probes
    if not chosen:
        print("\n".join(PROBES))
    warnings.filterwarnings("ignore", message=".* diverged", category=RuntimeWarning)
    for name in chosen:
        print(f"{name}\n{pd.DataFrame(PROBES[name]()).to_string(index=False, na_rep='-')}\n", flush=True)


if __name__ == "__main__":
    main()
