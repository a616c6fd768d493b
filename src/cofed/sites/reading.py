"""Tables from files: one site's file, and a folder with a file for each site."""

import zipfile
from collections.abc import Callable
from pathlib import Path

import pandas as pd

from cofed._util import naming
from cofed._util.extras import imported
from cofed._util.files import plain_names
from cofed._util.pandas_types import Frame
from cofed.federation import files
from cofed.sites.site_table import SiteTable

ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet", ".feather", ".xlsx")
UNREAD = (".xls", ".xlsm", ".xlsb", ".ods", ".dta", ".sav", ".sas7bdat", ".rds")  # tables of other programs
OUTPUTS = ("progress.jsonl", "exchanges.csv")  # a folder with these holds what a fit gave, and no site's table
SEPARATORS = "\t;"  # and commas, which also stand within names


def read_table(path: str | Path) -> Frame:
    """The table in a file: CSV (with commas, semicolons or tabs), Parquet, Feather or Excel.

    Parameters
    ----------
    path : str or Path
        The file.

    Returns
    -------
    pandas.DataFrame
        Its rows; of an Excel file, those of the first sheet.

    Raises
    ------
    FileNotFoundError, ValueError
        Where there is no such file, or it cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from cofed.sites import read_table
    >>> file = Path(tempfile.mkdtemp()) / "oslo.csv"
    >>> _ = file.write_text("age;ill\\n61;yes\\n")
    >>> read_table(file).to_dict("records")
    [{'age': 61, 'ill': 'yes'}]
    """
    file = files.existing(path)
    ending = ending_of(file)
    if file.is_dir() or ending is None:
        what = "is a folder" if file.is_dir() else f"ends in {file.suffix!r}"
        raise ValueError(f"{file} {what}; a table is a file that ends in {', '.join(ENDINGS)}")
    try:
        return READERS[ending.removesuffix(".gz")](file)
    except ImportError as error:
        raise ValueError(str(error)) from None
    except Exception as error:
        said = files.first_line(error).removeprefix(f"path: {file} ").removeprefix("could not be read as CSV: ")
        subject = "it " if said.startswith("is ") else ""
        raise ValueError(f"{file} could not be read as a table: {subject}{said}") from None


def read_text(file: Path) -> Frame:
    """A table of text; tabs or semicolons in the header are what stands between two fields, else commas."""
    text = files.text_of(file)
    header = text.split("\n", 1)[0]
    return files.parsed(text, None, next((one for one in SEPARATORS if one in header), ","))


def read_excel(file: Path) -> Frame:
    """The first sheet of an Excel file."""
    imported("openpyxl", "Reading Excel files", "openpyxl", "excel")
    if not zipfile.is_zipfile(file):
        raise ValueError("it is no Excel file of the kind .xlsx, whatever its name; save it as one, or as CSV")
    return pd.read_excel(file)


READERS: dict[str, Callable[[Path], Frame]] = {
    ".csv": read_text,
    ".tsv": read_text,
    ".parquet": pd.read_parquet,
    ".feather": pd.read_feather,
    ".xlsx": read_excel,
}


def ending_of(file: Path) -> str | None:
    """The ending by which a file is known to hold a table; None where it holds none."""
    name = file.name.lower()
    return next((ending for ending in ENDINGS if name.endswith(ending) and len(name) > len(ending)), None)


def site_files(folder: str | Path) -> dict[str, Path]:
    """The file of each site: `SITE.csv`, `SITE.parquet` and so on, or the only such file in a folder `SITE`.

    Folders that `cofed fit` has written are no sites. Tables that only other programs read, such as SITE.sav, are
    refused.

    Parameters
    ----------
    folder : str or Path
        Where the sites' files are.

    Returns
    -------
    dict of str to Path
        The files by the sites' names, in natural order.
    """
    place = files.existing(folder)
    if not place.is_dir():
        raise ValueError(f"{place} is a file; give a folder with a table for each site")
    found: dict[str, Path] = {}
    for entry in sorted(place.iterdir()):
        if entry.name.startswith((".", "~$")):  # hidden, or the lock of an open Excel file
            continue
        if all((entry / name).is_file() for name in OUTPUTS):
            continue
        inside = sorted(f for f in entry.iterdir() if is_table(f)) if entry.is_dir() else []
        if len(inside) > 1:
            raise ValueError(f"the folder {entry} holds {len(inside)} tables; a site has one")
        file = inside[0] if inside else entry
        if not is_table(file):
            require_no_table(file)
            continue
        name = entry.name if entry.is_dir() else entry.name[: -len(ending_of(entry) or "")]
        if name in found:
            raise ValueError(f"the site {name!r} has two files: {found[name].name} and {file.name}")
        found[name] = file
    if not found:
        raise ValueError(f"{place} holds no site: put SITE.csv or SITE.parquet into it, or folders with one each")
    names = plain_names(sorted(found, key=naming.natural), "a site")
    return {name: found[name] for name in names}


def is_table(file: Path) -> bool:
    """Whether a file holds a table, by its name."""
    return file.is_file() and not file.name.startswith((".", "~$")) and ending_of(file) is not None


def require_no_table(file: Path) -> None:
    """Refuse a table of a kind that is not read: its site would be left out without a word."""
    if file.is_file() and file.suffix.lower() in UNREAD:
        raise ValueError(
            f"{file} is a table that cannot be read here; save it as {ENDINGS[0]} or {ENDINGS[-1]}, or put it elsewhere"
        )


def read_sites(folder: str | Path) -> dict[str, SiteTable]:
    """The tables of all sites, from a folder with a file for each: see `site_files` and `read_table`.

    Parameters
    ----------
    folder : str or Path
        Where the sites' files are.

    Returns
    -------
    dict of str to SiteTable
        The tables by the sites' names.
    """
    return {site: SiteTable(read_table(file), site) for site, file in site_files(folder).items()}
