"""Where `cofed fit` has its sites: each in a process of its own on this machine, over Flower, or all in this one."""

import contextlib
import dataclasses
import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from cofed.fitting import PreparedFit
    from cofed.sites import AbstractSites

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
def opened(ready: "PreparedFit", out: Path, where: Placement) -> "Iterator[AbstractSites]":
    """The sites of a fit; processes that were started for them are ended, however the block ends.

    What was exchanged with such processes is kept in `out`, so that a fit that was broken off goes on from there; where
    the block ends well, the next fit begins anew.
    """
    if where.in_process:
        yield ready.in_process()
        return
    from cofed.flower.local_sites import start_sites
    from cofed.flower.processes import ending_in_order
    from cofed.sites.network import ChosenColumns

    choice, folder = ready.choice, out / "network"
    features = None if choice.features is None else tuple(choice.features)
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
    tables: dict[str, Path | pd.DataFrame] = {site: table.frame for site, table in ready.tables.items()}
    tables |= {site: file for site, file in choice.files().items() if site in tables}
    started = start_sites(
        tables,
        folder,
        columns,
        secure=where.secure,
        plain=where.plain,
        policy=where.policy,
        patience=float(where.patience),
        drop=where.drop,
    )
    with ending_in_order(), started as sites:
        yield sites
    done = folder / "log-of-the-last-fit"
    shutil.rmtree(done, ignore_errors=True)
    (folder / "log").rename(done)
