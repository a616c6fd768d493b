"""A site's table that answers what the studies contain that the site has approved."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from cofed._util.types import Given
from cofed.sites.base import QuestionRefused
from cofed.sites.columns import Label, TableInfo
from cofed.sites.design import Design
from cofed.sites.rows import SiteRows
from cofed.sites.site_table import SiteTable
from cofed.studies.approval import approved_studies, is_guarded, outside_approved


class ApprovedTable(SiteTable):
    """The table of a site which, from its first approval on, tells of approved variables and answers nothing else.

    Parameters
    ----------
    frame : pandas.DataFrame
        The rows.
    site : str
        The site's name.
    keep : str or Path
        The folder in which the site keeps what it has approved. It is looked into at every question.

    Examples
    --------
    >>> import tempfile
    >>> from cofed.studies import Study, Variable, approve
    >>> keep = tempfile.mkdtemp()
    >>> table = ApprovedTable(pd.DataFrame({"age": [61, 52], "name": ["A", "B"]}), "Oslo", keep)
    >>> len(table.info().columns)
    2
    >>> _ = approve(keep, Study(study={"name": "demo"}, variables={"age": Variable(kind="number")}))
    >>> [column.name for column in table.info().columns]
    ['age']
    """

    def __init__(self, frame: Given[pd.DataFrame], site: str, keep: str | Path):
        super().__init__(frame, site)
        self.keep = Path(keep)

    def info(self, markers: Mapping[str, Sequence[Label]] | None = None) -> TableInfo:
        """What the site tells of its table: once it has approved a study, of the variables of approved ones."""
        if not is_guarded(self.keep):
            return super().info(markers)
        known: dict[str, tuple[Label, ...]] = {}
        for study in approved_studies(self.keep):
            for name, own in study.markers.items():
                known[name] = tuple(dict.fromkeys([*known.get(name, ()), *own]))
        told = super().info(known)
        return TableInfo(rows=told.rows, columns=tuple(column for column in told.columns if column.name in known))

    def rows(self, design: Design) -> SiteRows:
        """The rows of numbers that a design makes of the table, where an approved study contains it."""
        reason = outside_approved(self.keep, design) if is_guarded(self.keep) else None
        if reason is not None:
            raise QuestionRefused(reason)
        return super().rows(design)
