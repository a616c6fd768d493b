"""What a run of the benchmark found, as plain records, and the file of it."""

import datetime
import json
import math
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.peers.contenders import CONTENDERS, Contender

Record = dict[str, Any]  # of one contender and job; `error` is a sentence, or None


def failed(job: str, contender: str, error: str, cannot: bool = False) -> Record:
    """The record of a contender that has no figures: it failed, or the job is not one that it `cannot` do."""
    return {"job": job, "contender": contender, "error": error, "cannot": cannot}


def machine() -> dict[str, Any]:
    """What the figures were measured on, when, and how much else it had to do at the start."""
    return {
        "processor": processor(),
        "cores": os.cpu_count(),
        "system": platform.system(),
        "date": datetime.date.today().isoformat(),
        "load": round(os.getloadavg()[0], 1),
    }


def processor() -> str:
    """The processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def write(path: Path, found: dict[str, Any]) -> None:
    """As JSON, whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(found, indent=1) + "\n")
    part.replace(path)


def of_job(found: dict[str, Any], job: str) -> list[Record]:
    """The job's records, in the contenders' order."""
    order = list(CONTENDERS)
    mine = [record for record in found["records"] if record["job"] == job]
    return sorted(mine, key=lambda record: order.index(record["contender"]))


def rate(record: Record) -> float:
    """Rounds per second; 0 where there are none."""
    return record.get("rounds_per_second") or 0.0


def fastest(found: dict[str, Any], job: str, among: Callable[[Contender], bool]) -> Record | None:
    """The fastest record of the job among these contenders."""
    able = [record for record in of_job(found, job) if rate(record) and among(CONTENDERS[record["contender"]])]
    return max(able, key=rate, default=None)


def digits(value: float) -> str:
    """Three digits, with thousands apart."""
    if not value or not math.isfinite(value):
        return str(value)
    places = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{places}f}"
