"""Which studies a site has approved: it answers what they contain, and nothing else."""

import json
from pathlib import Path

from pydantic import ValidationError

from cofed._util.files import UnreadableJson, load_json, private_folder, write_json
from cofed.sites.design import Design
from cofed.studies.schema import Study

FOLDER = "approved-studies"


def approve(keep: str | Path, study: Study) -> Path:
    """Keep a study as approved, in a private file of the site.

    Parameters
    ----------
    keep : str or Path
        The folder in which the site keeps what it must not forget.
    study : Study
        The study.

    Returns
    -------
    Path
        The file, whose name is the study's hash.

    Examples
    --------
    >>> import tempfile
    >>> from cofed.studies import Study, Variable, approve, approved
    >>> number = Variable(kind="number")
    >>> keep, study = tempfile.mkdtemp(), Study(study={"name": "demo"}, variables={"a": number, "b": number})
    >>> _ = approve(keep, study)
    >>> approved(keep, study), approved(keep, study.model_copy(update={"variables": {"a": number}}))
    (True, False)
    """
    path = file_of(keep, study)
    private_folder(Path(keep))
    write_json(path, study.model_dump(mode="json", exclude_none=True))
    return path


def approved(keep: str | Path, study: Study) -> bool:
    """Whether a site has approved a study, to the letter.

    Parameters
    ----------
    keep : str or Path
        The folder in which the site keeps what it must not forget.
    study : Study
        The study.
    """
    return any(one.digest == study.digest for one in approved_studies(keep))


def withdraw(keep: str | Path, study: Study) -> bool:
    """Take an approval back; whether there was one.

    Parameters
    ----------
    keep : str or Path
        The folder in which the site keeps what it must not forget.
    study : Study
        The study.
    """
    path = file_of(keep, study)
    there = path.exists()
    path.unlink(missing_ok=True)
    return there


def outside_approved(keep: str | Path, design: Design, study: str = "") -> str | None:
    """Why a question with this design is in no study that the site has approved; None where it is in one.

    Parameters
    ----------
    keep : str or Path
        The folder in which the site keeps what it must not forget.
    design : Design
        How the question would have the table become numbers.
    study : str
        The hash of the study that it is said to be of; empty is any.
    """
    studies = approved_studies(keep)
    if any(one.contains(design) for one in studies if study in ("", one.digest)):
        return None
    if study and study not in [one.digest for one in studies]:
        return f"this site has not approved the study {study[:12]}: `cofed study approve` does"
    if not studies:
        return "this site has approved no study: `cofed study approve` does"
    names = ", ".join(repr(one.name) for one in studies)
    return f"the question is not part of a study that this site has approved ({names})"


def approved_studies(keep: str | Path) -> list[Study]:
    """All studies that a site has approved; a file that was changed since does not count."""
    found = []
    for path in sorted((Path(keep) / FOLDER).glob("*.json")):
        try:
            study = Study.model_validate_json(json.dumps(load_json(path)))
        except (UnreadableJson, ValidationError):
            continue
        if study.digest == path.stem:
            found.append(study)
    return found


def has_approved(keep: str | Path) -> bool:
    """Whether a site has ever approved a study, and so answers only what it has approved."""
    return (Path(keep) / FOLDER).is_dir()


def file_of(keep: str | Path, study: Study) -> Path:
    """Where an approved study is kept."""
    return Path(keep) / FOLDER / f"{study.digest}.json"
