"""The folder of an experiment's results: config.json, numbers, tuning, claims.json, figure.

A folder is recognised by its definition: a text of all that the results depend on.
"""

import datetime
import hashlib
import json
import platform
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd

import cofed
from cofed._util import machine
from cofed._util.files import UnreadableJson, atomically, digest, load_json, write_json
from cofed._util.spreadsheets import to_csv
from cofed.engine import folders
from cofed.experiments import divergence, figure
from cofed.experiments.data_files import data_files
from cofed.experiments.gather import Measured, method_record, with_ends
from cofed.experiments.json_values import described, finite
from cofed.experiments.measure import Tick, measure
from cofed.experiments.measurements import DivergedRuns, Measurements
from cofed.experiments.parts import Parts
from cofed.experiments.specification import Comparison, Experiment
from cofed.experiments.verdicts import judged, one_line

NUMBERS = {"numbers.parquet": "numbers_hash", "numbers.csv": "csv_hash"}  # the first that is there is read
WRITTEN = ("numbers.parquet", "claims.json", "figure.png")  # beside config.json, what a whole folder has


def definition(experiment: Experiment, size: str, seeds: list[int]) -> str:
    """All that the results depend on, as text. Where it is the same, the experiment need not run again."""
    panels = {}
    for panel in experiment.panels:
        numbers = experiment.numbers(size, panel)
        methods = [method_record(method, panel) for method in experiment.measure.methods(numbers)]
        panels[panel] = {"numbers": described(vars(numbers)), "methods": methods}
    about = {"id": experiment.id, "cofed": cofed.__version__, "seeds": seeds, "panels": panels}
    if isinstance(experiment.measure, Comparison):
        what = experiment.measure
        about["score"] = [what.score, bool(what.maximise), what.ties]
    if read := data_files(experiment.reads):
        about["data"] = read
    return json.dumps(about, sort_keys=True)


def fingerprint(text: str) -> str:
    """A short name of a definition."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def finished(folder: Path, text: str) -> bool:
    """Whether the folder holds the results of this definition, whole."""
    if not all((folder / name).exists() for name in (*WRITTEN, "config.json")):
        return False
    try:
        config = read_config(folder)
        read(folder / "claims.json")
    except (ValueError, OSError):  # pyarrow's errors are either
        return False
    return config["definition"] == fingerprint(text)


def write_config(folder: Path, config: dict[str, Any]) -> None:
    """Write config.json, with a hash of what it says and one of each file of numbers that is beside it."""
    hashes = {name: digest(folder / file) for file, name in NUMBERS.items() if (folder / file).exists()}
    told = json.loads(json.dumps(finite(config | hashes)))
    told.pop("content_hash", None)
    told["content_hash"] = fingerprint(json.dumps(told, sort_keys=True))
    write_json(folder / "config.json", told, shown=True)


def read_config(folder: Path) -> dict[str, Any]:
    """Read config.json, after a check that neither it nor the numbers have changed since they were written.

    Published results may be without numbers, or have them as CSV only; older ones have no hash of that.
    """
    path = folder / "config.json"
    config = read(path)
    needed = {"algorithms", "data", "definition", "numbers", "references", "size", "title"}
    if not isinstance(config, dict) or not needed <= set(config):
        raise ValueError(f"{path} is damaged: run the experiment again")
    told = {name: value for name, value in config.items() if name != "content_hash"}
    numbers = numbers_of(folder)
    if "content_hash" not in config:  # written by an older version
        if numbers is not None:
            read_numbers(folder)
    elif config["content_hash"] != fingerprint(json.dumps(told, sort_keys=True)):
        raise ValueError(f"{path} was changed after it was written: run the experiment again")
    elif numbers is not None and config.get(NUMBERS[numbers.name]) not in (None, digest(numbers)):
        raise ValueError(f"{numbers} was changed after it was written: run the experiment again")
    return config


def numbers_of(folder: Path) -> Path | None:
    """The file of a folder's numbers: the exact one, or the one of seven digits that published results may have."""
    return next((folder / name for name in NUMBERS if (folder / name).exists()), None)


def read_numbers(folder: Path) -> pd.DataFrame:
    """The numbers of a folder, as they were measured or from CSV."""
    path = numbers_of(folder)
    if path is None:
        raise FileNotFoundError(f"{folder} has no numbers (numbers.parquet or numbers.csv)")
    if path.suffix == ".parquet":
        return pd.read_parquet(path)
    names = ("panel", "algorithm")  # an empty name is a name, and one of digits is no number
    return pd.read_csv(path, dtype=dict.fromkeys(names, str)).fillna(dict.fromkeys(names, ""))


def make_room(folder: Path, text: str) -> str | None:
    """Set aside results that are damaged or of another definition; gives a sentence on what was set aside, or None."""
    if not folder.is_dir():
        return None
    with folders.held(folder):
        mark = folder / "parts" / "definition.json"
        if (folder / "config.json").exists() and not finished(folder, text):
            why = why_not(folder, text)
            return f"The results that were in {folder} are now in {folders.set_aside(folder)}: {why}."
        if mark.exists() and mark.read_text() != text:
            why = what_changed(mark.read_text(), text)
            return f"Finished parts that were in {folder} are now in {folders.set_aside(mark.parent)}: {why}."
        return None


def why_not(folder: Path, text: str) -> str:
    """Why the results in a folder are not those of this definition."""
    try:
        config = read_config(folder)
    except (ValueError, OSError) as error:
        return str(error)
    if config["definition"] == fingerprint(text):
        return "a file of theirs is missing or damaged"
    before = config.get("defined_by")
    return what_changed(before, text) if isinstance(before, str) else "they are of another definition"


def what_changed(before: str, now: str) -> str:
    """What differs between two definitions, in words.

    >>> what_changed('{"seeds": [0], "panels": {"": {"rounds": 4}}}', '{"seeds": [0], "panels": {"": {"rounds": 8}}}')
    'rounds was 4 and is now 8'
    """
    try:
        old, new = json.loads(before), json.loads(now)
    except ValueError:
        return "they are of another definition"
    found = list(differing(old, new, ""))
    said = [f"{name or 'the definition'} was {shown(a)} and is now {shown(b)}" for name, a, b in found]
    return "; ".join(said[:3]) + (f"; and {len(said) - 3} more" if len(said) > 3 else "")


def differing(old: object, new: object, name: str) -> Iterator[tuple[str, object, object]]:
    """The entries of two JSON values that differ."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in old | new:
            inner = name if key in ("", "panels", "numbers", "file") else f"{name}.{key}".removeprefix(".")
            yield from differing(old.get(key), new.get(key), inner)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for i, (a, b) in enumerate(zip(old, new, strict=True)):
            yield from differing(a, b, f"{name}[{i + 1}]")
    elif old != new:
        yield name, old, new


def shown(value: object) -> str:
    """A value of a definition, short enough for a sentence."""
    if value is None:
        return "not there"
    text = str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def read(path: Path) -> Any:
    """A JSON file of the results, or nothing where there is none."""
    if not path.exists():
        return {}
    try:
        return load_json(path)
    except UnreadableJson:
        raise ValueError(f"{path} is damaged") from None


def carry_out(
    experiment: Experiment, folder: Path, size: str, seeds: list[int], tick: Tick, clock: Callable[[], float]
) -> None:
    """Measure, judge, draw and write. Finished parts are kept until everything is written."""
    text = definition(experiment, size, seeds)
    folder.mkdir(parents=True, exist_ok=True)
    with folders.held(folder):
        parts = Parts(folder / "parts", text, clock)
        write(experiment, folder, size, seeds, measure(experiment, size, seeds, parts, tick), text)
        shutil.rmtree(parts.folder)


def write(experiment: Experiment, folder: Path, size: str, seeds: list[int], found: Measured, text: str) -> None:
    """Write the whole folder; config.json comes last, since where it is, all is there."""
    (folder / "config.json").unlink(missing_ok=True)
    atomically(folder / "numbers.parquet", lambda name: found.table.to_parquet(name, index=False), shown=True)
    to_csv(found.table, folder / "numbers.csv", float_format="%.7g")
    if (tuning := found.tuning) is not None:
        atomically(folder / "tuning.parquet", lambda name: tuning.to_parquet(name, index=False), shown=True)
    numbers = experiment.numbers(size, next(iter(experiment.panels)))
    config = {
        "id": experiment.id,
        "title": experiment.title,
        "paper": experiment.paper,
        "size": size,
        "seeds": seeds,
        "cofed": cofed.__version__,
        "versions": versions(),
        "hardware": hardware(),
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "seconds": round(found.seconds, 1),
        "processor_seconds": round(found.processor_seconds, 1),
        "note": one_line(experiment.note),
        "data": found.setup.get("data", {}),
        "problem": found.setup.get("problem", {}),
        "rounds": vars(numbers).get("rounds"),
        "numbers": described(vars(numbers)),
        "run": found.setup.get("run", {}),
        "panels": {panel: described(dict(other)) for panel, other in experiment.panels.items()},
        "references": found.references,
        "references_by_seed": found.by_seed,
        "algorithms": found.algorithms,
        "definition": fingerprint(text),
        "defined_by": text,
    }
    judge(experiment, folder, size, measurements(found.table, config))
    write_config(folder, config)


def versions() -> dict[str, str]:
    """The versions on which numbers depend."""
    return {
        "cofed": cofed.__version__,
        "jax": jax.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def hardware() -> dict[str, Any]:
    """What seconds depend on."""
    return {"processor": machine.processor(), "cores": machine.cores(), "memory_bytes": machine.memory()}


def measurements(table: pd.DataFrame, config: dict[str, Any]) -> Measurements:
    """The numbers with what config.json says about them; older ones have the references of the first seed alone."""
    by_seed = {int(seed): references for seed, references in config.get("references_by_seed", {}).items()}
    beside = {entry["label"]: entry["beside"] for entry in config["algorithms"] if entry.get("beside")}
    lost = DivergedRuns(divergence.in_words(config), divergence.lost(config))
    return Measurements(table, config["references"], source(config), by_seed, beside, lost)


def source(config: Mapping[str, Any]) -> str:
    """What the data are, in words; those of the first seed name it, and stand for those of all.

    >>> source({"data": {"source": "yuan_lasso, seed 0"}, "seeds": [0, 1, 2]})
    'yuan_lasso, seeds 0 to 2'
    """
    told, seeds = config["data"].get("source", ""), config["seeds"]
    return told if len(seeds) < 2 else re.sub(rf"\bseed {seeds[0]}\b", f"seeds {seeds[0]} to {seeds[-1]}", told)


def judge(experiment: Experiment, folder: Path, size: str, seen: Measurements) -> None:
    """Write the claims and the figure, from the measured numbers."""
    write_json(folder / "claims.json", finite([judged(claim, seen, size) for claim in experiment.claims]), shown=True)
    figure.write(experiment, seen, folder, size)


def judge_again(experiment: Experiment, folder: Path) -> None:
    """Judge and draw what was measured before, after a claim or the figure has changed."""
    config, table = read_config(folder), read_numbers(folder)
    judge(experiment, folder, config["size"], measurements(table, config))
    algorithms = with_ends(experiment, config, table)
    write_config(
        folder, config | {"title": experiment.title, "note": one_line(experiment.note), "algorithms": algorithms}
    )
