"""Times to an event as a user gives them, checked: rows of (time, event) or (entry, time, event)."""

import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed._util.types import Given

FORM = (
    "y must have two columns, time and event (1, or 0 for a row that was followed up to its time without one), or "
    "three, entry, time and event; one column is times that all end with an event"
)


def survival_labels(owner: str, y: Given[npt.ArrayLike | pd.DataFrame | None]) -> np.ndarray:
    """Rows of (time, event) or (entry, time, event), as float64.

    Parameters
    ----------
    owner : str
        Whose y it is, for sentences.
    y : array-like of shape (n, 2), (n, 3) or (n,), pandas.DataFrame or structured array
        The labels; times alone all end with an event. A structured array has two fields, of which the truth value is
        the event, as in scikit-survival.

    Returns
    -------
    ndarray of shape (n, 2) or (n, 3)
        The labels.

    Raises
    ------
    ValueError
        Where they are something else.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites.follow_up import survival_labels
    >>> survival_labels("y", np.array([(True, 3.5)], dtype=[("dead", bool), ("days", float)])).tolist()
    [[3.5, 1.0]]
    """
    if y is None:
        raise ValueError(f"{owner} requires y to be passed, but the target y is None: {FORM}")
    if np.iscomplexobj(y):
        raise ValueError(f"{owner}: Complex data not supported: times and events are real numbers")
    given = by_fields(owner, y) if isinstance(y, np.ndarray) and y.dtype.names is not None else y
    try:
        labels = np.asarray(given, np.float64)
    except (TypeError, ValueError):
        raise ValueError(f"{owner}: {FORM}; all are numbers, got {type(y).__name__}") from None
    if labels.ndim == 1 or labels.shape[1:] == (1,):
        labels = np.column_stack([labels.reshape(-1), np.ones(len(labels))])
    if labels.ndim != 2 or labels.shape[1] not in (2, 3):
        raise ValueError(f"{owner}: {FORM}; got the shape {labels.shape}")
    wrong = mistake(labels)
    if wrong is not None:
        raise ValueError(f"{owner}: {wrong}")
    return labels


def by_fields(owner: str, y: np.ndarray) -> np.ndarray:
    """The labels of a structured array: its truth value is the event."""
    kinds = {name: y.dtype[name].kind for name in y.dtype.names or ()}
    event = [name for name, kind in kinds.items() if kind == "b"]
    time = [name for name, kind in kinds.items() if kind in "fiu"]
    if len(kinds) != 2 or len(event) != 1 or len(time) != 1:
        raise ValueError(f"{owner}: a structured y must have two fields, a truth value and a number, got {y.dtype}")
    return np.column_stack([y[time[0]].astype(np.float64), y[event[0]].astype(np.float64)])


def mistake(labels: np.ndarray) -> str | None:
    """What is wrong with rows of (time, event) or (entry, time, event), in a sentence; None where nothing is."""
    time, event = labels[:, -2], labels[:, -1]
    checks = [
        ("times and events must be finite numbers", ~np.isfinite(labels).all(axis=1)),
        ("times must be >= 0", time < 0),
        ("events must be 1, or 0 for rows without one", (event != 0) & (event != 1)),
    ]
    if labels.shape[1] == 3:
        entry = labels[:, 0]
        checks += [("entries must be >= 0", entry < 0), ("entries must be before times", entry >= time)]
    for rule, wrong in checks:
        if wrong.any():
            return f"{rule}, but {int(wrong.sum())} of {len(labels)} are not"
    return None
