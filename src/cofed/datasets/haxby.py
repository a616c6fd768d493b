"""Haxby et al. (2001), Distributed and Overlapping Representations of Faces and Objects: fMRI scans, by run."""

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cofed._util import checks, naming
from cofed._util.extras import imported
from cofed.datasets.folder import data_folder, first_file
from cofed.datasets.synthetic import check_choices, check_sizes
from cofed.federation import Federation

LABELS = ("labels.txt", "attributes_literal.txt")  # nilearn's name, and that of PyMVPA's example data
BOLD = ("bold.nii.gz", "bold.nii")
REST = "rest"


class Split(NamedTuple):
    """Clients to train on and clients to test on, with a line that says what they are."""

    train: Federation
    test: Federation
    source: str


def haxby(
    folder: str | Path | None = None,
    *,
    subjects: int | Iterable[int] = 1,
    classes: Sequence[str] | None = ("house", "face"),
    mask: str = "mask.nii.gz",
    standardize: bool = True,
    parts: int = 1,
    dtype: str = "float32",
) -> Federation:
    """Scans of people who look at pictures; a client is a run of a subject, a feature a voxel of the mask.

    The files lie below the folder of `data_folder` as nilearn's `fetch_haxby` leaves them: haxby2001/subj1/ with
    bold.nii.gz and labels.txt, and haxby2001/mask.nii.gz, the mask of 39,912 voxels. One subject's bold.nii.gz,
    mask.nii.gz and labels.txt (or attributes_literal.txt) in the folder itself, or in its subfolder haxby-slice, are
    read as well, as subject 1, where there is no subj1.

    Two categories give 18 scans per run, and subjects have 12 runs. Run 8 of subject 5 has no labels and is left out,
    which gives the 59 runs of subjects 1 to 5 that Yuan et al. (2021) train on.

    Parameters
    ----------
    folder : path, optional
        The folder with the data; without, the one that the variable COFED_DATA names.
    subjects : int or iterable of int
        A number, or several; several need a mask that they share, as mask.nii.gz is.
    classes : sequence of str, optional
        The categories to tell apart, label 0 first; None is all of them but rest, in the order of their names.
    mask : str
        The file of the mask, in the subject's folder or the one above, such as "mask4_vt.nii.gz".
    standardize : bool
        Bring each voxel to mean 0 and variance 1 over the chosen scans of its run. A voxel that is constant there
        becomes 0.
    parts : int
        Cut each run into this many clients. A run shows a category in one block, so a part takes every parts-th scan of
        each. Parts of one run are neighbours in time: test on other runs, not on other parts.
    dtype : {"float32", "float64"}
        The dtype of the features.

    Returns
    -------
    Federation
        The runs.

    Raises
    ------
    FileNotFoundError
        If the folder or a file is not there; the sentence says which.

    Examples
    --------
    >>> from pathlib import Path
    >>> import nibabel, tempfile
    >>> import numpy as np
    >>> import cofed
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for name, shape in (("bold", (3, 2, 1, 8)), ("mask", (3, 2, 1))):
    ...         image = nibabel.Nifti1Image(np.arange(1, 1 + np.prod(shape), dtype="f4").reshape(shape), np.eye(4))
    ...         nibabel.save(image, f"{folder}/{name}.nii.gz")
    ...     lines = ["labels chunks", *["rest 0", "house 0", "face 0", "cat 0"], *["face 1", "house 1"] * 2]
    ...     _ = Path(folder, "labels.txt").write_text("\\n".join(lines))
    ...     fed = cofed.datasets.haxby(folder)
    >>> fed
    Federation(2 clients, 6 samples (min 2, median 3, max 4 per client), 6 features, float32)
    >>> fed.names, fed.client("run 1")[1].tolist()
    (('run 0', 'run 1'), [1, 0, 1, 0])
    """
    check_sizes("haxby", parts=parts)
    _check_choices("haxby", classes, mask, standardize, dtype)
    several = not isinstance(subjects, (int, np.integer)) or isinstance(subjects, bool)
    given = checks.items("haxby: subjects", subjects, "numbers, or one number") if several else [subjects]
    wanted = [checks.integer("haxby: subjects", subject, least=0) for subject in given]
    if not wanted:
        raise ValueError("haxby: subjects is empty; give one number or several")
    root = data_folder(folder)
    places = _places(root)
    if any(subject not in places for subject in wanted):
        raise _missing(root, places, wanted)
    opened = {subject: _open(places[subject], mask, classes) for subject in wanted}
    _check_masks(opened, mask)
    clients: dict[str, Any] = {}
    for subject, scans in opened.items():
        for run, X, y in _runs(scans, standardize, dtype):
            name = f"subject {subject} run {run}" if several else f"run {run}"
            if parts == 1:
                clients[name] = (X, y)
                continue
            for part in range(parts):
                rows = np.sort(np.concatenate([np.flatnonzero(y == label)[part::parts] for label in np.unique(y)]))
                clients[f"{name} part {part}"] = (X[rows], y[rows])
    return Federation.from_arrays(clients)


def haxby_split(
    folder: str | Path | None = None,
    *,
    classes: Sequence[str] | None = ("house", "face"),
    mask: str = "mask.nii.gz",
    standardize: bool = True,
    dtype: str = "float32",
) -> Split:
    """The scans of `haxby` in clients to train and to test on, as far as they are there.

    With several subjects, the last one is to test on: with all six, this is the division of Yuan et al. (2021), 59
    runs to train on and 12 to test on. With one subject, the last quarter of its runs is to test on.

    Parameters
    ----------
    folder : path, optional
        The folder with the data; without, the one that the variable COFED_DATA names.
    classes, mask, standardize, dtype
        As in `haxby`.

    Returns
    -------
    Split
        Clients to train on, clients to test on, and a line that says what they are.

    Raises
    ------
    FileNotFoundError
        If the folder or a file is not there; the sentence says which.

    Examples
    --------
    >>> import cofed
    >>> cofed.datasets.haxby_split("no/such/folder")
    Traceback (most recent call last):
        ...
    FileNotFoundError: there is no folder no/such/folder, which was given as the data folder
    """
    _check_choices("haxby_split", classes, mask, standardize, dtype)
    root = data_folder(folder)
    places = _places(root)
    if not places:
        raise _missing(root, places, [1])

    def read(subjects: int | list[int]) -> Federation:
        return haxby(root, subjects=subjects, classes=classes, mask=mask, standardize=standardize, dtype=dtype)

    *first, last = sorted(places)
    if first:
        train, test = read(first), read([last])
        source = f"subjects {', '.join(map(str, first))}; tested on subject {last}"
    else:
        fed = read(last)
        held = max(1, round(fed.n_clients / 4))
        if held == fed.n_clients:
            raise ValueError(f"{places[last]} has one run, so that nothing is left to test on")
        train, test = fed.select(fed.names[:-held]), fed.select(fed.names[-held:])
        source = f"subject {last}, {train.names[0]} to {train.names[-1]}; tested on {test.names[0]} to {test.names[-1]}"
    return Split(train, test, f"Haxby 2001, {train.n_features:,} voxels, {source}")


class _Scans(NamedTuple):
    """A subject's files, opened and checked; its volumes are not read yet."""

    path: Path
    volumes: Any  # nibabel's view of the file
    mask: np.ndarray
    runs: np.ndarray  # per volume
    codes: np.ndarray  # per volume, the position of its label in the classes, or -1


def _check_choices(owner: str, classes: object, mask: object, standardize: object, dtype: Any) -> None:
    if isinstance(classes, str):
        raise ValueError(f"{owner}: classes must be two or more different categories, got {classes!r}")
    if classes is not None:
        for name in checks.items(f"{owner}: classes", classes, "categories") or [None]:
            checks.text(f"{owner}: each of classes", name)
    checks.text(f"{owner}: mask", mask)
    checks.flag(f"{owner}: standardize", standardize)
    check_choices(owner, 0, dtype)


def _places(root: Path) -> dict[int, Path]:
    """The folder of each subject that is there."""
    for base in (root / "haxby2001", root):
        found = {
            int(folder.name[4:]): folder
            for folder in base.glob("subj[0-9]*")
            if folder.name[4:].isdigit() and first_file([folder], BOLD)
        }
        if found:
            return found
    single = first_file((root / "haxby-slice", root), BOLD)
    return {1: single.parent} if single else {}


def _missing(root: Path, places: Mapping[int, Path], wanted: Sequence[Any]) -> FileNotFoundError:
    if places:
        return FileNotFoundError(
            f"Haxby: {root} has subject {naming.listed(sorted(places))}, got subjects={naming.listed(wanted)}"
        )
    return FileNotFoundError(
        f"Haxby: {root} has neither haxby2001/subj1/bold.nii.gz (nor subj1/bold.nii.gz), as nilearn's "
        "fetch_haxby(data_dir=..., subjects=[1, 2, 3, 4, 5, 6]) leaves it, nor haxby-slice/bold.nii.gz; without the "
        "scans, cofed.datasets.yuan_fmri_like generates a set of their shape"
    )


def _open(folder: Path, mask_name: str, classes: Sequence[str] | None) -> _Scans:
    nibabel = imported("nibabel", "Reading fMRI scans", "nibabel", "data")
    files = {
        "the scans": first_file([folder], BOLD),
        "the mask": first_file([folder, folder.parent], [mask_name]),
        "the labels": first_file([folder], LABELS),
    }
    names = {"the scans": BOLD[0], "the mask": f"{mask_name} (nor has the folder above)", "the labels": LABELS[0]}
    for what, path in files.items():
        if path is None:
            raise FileNotFoundError(f"Haxby: {folder} has no file with {what}, {names[what]}")
    bold, mask_file, label_file = (path for path in files.values() if path)
    # Runs are read one after the other, so a compressed file is unpacked once, not once per run.
    volumes = _whole(bold, lambda: nibabel.load(bold, keep_file_open=True).dataobj)
    mask = _whole(mask_file, lambda: np.asarray(nibabel.load(mask_file).dataobj) != 0)
    labels, runs = _labels(label_file)
    if len(volumes.shape) != 4:
        raise ValueError(f"{bold} has shape {volumes.shape}, expected four axes: three of space, then time")
    if mask.shape != volumes.shape[:3]:
        raise ValueError(f"{mask_file} has shape {mask.shape}, but the volumes of {bold} have {volumes.shape[:3]}")
    if not mask.any():
        raise ValueError(f"{mask_file} is zero everywhere, so that no voxel is left")
    if len(labels) != volumes.shape[3]:
        raise ValueError(f"{label_file} has {len(labels)} lines, but {bold} has {volumes.shape[3]} volumes")
    return _Scans(bold, volumes, mask, runs, _codes(labels, classes, label_file))


def _whole(path: Path, read: Callable[[], Any]) -> Any:
    """What reading a file gives. A damaged one ends in the ways of gzip, zlib and nibabel."""
    image_error = imported("nibabel.filebasedimages", "Reading fMRI scans", "nibabel", "data").ImageFileError
    try:
        return read()
    except (OSError, EOFError, ValueError, zlib.error, image_error) as error:
        raise ValueError(f"{path} is not a whole NIfTI file ({error}); get it again") from None


def _labels(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """The label and the run of each volume: one line each, perhaps with a first line that names the columns."""
    lines = [line.split() for line in path.read_text().splitlines() if line.strip()]
    if lines and lines[0] == ["labels", "chunks"]:
        lines = lines[1:]
    for number, line in enumerate(lines):
        if len(line) != 2 or not line[1].isdigit():
            raise ValueError(
                f"{path}, volume {number}: expected a label and a run as in 'face 0', got {' '.join(line)!r}"
            )
    return np.array([label for label, _ in lines]), np.array([int(run) for _, run in lines])


def _codes(labels: np.ndarray, classes: Sequence[str] | None, path: Path) -> np.ndarray:
    known = sorted({str(label) for label in labels} - {REST})
    wanted = known if classes is None else list(classes)
    if isinstance(classes, str) or len(set(wanted)) != len(wanted) or len(wanted) < 2:
        raise ValueError(f"haxby: classes must be two or more different categories, got {classes!r}")
    absent = [name for name in wanted if name not in labels]
    if absent:
        raise ValueError(f"{path} has no scan of {naming.listed(absent)}; it has {naming.listed(known)}")
    codes = np.full(len(labels), -1, np.int32)
    for code, name in enumerate(wanted):
        codes[labels == name] = code
    return codes


def _check_masks(opened: Mapping[int, _Scans], mask: str) -> None:
    (one, first), *others = opened.items()
    for other, scans in others:
        if not np.array_equal(scans.mask, first.mask):
            raise ValueError(
                f"haxby: {mask} of subject {other} is another one than that of subject {one}, so that their voxels do "
                "not correspond; several subjects need the mask that they share, mask.nii.gz"
            )


def _runs(scans: _Scans, standardize: bool, dtype: str) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
    """The chosen scans of each run that has some, in the order of the file."""
    chosen = scans.codes >= 0
    for run in dict.fromkeys(scans.runs[chosen].tolist()):
        rows = np.flatnonzero(chosen & (scans.runs == run))
        span = slice(rows[0], rows[-1] + 1)
        block = _whole(scans.path, lambda span=span: np.asarray(scans.volumes[..., span]))
        X = block[scans.mask][:, rows - rows[0]].T.astype(np.float64)
        if standardize:
            X -= X.mean(axis=0)
            scale = X.std(axis=0)
            X /= np.where(scale > 0, scale, 1)
        yield run, X.astype(dtype), scans.codes[rows]
