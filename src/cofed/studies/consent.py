"""What a site agrees to be asked, by the studies that it has approved."""

import dataclasses
from pathlib import Path

from cofed.sites.columns import Label
from cofed.sites.design import Design
from cofed.sites.local import Consent
from cofed.studies.approval import approved_studies, has_approved, outside_approved


@dataclasses.dataclass(frozen=True)
class StudyConsent(Consent):
    """Once a site has approved a study, it answers what its approved studies contain, and nothing else.

    That stays so where all approvals are taken back, or their files are damaged: then it answers nothing.

    Parameters
    ----------
    keep : Path
        The folder in which the site keeps what it must not forget, `cofed study approve --keep`. What is approved or
        taken back there counts at once.

    Examples
    --------
    >>> StudyConsent(Path("no-such-folder")).refuses(Design(features=())) is None
    True
    """

    keep: Path

    def refuses(self, design: Design) -> str | None:
        return outside_approved(self.keep, design) if has_approved(self.keep) else None

    def tells(self, column: str) -> bool:
        return not has_approved(self.keep) or column in self.markers()

    def markers(self) -> dict[str, tuple[Label, ...]]:
        known: dict[str, tuple[Label, ...]] = {}
        for study in approved_studies(self.keep):
            for name, own in study.markers.items():
                known[name] = tuple(dict.fromkeys([*known.get(name, ()), *own]))
        return known
