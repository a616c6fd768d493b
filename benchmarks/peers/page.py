"""The page of the benchmark: what was found, as tables, and how to read it."""

from operator import attrgetter
from pathlib import Path
from typing import Any

from benchmarks.peers.contenders import CONTENDERS
from benchmarks.peers.jobs import JOBS
from benchmarks.peers.records import Record, digits, fastest, of_job, rate

HEAD = """# cofed beside its peers

`make bench-peers` (`python -m benchmarks.peers`) makes an environment for each contender, runs all of them on the same
jobs one after another, and writes this page, its chart and [results.json](results.json).

![Rounds per second of each contender on each job](rounds.png)
"""

NOTES = Path(__file__).with_name("notes.md")


def text(found: dict[str, Any]) -> str:
    """The whole page."""
    jobs = [key for key in JOBS if key in found["limits"]]
    sections = [section(found, key) for key in jobs]
    return "\n".join([HEAD, machine(found), "", summary(found, jobs), "", *sections, NOTES.read_text()])


def machine(found: dict[str, Any]) -> str:
    """What it ran on."""
    on = found["machine"]
    return (
        f"Measured on {on['cores']} cores of {on['processor']} on {on['date']}, with a load of {on['load']:g} before, "
        f"about {found['seconds']:g} seconds each, float32."
    )


def summary(found: dict[str, Any], jobs: list[str]) -> str:
    """A line per job: cofed, the fastest peer, the limits."""
    rows = [
        "| job | cofed (the faster of its rows), rounds/s | fastest peer | times | memory limit | arithmetic limit |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    for key in jobs:
        ours, theirs = (fastest(found, key, attrgetter(name)) for name in ("ours", "peer"))
        peer = f"{CONTENDERS[theirs['contender']].title} {digits(rate(theirs))}" if theirs else "none can"
        times = digits(rate(ours) / rate(theirs)) if ours and theirs else ""
        limits = found["limits"][key]
        cells = [key, digits(rate(ours)) if ours else "failed", peer, times]
        rows.append(row([*cells, digits(limits["memory"]), digits(limits["arithmetic"])]))
    return "\n".join(rows)


def section(found: dict[str, Any], key: str) -> str:
    """A job's table."""
    job = JOBS[key]
    lines = [
        f"## {key}",
        "",
        f"{job.title[0].upper()}{job.title[1:]}; batches of {job.batch}, {job.steps} local steps.",
        "",
        f"| | rounds/s | cofed is faster by | first call, s | memory, MB | objective after {job.check_rounds} rounds |",
        "| --- | --: | --: | --: | --: | --: |",
    ]
    records = of_job(found, key)
    ours = next((r for r in records if r["contender"] == "cofed"), None)
    lines += [line(record, ours) for record in records]
    packages = [f"{name} {v}" for r in records for name, v in r.get("versions", {}).items()]
    return "\n".join([*lines, "", "Versions: " + ", ".join(dict.fromkeys(packages)) + ".", ""])


def line(record: Record, ours: Record | None) -> str:
    """A contender's row: its figures, or why there are none."""
    title = CONTENDERS[record["contender"]].title
    if record["error"]:
        return row([title, f"{'cannot' if record['cannot'] else 'failed'}: {record['error']}", "", "", "", ""])
    beside = ours and rate(ours) and not CONTENDERS[record["contender"]].ours
    times = digits(rate(ours) / rate(record)) if beside else ""
    memory = record.get("peak_memory_mb")
    return row(
        [
            title,
            digits(rate(record)),
            times,
            digits(record["first_call_seconds"]),
            f"{memory:,.0f}" if memory else "",
            f"{record['objective']:.6g}",
        ]
    )


def row(cells: list[str]) -> str:
    """A line of a table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
