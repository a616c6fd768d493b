"""A page for each regularizer: what it is, its traits, and its proximal map drawn."""

import inspect
from collections.abc import Callable
from pathlib import Path

import numpy as np
import writing
from plain_docstrings import escaped

import cofed

# What is drawn of each, and on what: a line (1), a plane (2), a plane whose coordinates are two leaves of a model, a
# signal, or the singular values of a matrix.
DRAWN = {
    "Zero": (cofed.Zero(), 1),
    "L1": (cofed.L1(1.0), 1),
    "ElasticNet": (cofed.ElasticNet(1.0, 0.5), 1),
    "MCP": (cofed.MCP(1.0, 3.0), 1),
    "SCAD": (cofed.SCAD(1.0, 3.7), 1),
    "Box": (cofed.Box(-1.0, 1.5), 1),
    "NonNegative": (cofed.NonNegative(), 1),
    "GroupL1": (cofed.GroupL1(1.0, groups=[0, 0]), 2),
    "SparseGroupL1": (cofed.SparseGroupL1(1.0, 0.5, groups=[0, 0]), 2),
    "L1Ball": (cofed.L1Ball(1.0), 2),
    "L2Ball": (cofed.L2Ball(1.0), 2),
    "L0Ball": (cofed.L0Ball(1), 2),
    "Simplex": (cofed.Simplex(1.0), 2),
    "TotalVariation": (cofed.TotalVariation(1.0), "signal"),
    "Nuclear": (cofed.Nuclear(1.0), "matrix"),
    "On": (cofed.On(cofed.L1(1.0), "a"), "leaves"),
    "Scaled": (cofed.Scaled(cofed.L1(1.0), 0.5), 1),
    "Translated": (cofed.Translated(cofed.L1(1.0), np.array([1.0])), 1),
    "Sum": (cofed.Sum(cofed.On(cofed.L1(1.0), "a"), cofed.On(cofed.L2Ball(1.0), "b")), "leaves"),
}
# How they are written, where their repr says more than a reader needs.
CALLS = {
    "GroupL1": "`GroupL1(1.0, groups=[0, 0])`",
    "SparseGroupL1": "`SparseGroupL1(1.0, 0.5, groups=[0, 0])`",
    "On": '`On(L1(1.0), "a")`, for a model of two numbers: a shrinks, b is free',
    "Scaled": "`Scaled(L1(1.0), 0.5)`",
    "Translated": "`Translated(L1(1.0), [1.0])`",
    "Sum": '`Sum(On(L1(1.0), "a"), On(L2Ball(1.0), "b"))`, for a model of two numbers: a shrinks, b stays in [-1, 1]',
}
TRAITS = {
    "convex": "convex",
    "separable": "separable (acts on each coordinate alone)",
    "is_indicator": "a constraint",
    "weak_convexity": "weak convexity (0 where convex)",
}


def draw(name: str, target: Path) -> None:
    """The proximal map with step 1."""
    from matplotlib.figure import Figure

    regularizer, kind = DRAWN[name]
    figure = Figure(figsize=(4.2, 3.0), layout="constrained")
    axes = figure.subplots()
    {1: line, 2: plane, "leaves": leaves, "signal": signal, "matrix": spectrum}[kind](axes, regularizer)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(alpha=0.25)
    figure.savefig(target, dpi=150)


def line(axes, regularizer) -> None:
    """The map of single numbers."""
    v = np.linspace(-4, 4, 401)
    axes.plot(v, v, color="#BBBBBB", linewidth=1, linestyle="--")
    axes.plot(v, [float(regularizer.prox(np.array([x]), 1.0)[0]) for x in v], color="#0072B2")
    axes.set(xlabel="v", ylabel="prox(v)", aspect="equal")


def plane(axes, regularizer) -> None:
    """Where points of the plane go."""
    arrows(axes, lambda x, y: np.asarray(regularizer.prox(np.array([x, y]), 1.0)))
    axes.set(xlabel="v₁", ylabel="v₂", aspect="equal")


def leaves(axes, regularizer) -> None:
    """Where points go whose coordinates are leaves of their own."""

    def moved(x: float, y: float) -> np.ndarray:
        to = regularizer.prox({"a": np.array([x]), "b": np.array([y])}, 1.0)
        return np.array([to["a"][0], to["b"][0]])

    arrows(axes, moved)
    axes.set(xlabel="a", ylabel="b", aspect="equal")


def arrows(axes, moved: Callable[[float, float], np.ndarray]) -> None:
    """The points of a grid, each joined to where it goes."""
    for x in np.linspace(-2, 2, 9):
        for y in np.linspace(-2, 2, 9):
            to = moved(x, y)
            axes.plot([x, to[0]], [y, to[1]], color="#BBBBBB", linewidth=0.8)
            axes.plot(*to, "o", color="#0072B2", markersize=3, zorder=3)  # above the lines of other points


def signal(axes, regularizer) -> None:
    """A noisy signal and what comes of it."""
    v = np.repeat([0.0, 3.0, 1.0], 20) + np.random.default_rng(0).normal(scale=0.5, size=60)
    axes.plot(v, ".", color="#999999", markersize=4)
    axes.step(np.arange(60), np.asarray(regularizer.prox(v, 1.0)), color="#0072B2", where="mid")
    axes.set(xlabel="index", ylabel="v, and prox(v)")


def spectrum(axes, regularizer) -> None:
    """The singular values of a matrix before and after."""
    v = np.random.default_rng(0).normal(size=(8, 8))
    for matrix, colour, label in ((v, "#999999", "v"), (np.asarray(regularizer.prox(v, 1.0)), "#0072B2", "prox(v)")):
        axes.plot(np.linalg.svd(matrix, compute_uv=False), "o-", color=colour, label=label)
    axes.set(xlabel="index", ylabel="singular value")
    axes.legend(frameon=False)


def said(trait: bool | float) -> str:
    """A trait in words."""
    if isinstance(trait, bool):
        return "yes" if trait else "no"
    return f"{trait:.3g}"


def first_line(name: str) -> str:
    """What a regularizer's docstring begins with."""
    return (inspect.getdoc(getattr(cofed, name)) or "").split("\n")[0]


def page(name: str, folder: Path) -> list[str]:
    """The page of one regularizer."""
    kind = getattr(cofed, name)
    lines = [*writing.title(name), escaped(first_line(name)), ""]
    regularizer, _ = DRAWN[name]
    drawn = writing.figure(folder, name, [Path(inspect.getfile(kind)), Path(__file__)], draw)
    lines += writing.table(list(TRAITS.values()), [[said(getattr(regularizer, trait)) for trait in TRAITS]])
    caption = f"The proximal map with step 1 of {CALLS.get(name, f'`{regularizer!r}`')}."
    lines += [f".. figure:: figures/{drawn.name}", f"   :alt: The proximal map of {name}", "", f"   {caption}", ""]
    lines += writing.title("Parameters and methods", "-")
    return [*lines, f".. autoclass:: cofed.{name}", "   :members: value, prox", "   :no-index:", ""]


def write_all(folder: Path) -> None:
    """The pages of all regularizers, and the one that lists them."""
    from cofed import regularizers

    names = sorted((name for name in regularizers.__all__ if not name.startswith("Abstract")), key=str.lower)
    missing = [name for name in names if name not in DRAWN]
    if missing:
        raise KeyError(f"docs/_extensions/regularizer_pages.py: DRAWN has no row for {', '.join(missing)}")
    for name in names:
        writing.write(folder / f"{name.lower()}.rst", page(name, folder))
    rows = [[f":doc:`{name} <{name.lower()}>`", escaped(first_line(name))] for name in names]
    text = (
        "The term psi(w) that makes a model sparse, of low rank or bounded. Each page shows the proximal map, which is "
        "how the algorithms use it. They act on pytrees, work under jit, vmap and grad, and are useful on their own: "
        "``value(w)``, ``prox(v, step)``, ``subgradient(w)``, the dual norm where there is one. "
        "Which one to take: :doc:`how to choose </choose>`."
    )
    lines = [*writing.title("Regularizers"), text, "", *writing.table(["name", "what it is"], rows)]
    writing.write(folder / "index.rst", [*lines, *writing.contents([name.lower() for name in names])])
