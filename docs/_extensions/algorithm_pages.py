"""A page for each algorithm: its file's head, what it sends, its parameters, and a run drawn."""

import inspect
import re
import sys
from pathlib import Path

import numpy as np
import writing
from plain_docstrings import escaped

import cofed
from cofed.cli.algorithms import PAPERS, describe_all

# What each method is drawn with, on the problem below; one that must be given numbers and has no row stops the build.
DRAWN = {
    "Alternative": {"client_lr": 0.05},
    "CFedDA": {"mu": 0.1, "L": 4.0},
    "FastFedDA": {"mu": 0.1, "L": 4.0},
    "FedADMM": {"client_lr": 0.05, "eta": 0.5},
    "FedAvg": {"client_lr": 0.05},
    "FedDR": {"client_lr": 0.05, "eta": 0.5},
    "FedDecouple": {"client_lr": 0.05},
    "FedDualAvg": {"client_lr": 0.05},
    "FedFISTA": {"L": 4.0},
    "FedMiD": {"client_lr": 0.05},
    "FedNL": {"compressor": cofed.TopK(0.2)},
    "FedProx": {"strength": 0.5, "client_lr": 0.05},
    "MCFedDA": {"mu": 0.1, "L": 4.0, "strengths": (0.4, 0.2, 0.1)},
    "NormalMap": {"prox_step": 0.2, "server_lr": 0.8},
    "ProxSkip": {"client_lr": 0.2, "probability": 0.2},
    "PureLocal": {"client_lr": 0.05},
    "Scaffold": {"client_lr": 0.05},
    "DASM": {"step": 0.2},
    "DFedDA": {"client_lr": 0.05, "gradient_tracking": True},
    "DFedMiD": {"client_lr": 0.05},
    "DScaffold": {"client_lr": 0.05},
    "MReFedDAGT": {"client_lr": 0.05, "radius_squared": 400.0, "sparsity": 5},
    "NIDS": {"client_lr": 0.2},
    "PGExtra": {"client_lr": 0.2},
    "ReFedDAGT": {"client_lr": 0.05, "radius_squared": 400.0, "sparsity": 5},
}
# Rows of a head that are sentences; the others are formulas, and shown as they stand.
SENTENCES = ("When", "Method", "Wire", "Assumes", "Rounding", "Extension", "Compressed", "Reference", "Deviations")
CITED = (
    "Yuan, Zaheer, Reddi 2021, *Federated composite optimization*",
    "Bao, Crawshaw, Luo, Liu 2022, *Fast composite optimization and statistical recovery in federated learning*",
    "Liang, Peng, Zhang 2023, *Gradient tracking for high dimensional federated optimization*",
    "Zhang, Hu, Johansson 2025, *Non-convex composite federated learning with heterogeneous data*",
    "Chen, Zheng, Long, Su 2021, *A theorem of the alternative for personalized federated learning*",
)
GROUPS = {
    "With a server": "One model for all clients.",
    "On a graph": "Without a server: clients talk to neighbours on `topology=`, such as `cofed.topologies.ring(16)`.",
    "A model for each client": "Where clients may differ too much for one model: each has its own, through a server.",
}
ROW = re.compile(r"^(?P<key>[A-Z][\w -]*?)\s{2,}(?P<text>\S.*)$")


def head(text: str) -> tuple[str, list[tuple[str, list[str]]], str]:
    """The first line of a file's head, its rows (key and lines), and the text after them."""
    first, *blocks = text.split("\n\n")
    rows: list[tuple[str, list[str]]] = []
    tail = []
    for block in blocks:
        if not ROW.match(block.split("\n")[0]):
            tail.append(block)
            continue
        for line in block.split("\n"):
            found = ROW.match(line)
            if found:
                rows.append((found["key"], [found["text"]]))
            else:
                rows[-1][1].append(line.strip())
    return first, rows, "\n\n".join(tail)


def formulas(lines: list[str]) -> list[str]:
    """The lines of a row of formulas, without breaks that are only those of the file: a new line follows ";" or ","."""
    joined = lines[:1]
    for line in lines[1:]:
        if joined[-1].endswith((";", ",", ".")):
            joined.append(line)
        else:
            joined[-1] += " " + line
    return [line.replace("`", "") for line in joined]


def sentences(text: str) -> str:
    """A text of a head as reStructuredText, with the papers' names in place of their keys."""
    for key, name in PAPERS.items():
        text = text.replace(key, name)
    return escaped(text)


def clients() -> cofed.Federation:
    """Six unequal clients with models of their own around a sparse one."""
    rng = np.random.default_rng(0)
    truth = np.r_[np.ones(5), np.zeros(25)]
    data = []
    for rows in (40, 80, 25, 60, 50, 30):
        X = rng.normal(size=(rows, 30)) + 0.3 * rng.normal(size=30)
        data.append((X, X @ (truth + 0.3 * rng.normal(size=30)) + 0.5 * rng.normal(size=rows)))
    return cofed.Federation.from_arrays(data)


def draw(name: str, target: Path) -> None:
    """One run: how near it comes to the pooled optimum, and how many coefficients are not zero."""
    from matplotlib.figure import Figure

    method = getattr(cofed, name)(**DRAWN.get(name, {}))
    smooth = "zero" in method.needs
    regularizer = cofed.Zero() if smooth else cofed.L1(0.1)
    problem, federation = cofed.Problem(cofed.Linear(intercept=False), cofed.Squared(), regularizer), clients()
    best = float(cofed.solve_pooled(problem, federation).objective)
    steps = 1 if method.one_step or name in ("FedFISTA", "FedNL", "FedNewton", "ProxSkip") else 5
    topology = None if method.has_server else cofed.topologies.ring(6)
    result = cofed.run(problem, federation, method, rounds=120, local_steps=steps, topology=topology, progress=False)
    figure = Figure(figsize=(7.4, 2.6), layout="constrained")
    figure.get_layout_engine().set(w_pad=0.12, wspace=0.05)  # the right label stands clear of the left panel
    axes = figure.subplots(1, 2)
    colour = cofed.plotting.colour(name)
    if method.has_server and result.personal_models is not None:
        draw_own_models(axes, result, best, colour)
    else:
        draw_one_model(axes, result, best, colour, smooth)
    for one in axes:
        one.spines[["top", "right"]].set_visible(False)
        one.grid(alpha=0.25)
    figure.savefig(target, dpi=150)


def draw_one_model(axes, result: cofed.Result, best: float, colour: str, smooth: bool) -> None:
    """The gap to the pooled optimum, and the coefficients in use, by round."""
    (left, right), table = axes, result.history.to_pandas()
    left.semilogy(table["round"], np.maximum(table["objective"] - best, 1e-16), color=colour)
    left.set(xlabel="round", ylabel="objective - optimum")
    if smooth:  # nothing makes coefficients zero
        right.semilogy(table["round"], table["prox_gradient"], color=colour)
        right.set(xlabel="round", ylabel="length of the gradient")
    else:
        right.plot(table["round"], table["density"] * 30, color=colour)
        right.set(xlabel="round", ylabel="nonzero coefficients", ylim=(0, 31))


def draw_own_models(axes, result: cofed.Result, best: float, colour: str) -> None:
    """The clients' own models: their mean objective beside that of one model for all, and what each uses."""
    (left, right), table = axes, result.history.to_pandas()
    left.plot(table["round"], table["personal_objective"], color=colour, label="the clients' own models")
    left.axhline(best, color="grey", linestyle=":", label="the best model for all")
    left.set(xlabel="round", ylabel="mean objective", ylim=(0, None))
    left.legend(frameon=False)
    used = np.count_nonzero(result.personal_models.coef, axis=1)
    right.bar(np.arange(1, used.size + 1), used, color=colour)
    right.set(xlabel="client", ylabel="nonzero coefficients", ylim=(0, 31))


def page(info: dict, folder: Path) -> list[str]:
    """The page of one algorithm."""
    method = getattr(cofed, info["name"])
    module = sys.modules[method.__module__]
    drawn = writing.figure(folder, info["name"], [Path(inspect.getfile(method)), Path(__file__)], draw)
    first, rows, tail = head(inspect.getdoc(module) or "")
    said = first.partition(": ")[2] or first
    lines = [*writing.title(info["name"]), said[0].upper() + said[1:], ""]
    lines += [".. rst-class:: algorithm", ""]
    for key, text in rows:
        if key in SENTENCES:
            lines += [key, f"   {sentences(' '.join(text))}", ""]
        else:
            lines += [key, "   .. code-block:: text", "", *(f"      {line}" for line in formulas(text)), ""]
    if tail:
        lines += [sentences(tail), ""]
    lines += [":doc:`What the symbols mean <index>`, and :doc:`when to take which method </choose>`.", ""]
    lines += writing.title("What it needs and sends", "-")
    lines += writing.table(
        ["needs", "talks through", "vectors down / up", "paper"],
        [
            [
                "; ".join(info["needs"]) or "nothing in particular",
                " or ".join(info["talks"]),
                f"{info['vectors_down']} / {info['vectors_up']}",
                info["paper"],
            ]
        ],
    )
    lines += writing.title("One run", "-")
    lines += [f".. figure:: figures/{drawn.name}", f"   :alt: One run of {info['name']}", ""]
    lines += [
        f"   Six clients with different data, 30 coefficients of which 5 count: `{call(info['name'])}`.",
        "",
    ]
    lines += [*writing.title("Parameters", "-"), f".. autoclass:: cofed.{info['name']}", "   :no-index:", ""]
    return lines


def call(name: str) -> str:
    """How the drawn method was made."""
    return f"cofed.{name}({', '.join(f'{key}={value}' for key, value in DRAWN.get(name, {}).items())})"


def group(name: str) -> str:
    """Where a method is listed."""
    method = getattr(cofed, name)(**DRAWN.get(name, {}))
    if not method.has_server:
        return "On a graph"
    chooses = method.candidates(cofed.Problem()) is not None  # between one model and a model each
    return "A model for each client" if method.is_personal or chooses else "With a server"


def required(info: dict) -> list[str]:
    """The hyperparameters that must be given."""
    return [entry["name"] for entry in info["hyperparameters"] if entry["required"]]


def write_all(folder: Path) -> None:
    """The pages of all algorithms, and the one that lists them."""
    methods = describe_all()
    missing = [one["name"] for one in methods if one["name"] not in DRAWN and required(one)]
    if missing:
        raise KeyError(f"docs/_extensions/algorithm_pages.py: DRAWN has no row for {', '.join(missing)}")
    for one in methods:
        writing.write(folder / f"{one['name'].lower()}.rst", page(one, folder))
    groups: dict[str, list[dict]] = {name: [] for name in GROUPS}
    for one in sorted(methods, key=lambda one: one["name"].lower()):
        groups[group(one["name"])].append(one)
    also = " and ".join(f"`{one['name']}`" for one in groups["With a server"] if len(one["talks"]) > 1)
    text = (
        "Each page is made from the head of the algorithm's file, so that the two cannot differ. Which one to take: "
        ":doc:`how to choose </choose>`."
    )
    symbols = (
        "In the updates, `w` is the model, `F_m` the loss of client m with the weight `pi_m`, and `psi` the "
        "regularizer. `eta_c` and `eta_s` are the step sizes of client and server (`client_lr`, `server_lr`), `K` is "
        "the number of local steps, `G_k` the gradient on the batch of step k, `S` the clients of a round, and "
        "`mean_S` their weighted mean. A vector has the size of the model; down is from the server to a client. "
        "Where Hessians travel, vectors are counted for a model of 1,000 numbers."
    )
    rows_said = (
        "On each page, *When* says what the method is for, *Wire* what travels, *Assumes* what must hold, and "
        "*Deviations* where the code differs from the paper's text, and why."
    )
    papers = [f"- {paper}." for paper in CITED]
    lines = [*writing.title("Algorithms"), text, "", symbols, "", rows_said, ""]
    for name, members in groups.items():
        more = f" {also}, above, can do so too." if name == "On a graph" else ""
        lines += [*writing.title(name, "-"), GROUPS[name] + more, "", *listed(members)]
        lines += writing.contents([one["name"].lower() for one in members], name)
    lines += [*writing.title("The papers", "-"), "The five papers that cofed began with:", "", *papers, ""]
    writing.write(folder / "index.rst", lines)


def listed(methods: list[dict]) -> list[str]:
    """The table of some methods."""
    rows = [
        [
            f":doc:`{one['name']} <{one['name'].lower()}>`",
            one["description"],
            ", ".join(f"``{name}``" for name in required(one)) or "nothing",
            f"{one['vectors_down']} / {one['vectors_up']}",
            one["paper"],
        ]
        for one in methods
    ]
    return writing.table(["method", "what it does", "must be given", "vectors down / up", "paper"], rows)
