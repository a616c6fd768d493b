"""What a site agrees to be asked, by the studies that it has approved."""

import dataclasses
from pathlib import Path

from cofed.sites.design import Design
from cofed.sites.local import Consent
from cofed.studies.approval import approved_studies, outside_approved


@dataclasses.dataclass(frozen=True)
class StudyConsent(Consent):
    """Once a site has approved a study, it answers what its approved studies contain, and nothing else.

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
        return outside_approved(self.keep, design) if approved_studies(self.keep) else None

    def tells(self, column: str) -> bool:
        studies = approved_studies(self.keep)
        return not studies or any(column in study.variables for study in studies)
