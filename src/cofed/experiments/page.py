"""The page of all results: the paper's claim, what was measured, the verdict and why, beside the figure."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cofed._util.files import atomically
from cofed.experiments import results
from cofed.experiments.specification import Experiment
from cofed.experiments.verdicts import FAILS, HOLDS, UNDECIDED, UNJUDGED, word_of

LARGEST = 300_000  # bytes of numbers.csv that are worth keeping beside a page
VERDICTS = {HOLDS: "**holds**", FAILS: "**does not hold**", UNDECIDED: "**undecided**", UNJUDGED: "not judged"}
HEAD = """# The papers' claims, measured

Every row is a claim of a paper, judged by a program on measured numbers. A claim that does not hold is left so, with
what was found about why. Written by `cofed reproduce --all --page docs/results`; each folder has the figure, the
verdicts (`claims.json`), the exact configuration (`config.json`) and, where they are few, the numbers (`numbers.csv`).
"""


def publish(source: Path, target: Path, experiments: Sequence[Experiment]) -> Path:
    """Copy finished results from one folder to another, and write a README.md there that shows all of them."""
    for experiment in experiments:
        folder = source / experiment.id
        if not (folder / "config.json").exists() or source.resolve() == target.resolve():
            continue
        kept = target / experiment.id
        kept.mkdir(parents=True, exist_ok=True)
        for name in ("figure.png", "figure.svg", "claims.json", "config.json"):
            shutil.copyfile(folder / name, kept / name)
        if (folder / "numbers.csv").stat().st_size < LARGEST:
            shutil.copyfile(folder / "numbers.csv", kept / "numbers.csv")
    page = target / "README.md"
    there = [experiment for experiment in experiments if (target / experiment.id / "config.json").exists()]
    atomically(page, lambda name: Path(name).write_text(written(there, target)), shown=True)
    return page


def written(experiments: Sequence[Experiment], folder: Path) -> str:
    """The page's text."""
    parts, counts = [], dict.fromkeys(VERDICTS, 0)
    overview = ["| experiment | claim | verdict |", "| --- | --- | --- |"]
    for experiment in experiments:
        config, claims = (results.read(folder / experiment.id / name) for name in ("config.json", "claims.json"))
        for claim in claims:
            counts[word_of(claim)] += 1
            overview.append(
                f"| [{experiment.id}](#{experiment.id}) | {cell(claim['claim'])} | {VERDICTS[word_of(claim)]} |"
            )
        parts.append(section(experiment.id, config, claims))
    total = f"{counts[HOLDS]} claims hold, {counts[FAILS]} do not"
    total += "".join(f", {counts[word]} are {word}" for word in (UNDECIDED, UNJUDGED) if counts[word])
    return "\n".join([HEAD, f"{total}.", "", *overview, "", *parts])


def section(name: str, config: dict[str, Any], claims: list[dict[str, Any]]) -> str:
    """One experiment: figure, claims, configuration."""
    size = {"full": "the paper's size", "quick": "the quick size"}.get(config["size"], "own size")
    seeds = f"{len(config['seeds'])} seed{'s' * (len(config['seeds']) > 1)}"
    lines = [f"## {name}", "", f"{config['title']}. {size.capitalize()}, {seeds}, {config['seconds']:.0f} s.", ""]
    if config["note"]:
        lines += [config["note"], ""]
    lines += [f"![{name}]({name}/figure.png)", "", "| the paper's claim | measured | verdict | why |"]
    lines += ["| --- | --- | --- | --- |"]
    for claim in claims:
        cells = (claim["claim"], claim["measured"], VERDICTS[word_of(claim)], claim["why"])
        lines.append("| " + " | ".join(cell(text) for text in cells) + " |")
    tuned = [entry for entry in config["algorithms"] if entry["tuned"] or entry["paper_hyperparameters"]]
    if tuned:
        lines += ["", "| method | panel | hyperparameters | the paper's |", "| --- | --- | --- | --- |"]
        for entry in tuned:
            own, theirs = (values(entry[key]) for key in ("hyperparameters", "paper_hyperparameters"))
            lines.append(f"| {entry['label']} | {entry['panel']} | {own} | {theirs} |")
    return "\n".join([*lines, ""])


def values(hyperparameters: dict[str, Any] | None) -> str:
    """Hyperparameters in a cell."""
    return cell(", ".join(f"{name} {value}" for name, value in (hyperparameters or {}).items()))


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(str(text).split()).replace("|", "\\|")
