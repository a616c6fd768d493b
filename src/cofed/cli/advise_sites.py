"""`cofed advise` without a table of all rows: what the sites' own fits say, from sums."""

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from cofed.cli.fit_sites import ending_in_words, of_processes
from cofed.cli.messages import refuse

if TYPE_CHECKING:
    from cofed import Heterogeneity
    from cofed.sites import AbstractSites, ChosenColumns, SiteTable, TableInfo

FAMILIES = {"linear": "gaussian", "logistic": "binomial", "poisson": "poisson"}


@dataclasses.dataclass(frozen=True)
class AdviceRequest:
    """What was asked for."""

    data: Path
    target: str
    client: str | None
    features: Sequence[str] | None
    drop: Sequence[str]
    model: str | None

    def check(self) -> None:
        """Refuse a model that sums do not tell of."""
        if self.model == "multinomial":
            refuse("--model multinomial is for one table of all rows, with --client: sums tell of two classes")
        if self.model is not None and self.model not in FAMILIES:
            refuse(f"--model must be {', '.join(FAMILIES)}, got {self.model!r}")

    def tables(self) -> "dict[str, SiteTable]":
        """The sites' tables."""
        from cofed.sites import read_table
        from cofed.sites.table_sites import as_tables, tables_of_frame

        try:
            return as_tables(self.data) if self.client is None else tables_of_frame(read_table(self.data), self.client)
        except (TypeError, OSError) as error:
            refuse(str(error))

    def columns(self, infos: "Mapping[str, TableInfo]") -> "ChosenColumns":
        """What of the tables is asked about; rows without a value are left out."""
        from cofed.sites import ChosenColumns, agree

        every = list(dict.fromkeys(column.name for info in infos.values() for column in info.columns))
        strange = [name for name in self.drop if name not in every]
        if strange:
            raise ValueError(f"--drop: there is no column {strange[0]!r}; the columns are {', '.join(every)}")
        wanted = every if self.features is None else list(self.features)
        used = tuple(name for name in wanted if name not in (self.target, *self.drop))
        if self.features is not None and self.target in self.features:
            raise ValueError(f"the target {self.target!r} cannot be a feature")
        classify = self.has_two_values(infos) if self.model is None else self.model == "logistic"
        return ChosenColumns(design=agree(infos, self.target, used, classify=classify, missing="drop"))

    def has_two_values(self, infos: "Mapping[str, TableInfo]") -> bool | None:
        """Whether the target is one of two values, and so of two classes; None where its kind says what it is."""
        told = [info.by_name[self.target] for info in infos.values() if self.target in info.by_name]
        values = {level for column in told for level in column.levels or ()}
        return True if len(values) == 2 and all(column.levels is not None for column in told) else None


def by_sums(asked: AdviceRequest, processes: bool, policy: Path | None) -> "Heterogeneity":
    """How different the sites are, from each site's own sums; in this process, or each in one of its own."""
    asked.check()
    with ending_in_words("Stopped before there was anything to say."):
        from cofed.estimators.sites_advice import advise_sites

        with sites_of(asked, processes, policy) as sites:
            assert sites.design is not None
            classes = sites.design.classes
            if classes is not None and len(classes) > 2:
                raise ValueError(
                    f"the target {asked.target!r} has {len(classes)} classes, and sums tell of two; give one table of "
                    "all rows and --client"
                )
            suggested = "linear" if classes is None else "logistic"
            return advise_sites(FAMILIES[asked.model or suggested], sites)


@contextlib.contextmanager
def sites_of(asked: AdviceRequest, processes: bool, policy: Path | None) -> "Iterator[AbstractSites]":
    """The sites, whose answers are seen one by one."""
    tables = asked.tables()
    if processes:
        with of_processes(tables, asked.columns, True, policy) as far:
            yield far
        return
    from cofed.sites.table_sites import sites_by_design

    yield sites_by_design(tables, lambda infos: asked.columns(infos).agreed(infos))
