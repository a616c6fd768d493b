"""The chart: rounds per second of every contender, a panel per job, on a log axis, with the machine's limits."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.records import digits, of_job, rate

OURS, PEER, PLAIN, LIMIT = "#0b6e4f", "#8d99ae", "#c9cdd6", "#c1292e"
COLUMNS = 2
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 0.6}  # figures stay readable across a limit's line


def draw(found: dict[str, Any], path: Path) -> None:
    """Write the chart as PNG."""
    jobs = [key for key in JOBS if key in found["limits"]]
    rows = -(-len(jobs) // COLUMNS)
    figure = Figure(figsize=(12, 2.9 * rows), layout="constrained")
    panels = figure.subplots(rows, COLUMNS, squeeze=False).ravel()
    for panel, key in zip(panels, jobs, strict=False):
        one(panel, found, key)
    for panel in panels[len(jobs) :]:
        panel.set_axis_off()
    figure.suptitle("Rounds per second (log axis; longer is faster)", fontsize=12)
    figure.legend(*panels[0].get_legend_handles_labels(), fontsize=9, loc="outside lower center", ncols=2)
    figure.savefig(path, dpi=110)


def one(panel: Any, found: dict[str, Any], key: str) -> None:
    """A job's panel."""
    records = of_job(found, key)[::-1]
    limits = found["limits"][key]
    known = [rate(r) for r in records if rate(r)] + list(limits.values())
    low, high = min(known) / 4, max(known) * 6
    for place, record in enumerate(records):
        value = rate(record)
        if not value:
            why = "cannot" if record["cannot"] else "failed"
            panel.text(low * 1.15, place, why, va="center", fontsize=8, color=PEER)
            continue
        panel.barh(place, value, color=colour(record["contender"]), height=0.7)
        panel.text(value * 1.1, place, digits(value), va="center", fontsize=8, bbox=PAPER, zorder=3)
    for name, style in (("memory", "-"), ("arithmetic", ":")):
        panel.axvline(limits[name], color=LIMIT, linestyle=style, linewidth=1.3, label=f"{name} limit")
    panel.set_xscale("log")
    panel.set_xlim(low, high)
    panel.set_ylim(-0.6, len(records) - 0.4)
    panel.set_yticks(range(len(records)), [CONTENDERS[r["contender"]].title for r in records], fontsize=9)
    panel.set_title(JOBS[key].title, fontsize=8, loc="left")
    panel.spines[["top", "right"]].set_visible(False)


def colour(contender: str) -> str:
    """cofed stands out, and peers from the plain loop."""
    who = CONTENDERS[contender]
    return OURS if who.ours else PEER if who.peer else PLAIN
