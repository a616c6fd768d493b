"""A site's own end of the door: a request comes in as bytes, and an answer, or why there is none, goes out as bytes."""

import functools
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

import jax
import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed.sites.base import QuestionRefused
from cofed.sites.packing import Head, Malformed, clipped, pack, unpack
from cofed.sites.questions import Question, answer_arrays, question_hash, read_question
from cofed.sites.rows import SiteRows

log = logging.getLogger("cofed")
MOST_CLASSES = 1000


class AbstractSource(ABC):
    """Where a site's rows come from."""

    @abstractmethod
    def info(self) -> Head:
        """What the site tells of them before any question: counts, names and kinds, as JSON holds them."""

    @abstractmethod
    def classes(self, view: Mapping[str, object]) -> list[bool | int | float | str]:
        """The different labels, in order."""

    @abstractmethod
    def rows(self, view: Mapping[str, object]) -> SiteRows:
        """The rows that a question with this view is about."""


class Arrays(AbstractSource):
    """A site's rows as arrays: features in X, a label for each row in y.

    Parameters
    ----------
    site : str
        The site's name.
    X : array_like or DataFrame of shape (n, p)
        Finite numbers. The columns of a DataFrame name the features.
    y : array_like of shape (n,), optional
        The labels.

    Raises
    ------
    ValueError
        Where these are not what they should be, in a sentence that names the site and the column.

    Examples
    --------
    >>> Arrays("oslo", [[1.0, 2.0], [3.0, 4.0]], ["ill", "well"]).info()
    {'rows': 2, 'features': 2, 'feature_names': None, 'labels': 'classes'}
    """

    def __init__(self, site: str, X: npt.ArrayLike | pd.DataFrame, y: npt.ArrayLike | None = None):
        self.site, self.names = site, None
        if isinstance(X, pd.DataFrame):
            self.names = [str(name) for name in X.columns]
        try:
            self.X = np.asarray(X, np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"the site {site}: X must be numbers, but {error}") from None
        if self.X.ndim != 2 or not self.X.size:
            raise ValueError(f"the site {site}: X must have rows and columns, got the shape {self.X.shape}")
        bad = np.flatnonzero(~np.isfinite(self.X).all(axis=0))
        if len(bad):
            column = bad[0] if self.names is None else repr(self.names[bad[0]])
            raise ValueError(f"the site {site}: X has missing or infinite values in the column {column}")
        self.y = None if y is None else checked_labels(site, y, len(self.X))
        self.kept: tuple[object, SiteRows] | None = None

    def info(self) -> Head:
        kind = None if self.y is None else "numbers" if self.y.dtype.kind in "biuf" else "classes"
        return {"rows": len(self.X), "features": self.X.shape[1], "feature_names": self.names, "labels": kind}

    def classes(self, view: Mapping[str, object]) -> list[bool | int | float | str]:
        if self.y is None:
            raise QuestionRefused("the site has no labels")
        found = np.unique(self.y)
        if len(found) > MOST_CLASSES:
            raise QuestionRefused(f"the labels have {len(found)} different values: they are no classes")
        return found.tolist()

    def rows(self, view: Mapping[str, object]) -> SiteRows:
        if self.kept is None or self.kept[0] != view:
            names, site = (self.site,), np.zeros(len(self.X), np.int32)
            self.kept = dict(view), SiteRows(names, self.X, self.labels(view), site)
        return self.kept[1]

    def labels(self, view: Mapping[str, object]) -> np.ndarray:
        """The labels as a question reads them: numbers, or positions among classes."""
        wanted = view.get("labels")
        if wanted is None:
            return np.zeros(0)
        if self.y is None:
            raise QuestionRefused("the site has no labels")
        if wanted == "numbers":
            if self.y.dtype.kind not in "biuf":
                raise QuestionRefused(f"the labels must be numbers, but there are such as {clipped(self.y[0])}")
            return np.asarray(self.y, np.float64)
        if not isinstance(wanted, list) or not wanted:
            raise Malformed(f"the question reads the labels as {clipped(wanted)}")
        place = {label: position for position, label in enumerate(wanted)}
        other = [label for label in np.unique(self.y).tolist() if label not in place]
        if other:
            raise QuestionRefused(f"the site has labels that are not among the classes, such as {clipped(other[0])}")
        return np.array([place[label] for label in self.y.tolist()], np.int32)


def checked_labels(site: str, y: npt.ArrayLike, rows: int) -> np.ndarray:
    """The labels of a site: one for each row, none missing."""
    labels = np.asarray(y)
    if labels.shape != (rows,):
        raise ValueError(f"the site {site}: y must have a label for each of {rows} rows, got the shape {labels.shape}")
    if pd.isna(labels).any() or (labels.dtype.kind == "f" and not np.isfinite(labels).all()):
        raise ValueError(f"the site {site}: y has missing or infinite values")
    if labels.dtype.kind in "biufU":
        return labels
    if all(isinstance(label, str) for label in labels.tolist()):
        return labels.astype(str)
    raise ValueError(f"the site {site}: y must be numbers or texts, got such as {clipped(labels[0])}")


class LocalSite:
    """A site's own end: it answers the fixed list of queries from its own rows, and nothing else.

    Parameters
    ----------
    name : str
        The site's name.
    load : callable
        Gives its rows, an `AbstractSource`; called once, when they are first asked about.

    Examples
    --------
    >>> from cofed.sites.packing import pack, unpack
    >>> site = LocalSite("oslo", lambda: Arrays("oslo", [[1.0], [2.0]], [0.0, 1.0]))
    >>> unpack(site.answer(pack({"kind": "hello"}, {})))[0]["info"]["rows"]
    2
    """

    def __init__(self, name: str, load: Callable[[], AbstractSource]):
        self.name, self.load = name, load

    @functools.cached_property
    def source(self) -> AbstractSource:
        """The site's rows."""
        return self.load()

    def answer(self, request: bytes) -> bytes:
        """The reply to a request: this is the one door, which nothing else goes out of.

        What is wrong with the request, and why it is refused, is said in the reply. The text of any other error may
        quote data, so it stays in the site's own log.
        """
        began = time.perf_counter()
        head: Head = {"site": self.name, "answers": question_hash(request), "kind": "", "trouble": ""}
        arrays: dict[str, np.ndarray] = {}
        try:
            found, arrays = self.answered(request)
            head |= found
        except (Malformed, QuestionRefused) as error:
            head |= {"kind": type(error).__name__, "trouble": str(error)}
            log.warning("cofed: %s", error)
        except Exception as error:
            words = f"it failed with a {type(error).__name__}; the site's own log says more"
            head |= {"kind": "Failed", "trouble": words}
            log.exception("cofed: the site %s failed", self.name)
        return pack(head | {"seconds": time.perf_counter() - began}, arrays)

    def answered(self, request: bytes) -> tuple[Head, dict[str, np.ndarray]]:
        """What is said, and the arrays that are sent, where all goes well."""
        jax.config.update("jax_enable_x64", True)
        head, _ = unpack(request)
        kind = head.get("kind")
        if kind == "hello":
            return {"info": self.source.info()}, {}
        if kind == "classes":
            view = head.get("view")
            if not isinstance(view, dict):
                raise Malformed("the request has no view")
            return {"classes": self.source.classes(view)}, {}
        if kind != "question":
            raise Malformed(f"the request is of the kind {clipped(kind)}, which is not known here")
        return self.to_question(read_question(request))

    def to_question(self, question: Question) -> tuple[Head, dict[str, np.ndarray]]:
        """The answer to a question, once it is known that it fits the rows."""
        query, message = question.query, question.message
        rows = self.source.rows(question.view)
        check_fit(question, rows)
        reason = query.refuses(rows.X, rows.y, message)
        if reason is not None:
            raise QuestionRefused(reason)
        arrays = answer_arrays(rows.answer(query, message))
        return {"finite": all(np.isfinite(array).all() for array in arrays.values())}, arrays


def check_fit(question: Question, rows: SiteRows) -> None:
    """Refuse a message whose arrays do not fit the rows or one another, before anything is computed."""
    query, message = question.query, question.message
    p = rows.X.shape[1]
    scaling = message.scaling
    if scaling is not None and not (scaling.centre.shape == scaling.width.shape == (p,)):
        raise Malformed(f"the question's units are for {scaling.centre.shape} features, but there are {p} here")
    if message.folds is not None and message.folds.count < 1:
        raise Malformed(f"the question speaks of {message.folds.count} folds")
    try:
        query.shape(message, p)
    except Exception as error:  # whatever JAX says of arrays that do not fit
        raise Malformed(
            f"the question {query.name} does not fit {p} features, or its arrays do not fit each other "
            f"({type(error).__name__})"
        ) from None
