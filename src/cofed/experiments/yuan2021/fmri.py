"""fMRI scans: figures 5 (with 1) and 12."""

import cofed
from cofed.experiments.measurements import Measurements, each
from cofed.experiments.specification import Claim, Comparison, Experiment, Method, Numbers, Setup, Sweep, Verdict, View
from cofed.experiments.yuan2021.common import CLIENT, FOUR, PRIMAL, SERVER, four


def scans(n: Numbers, seed: int) -> Setup:
    """Sparse logistic regression on voxels, a run of a subject is a client; weights below 1e-4 count as zero."""
    try:
        train, test, source = cofed.datasets.haxby_split()
    except (FileNotFoundError, ImportError):
        made = cofed.datasets.yuan_fmri_like(n.clients, d=n.d, test_clients=n.test_clients, seed=seed)
        assert made.test is not None
        train, test, source = made.federation, made.test, f"generated, in the shape of Haxby's scans, seed {seed}"
    problem = cofed.Problem(cofed.Linear(), cofed.Logistic(), cofed.On(cofed.L1(1e-3), "coef"))
    run = {
        "rounds": n.rounds,
        "local_epochs": 1,
        "batch_size": 1,
        "clients_per_round": min(20, train.n_clients),
        "evaluate_every": n.evaluate_every,
    }
    baselines = {
        "centralised": lambda: cofed.solve_pooled(problem, train, tol=1e-4).model,
        "one client": lambda: cofed.solve_local(problem, train, 0, tol=1e-4).model,
    }
    return Setup(problem, train, run, {"density": cofed.metrics.density(1e-4, "coef")}, test, baselines, source)


def five(n: Numbers) -> list[Method]:
    """The four, and FedAvg with subgradients."""
    grid = {"client_lr": n.client_lrs, "server_lr": n.server_lrs}
    return [*four(n), Method("FedAvg", cofed.FedAvg, grid)]


def as_good_as_centralised(seen: Measurements) -> Verdict:
    """Within 0.03 of the centralised accuracy, and at most 1.5 times as dense."""
    accuracy, density = (seen.last("FedDualAvg", column) for column in ("test_accuracy", "density"))
    centre = {column: seen.reference("centralised", column) for column in ("test_accuracy", "density")}
    return Verdict(
        accuracy >= centre["test_accuracy"] - 0.03 and density <= max(1.5 * centre["density"], 0.05),
        f"Test accuracy {accuracy:.3f} at density {density:.3f}; centralised {centre['test_accuracy']:.3f} at "
        f"{centre['density']:.3f}.",
        {"accuracy": accuracy, "density": density}
        | {f"centralised {column}": value for column, value in centre.items()},
    )


def better_than_alone(seen: Measurements) -> Verdict:
    """More accurate than one client alone and than FedAvg with subgradients."""
    ours, averaged = (seen.last(label, "test_accuracy") for label in ("FedDualAvg", "FedAvg"))
    alone = seen.reference("one client", "test_accuracy")
    return Verdict(
        ours > alone and ours > averaged,
        f"Test accuracy: FedDualAvg {ours:.3f}, one client {alone:.3f}, FedAvg with subgradients {averaged:.3f} (at "
        f"density {seen.last('FedAvg', 'density'):.3f}).",
        {"FedDualAvg": ours, "one client": alone, "FedAvg": averaged},
    )


def primal_denser(seen: Measurements) -> Verdict:
    """FedMiD and FedMiD-OSP have larger densities."""
    density = {label: seen.last(label, "density") for label in FOUR}
    accuracy = {label: seen.last(label, "test_accuracy") for label in FOUR}
    return Verdict(
        all(density[label] > density["FedDualAvg"] for label in PRIMAL),
        f"Density: {each(density)}; test accuracy: {each(accuracy)}.",
        {f"density {label}": value for label, value in density.items()},
    )


FMRI = {
    "clients": 59,
    "d": 39_912,
    "test_clients": 12,
    "rounds": 300,
    "evaluate_every": 5,
    "tune_every": 50,
    "client_lrs": CLIENT,
    "server_lrs": SERVER,
}
SMALL_FMRI = {
    "clients": 20,
    "d": 2_000,
    "test_clients": 6,
    "rounds": 60,
    "client_lrs": (1e-1,),
    "server_lrs": (1.0,),
}
FMRI_NOTE = """Haxby's scans where they are in the data folder (all six subjects, or what there is of them); else a
generated set of their shape. The baselines are solved to a tolerance, not run for 300 epochs. What was used stands
below the figure."""
FIG5 = Experiment(
    id="yuan2021-fig5",
    title="Sparse logistic regression on fMRI scans (figures 1 and 5)",
    measure=Comparison(scans, five, score="test_loss"),
    full=FMRI,
    quick=SMALL_FMRI,
    views=(View("test_loss", label="validation loss"), View("test_accuracy"), View("density")),
    claims=(
        Claim("FedDualAvg is sparse and as accurate as centralised training.", as_good_as_centralised, quick=False),
        Claim("It is better than local training and than FedAvg with subgradients.", better_than_alone, quick=False),
        Claim("FedMiD and FedMiD-OSP give denser solutions.", primal_denser, quick=False),
    ),
    note=FMRI_NOTE,
    reads=("haxby",),
)


def cloud(n: Numbers, label: str, seed: int) -> list[dict]:
    """Density and accuracy of every pair of rates with a product in [0.003, 0.3], after several rounds."""
    setup = scans(n, seed)
    method = next(method for method in four(n) if method.label == label)
    pairs = [pair for pair in method.choices() if 0.003 <= pair["client_lr"] * pair["server_lr"] <= 0.3 * (1 + 1e-9)]
    tuning = cofed.tune(
        setup.problem,
        setup.federation,
        [method.make(**pair) for pair in pairs],
        **{**setup.run, "evaluate_every": n.marks[0]},
        metrics=setup.metrics,
        evaluation=setup.evaluation,
        score="test_loss",
        seed=seed,
        progress=False,
    )
    places = [list(tuning.rounds).index(mark) for mark in n.marks]
    return [
        {
            "algorithm": label,
            "panel": f"after {mark} rounds",
            "x": float(tuning.curves["density"][i, place]),
            "test_accuracy": float(tuning.curves["test_accuracy"][i, place]),
            "data": setup.data,
            **pair,
        }
        for i, pair in enumerate(pairs)
        for mark, place in zip(n.marks, places, strict=True)
    ]


def in_the_corner(seen: Measurements, label: str) -> float:
    """The share of a method's pairs that are sparse (density <= 0.3) and accurate (within 0.1 of the best of all)."""
    last = seen.table[seen.table["panel"] == seen.table["panel"].iloc[-1]]
    good = (last["x"] <= 0.3) & (last["test_accuracy"] >= last["test_accuracy"].max() - 0.1)
    return float(good[last["algorithm"] == label].mean())


def dual_in_the_corner(seen: Measurements) -> Verdict:
    """More than half of FedDualAvg's pairs, and at most half of FedMiD's."""
    share = {label: in_the_corner(seen, label) for label in FOUR}
    return Verdict(
        share["FedDualAvg"] > 0.5 and share["FedMiD"] <= 0.5,
        f"Share of the pairs that are sparse and accurate in the end: {each(share, '{:.2f}')}.",
        {f"share {label}": value for label, value in share.items()},
    )


FIG12 = Experiment(
    id="yuan2021-fig12",
    title="Every pair of learning rates on the fMRI scans: accuracy against density",
    measure=Sweep("density", lambda n: FOUR, cloud, four),
    full=FMRI | {"marks": (10, 30, 100, 300)},
    quick=SMALL_FMRI | {"marks": (10, 30, 60), "client_lrs": (1e-2, 3e-2, 1e-1), "server_lrs": (0.1, 0.3, 1.0)},
    views=(
        View("test_accuracy", "after 10 rounds", "after 10 rounds", dots=True),
        View("test_accuracy", "after 30 rounds", "after 30 rounds", dots=True),
        View("test_accuracy", "after 60 rounds", "after 60 rounds", dots=True),
        View("test_accuracy", "after 100 rounds", "after 100 rounds", dots=True),
        View("test_accuracy", "after 300 rounds", "after 300 rounds", dots=True),
    ),
    claims=(
        Claim(
            "Most FedDualAvg configurations are in the sparse and accurate corner; most FedMiD ones are not.",
            dual_in_the_corner,
            quick=False,
        ),
    ),
    note=FMRI_NOTE + " Sparse: density at most 0.3; accurate: within 0.1 of the best of all.",
    reads=("haxby",),
)
