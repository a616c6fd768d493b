"""Building an index: two passes over the samples, in bounded memory, whatever their order.

The first pass counts every client's samples, so that each sample's place is known. The second puts them there: at once
where a client's samples follow one another in the source, else through files of a few dozen megabytes, each of
samples that end up near each other (a counting sort by parts). An index is made in a folder of its own beside its
place and then renamed: it is whole or not there.
"""

import contextlib
import dataclasses
import fcntl
import itertools
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather

from cofed._util import naming
from cofed._util.files import PRIVATE_FOLDER, private_file, private_folder
from cofed._util.pandas_types import Series
from cofed.federation.disk.source import Owners, Source

FORMAT = 1
PART = 2**26  # bytes of samples that are put in order at a time
PARTS = 256  # the most files that are open at once
TALLY = 2**20  # counts of clients that are kept apart until they are added up
LABELS = 1000  # up to this many different labels are all kept; of more, the extremes

Tell = Callable[[int], object]  # told how many rows were done


@dataclasses.dataclass(frozen=True)
class Census:
    """All clients, in the natural order of their names; a client's place in it is its id.

    Names that are whole numbers stay numbers, as ten million texts take gigabytes.
    """

    names: pd.Index
    offsets: np.ndarray  # where each client's samples begin, and, last, where all end
    grouped: bool  # whether every client's rows follow one another in the source

    def ids(self, names: pd.Index) -> np.ndarray:
        """The ids of these clients."""
        if self.names.is_monotonic_increasing:  # a search needs no table of all names
            return self.names.searchsorted(names)
        return self.names.get_indexer(names)

    def texts(self) -> pa.Array:
        """The names as text."""
        return pa.array(self.names).cast(pa.large_string())


def build(source: Source, folder: Path, progress: bool | None = None) -> None:
    """Build the index of a source in this folder, and replace one that is there."""
    began, rows = time.perf_counter(), source.table.count_rows()
    if rows == 0:
        raise ValueError(f"{source.path} has no rows; a federation needs at least one sample")
    with workshop(folder) as place, bar(2 * rows, progress) as tell:
        census = count(source, rows, tell)
        check_room(place, rows * source.record.itemsize * (1 if census.grouped else 2))
        labels = put(source, census, place, tell)
        np.save(private_file(place / "offsets.npy"), census.offsets)
        names = pa.table({"client": census.texts()})
        feather.write_feather(names, str(private_file(place / "names.arrow")))
        meta = {
            "format": FORMAT,
            "cofed": version("cofed"),
            "source": source.fingerprint(),
            "clients": len(census.names),
            "samples": rows,
            "largest": int(np.diff(census.offsets).max()),
            "labels": labels.tolist(),
            "seconds": round(time.perf_counter() - began, 3),
        }
        private_file(place / "index.json").write_text(json.dumps(meta, indent=1))
        for file in place.iterdir():
            with open(file, "rb+") as handle:
                os.fsync(handle.fileno())


def count(source: Source, rows: int, tell: Tell) -> Census:
    """The first pass: every client's samples, counted."""
    sizes, tallies, waiting, runs, last, missing = None, [], 0, 0, None, 0
    for block in source.blocks([source.client]):
        owners = Owners.of(block.column(0))
        missing += owners.missing
        tell(block.num_rows)
        if missing or not block.num_rows:
            continue
        tallies.append(pd.Series(np.bincount(owners.codes, minlength=len(owners.names)), owners.names))
        runs += int(owners.name(0) != last) + int((np.diff(owners.codes) != 0).sum())
        last = owners.name(-1)
        waiting += len(owners.names)
        if waiting > max(TALLY, 0 if sizes is None else len(sizes)):
            sizes, tallies, waiting = together(sizes, tallies), [], 0
    if missing:
        raise ValueError(f"column {source.client!r} names the client, but {missing} of {rows} rows have no value there")
    sizes = natural_order(together(sizes, tallies))
    offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes.to_numpy())])
    return Census(sizes.index, offsets, runs == len(sizes))


def together(sizes: Series | None, tallies: list[Series]) -> Series:
    """The samples of each client, of what was counted before and of what has come since."""
    return pd.concat([*([] if sizes is None else [sizes]), *tallies]).groupby(level=0, sort=False).sum()


def natural_order(sizes: Series) -> Series:
    """The clients in the natural order of their names, which is that of the numbers where none is below 0."""
    names = sizes.index
    if names.dtype.kind in "iu" and names.min() >= 0:
        return sizes.sort_index()
    texts = [str(name) for name in names]
    return sizes.iloc[sorted(range(len(texts)), key=lambda i: naming.natural(texts[i]))]


def put(source: Source, census: Census, place: Path, tell: Tell) -> np.ndarray:
    """The second pass: every sample to its place in samples.npy. Returns the different labels."""
    path, total = private_file(place / "samples.npy"), int(census.offsets[-1])
    empty = np.lib.format.open_memmap(path, "w+", source.record, (total,))
    start = empty.offset
    del empty
    labels = Labels()
    with open(path, "rb+", buffering=0) as file, arranged(census, source.record, file.fileno(), start, place) as write:
        cursor = census.offsets[:-1].copy()
        for block in source.blocks([*source.columns, *source.targets, source.client]):
            if block.num_rows:
                owners = Owners.of(block.column(block.num_columns - 1))
                samples = source.samples(block, owners)
                labels.add(samples["y"])
                whose = census.ids(owners.names)[owners.codes]
                if (np.diff(whose) < 0).any():
                    order = np.argsort(whose, kind="stable")
                    whose, samples = whose[order], samples[order]
                there, first, many = np.unique(whose, return_index=True, return_counts=True)
                to = np.repeat(cursor[there] - first, many) + np.arange(len(whose))
                cursor[there] += many
                write(to, samples)
            tell(block.num_rows)
    return labels.found()


@contextlib.contextmanager
def arranged(census: Census, record: np.dtype, out: int, start: int, place: Path) -> Iterator[Callable]:
    """A function that takes samples and their places, in rising order; on leaving, all are in the file."""
    if census.grouped:
        yield lambda to, samples: write_runs(out, start, to, samples)
        return
    total = int(census.offsets[-1])
    each = max(PART // record.itemsize, -(-total // PARTS), 1)
    addressed = np.dtype([("to", np.int64), ("sample", record)])
    with contextlib.ExitStack() as stack:
        parts = [stack.enter_context(open(private_file(place / f"part-{i}"), "wb+")) for i in range(-(-total // each))]

        def write(to: np.ndarray, samples: np.ndarray) -> None:
            letters = np.empty(len(to), addressed)
            letters["to"], letters["sample"] = to, samples
            cuts = np.searchsorted(to, each * np.arange(len(parts) + 1))
            for part, a, b in zip(parts, cuts[:-1], cuts[1:], strict=True):
                if b > a:
                    part.write(letters[a:b].view(np.uint8).data)

        yield write
        for i, part in enumerate(parts):
            part.seek(0)
            letters = np.fromfile(part, addressed)
            samples = np.empty(len(letters), record)
            samples[letters["to"] - i * each] = letters["sample"]
            write_all(out, samples, start + i * each * record.itemsize)
            part.truncate(0)
            (place / f"part-{i}").unlink()


def write_runs(out: int, start: int, to: np.ndarray, samples: np.ndarray) -> None:
    """Samples to their places, neighbours together."""
    cuts = np.concatenate([[0], np.flatnonzero(np.diff(to) != 1) + 1, [len(to)]]).tolist()
    for a, b in itertools.pairwise(cuts):
        write_all(out, samples[a:b], start + int(to[a]) * samples.itemsize)


def write_all(out: int, samples: np.ndarray, where: int) -> None:
    """Write all bytes: the system may take fewer at a time."""
    rest = memoryview(samples.view(np.uint8))  # type: ignore[arg-type]
    while rest:
        done = os.pwrite(out, rest, where)
        rest, where = rest[done:], where + done


class Labels:
    """The different labels: all of a few, else the extremes and, if there is one, one that is no whole number."""

    def __init__(self) -> None:
        self.values = np.empty(0)
        self.few = True

    def add(self, y: np.ndarray) -> None:
        """Take in the labels of a block."""
        flat = y.reshape(-1)
        if not self.few:
            flat = self.extremes(flat)
        self.values = np.unique(np.concatenate([self.values.astype(flat.dtype), flat]))
        if len(self.values) > LABELS:
            self.few, self.values = False, self.extremes(self.values)

    def extremes(self, values: np.ndarray) -> np.ndarray:
        """The smallest, the largest, a few in between, and one that is no whole number."""
        between = np.linspace(0, len(values) - 1, 16).astype(int)
        odd = np.flatnonzero(values != np.round(values))[:1] if values.dtype.kind == "f" else between[:0]
        return values[np.unique([values.argmin(), values.argmax(), *between, *odd])]

    def found(self) -> np.ndarray:
        """The labels, in order."""
        return self.values


def check_room(place: Path, needed: int) -> None:
    """Refuse an index that does not fit on the disk, before anything is written."""
    free = shutil.disk_usage(place).free
    if needed > free:
        raise OSError(
            f"the index needs {needed / 1e9:.1f} GB in {place.parent}, where {free / 1e9:.1f} GB are free; "
            "give another folder as index="
        )


@contextlib.contextmanager
def workshop(folder: Path) -> Iterator[Path]:
    """A folder to build in, which replaces `folder` if all goes well, and is removed otherwise."""
    place = folder.with_name(f".{folder.name}.building")
    private_folder(place).chmod(PRIVATE_FOLDER)  # also one that a killed build has left
    handle = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RuntimeError(f"another process is building the index {folder}; wait for it to end") from None
        clear(place)  # what a build that was killed has left
        try:
            yield place
            old = folder.with_name(f".{folder.name}.old")
            shutil.rmtree(old, ignore_errors=True)
            if folder.exists():
                os.replace(folder, old)
            os.replace(place, folder)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(place, ignore_errors=True)
            raise
    finally:
        os.close(handle)


def clear(folder: Path) -> None:
    """Remove the files of a folder."""
    for file in folder.iterdir():
        file.unlink()


@contextlib.contextmanager
def bar(total: int, progress: bool | None) -> Iterator[Tell]:
    """A progress bar on the terminal, where there is one; a function that moves it on."""
    if not (sys.stderr.isatty() if progress is None else progress):
        yield lambda rows: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=sys.stderr.isatty()) as shown:
        task = shown.add_task("indexing clients", total=total)
        yield lambda rows: shown.advance(task, rows)
