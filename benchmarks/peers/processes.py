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
FLOWER = {  # nobody calls home, nothing is written into the user's folder, Ray's workers are no nicer than the others
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "FLWR_HOME": str(FOLDER / "flower-home"),
    "RAY_worker_niceness": "0",
    "RAY_agent_register_timeout_ms": "120000",  # a busy machine may be slow to start it
    "RAY_raylet_start_wait_time_s": "120",
}


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
    """The process's environment variables: only cofed's own sees the caller's PYTHONPATH and settings of JAX."""
    paths, given = [str(ROOT)], dict(os.environ)
    if contender.environment is None:
        paths += [given["PYTHONPATH"]] if "PYTHONPATH" in given else []
    else:  # a peer may have another version of JAX, which ends the process at a flag that it does not know
        given = {name: value for name, value in given.items() if not name.startswith(("XLA_", "JAX_"))}
    return given | FLOWER | {"PYTHONPATH": os.pathsep.join(paths)}


def watch(process: subprocess.Popen, most: float) -> tuple[float | None, bool]:
    """Wait for the end; the peak memory of the process and its children in MB, and whether it ended by itself."""
    peak, ends = 0, time.monotonic() + most
    known: dict[int, str] = {}
    try:
        while process.poll() is None and time.monotonic() < ends:
            known = family(process.pid)
            peak = max(peak, sum(memory(pid) for pid in known))
            time.sleep(LOOK)
        return (peak / 1024 if peak else None), process.poll() is not None
    finally:
        end(known)  # those too that Ray may have left behind
        process.kill()  # nothing, where it has ended
        process.wait()


def family(pid: int) -> dict[int, str]:
    """A process and all that descend from it, and when each began; empty on systems without /proc."""
    began, children = {}, {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent, start = birth(int(path.name))
            began[int(path.name)] = start
            children.setdefault(parent, []).append(int(path.name))
    found, open_ = {}, [pid] if pid in began else []
    while open_:
        one = open_.pop()
        found[one] = began[one]
        open_ += children.get(one, [])
    return found


def birth(pid: int) -> tuple[int, str]:
    """A process's parent, and when it began."""
    # The name in brackets may have spaces, so fields are counted after the last bracket.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[1]), fields[19]


def end(known: dict[int, str]) -> None:
    """End those of these processes that still run; a number may have gone to another process, which began later."""
    for pid, start in known.items():
        with contextlib.suppress(OSError):
            if birth(pid)[1] == start:
                os.kill(pid, signal.SIGKILL)


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
