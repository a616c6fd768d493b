"""A site's own end of the door: a request comes in as bytes, and an answer, or why there is none, goes out as bytes."""

import functools
import logging
import time
from collections.abc import Callable, Mapping

import jax
import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed.sites.base import QuestionRefused
from cofed.sites.columns import Label, TableInfo
from cofed.sites.design import Design
from cofed.sites.packing import Head, Malformed, clipped, pack, unpack
from cofed.sites.questions import Question, answer_arrays, question_hash, read_question
from cofed.sites.rows import SiteRows
from cofed.sites.site_table import SiteTable, TableMismatch

log = logging.getLogger("cofed")
TARGET = "y"  # the name of a target that has none


class Consent:
    """What a site agrees to be asked; this one agrees to everything that it can answer."""

    def refuses(self, design: Design) -> str | None:
        """Why a question about such rows is not answered, in a sentence; None where it is."""
        return None

    def tells(self, column: str) -> bool:
        """Whether the site tells what kind of column this is."""
        return True

    def markers(self) -> dict[str, tuple[Label, ...]]:
        """By column, what a missing value looks like beside an empty cell."""
        return {}


ANYTHING = Consent()


class LocalSite:
    """A site's own end: it answers the fixed list of queries from its own rows, and nothing else.

    Parameters
    ----------
    name : str
        The site's name.
    load : callable
        Gives its table; called once, when it is first asked about.
    consent : Consent
        What it agrees to be asked.

    Examples
    --------
    >>> table = pd.DataFrame({"age": [61, 52], "ill": ["no", "yes"]})
    >>> site = LocalSite("oslo", lambda: SiteTable(table, "oslo"))
    >>> unpack(site.answer(pack({"kind": "hello"}, {})))[0]["info"]["rows"]
    2
    """

    def __init__(self, name: str, load: Callable[[], SiteTable], consent: Consent = ANYTHING):
        self.name, self.load, self.consent = name, load, consent

    @functools.cached_property
    def table(self) -> SiteTable:
        """The site's table."""
        return self.load()

    def answer(self, request: bytes) -> bytes:
        """The reply to a request: this is the one door, and nothing goes out but through it.

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
            return {"info": self.info().model_dump(mode="json")}, {}
        if kind == "rows":
            return {"rows": len(self.rows(head.get("view")).X)}, {}
        if kind != "question":
            raise Malformed(f"the request is of the kind {clipped(kind)}, which is not known here")
        return self.to_question(read_question(request))

    def info(self) -> TableInfo:
        """What the site tells of its table."""
        info = self.table.info(self.consent.markers())
        return TableInfo(rows=info.rows, columns=tuple(one for one in info.columns if self.consent.tells(one.name)))

    def to_question(self, question: Question) -> tuple[Head, dict[str, np.ndarray]]:
        """The answer to a question, once it is known that it fits the rows."""
        query, message = question.query, question.message
        rows = self.rows(question.view)
        check_fit(question, rows)
        reason = query.refuses(rows.X, rows.y, message)
        if reason is not None:
            raise QuestionRefused(reason)
        arrays = answer_arrays(rows.answer(query, message))
        return {"finite": all(np.isfinite(array).all() for array in arrays.values())}, arrays

    def rows(self, view: object) -> SiteRows:
        """The rows that a request is about: those that its design makes of the table."""
        try:
            design = Design.model_validate(view["design"] if isinstance(view, Mapping) else None)
        except (ValueError, KeyError):
            raise Malformed("the request has no design that can be read") from None
        reason = self.consent.refuses(design)
        if reason is not None:
            raise QuestionRefused(reason)
        try:
            return self.table.rows(design)
        except TableMismatch as error:
            log.warning("cofed: the table does not fit the design: %s", error)
            # What does not fit may be told by values of the table, which stay here.
            raise QuestionRefused("its table does not fit the design; the site's own log says what does not") from None


def check_fit(question: Question, rows: SiteRows) -> None:
    """Refuse a message whose arrays do not fit the rows or one another, before anything is computed."""
    query, message = question.query, question.message
    p, scaling = rows.X.shape[1], message.scaling
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


def table_of_arrays(site: str, X: npt.ArrayLike | pd.DataFrame, y: npt.ArrayLike | pd.Series) -> SiteTable:
    """A site's table from features and labels. Columns without names are x0, x1, ..., and the labels' is y.

    >>> table_of_arrays("oslo", [[1.0, 2.0], [3.0, 4.0]], ["ill", "well"]).frame.columns.tolist()
    ['x0', 'x1', 'y']
    """
    if isinstance(X, pd.DataFrame):
        frame = X.reset_index(drop=True)
    else:
        values = np.asarray(X)
        if values.ndim != 2:
            raise ValueError(f"site {site!r}: X must have rows and columns, got the shape {values.shape}")
        frame = pd.DataFrame(values, columns=[f"x{j}" for j in range(values.shape[1])])
    labels = np.asarray(y)
    if labels.shape != (len(frame),):
        raise ValueError(
            f"site {site!r}: y must have a label for each of {len(frame)} rows, got the shape {labels.shape}"
        )
    name = str(y.name) if isinstance(y, pd.Series) and y.name is not None else TARGET
    if name in frame.columns:
        raise ValueError(f"site {site!r}: X has a column {name!r}, which is the name of the labels; call it otherwise")
    return SiteTable(frame.assign(**{name: labels}), site)
