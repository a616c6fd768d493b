"""The curse of primal averaging, as `cofed demo` shows it: federated LASSO with a truth that is half zeros.

The data are set I of Yuan, Zaheer and Reddi (2021), Appendix B.2: 64 clients of 128 samples each, 1024 features of
which 512 count, 10 clients per round, one local epoch in batches of 10, 500 rounds. A feature counts as found where
its coefficient is beyond 0.01.

What the demo does not show: the paper's grid of learning rates begins at client_lr = 0.001, the edge of stability
here. Below it, with client_lr = 0.0003 and server_lr = 3, FedMiD and FedAvg reach an F1 of 0.99 too, in two to three
times FedDualAvg's rounds (seeds 0 to 3: 200 to 260 and 250 to 290, against 80 to 110).
"""

import dataclasses
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd
from rich import box
from rich.console import Console
from rich.table import Table

import cofed
from cofed._util.files import atomically
from cofed._util.spreadsheets import to_csv
from cofed.engine.history import Outcome, Result
from cofed.federation import Federation
from cofed.plotting import plot_history
from cofed.problem import Problem

SAMPLES, FEATURES, NONZEROS = 128, 1024, 512
DENSE = 2 * NONZEROS / (NONZEROS + FEATURES)  # the F1 of a model without any zero
HIGH = 0.99  # from this F1 on, the support counts as recovered
THRESHOLD = 1e-2  # below it a coefficient counts as zero, as in the paper
ROUNDS, QUICK_ROUNDS = 500, 100
PER_ROUND, BATCH = 10, 10

# With this strength the pooled solver recovers the support: F1 0.997 (the same at 0.08; 0.996 at 0.12, 0.993 at 0.05,
# 0.992 at 0.2).
STRENGTH = 0.1

# The best of the paper's grid, client_lr in {0.001, 0.003, ..., 1} and server_lr in {0.01, 0.03, ..., 10}, by the final
# F1, as the mean over the seeds 0 to 3. (The paper's own best: 0.01 and 1 for FedDualAvg, which diverges here, since
# the features are not scaled; 0.001 and 0.3 for the others.)
RATES: dict[str, tuple[float, float]] = {
    "FedAvg": (0.001, 0.3),
    "FedMiD": (0.001, 0.3),
    "FedDualAvg": (0.001, 3.0),
}
METHODS = {"FedAvg": cofed.FedAvg, "FedMiD": cofed.FedMiD, "FedDualAvg": cofed.FedDualAvg}
TITLES = {"FedAvg": "FedAvg (subgradients)"}


@dataclasses.dataclass(frozen=True)
class Row:
    """The final figures of a method, or of what it is compared with."""

    method: str
    f1: float
    density: float
    objective: float
    round: int = 0  # the last one that was evaluated
    megabytes: float | None = None
    seconds: float | None = None
    high: int | None = None  # the first evaluated round whose F1 is at least HIGH
    outcome: Outcome | None = None


@dataclasses.dataclass(frozen=True)
class Demo:
    """The results of a demo, which may have been interrupted."""

    rounds: int
    clients: int
    results: dict[str, Result]
    references: list[Row]  # the truth, and the pooled solution where it was asked for
    interrupted: bool

    @property
    def rows(self) -> list[Row]:
        """The final figures of the methods."""
        return [ended(method, result) for method, result in self.results.items()]


class Stopped(Exception):
    """Ctrl-C was pressed before there was anything to show."""


def run_demo(rounds: int = ROUNDS, clients: int = 64, seed: int = 0, pooled: bool = True) -> Demo:
    """Run the methods one after the other; Ctrl-C ends the demo with what is done.

    Parameters
    ----------
    rounds, clients, seed
        The size of the experiment, and the seed of its data and draws.
    pooled
        Whether to solve the problem on the pooled data as well, to compare with.

    Returns
    -------
    Demo
        The results so far.

    Raises
    ------
    Stopped
        Where Ctrl-C came before the first method had run.
    """
    results: dict[str, Result] = {}
    references: list[Row] = []
    interrupted = False
    screen = Console(stderr=True)
    try:
        data = cofed.datasets.yuan_lasso(clients, SAMPLES, FEATURES, NONZEROS, test_clients=0, seed=seed)
        lasso = cofed.On(cofed.L1(STRENGTH), "coef")
        problem = cofed.Problem(cofed.Linear(intercept=True), cofed.Squared(half=False), lasso)
        metrics = {
            "f1": cofed.metrics.f1(data.truth, THRESHOLD),
            "density": cofed.metrics.density(THRESHOLD, "coef"),
        }
        if pooled and screen.is_terminal:
            with screen.status("Solving the pooled problem, to compare with"):
                references = [solved(problem, data.federation, metrics)]
        elif pooled:
            references = [solved(problem, data.federation, metrics)]
        for method, (client_lr, server_lr) in RATES.items():
            with warnings.catch_warnings():
                # The table says which methods diverged.
                warnings.filterwarnings("ignore", message=".* diverged in round", category=RuntimeWarning)
                results[method] = cofed.run(
                    problem,
                    data.federation,
                    METHODS[method](client_lr=client_lr, server_lr=server_lr),
                    rounds=rounds,
                    local_epochs=1,
                    batch_size=BATCH,
                    clients_per_round=min(PER_ROUND, clients),
                    seed=seed,
                    evaluate_every=min(10, max(1, rounds // 50)),
                    metrics=metrics,
                )
            if results[method].outcome is Outcome.INTERRUPTED:
                interrupted = True
                break
    except KeyboardInterrupt:
        interrupted = True
    if not results:
        raise Stopped
    return Demo(rounds, clients, results, references, interrupted)


def solved(problem: Problem, federation: Federation, metrics: Mapping[str, Callable]) -> Row:
    """The solution of the pooled problem, as a row to compare with."""
    solution = cofed.solve_pooled(problem, federation, tol=1e-6)
    f1, density = (float(metrics[name](solution.model)) for name in ("f1", "density"))
    return Row("pooled data", f1, density, solution.objective)


def ended(method: str, result: Result) -> Row:
    """The figures of a run's last evaluated round."""
    rows, last = result.history.rows, result.history.rows[-1]
    return Row(
        method,
        f1=last["f1"],
        density=last["density"],
        objective=last["objective"],
        round=int(last["round"]),
        megabytes=(last["bytes_down"] + last["bytes_up"]) / 1e6,
        seconds=last["seconds"],
        high=next((int(row["round"]) for row in rows if row["f1"] >= HIGH), None),
        outcome=result.outcome,
    )


def table(demo: Demo) -> Table:
    """A table of the methods, for the terminal."""
    per_round = min(PER_ROUND, demo.clients)
    rates = ", ".join(f"{method} {RATES[method][0]:g}/{RATES[method][1]:g}" for method in demo.results)
    shown = Table(
        title=f"{demo.rounds} rounds, {demo.clients} clients, {per_round} per round; "
        f"{NONZEROS} of {FEATURES} features count",
        caption=f"F1 and density: coefficients beyond {THRESHOLD:g}. Seconds: without compilation.\n"
        f"client_lr/server_lr: {rates}: the best by final F1 of Yuan et al.'s grid (64 clients, 500 rounds). "
        f"Its smallest client_lr is 0.001; with 0.0003 FedMiD and FedAvg reach F1 {HIGH} too, but in two to three "
        "times FedDualAvg's rounds.\n",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        title_justify="left",
        caption_justify="left",
    )
    shown.add_column("method", no_wrap=True)
    for name in ("F1", f"≥ {HIGH} at", "density", "objective", "MB sent", "seconds"):
        shown.add_column(name, justify="right", no_wrap=True)
    rows = demo.rows
    best = max(round(row.f1, 3) for row in rows)
    for row in rows:
        f1 = f"{row.f1:.3f}"
        shown.add_row(
            titled(row, demo.rounds),
            f"[bold green]{f1}[/]" if round(row.f1, 3) == best else f1,
            "never" if row.high is None else f"round {row.high}",
            f"{row.density:.3f}",
            number(row.objective),
            f"{row.megabytes:.1f}",
            f"{row.seconds:.1f}",
        )
    shown.add_section()
    for row in demo.references:
        shown.add_row(row.method, f"{row.f1:.3f}", "", f"{row.density:.3f}", number(row.objective), style="dim")
    shown.add_row("truth", "1.000", "", f"{NONZEROS / FEATURES:.3f}", style="dim")
    return shown


def titled(row: Row, rounds: int) -> str:
    """The name of a method, with a remark if it did not complete its rounds."""
    name = TITLES.get(row.method, row.method)
    if row.outcome is Outcome.DIVERGED:
        return f"{row.method}, diverged after {row.round}"
    return name if row.round == rounds else f"{row.method}, {row.round} rounds"


def number(value: float) -> str:
    """An objective in a few characters, even one that has exploded.

    >>> from cofed.demo import number
    >>> number(51.375), number(1.5964e5)
    ('51.38', '1.6e+05')
    """
    return f"{value:.2f}" if abs(value) < 1e5 else f"{value:.1e}"


def sentence(rows: list[Row], rounds: int) -> str:
    """What the numbers show, in one sentence; methods are told apart by three digits.

    >>> from cofed.demo import Row, sentence
    >>> sentence([Row("FedMiD", 0.91, 0.60, 60.0, 9), Row("FedDualAvg", 1.0, 0.5, 51.0, 9)], rounds=9)
    'After 9 rounds FedDualAvg recovers the support best: F1 1.000 at density 0.500, against FedMiD 0.910 at 0.600 \
(truth: 1 at 0.500); the models that are averaged in the primal are denser than the truth.'
    """
    ranked = sorted(rows, key=lambda row: -round(row.f1, 3))
    first, dual = ranked[0], next((row for row in rows if row.method == "FedDualAvg"), None)
    when = f"After {rounds} rounds" if all(row.round == rounds for row in rows) else "As far as the runs went,"
    each = lambda row: f"{row.method} {row.f1:.3f} at {row.density:.3f}"  # noqa: E731
    truth = f"(truth: 1 at {NONZEROS / FEATURES:.3f})"
    if dual is None:
        scores = ", ".join(each(row) for row in ranked)
        return f"Stopped before FedDualAvg ran, so nothing is compared yet: F1 and density are {scores} {truth}."
    if round(first.f1, 3) <= round(DENSE, 3):
        return (
            f"{when} no method has found the support: the best is {each(first)}, and a model without any zero has F1 "
            f"{DENSE:.3f} {truth}."
        )
    others = [row for row in ranked if row is not dual]
    if not others:
        return f"{when} FedDualAvg has F1 {dual.f1:.3f} at density {dual.density:.3f} {truth}, with nothing to compare."
    scores = " and ".join(each(row) for row in others)
    mark = round(dual.f1, 3)
    level = [row.method for row in others if round(row.f1, 3) == mark]
    if round(first.f1, 3) > mark:
        return (
            f"{when} FedDualAvg does not win: {first.method} recovers the support best, with F1 {first.f1:.3f} at "
            f"density {first.density:.3f}, and FedDualAvg has {dual.f1:.3f} at {dual.density:.3f} {truth}."
        )
    if level:
        return (
            f"{when} FedDualAvg does not win alone: it is level with {' and '.join(level)} at F1 {dual.f1:.3f}; its "
            f"density is {dual.density:.3f}, and F1 and density of the others are {scores} {truth}."
        )
    denser = all(round(row.density, 3) > max(round(dual.density, 3), NONZEROS / FEATURES) for row in others)
    why = "the models that are averaged in the primal are denser than the truth"
    return (
        f"{when} FedDualAvg recovers the support best: F1 {dual.f1:.3f} at density {dual.density:.3f}, against "
        f"{scores} {truth}" + (f"; {why}." if denser else ".")
    )


def history(results: Mapping[str, Result]) -> pd.DataFrame:
    """The histories of all runs in one table, with the method as the first column."""
    tables = [result.history.to_pandas().assign(method=method) for method, result in results.items()]
    whole = pd.concat(tables, ignore_index=True)
    whole.insert(0, "method", whole.pop("method"))
    return whole


def write(demo: Demo, folder: Path) -> list[Path]:
    """Write the figure (PNG) and the history (CSV and Parquet) into a folder."""
    picture, csv, parquet = folder / "demo.png", folder / "history.csv", folder / "history.parquet"
    lines: dict[str, dict[str, float]] = {"density": {"truth": NONZEROS / FEATURES}}
    for row in demo.references:
        lines |= {"objective": {row.method: row.objective}}
    title = (
        f"Federated LASSO, {FEATURES - NONZEROS} of {FEATURES} coefficients zero (rates: best of Yuan et al.'s grid)"
    )
    plot_history(demo.results, ("f1", "density", "objective"), path=picture, references=lines, title=title)
    rows = history(demo.results)
    to_csv(rows, csv)
    atomically(parquet, lambda name: rows.to_parquet(name, index=False), shown=True)
    return [picture, csv, parquet]
