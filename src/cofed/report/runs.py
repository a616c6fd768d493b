"""Find and read the runs below a folder: every folder that has a config.json and a numbers.parquet."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet

from cofed._util.files import UnreadableJson, load_json
from cofed._util.pandas_types import Frame

CONFIG, NUMBERS, CLAIMS, TUNING = "config.json", "numbers.parquet", "claims.json", "tuning.parquet"


class UnreadableRun(ValueError):
    """Why a run cannot be shown, in a sentence."""


@dataclasses.dataclass(frozen=True)
class ReportedRun:
    """What a run's folder holds; `notes` says which of its optional files could not be read."""

    folder: Path
    config: dict[str, Any]
    numbers: Frame
    claims: list[dict[str, Any]]
    tuning: Frame | None
    notes: list[str]

    @property
    def sweep(self) -> bool:
        """Whether the numbers are plotted against an `x` of their own rather than against rounds."""
        return "x" in self.numbers

    @property
    def entries(self) -> list[dict[str, Any]]:
        """What the configuration says about each algorithm."""
        entries = self.config.get("algorithms")
        return [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []


def find_runs(folders: Iterable[str | Path]) -> list[Path]:
    """The folders that hold runs, at or below the given ones, each once and sorted by path.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.report.runs import CONFIG, NUMBERS, find_runs
    >>> folder = Path(tempfile.mkdtemp()) / "first"
    >>> folder.mkdir()
    >>> for name in (CONFIG, NUMBERS):
    ...     (folder / name).touch()
    >>> [path.name for path in find_runs([folder.parent, folder])]
    ['first']
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        for path in sorted(Path(folder).rglob(CONFIG)):
            if path.is_file() and (path.parent / NUMBERS).is_file():
                found.setdefault(path.parent.resolve(), path.parent)
    return list(found.values())


def read_run(folder: Path) -> ReportedRun:
    """Read one run, or raise UnreadableRun."""
    config = read_value(folder / CONFIG)
    if not isinstance(config, dict):
        raise UnreadableRun(f"{CONFIG} must hold an object with the run's settings, it holds {kind(config)}")
    numbers = check_numbers(read_table(folder / NUMBERS))
    notes: list[str] = []
    claims, tuning = [], None
    try:
        claims = check_claims(read_value(folder / CLAIMS)) if (folder / CLAIMS).is_file() else []
    except UnreadableRun as error:
        notes.append(f"The claims are not shown: {error}.")
    try:
        tuning = read_table(folder / TUNING) if (folder / TUNING).is_file() else None
    except UnreadableRun as error:
        notes.append(f"The tuning is not shown: {error}.")
    return ReportedRun(folder, config, numbers, claims, tuning, notes)


def read_value(path: Path) -> Any:
    """The content of a JSON file, or raise UnreadableRun."""
    try:
        return load_json(path)
    except UnreadableJson as error:
        raise UnreadableRun(str(error)) from None


def read_table(path: Path) -> Frame:
    """The content of a Parquet file whose column names all differ, or raise UnreadableRun."""
    try:
        table = pyarrow.parquet.ParquetFile(path).read().to_pandas(ignore_metadata=True)
    except (pyarrow.ArrowException, OSError, ValueError):
        raise UnreadableRun(f"{path.name} is not a Parquet file that can be read") from None
    if not table.columns.is_unique:
        twice = sorted(set(table.columns[table.columns.duplicated()]))
        raise UnreadableRun(f"{path.name} has columns of the same name: {', '.join(twice)}")
    return table


def check_numbers(table: Frame) -> Frame:
    """The numbers in the form that the page needs.

    Every number becomes a float, NaN where it is not finite; `megabytes` is added: what was sent so far, both ways.

    >>> import pandas as pd
    >>> from cofed.report.runs import check_numbers
    >>> table = pd.DataFrame({"algorithm": ["FedAvg"], "round": [1], "loss": [float("inf")], "bytes_up": [2_000_000]})
    >>> check_numbers(table).iloc[0].to_dict()
    {'algorithm': 'FedAvg', 'round': 1.0, 'loss': nan, 'bytes_up': 2000000.0, 'panel': '', 'seed': 0, 'megabytes': 2.0}
    >>> check_numbers(pd.DataFrame({"round": [0]}))
    Traceback (most recent call last):
    cofed.report.runs.UnreadableRun: numbers.parquet needs a column 'algorithm', it has: round
    """
    has = f"it has: {', '.join(map(str, table.columns)) or 'none'}"
    if "algorithm" not in table:
        raise UnreadableRun(f"{NUMBERS} needs a column 'algorithm', {has}")
    across = "x" if "x" in table else "round"
    if across not in table:
        raise UnreadableRun(f"{NUMBERS} needs a column 'round' (curves) or 'x' (sweeps), {has}")
    if table.empty:
        raise UnreadableRun(f"{NUMBERS} has no rows")
    places: Frame = pd.Series(pd.to_numeric(table[across], errors="coerce"), dtype=float)
    if places.isna().all():
        raise UnreadableRun(f"the column '{across}' of {NUMBERS} has no numbers")
    numeric = [name for name in table if pd.api.types.is_numeric_dtype(table[name]) and name != "seed"]
    table = table.astype(dict.fromkeys(numeric, float)).replace([np.inf, -np.inf], np.nan).assign(**{across: places})
    table = table.assign(**{name: value for name, value in (("panel", ""), ("seed", 0)) if name not in table})
    text = {name: table[name].astype(object).fillna("").astype(str) for name in ("panel", "algorithm")}
    table = table.assign(**text, seed=table["seed"].fillna(0))
    sent = [table[name] for name in ("bytes_down", "bytes_up") if name in numeric]
    if sent and across == "round":
        table = table.assign(megabytes=sum(sent[1:], sent[0]) / 1e6)
    return table.loc[np.isfinite(table[across])].reset_index(drop=True)


def check_claims(claims: object) -> list[dict[str, Any]]:
    """The claims in the form that the page needs.

    >>> from cofed.report.runs import check_claims
    >>> check_claims([{"claim": "It is sparse.", "holds": True}])[0]["measured"]
    ''
    >>> check_claims([{"claim": "It is fast.", "holds": None, "verdict": "undecided"}])[0]["verdict"]
    'undecided'
    """
    if not isinstance(claims, list) or not all(isinstance(claim, dict) for claim in claims):
        raise UnreadableRun(f"{CLAIMS} must hold a list of objects, one per claim")
    checked = []
    for claim in claims:
        holds, figures = claim.get("holds"), claim.get("figures")
        if not (holds is None or isinstance(holds, bool)):
            raise UnreadableRun(f"'holds' in {CLAIMS} must be true, false or null, got {holds!r}")
        texts = {name: str(claim.get(name) or "") for name in ("claim", "measured", "why", "verdict")}
        checked.append({**texts, "holds": holds, "figures": figures if isinstance(figures, dict) else {}})
    return checked


def kind(value: object) -> str:
    """What a JSON value is, in words."""
    words = {list: "a list", str: "text", int: "a number", float: "a number", bool: "true or false"}
    return words.get(type(value), "nothing")
