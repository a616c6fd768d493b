"""Where commands have their sites: each in a process of its own on this machine, over Flower, or all in this one."""

import contextlib
import dataclasses
import importlib.util
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from cofed.cli.messages import fail, refuse, stop

if TYPE_CHECKING:
    import pandas as pd

    from cofed.fitting import PreparedFit
    from cofed.sites import AbstractSites, ChosenColumns, SiteTable, TableInfo
    from cofed.studies import Study

KEPT = ". What was exchanged is kept, and the same command goes on from there"
ABSENT = "Flower is not installed, so all tables are read in this process; pip install 'cofed[flower]' brings it"


@dataclasses.dataclass(frozen=True)
class Placement:
    """Where the sites are."""

    in_process: bool
    secure: bool = False  # whether over TLS, with authenticated sites
    plain: bool = False  # whether the server sees each site's answers
    policy: Path | None = None  # what every site goes by
    patience: int = 600  # seconds to wait for a silent site
    drop: bool = False  # whether to go on without it then


def is_flower_there() -> bool:
    """Whether sites can be processes of their own."""
    return all(importlib.util.find_spec(name) is not None for name in ("flwr", "psutil"))


@contextlib.contextmanager
def opened(ready: "PreparedFit", out: Path, where: Placement, hear: Callable[..., None]) -> "Iterator[AbstractSites]":
    """The sites of a fit; processes that were started for them are ended, however the block ends.

    `hear` is called with what happens while such processes come, and after.

    What was exchanged with such processes is kept in `out`, so that a fit that was broken off goes on from there; where
    the block ends well, the next fit begins anew.
    """
    if where.in_process:
        yield ready.in_process()
        return
    from cofed.flower.local_sites import start_sites
    from cofed.flower.processes import ending_in_order
    from cofed.sites.chosen_columns import ChosenColumns

    choice, folder = ready.choice, out / "network"
    features = None if choice.features is None else tuple(choice.features)
    study = rehearsed(ready) if needs_study(where.plain, where.policy) else None
    columns = ChosenColumns(
        choice.predicted,
        features,
        missing=choice.missing,
        design=ready.design,
        weight=choice.weight,
        offset=choice.offset,
        group=choice.group,
        cluster=choice.cluster,
    )
    if study is not None:
        columns = ChosenColumns(choice.predicted, design=ready.design or study.design(study.analyses[0]))
    tables: dict[str, Path | pd.DataFrame] = {site: table.frame for site, table in ready.tables.items()}
    tables |= {site: file for site, file in choice.files().items() if site in tables}
    started = start_sites(
        tables,
        folder,
        columns,
        secure=where.secure,
        plain=where.plain,
        policy=where.policy,
        study=study,
        patience=float(where.patience),
        drop=where.drop,
        hear=hear,
    )
    with ending_in_order(), started as sites:
        yield sites
    done = folder / "log-of-the-last-fit"
    shutil.rmtree(done, ignore_errors=True)
    (folder / "log").rename(done)


def needs_study(plain: bool, policy: Path | None) -> bool:
    """Whether the rules of the sites on this machine let them answer only for a study that they have approved."""
    from cofed.sites.policy import load_policy

    return policy is not None and not plain and load_policy(policy).sums.masked == "pinned"


def rehearsed(ready: "PreparedFit") -> "Study | None":
    """The study that a fit is of, or would be; None where there can be none."""
    from cofed.fitting import drafted
    from cofed.sites import TableMismatch

    if ready.study is not None:
        return ready.study
    with contextlib.suppress(TableMismatch):  # a study is stricter: no linear model of zeros and ones
        return drafted(ready)
    return None


def check_processes(processes: bool, plain: bool, policy: Path | None) -> None:
    """Refuse options of sites in processes of their own where they are in this one, or cannot be elsewhere."""
    given = {"--plain": plain, "--policy": policy is not None}
    option = next((name for name, is_given in given.items() if is_given), None)
    if option is not None and not processes:
        refuse(f"{option} is for sites in processes of their own: give --processes, too")
    if processes and not is_flower_there():
        refuse("--processes: Flower is not installed; pip install 'cofed[flower]' brings it")


@contextlib.contextmanager
def of_processes(
    tables: "Mapping[str, SiteTable]",
    columns: "Callable[[Mapping[str, TableInfo]], ChosenColumns]",
    plain: bool,
    policy: Path | None,
    study: "Study | None" = None,
) -> "Iterator[AbstractSites]":
    """A process for each of some tables, which asks no longer than this block lasts and leaves nothing behind.

    `columns` says, from what the sites tell of their tables, which columns they are asked about; `study` is what they
    approve where their rules ask for that.
    """
    from cofed.flower.local_sites import start_sites
    from cofed.flower.processes import ending_in_order

    frames: dict[str, Path | pd.DataFrame] = {site: table.frame for site, table in tables.items()}
    chosen = columns({site: table.info() for site, table in tables.items()})
    with tempfile.TemporaryDirectory(prefix="cofed-") as folder:
        asked = study if needs_study(plain, policy) else None
        started = start_sites(frames, Path(folder), chosen, plain=plain, policy=policy, study=asked)
        with ending_in_order(), started as sites:
            yield sites


@contextlib.contextmanager
def ending_in_words(stopped: str, kept: str = "") -> Iterator[None]:
    """Say in a sentence why a command that asks sites does not end well: `stopped` after Ctrl-C; `kept` is added where
    sites are missing."""
    from cofed.sites import SiteRefused
    from cofed.sites.link import SitesMissing
    from cofed.sites.policy import advice

    try:
        yield
    except KeyboardInterrupt:
        stop(stopped)
    except SitesMissing as error:
        fail(f"{error}{kept}")
    except SiteRefused as error:
        fail(f"{error}. {advice(error)}")
    except RuntimeError as error:  # a process of Flower's failed
        fail(str(error))
    except ValueError as error:
        refuse(str(error))
    except OSError as error:
        fail(f"{error}")
