"""The folder of an experiment's results: config.json, numbers, tuning, claims.json, figure."""

import datetime
import hashlib
import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

import cofed
from cofed.experiments import figure
from cofed.experiments.declare import Comparison, Experiment, Verdict
from cofed.experiments.measure import Measured, Parts, declared, described, measure
from cofed.experiments.seen import Seen
from cofed.files import atomically
from cofed.spreadsheets import to_csv

Tick = Callable[[float, float, str], None]


def definition(experiment: Experiment, size: str, seeds: list[int]) -> str:
    """What the results depend on, as text: where it is the same, the experiment need not run again."""
    panels = {}
    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        methods = [declared(method, panel) for method in experiment.measure.methods(numbers)]
        panels[panel] = {"numbers": described(vars(numbers)), "methods": methods}
    about = {"id": experiment.id, "cofed": cofed.__version__, "seeds": seeds, "panels": panels}
    if isinstance(experiment.measure, Comparison):
        what = experiment.measure
        about["score"] = [what.score, what.maximise, what.ties]
    return json.dumps(about, sort_keys=True)


def fingerprint(text: str) -> str:
    """A short name of a definition."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finished(folder: Path, text: str) -> bool:
    """Whether the folder holds the results of this definition."""
    config = read(folder / "config.json")
    whole = all((folder / name).exists() for name in ("numbers.parquet", "claims.json", "figure.png"))
    return bool(config) and whole and config.get("definition") == fingerprint(text)


def read(path: Path) -> Any:
    """A JSON file, or nothing where there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def carry_out(experiment: Experiment, folder: Path, size: str, seeds: list[int], tick: Tick, clock: Any) -> None:
    """Measure, judge, draw and write. Finished parts are kept until everything is written."""
    text = definition(experiment, size, seeds)
    parts, began = Parts(folder / "parts", text), clock()
    found = measure(experiment, size, seeds, parts, tick)
    write(experiment, folder, size, seeds, found, fingerprint(text), clock() - began)
    shutil.rmtree(parts.folder)


def write(
    experiment: Experiment, folder: Path, size: str, seeds: list[int], found: Measured, mark: str, seconds: float
) -> None:
    """The whole folder; config.json last, since it says that all is there."""
    (folder / "config.json").unlink(missing_ok=True)
    atomically(folder / "numbers.parquet", lambda name: found.table.to_parquet(name, index=False), shown=True)
    to_csv(found.table, folder / "numbers.csv", float_format="%.7g")
    if (tuning := found.tuning) is not None:
        atomically(folder / "tuning.parquet", lambda name: tuning.to_parquet(name, index=False), shown=True)
    source = found.setup.get("data", {}).get("source", "")
    judge(experiment, folder, size, Seen(found.table, found.references, source))
    numbers = experiment.numbers(size, next(iter(experiment.panels)))
    config = {
        "id": experiment.id,
        "title": experiment.title,
        "paper": experiment.paper,
        "size": size,
        "seeds": seeds,
        "cofed": cofed.__version__,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "note": one_line(experiment.note),
        "data": found.setup.get("data", {}),
        "problem": found.setup.get("problem", {}),
        "rounds": getattr(numbers, "rounds", None),
        "numbers": described(vars(numbers)),
        "run": found.setup.get("run", {}),
        "panels": {panel: described(dict(other)) for panel, other in experiment.panels.items()},
        "references": found.references,
        "algorithms": found.algorithms,
        "definition": mark,
    }
    to_json(folder / "config.json", config)


def judge(experiment: Experiment, folder: Path, size: str, seen: Seen) -> None:
    """The claims and the figure, from the measured numbers."""
    to_json(folder / "claims.json", [judged(claim, seen, size) for claim in experiment.claims])
    figure.write(experiment, seen, folder, size)


def judged(claim: Any, seen: Seen, size: str) -> dict[str, Any]:
    """A claim with its verdict."""
    verdict: Verdict = claim.judge(seen)
    holds = None if size == "quick" and not claim.quick else verdict.holds
    return {
        "claim": claim.text,
        "holds": None if holds is None else bool(holds),
        "measured": verdict.measured,
        "figures": {name: plain(value) for name, value in verdict.figures.items()},
        "why": one_line(claim.why) if holds is False and size == "full" else "",
    }


def one_line(text: str) -> str:
    """Text that was written over several lines."""
    return " ".join(text.split())


def plain(value: Any) -> float | int | None:
    """A figure as JSON has it: infinite and missing ones are null."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return None
    return value if isinstance(value, int) else float(value)


def again(experiment: Experiment, folder: Path) -> None:
    """Judge and draw what was measured before, after a claim or the figure has changed."""
    config = read(folder / "config.json")
    source = config["data"].get("source", "")
    seen = Seen(pd.read_parquet(folder / "numbers.parquet"), config["references"], source)
    judge(experiment, folder, config["size"], seen)
    to_json(folder / "config.json", config | {"title": experiment.title, "note": one_line(experiment.note)})


def to_json(path: Path, value: Any) -> None:
    """JSON for people and programs."""
    text = json.dumps(clean(value), indent=2, ensure_ascii=False) + "\n"
    atomically(path, lambda name: Path(name).write_text(text), shown=True)


def clean(value: Any) -> Any:
    """JSON knows no infinite numbers and no NaN."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: clean(entry) for key, entry in value.items()}
    return [clean(entry) for entry in value] if isinstance(value, list) else value
