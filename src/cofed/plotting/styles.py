"""The colours, lines and words that all figures share: an algorithm looks the same in each of them."""

import re
import zlib

from cofed._util import checks
from cofed._util.types import Given

# Okabe and Ito's colours and five of Paul Tol's, which colour-blind readers can tell apart. A method without a server
# has the colour of its relative with one, dashed.
COLOURS: dict[str, str] = {
    "FedAvg": "#000000",
    "FedMiD": "#D55E00",
    "FedDualAvg": "#0072B2",
    "FastFedDA": "#009E73",
    "CFedDA": "#56B4E9",
    "MCFedDA": "#CC79A7",
    "FedDecouple": "#E69F00",
    "Scaffold": "#999933",
    "FedDR": "#332288",
    "FedADMM": "#882255",
    "FedNewton": "#EE3377",
    "FedNL": "#661100",
    "FedFISTA": "#44AA99",
    "ProxSkip": "#117733",
    "SDANE": "#6699CC",
    "AccSDANE": "#004488",
    "NormalMap": "#AA4499",
    "DFedMiD": "#D55E00",
    "DFedDA": "#0072B2",
    "ReFedDAGT": "#E69F00",
    "MReFedDAGT": "#882255",
    "DASM": "#000000",
    "NIDS": "#117733",
    "PGExtra": "#AA4499",
    "DScaffold": "#999933",
    "FedProx": "#009E73",
    "PureLocal": "#999933",
    "Alternative": "#CC79A7",
}
DASHED = {"DFedMiD", "DFedDA", "ReFedDAGT", "MReFedDAGT", "DASM", "NIDS", "PGExtra", "DScaffold"}
REFERENCE = "#6B6B6B"  # of lines that runs are compared with: the truth, a pooled solution

WORDS = {
    "objective": "objective",
    "loss": "loss",
    "prox_gradient": "norm of the prox-gradient",
    "density": "density",
    "rank": "rank",
    "accuracy": "accuracy",
    "test_loss": "test loss",
    "test_accuracy": "test accuracy",
    "f1": "F1 of the support",
    "precision": "precision",
    "recall": "recall",
    "round": "communication round",
    "bytes": "megabytes sent",
    "seconds": "seconds",
    "simulated_seconds": "simulated seconds",
}
FRACTIONS = {"density", "accuracy", "test_accuracy", "f1", "precision", "recall"}  # drawn from 0 to 1
SMALL, LARGE = 9.5, 11.0  # font sizes in points: of tick labels, and of everything else


def colour(label: Given[str]) -> str:
    """The colour of an algorithm, the same in every figure.

    Parameters
    ----------
    label : str
        The name of an algorithm. A variant such as "FedMiD-OSP" or "FedMiD (OSP)" has its algorithm's colour, and any
        other label gets a colour that depends on its text alone.

    Returns
    -------
    str
        The colour, such as "#0072B2".

    Raises
    ------
    TypeError
        Where the label is not text.

    Examples
    --------
    >>> import cofed
    >>> cofed.plotting.colour("FedDualAvg"), cofed.plotting.colour("FedMiD-OSP") == cofed.plotting.colour("FedMiD")
    ('#0072B2', True)
    """
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, got {checks.shown(label)}")
    name = known(label)
    if name:
        return COLOURS[name]
    palette = list(dict.fromkeys(COLOURS.values()))
    return palette[zlib.crc32(label.encode()) % len(palette)]


def style(label: Given[str]) -> str:
    """The line style of an algorithm, the same in every figure.

    Parameters
    ----------
    label : str
        The name of an algorithm, or of a variant of one.

    Returns
    -------
    str
        matplotlib's name of the style: solid ("-"); dashed ("--") for variants and for methods without a server;
        dash-dotted ("-.") where the label names no known algorithm.

    Raises
    ------
    TypeError
        Where the label is not text.

    Examples
    --------
    >>> import cofed
    >>> cofed.plotting.style("FedDualAvg"), cofed.plotting.style("FedDualAvg (K=5)"), cofed.plotting.style("mine")
    ('-', '--', '-.')
    """
    if not isinstance(label, str):
        raise TypeError(f"label must be a text, got {checks.shown(label)}")
    if label in COLOURS:
        return "--" if label in DASHED else "-"
    return "--" if known(label) else "-."


def known(label: str) -> str | None:
    """The known algorithm that a label begins with, or that it names with hyphens, or None.

    >>> from cofed.plotting.styles import known
    >>> known("FedMiD-OSP"), known("MReFedDA-GT"), known("DReFedDA-GT"), known("mine")
    ('FedMiD', 'MReFedDAGT', 'ReFedDAGT', None)
    """
    first, joined = re.match(r"\w*", label), label.replace("-", "")
    names = (first.group() if first else "", joined, joined.removeprefix("D"))
    return next((name for name in names if name in COLOURS), None)
