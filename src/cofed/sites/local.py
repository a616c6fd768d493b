"""A site's own end of the door: a request comes in as bytes, and an answer, or why there is none, goes out as bytes."""

import dataclasses
import functools
import hashlib
import json
import logging
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import jax
import numpy as np
import numpy.typing as npt
import pandas as pd

from cofed.sites.audit import AUDIT_LOG, AuditEvent, AuditLog
from cofed.sites.base import QuestionRefused
from cofed.sites.columns import Label, TableInfo
from cofed.sites.design import Design
from cofed.sites.guard import AbstractGuard, Asked, OpenGuard, Refusal, SumOver
from cofed.sites.packing import Head, Malformed, clipped, pack, unpack
from cofed.sites.queries import AbstractPrivateQuery, Message, sums
from cofed.sites.question_checks import check_fit, check_loss
from cofed.sites.questions import Question, answer_arrays, flat, question_hash, read_question
from cofed.sites.rows import SiteRows
from cofed.sites.secure.cards import DIGITS, RUN, Card, log_words
from cofed.sites.secure.keys import SiteKeys
from cofed.sites.secure.site_end import SiteMasks, reply_words
from cofed.sites.secure.sum_request import SumRequest, read_sum
from cofed.sites.site_table import SiteTable, TableMismatch

log = logging.getLogger("cofed")
TARGET = "y"  # the name of a target that has none


class Consent:
    """What a site agrees to be asked; this one agrees to everything that it can answer."""

    def refuses(self, design: Design, study: str = "") -> str | None:
        """Why a question about such rows, of the study with this hash, is not answered; None where it is."""
        return None

    def told(self, columns: Iterable[str], study: str = "") -> frozenset[str]:
        """Which of these columns the site tells of, to a server that asks for the study with this hash."""
        return frozenset(columns)

    def markers(self) -> dict[str, tuple[Label, ...]]:
        """By column, what a missing value looks like beside an empty cell."""
        return {}

    def roster(self, study: str) -> Mapping[str, str] | None:
        """The long-term keys of the sites of the study with this hash; None where it was not approved, or has none."""
        return None

    def releasable(self, study: str) -> frozenset[str]:
        """The sites of the study with this hash that agree to sums with and without them."""
        return frozenset()


ANYTHING = Consent()
NO_RULES = OpenGuard()


class LocalSite:
    """A site's own end: it answers the fixed list of queries from its own rows, and nothing else.

    Parameters
    ----------
    name : str
        The site's name.
    load : callable
        Gives its table; called once, when it is first asked about.
    consent : Consent
        Which studies it agrees to be asked about.
    guard : AbstractGuard
        Its rules, for every question.
    keep : Path, optional
        A folder of its own for its keys; None is keys that end with the process.

    Examples
    --------
    >>> import pandas as pd
    >>> from cofed.sites import SiteTable
    >>> from cofed.sites.local import LocalSite
    >>> from cofed.sites.packing import pack, unpack
    >>> table = pd.DataFrame({"age": [61, 52], "ill": ["no", "yes"]})
    >>> site = LocalSite("oslo", lambda: SiteTable(table, "oslo"))
    >>> unpack(site.answer(pack({"kind": "hello"}, {})))[0]["info"]["rows"]
    2
    """

    def __init__(
        self,
        name: str,
        load: Callable[[], SiteTable],
        consent: Consent = ANYTHING,
        guard: AbstractGuard = NO_RULES,
        keep: Path | None = None,
    ):
        self.name, self.load, self.consent, self.guard, self.keep = name, load, consent, guard, keep

    @functools.cached_property
    def table(self) -> SiteTable:
        """The site's table."""
        return self.load()

    @functools.cached_property
    def audit(self) -> AuditLog | None:
        """The log of what left."""
        return None if self.keep is None else AuditLog(self.keep / AUDIT_LOG, self.name, self.masks.keys.sign)

    @functools.cached_property
    def masks(self) -> SiteMasks:
        """The site's part in sums of which nobody sees the parts."""
        keys = SiteKeys.new() if self.keep is None else SiteKeys.of_folder(self.keep)
        return SiteMasks(self.name, keys, self.keep)

    def answer(self, request: bytes) -> bytes:
        """The reply to a request: this is the one door, and nothing goes out but through it.

        What is wrong with the request, and why it is refused, is said in the reply. The text of any other error may
        quote data, so it stays in the site's own log.
        """
        mark = question_hash(request)
        head: Head = {"site": self.name, "answers": mark, "kind": "", "trouble": ""}
        try:
            found, arrays = self.audited(request, mark)
            return pack(head | found, arrays)
        except (Malformed, QuestionRefused) as error:
            head |= {"kind": type(error).__name__, "trouble": str(error)}
            log.warning("cofed: %s", error)
        except Exception as error:
            words = f"it failed with a {type(error).__name__}; the site's own log says more"
            head |= {"kind": "Failed", "trouble": words}
            log.exception("cofed: the site %s failed", self.name)
        return pack(head, {})

    def audited(self, request: bytes, mark: str) -> tuple[Head, dict[str, np.ndarray]]:
        """The answer, once the log of what left speaks of it; where that cannot be written, nothing leaves."""
        about: dict[str, object] = {"request": mark}  # what the log will say
        try:
            found, arrays = self.answered(request, about)
        except Exception as error:
            refused = isinstance(error, QuestionRefused)
            about |= {"event": "refusal" if refused else "failure"}
            about.setdefault("note", str(error) if refused else type(error).__name__)  # what fails may quote data
            self.note(about | {"decision": "refused" if refused else None})
            raise
        if about.get("event") is None:
            return found, arrays
        said = pack(found, {})
        about["shapes"] = {name: array.shape for name, array in arrays.items()}
        about["size"] = sum(array.nbytes for array in arrays.values()) or len(said)
        about["content"] = self.content_mark(said, arrays, bool(about.get("is_masked")))
        newest = self.note(about)
        if newest is None or not about.get("is_masked"):
            return found, arrays
        # The others' logs will hold it, so that this one cannot be cut without their noticing.
        signature = self.masks.keys.sign(log_words(str(about["run"]), self.name, newest))
        return found | {"log": newest + signature}, arrays

    def note(self, about: Mapping[str, object]) -> str | None:
        """Write a line into the log of what left, where the site has a folder for it; gives the log's newest hash."""
        return None if self.audit is None else self.audit.add(AuditEvent.model_validate(about))

    def content_mark(self, said: bytes, arrays: Mapping[str, np.ndarray], is_masked: bool) -> str:
        """A hash of what leaves; of what is not masked only this site can make it, as others could try out data."""
        data = b"".join(np.ascontiguousarray(arrays[name]).tobytes() for name in sorted(arrays))
        return hashlib.sha256(data).hexdigest() if is_masked else self.masks.keys.mark(b"content", said, data).hex()

    def answered(self, request: bytes, about: dict[str, object]) -> tuple[Head, dict[str, np.ndarray]]:
        """What is said, and the arrays that are sent, where all goes well; `about` is told what the log will say."""
        jax.config.update("jax_enable_x64", True)
        head, _ = unpack(request)
        kind = head.get("kind")
        if kind == "hello":
            card, study = self.card(head), str(head.get("study", ""))
            about |= {"study": study, "run": head.get("run", "")}
            refusal = self.guard.refuses_hello(self.consent.roster(study) is not None)
            if refusal is not None:
                about |= {"rule": refusal.rule, "note": refusal.noted}
                log.warning("cofed: a server is not told what the table is like: %s", refusal.sentence)
                raise QuestionRefused(refusal.told)
            about["event"] = "hello"
            return {"info": self.info(study).model_dump(mode="json"), "card": card}, {}
        if kind == "rows":
            return self.count(head, about), {}
        if kind == "end":
            return self.end(head), {}
        if kind != "question":
            raise Malformed(f"the request is of the kind {clipped(kind)}, which is not known here")
        question, total = read_question(request), None if "sum" not in head else read_sum(head["sum"])
        about |= {"query": question.query.name, "version": question.query.version}
        if total is not None:
            ticket = "/".join(map(str, total.ticket))
            about |= {"study": total.study, "run": total.run, "ticket": ticket, "sites": total.names}
            about |= {"heads": {site: head[:DIGITS] for site, head in total.heads.items() if site != self.name}}
        return self.to_question(question, total, about)

    # Who the site is

    def info(self, study: str = "") -> TableInfo:
        """What the site tells of its table to a server that asks for the study with this hash."""
        info = self.table.info(self.consent.markers())
        told = self.consent.told((one.name for one in info.columns), study)
        return TableInfo(rows=info.rows, columns=tuple(one for one in info.columns if one.name in told))

    def card(self, head: Head) -> Head | None:
        """The site's card in the fit that a request begins; None where answers are not to be masked."""
        study, run = head.get("study", ""), head.get("run", "")
        if not isinstance(study, str) or not isinstance(run, str) or not (run == "" or RUN.fullmatch(run)):
            raise Malformed(f"the request is of the study {clipped(study)} and the fit {clipped(run)}")
        return self.own_card(study, run).model_dump() if run else None

    def own_card(self, study: str, run: str) -> Card:
        """The site's card in a fit: what it tells of its table there is also in `info`."""
        told = self.consent.told(self.constant, study)
        constant = tuple(name for name in self.constant if name in told)
        return self.masks.card(study, run, len(self.table.frame), self.table.digest, constant)

    @functools.cached_property
    def constant(self) -> tuple[str, ...]:
        """The columns that have one value, or none."""
        columns = self.table.info(self.consent.markers()).columns
        return tuple(one.name for one in columns if one.kind == "empty" or (one.levels and len(one.levels) == 1))

    def end(self, head: Head) -> Head:
        """Forget the keys of a fit that is over."""
        self.masks.end(str(head.get("study", "")), str(head.get("run", "")), self.table.digest)
        return {}

    # Questions

    def to_question(
        self, question: Question, total: SumRequest | None, about: dict[str, object]
    ) -> tuple[Head, dict[str, np.ndarray]]:
        """The answer to a question, once it is known that it fits the rows and may be answered."""
        design = self.design(question.view, "" if total is None else total.study)
        over = None if total is None else self.over(total)
        check_fit(question, len(design.feature_names))
        check_loss(question.message, design)
        if question.message.folds is not None and (
            wrong := question.message.folds.wrong(self.name, design.group is not None)
        ):
            raise Malformed(wrong)
        asked = Asked(question, question.digest, design, self.table, over)
        refusal, arrays = self.judged(asked, self.noise_secret(question, total))
        if refusal is not None:
            about["rule"] = refusal.rule
            log.warning("cofed: the question %s is not answered: %s", question.query.name, refusal.sentence)
            if total is None or not refusal.is_silent:
                about["note"] = refusal.noted
                raise QuestionRefused(refusal.told)
        about |= {"event": "answer", "is_masked": total is not None}
        about["decision"] = "allowed" if refusal is None else "refused"
        if total is None:
            return {"finite": all(np.isfinite(array).all() for array in arrays.values())}, arrays
        return self.masked(asked, total, str(about["request"]), None if refusal is not None else arrays)

    def judged(self, asked: Asked, noise: bytes) -> tuple[Refusal | None, dict[str, np.ndarray]]:
        """Why a question is not answered, and its answer, of some with noise from this secret.

        Where the answer is masked, nobody else may know of a refusal that depends on the rows. So it is computed all
        the same, as the time that it takes would tell, and whatever goes wrong is such a refusal.
        """
        query, message = asked.question.query, asked.question.message
        try:
            refusal = too_little_noise(asked) or self.guard.refuses(asked)
            if refusal is not None and (asked.over is None or not refusal.is_silent):
                return refusal, {}
            rows = self.rows(asked.design)
            if refusal is None and (reason := query.refuses(rows.X, rows.y, message)) is not None:
                refusal = Refusal("", reason, is_silent=True)
            return refusal, answer_arrays(rows.answer(query, message, noise))
        except Exception as error:
            if asked.over is None or isinstance(error, Malformed):
                raise
            log.exception("cofed: the site %s failed", self.name)
            return Refusal("", f"it failed with a {type(error).__name__}", is_silent=True), {}

    def noise_secret(self, question: Question, total: SumRequest | None) -> bytes:
        """What the noise of an answer is drawn from.

        Asked again in one fit, a question has the same noise, so that nothing can be averaged. Over other sites, in
        another fit, or after any site's table has changed (each has another key then), all sites have new noise: the
        difference of two sums with some of their noise in common would tell of the others with too little.
        """
        sites = () if total is None else sorted((card.site, card.key) for card in total.cards)
        return self.masks.keys.mark(b"noise of an answer", question.digest.encode(), json.dumps(sites).encode())

    def masked(
        self, asked: Asked, total: SumRequest, mark: str, arrays: Mapping[str, np.ndarray] | None
    ) -> tuple[Head, dict[str, np.ndarray]]:
        """The answer under a mask; None is that there is none."""
        own = self.masks.run_keys(total.study, total.run, self.table.digest)
        shape = asked.question.query.shape(asked.question.message, len(asked.design.feature_names))
        values = sum(math.prod(leaf.shape) for leaf in jax.tree.leaves(shape)) if arrays is None else flat(arrays)
        planes = self.masks.masked(total, mark, own, values)
        return {"signature": self.masks.keys.sign(reply_words(mark, planes))}, {"masked": planes.view(np.int64)}

    def count(self, head: Head, about: dict[str, object]) -> Head:
        """How many rows a design keeps, where the site has approved its study, or may tell a sum over them openly.

        A server that chooses what marks a missing value could count any rows so.
        """
        study, view = str(head.get("study", "")), head.get("view")
        about |= {"query": "rows", "study": study}
        design = self.design(view, study)
        if self.consent.roster(study) is None:
            question = Question(sums, Message(), view if isinstance(view, Mapping) else {})
            refusal = self.guard.refuses(Asked(question, question.digest, design, self.table, None))
            if refusal is not None:
                about |= {"rule": refusal.rule, "note": refusal.noted}
                log.warning("cofed: how many rows there are is not told: %s", refusal.sentence)
                raise QuestionRefused(refusal.told)
        found: Head = {"rows": len(self.rows(design).X)}
        about |= {"event": "hello"}
        return found

    def over(self, total: SumRequest) -> SumOver:
        """Over whom an answer is added up, checked."""
        own = self.own_card(total.study, total.run)
        over = self.masks.over(total, own, self.consent.roster(total.study))
        return dataclasses.replace(over, released=over.released | self.consent.releasable(total.study))

    def design(self, view: object, study: str = "") -> Design:
        """The design of a request, which this site agrees to be asked about."""
        try:
            design = Design.model_validate(view["design"] if isinstance(view, Mapping) else None)
        except (ValueError, KeyError):
            raise Malformed("the request has no design that can be read") from None
        reason = self.consent.refuses(design, study)
        if reason is not None:
            raise QuestionRefused(reason)
        return design

    def rows(self, design: Design) -> SiteRows:
        """The rows that a request is about: those that its design makes of the table."""
        try:
            return self.table.rows(design)
        except TableMismatch as error:
            log.warning("cofed: the table does not fit the design: %s", error)
            # What does not fit may be told by values of the table, which stay here.
            raise QuestionRefused("its table does not fit the design; the site's own log says what does not") from None


def too_little_noise(asked: Asked) -> Refusal | None:
    """Refuse a noised question that counts on the noise of too many sites."""
    query, message = asked.question.query, asked.question.message
    if not isinstance(query, AbstractPrivateQuery):
        return None
    lack = query.lacks(message, 1 if asked.over is None else len(asked.over.rows))
    return None if lack is None else Refusal("noise", lack)


def table_of_arrays(site: str, X: npt.ArrayLike | pd.DataFrame, y: npt.ArrayLike | pd.Series) -> SiteTable:
    """A site's table from features and labels. Columns without names are x0, x1, ..., and the labels' is y.

    >>> from cofed.sites.local import table_of_arrays
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
