"""What a site agrees to be asked, by the studies that it has approved."""

import dataclasses
from collections.abc import Iterable, Mapping
from pathlib import Path

from cofed.sites.columns import Label
from cofed.sites.design import Design
from cofed.sites.local import Consent
from cofed.sites.secure.invitation import Invitation
from cofed.studies.approval import approved_studies, has_approved, outside_approved
from cofed.studies.schema import Study


def invitation_to(study: Study | None, releases: Mapping[str, str] | None = None) -> Invitation:
    """What a server tells the sites of a study, or of none, at the beginning of a fit whose answers are masked.

    Parameters
    ----------
    study : Study, optional
        The study.
    releases : mapping of str to str, optional
        By site, its signature that sums with and without it may be told.
    """
    if study is None:
        return Invitation.masked(releases=releases)
    return Invitation.masked(study.digest, study.roster, releases, study.releasable)


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
    >>> from pathlib import Path
    >>> from cofed.sites import Design
    >>> from cofed.studies import StudyConsent
    >>> StudyConsent(Path("no-such-folder")).refuses(Design(features=())) is None
    True
    """

    keep: Path

    def refuses(self, design: Design, study: str = "") -> str | None:
        return outside_approved(self.keep, design, study) if has_approved(self.keep) else None

    def told(self, columns: Iterable[str], study: str = "") -> frozenset[str]:
        if not has_approved(self.keep):
            return frozenset(columns)
        asked = [one for one in approved_studies(self.keep) if study in ("", one.digest)]
        return frozenset(columns) & {name for one in asked for name in one.variables}

    def roster(self, study: str) -> Mapping[str, str] | None:
        found = [one for one in approved_studies(self.keep) if one.digest == study]
        return found[0].roster if found else None

    def releasable(self, study: str) -> frozenset[str]:
        return frozenset(s for one in approved_studies(self.keep) if one.digest == study for s in one.releasable)

    def markers(self) -> dict[str, tuple[Label, ...]]:
        known: dict[str, tuple[Label, ...]] = {}
        for study in approved_studies(self.keep):
            for name, own in study.markers.items():
                known[name] = tuple(dict.fromkeys([*known.get(name, ()), *own]))
        return known
