"""One process per contender and job: started, watched (memory, time), ended, and its figures read."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.peers.contenders import Contender
from benchmarks.peers.environments import FOLDER, ROOT
from benchmarks.peers.jobs import Job
from benchmarks.peers.models import Leaves

LOOK = 0.25  # seconds between looks at the processes' memory


class Failed(Exception):
    """A contender that gave no figures; its text is a sentence."""


def compete(contender: Contender, job: Job, data: Path, seconds: float, most: float) -> tuple[dict, Leaves]:
    """The contender's figures and its model, from a process of its own that may take `most` seconds."""
    python = sys.executable if contender.environment is None else str(contender.environment.python())
    command = [python, "-m", contender.module, "--job", job.key, "--data", str(data), "--seconds", str(seconds)]
    with tempfile.TemporaryDirectory(prefix="cofed-peers-") as folder:
        out = Path(folder)
        with (out / "said").open("w") as said:
            process = subprocess.Popen(
                [*command, "--out", folder], cwd=ROOT, env=variables(contender), stdout=said, stderr=said
            )
            peak, ended = watch(process, most)
        if not ended:
            raise Failed(f"it took more than {most:g} seconds")
        if not (out / "figures.json").exists():
            raise Failed(last_words((out / "said").read_text(errors="replace"), process.returncode))
        figures = json.loads((out / "figures.json").read_text())
        with np.load(out / "model.npz") as file:
            return figures | {"peak_memory_mb": peak}, {name: file[name] for name in file.files}


def variables(contender: Contender) -> dict[str, str]:
    """The process's environment variables: only cofed's own sees the caller's PYTHONPATH; nobody calls home."""
    paths = [str(ROOT)]
    if contender.environment is None and "PYTHONPATH" in os.environ:
        paths.append(os.environ["PYTHONPATH"])
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0", "FLWR_HOME": str(FOLDER / "flower-home")}
    return os.environ | quiet | {"PYTHONPATH": os.pathsep.join(paths)}


def watch(process: subprocess.Popen, most: float) -> tuple[float | None, bool]:
    """Wait for the end; the peak memory of the process and its children in MB, and whether it ended by itself."""
    peak, ends = 0, time.monotonic() + most
    children: list[int] = []
    try:
        while process.poll() is None:
            children = family(process.pid)
            peak = max(peak, sum(memory(pid) for pid in children))
            if time.monotonic() > ends:
                return peak / 1024, False
            time.sleep(LOOK)
        return (peak / 1024 if peak else None), True
    finally:
        for pid in children:  # those too that Ray may have left behind
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()


def family(pid: int) -> list[int]:
    """A process and all that descend from it; on systems without /proc the process alone."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name in brackets may have spaces: the state and the parent follow the last bracket.
            parents.setdefault(int(path.read_text().rpartition(")")[2].split()[1]), []).append(int(path.parent.name))
    found, open_ = [], [pid]
    while open_:
        found.append(open_.pop())
        open_ += parents.get(found[-1], [])
    return found


def memory(pid: int) -> int:
    """What a process has of memory in kB, shared pages divided among their owners; 0 where that is not to be had."""
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1])
    return 0


def last_words(said: str, code: int) -> str:
    """The last line of what a process said, which for an exception is its sentence."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"it ended with code {code}: {lines[-1][:300]}" if lines else f"it ended with code {code} and said nothing"
