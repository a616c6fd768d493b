"""An index on disk: every client's samples in one place, read by their offset.

A folder of open formats, which NumPy and Arrow read without cofed:

    samples.npy    all samples, client after client: a structured array with the fields X and y
    offsets.npy    where each client's samples begin and, last, where all end; int64
    names.arrow    the clients' names (Feather), in their natural order; a client's position in it is its id
    index.json     the format's number, what the index was made of (files, sizes, times, columns), labels, seconds
"""

import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, SupportsIndex, overload

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather

from cofed._util.files import read_json
from cofed.federation.disk.build import FORMAT
from cofed.federation.disk.source import Source, described

# What index.json must tell, beside its format.
META = {"source": dict, "clients": int, "samples": int, "largest": int, "labels": list}


class Names(Sequence[str]):
    """Clients' names as an Arrow array, in which a million take a few megabytes."""

    def __init__(self, table: pa.ChunkedArray):
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    @overload
    def __getitem__(self, index: SupportsIndex) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> str | list[str]:
        return self.table[index].to_pylist() if isinstance(index, slice) else self.table[int(index)].as_py()

    def find(self, name: str) -> int:
        """The position of a name; -1 if it is not there."""
        return self.table.index(pa.scalar(name, self.table.type)).as_py()


@dataclasses.dataclass(frozen=True)
class Index:
    """An opened index. The samples stay on disk."""

    folder: Path
    meta: dict[str, Any]
    offsets: np.ndarray
    record: np.dtype
    start: int  # the byte of samples.npy at which the first sample begins

    @classmethod
    def open(cls, folder: Path) -> "Index":
        """The index in a folder, which must be whole and of this version."""
        damaged = f"the index {folder} is damaged: delete this folder, and it is built again"
        try:
            meta = read_json(folder / "index.json", damaged)
            offsets = np.load(folder / "offsets.npy")
            samples = np.load(folder / "samples.npy", mmap_mode="r")
            start, record, total = samples.offset, samples.dtype, len(samples)
            del samples
        except (OSError, ValueError, EOFError) as error:
            raise ValueError(damaged) from error
        if meta.get("format") != FORMAT:
            raise ValueError(f"the index {folder} is of another version of cofed: delete this folder to build it again")
        told = all(isinstance(meta.get(entry), kind) for entry, kind in META.items())
        if not told or not isinstance(meta["source"].get("features"), list):
            raise ValueError(damaged)
        if offsets.shape != (meta["clients"] + 1,) or offsets[-1] != total or record.names != ("X", "y"):
            raise ValueError(damaged)
        return cls(folder, meta, offsets, record, start)

    def is_of(self, source: Source) -> bool:
        """Whether the index was made of these files and columns as they are now."""
        return self.meta["source"] == json.loads(json.dumps(source.fingerprint()))

    @functools.cached_property
    def names(self) -> Names:
        """The clients' names."""
        return Names(feather.read_table(str(self.folder / "names.arrow"), memory_map=False)["client"])

    @functools.cached_property
    def identity(self) -> str:
        """A hash of what the index holds: its source, and how many samples every client has."""
        told = json.dumps([self.meta["source"], described(self.record), self.meta["samples"]])
        return hashlib.sha256(told.encode() + self.offsets.tobytes()).hexdigest()

    def read(self, ids: np.ndarray, room: np.ndarray | None = None) -> np.ndarray:
        """The samples of these clients (distinct, in rising order), one after another; read into `room` if given."""
        first, last = self.offsets[ids], self.offsets[ids + 1]
        # Clients that are neighbours in the file are one read.
        runs = np.flatnonzero(np.concatenate([[True], first[1:] != last[:-1]]))
        rows = np.add.reduceat(last - first, runs)
        return self.gather(first[runs], rows, room)

    def rows(self, first: int, stop: int) -> np.ndarray:
        """Samples by their place in the file."""
        return self.gather(np.array([first]), np.array([stop - first]))

    def gather(self, first: np.ndarray, rows: np.ndarray, room: np.ndarray | None = None) -> np.ndarray:
        """Runs of samples, one after another.

        They are read, not memory-mapped, so that no page of the file counts as the process's memory. What is not at
        once there is announced before any of it is waited for, so that a cold disk can work on many runs at a time.
        """
        size = self.record.itemsize
        samples = np.empty(int(rows.sum()), self.record) if room is None else room[: int(rows.sum())]
        view, at, waiting = memoryview(samples.view(np.uint8)), 0, []  # type: ignore[arg-type]
        with open(self.folder / "samples.npy", "rb", buffering=0) as opened:
            file = opened.fileno()
            for where, length in zip((self.start + first * size).tolist(), (rows * size).tolist(), strict=True):
                piece = view[at : at + length]
                done = read_cached(file, piece, where)
                if done < length:
                    announce(file, where + done, length - done)
                    waiting.append((piece[done:], where + done))
                at += length
            for piece, where in waiting:
                while piece:  # the system may give fewer bytes at a time
                    done = os.preadv(file, [piece], where)
                    if done == 0:
                        raise ValueError(f"the index {self.folder} ends early: delete this folder to build it again")
                    piece, where = piece[done:], where + done
        return samples


if sys.platform == "linux":

    def read_cached(file: int, piece: memoryview, where: int) -> int:
        """Read what lies in the page cache, without waiting for the disk; the number of bytes."""
        try:
            return os.preadv(file, [piece], where, os.RWF_NOWAIT)
        except OSError:  # nothing is there, or this file system cannot tell
            return 0

    def announce(file: int, where: int, length: int) -> None:
        """Let the system read this part of a file ahead."""
        os.posix_fadvise(file, where, length, os.POSIX_FADV_WILLNEED)

else:

    def read_cached(file: int, piece: memoryview, where: int) -> int:
        """Only Linux tells what lies in the page cache."""
        return 0

    def announce(file: int, where: int, length: int) -> None:
        """Only Linux is told."""
