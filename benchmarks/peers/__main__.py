"""The command: `python -m benchmarks.peers`."""

import argparse
import time
from pathlib import Path

from benchmarks.peers import chart, data, limits, page, records
from benchmarks.peers.contenders import CONTENDERS, Contender
from benchmarks.peers.environments import FOLDER, ROOT, CannotInstall
from benchmarks.peers.in_numpy import objective
from benchmarks.peers.jobs import JOBS, Job
from benchmarks.peers.processes import Failed, compete


def main() -> None:
    """Every contender on every job, one after another; the page is written anew after each job."""
    given = arguments()
    given.out.mkdir(parents=True, exist_ok=True)
    found = {"machine": records.machine(), "seconds": given.seconds, "limits": {}, "records": []}
    paths = [data.file_of(job, FOLDER / "data") for job in given.jobs]  # first of all: a dataset may be missing
    for job, path in zip(given.jobs, paths, strict=True):
        X, y, _ = data.read(path)
        found["limits"][job.key] = {"memory": limits.memory_limit(job, X), "arithmetic": limits.arithmetic_limit(job)}
        for contender in given.contenders:
            began = time.perf_counter()
            record = one(contender, job, path, X, y, given)
            found["records"].append(record)
            what = record["error"] or f"{records.digits(records.rate(record))} rounds/s"
            took = time.perf_counter() - began
            print(f"{job.key:12} {contender.title:18} {what}  ({took:.0f} s in all)", flush=True)
        records.write(given.out / "results.json", found)
        chart.draw(found, given.out / "rounds.png")
        (given.out / "README.md").write_text(page.text(found))
    print(f"wrote {given.out / 'README.md'}")


def one(contender: Contender, job: Job, path: Path, X, y, given: argparse.Namespace) -> records.Record:
    """The record of one contender on one job; what goes wrong is in it, as a sentence."""
    if job.ring and not contender.gossip:
        return records.failed(job.key, contender.key, "a server in every round, no gossip", cannot=True)
    try:
        figures, model = compete(contender, job, path, given.seconds, given.most)
    except (Failed, CannotInstall) as error:
        return records.failed(job.key, contender.key, str(error))
    value = objective(job, model, X, y)
    return {"job": job.key, "contender": contender.key, "error": None, "cannot": False, "objective": value} | figures


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--jobs", type=chosen(JOBS), default=list(JOBS.values()), help=f"of {','.join(JOBS)}")
    parser.add_argument(
        "--contenders", type=chosen(CONTENDERS), default=list(CONTENDERS.values()), help=f"of {','.join(CONTENDERS)}"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="of rounds for each, after the first call")
    parser.add_argument("--most", type=float, default=180.0, help="seconds after which a contender is stopped")
    parser.add_argument("--out", type=Path, default=ROOT / "docs" / "benchmarks", help="where page, chart and JSON go")
    return parser.parse_args()


def chosen(known: dict):
    """A reader of a list of names."""

    def read(text: str) -> list:
        unknown = [name for name in text.split(",") if name not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)} is not one of {', '.join(known)}")
        return [known[name] for name in text.split(",")]

    return read


if __name__ == "__main__":
    main()
