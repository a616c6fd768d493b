"""The numbers of each job, made once from a seed and kept in one .npz file that all contenders read."""

import os
from pathlib import Path

import numpy as np

from benchmarks.peers.jobs import Job
from benchmarks.peers.models import Leaves


def file_of(job: Job, folder: Path) -> Path:
    """The job's data file, made where it is missing: X, y, and the start as one `w0/NAME` for each leaf."""
    path = folder / f"{job.key}-{job.clients}x{job.samples}.npz"  # another size is another file
    if not path.exists():
        folder.mkdir(parents=True, exist_ok=True)
        X, y = job.source(job.clients, job.samples, job.model.shape, np.random.default_rng(0))
        part = path.with_name(f".{os.getpid()}-{path.name}")
        np.savez(part, X=X, y=y, **{f"w0/{name}": leaf for name, leaf in job.model.start().items()})
        part.replace(path)
    return path


def read(path: str | Path) -> tuple[np.ndarray, np.ndarray, Leaves]:
    """X of shape (clients, samples, ...), y of shape (clients, samples), and the start."""
    with np.load(path) as file:
        w0 = {name.removeprefix("w0/"): file[name] for name in file.files if name.startswith("w0/")}
        return file["X"], file["y"], w0
