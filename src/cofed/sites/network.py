"""Sites whose rows are elsewhere: the server's end of the door, whatever carries the messages."""

import functools
import hashlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, NoReturn, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from cofed._util import naming
from cofed.models import Weights
from cofed.sites.addition import AbstractAddition, MaskedAddition, PlainAddition, Posed, read_finite
from cofed.sites.agreement import agree_on_fills
from cofed.sites.base import AbstractSites, QuestionRefused, SiteRefused, TrainingPlan
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.columns import TableInfo
from cofed.sites.design import Design
from cofed.sites.exchange_log import Entry, ExchangeLog, read_log
from cofed.sites.exchanges import Exchange, Exchanges
from cofed.sites.link import (
    AbstractLink,
    CardsChanged,
    NumbersChanged,
    Replies,
    SitesMissing,
    going_on,
    left_out_after,
)
from cofed.sites.packing import Head, pack
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.questions import question_hash, read_answer
from cofed.sites.replies import Reply, opened, whole_number
from cofed.sites.secure.sum_request import LEAST_SITES
from cofed.sites.site_table import parts

T = TypeVar("T")
MOST_ATTEMPTS = 5  # at one exchange


class Asking(NamedTuple):
    """What an exchange with the sites has given, for its log."""

    replies: Replies
    said: Head  # what was learnt beside arrays
    arrays: dict[str, np.ndarray]


class Network(NamedTuple):
    """What the views of the same sites share."""

    link: AbstractLink
    infos: Mapping[str, TableInfo]  # what each site tells of its table, in the order in which answers are added up
    columns: ChosenColumns
    heads: dict[str, str]  # the newest lines of the sites' logs of what left, as they are heard of
    log: ExchangeLog | None = None
    left_out: tuple[str, ...] = ()
    folder: Path | None = None  # for logs: of a fit over all sites, and in it of those over fewer
    reasons: Mapping[str, str] = MappingProxyType({})  # why sites were left out, of those that did not answer

    @property
    def addition(self) -> AbstractAddition:
        """How the sites' answers become a sum."""
        invitation = self.link.invitation
        if not invitation.is_masked:
            return PlainAddition()
        return MaskedAddition(invitation, {site: self.link.cards[site] for site in self.infos}, self.heads)

    def logged(self) -> "Network":
        """The network with its log, where there is a folder for it; refused where that is of another fit."""
        if self.folder is None:
            return self
        folder = folder_without(self.folder, self.left_out)
        tables = {
            site: hashlib.sha256(info.model_dump_json().encode()).hexdigest() for site, info in self.infos.items()
        }
        log = ExchangeLog(folder)
        log.begin({"tables": tables, "columns": self.columns.as_json(), "left_out": self.left_out})
        return self._replace(log=log)

    def without(self, names: Sequence[str]) -> "Network":
        """The others alone, from the beginning: nothing that was asked counts."""
        infos = {site: info for site, info in self.infos.items() if site not in names}
        if not infos:
            raise ValueError("no site would be left")
        gone = tuple(sorted({*self.left_out, *names}, key=naming.natural))
        self.link.exchanges.clear()
        return self._replace(infos=infos, left_out=gone, log=None).logged()

    def after(self, error: SitesMissing | SiteRefused) -> "Network":
        """The sites that a fit goes on with where others are silent or refuse; the error where it cannot go on."""
        reasons = left_out_after(error, self.link.invitation, list(self.infos))
        others = self.without(list(reasons))._replace(reasons={**self.reasons, **reasons})
        for site, why in reasons.items():
            self.link.exchanges.tell("left out", site=site, words=f"Without {site}: {why}. Beginning anew.")
        return others


class NetworkSites(AbstractSites):
    """Sites whose rows are elsewhere; `cofed.flower.sites` gives them.

    Parameters
    ----------
    network : Network
        How they are reached, and what they tell of themselves.
    design : Design
        How the sites' tables become numbers.
    sizes : tuple of int
        How many rows each site has in the design.
    exchanges : Exchanges
        What has been asked so far.

    Attributes
    ----------
    left_out : tuple of str
        Sites that were left out, see `without`.
    """

    def __init__(self, network: Network, design: Design, sizes: tuple[int, ...], exchanges: Exchanges):
        self.network, self.design, self.sizes, self.exchanges = network, design, sizes, exchanges
        self.agreed, self.is_masked = design, network.link.invitation.is_masked
        self.left_out = network.left_out
        self.names, self.feature_names = tuple(network.infos), design.feature_names
        self.n_features = len(design.feature_names)
        self.sums_only = network.link.invitation.is_masked
        self.view = {"design": design.model_dump(mode="json")}

    @classmethod
    def open(
        cls,
        link: AbstractLink,
        wanted: Sequence[str] | int,
        columns: ChosenColumns,
        log: Path | None = None,
        drop: bool = False,
    ) -> "NetworkSites":
        """The sites that a link reaches, once they are all there and have agreed on what their tables hold.

        With `drop`, sites with names that do not come, fall silent or refuse are left out, where that may be.
        """
        began, absent = time.perf_counter(), {}
        try:
            infos = link.gather(wanted)
        except SitesMissing as missing:
            if not drop or isinstance(wanted, int):
                raise
            infos, absent = link.gather(going_on(link.invitation, wanted, missing)), missing.sites
        if link.invitation.is_masked and len(infos) < LEAST_SITES:
            raise ValueError(
                "the answers of a single site cannot be masked, as their sum would be its own; give plain=True "
                "(--plain) where the server may see them"
            )
        order = sorted(infos, key=naming.natural)
        told = sum(len(info.model_dump_json()) for info in infos.values())
        link.exchanges.append(Exchange("columns", 1, 0, told, time.perf_counter() - began))
        sites, gone = {site: infos[site] for site in order}, tuple(sorted(absent, key=naming.natural))
        network = Network(link, sites, columns, {}, left_out=gone, folder=log, reasons=absent)
        return cls.begin(network.logged(), drop)

    @classmethod
    def begin(cls, network: Network, drop: bool = False) -> "NetworkSites":
        """The sites of a network, once they have agreed on a design; see `open` for `drop`."""
        while True:
            design = network.columns.agreed(network.infos)
            try:
                return cls(network, design, (), network.link.exchanges).with_design(design)
            except (SitesMissing, SiteRefused) as error:  # rows were to be counted, or gaps to be filled
                if not drop:
                    raise
                network = network.after(error)

    # Exchanges

    def exchange(self, query: AbstractQuery, message: Message) -> tuple[PyTree, int, int]:
        posed = self.posed(query, message)

        def ask() -> Asking:
            replies, arrays = self.added(posed)
            return Asking(replies, {}, arrays)

        done, arrays = self.once((query.name, query.version), question_hash(posed.bytes), ask)
        return read_answer(arrays, posed.shape), done.down, done.up

    def once(
        self, what: tuple[str, int], mark: str, ask: Callable[[], "Asking"]
    ) -> tuple[Entry, dict[str, np.ndarray]]:
        """One exchange: from the log where it has happened, else with the sites, and then into the log."""
        log = self.network.log
        if log is not None and (known := log.recall(what[0], mark)) is not None:
            return known
        began = time.perf_counter()
        asked = ask()
        seconds = time.perf_counter() - began
        done = Entry(0, *what, mark, asked.replies.down, asked.replies.up, seconds, self.names, asked.said)
        if log is not None:
            log.add(done, asked.arrays)
        return done, asked.arrays

    def posed(self, query: AbstractQuery, message: Message) -> Posed:
        """A question about the sites' tables."""
        jax.config.update("jax_enable_x64", True)
        return Posed(query, message, self.view, query.shape(message, self.n_features))

    def added(self, posed: Posed) -> tuple[Replies[PyTree], dict[str, np.ndarray]]:
        """The replies of all sites, and their sum. An attempt that cannot lead to a sum is followed by another."""
        for attempt in range(MOST_ATTEMPTS):
            addition = self.network.addition
            request = addition.request(posed, (len(self.exchanges), attempt))
            try:
                replies = self.replies(request, functools.partial(addition.read, posed))
            except (CardsChanged, NumbersChanged) as error:
                self.exchanges.tell("again", words=f"the question {posed.query.name} is asked anew: {error}")
                continue
            return replies, addition.total(posed, [replies.by_site[site] for site in self.names])
        raise RuntimeError(
            f"the question {posed.query.name} was asked {MOST_ATTEMPTS} times, and the sites' keys or numbers changed "
            "each time; give each site a folder to keep its keys in (keep=)"
        )

    def replies(self, request: bytes, read: Callable[[str, str, Reply], T]) -> Replies[T]:
        """What was read of all sites' replies to a request."""
        mark = question_hash(request)
        return self.network.link.ask_all(
            request, self.names, lambda site, reply: read(site, mark, opened(site, mark, reply))
        )

    def ask_each(self, query: AbstractQuery, message: Message) -> dict[str, PyTree]:
        self.refuse_masked()
        posed = self.posed(query, message)
        began = time.perf_counter()
        replies = self.replies(posed.bytes, lambda site, mark, reply: read_finite(*reply, posed.shape))
        seconds = time.perf_counter() - began
        self.exchanges.append(Exchange(query.name, 1, replies.down, replies.up, seconds))
        return {site: replies.by_site[site] for site in self.names}

    def alone(self, site: str) -> "NetworkSites":
        self.refuse_masked()
        # The log tells questions apart, not whom they were put to: without it no site's answer is taken for another's.
        network = self.network._replace(infos={site: self.network.infos[site]}, log=None)
        return NetworkSites(network, self.agreed, (self.sizes[self.names.index(site)],), self.exchanges)

    def refuse_masked(self) -> None:
        """Refuse what needs each site's own answer where nobody learns it."""
        if self.is_masked:
            raise QuestionRefused("the sites' answers are masked: nobody learns more than their sum")

    def rows_in_design(self) -> tuple[int, ...]:
        """How many rows each site has in the design, where rows with missing values are dropped."""
        began = time.perf_counter()
        study = self.network.link.invitation.study
        request = pack({"kind": "rows", "study": study, "view": self.view}, {})

        def ask() -> Asking:
            replies = self.replies(request, lambda site, mark, reply: whole_number(reply[0].get("rows")))
            return Asking(replies, {"rows": [replies.by_site[site] for site in self.names]}, {})

        done, _ = self.once(("rows", 1), question_hash(request), ask)
        self.exchanges.append(Exchange("rows", 1, done.down, done.up, time.perf_counter() - began))
        rows = done.said["rows"]
        assert isinstance(rows, list)
        return tuple(whole_number(one) for one in rows)

    # Views

    @property
    def infos(self) -> dict[str, TableInfo]:
        return dict(self.network.infos)

    def with_design(self, design: Design) -> "NetworkSites":
        network, sizes = self.network, tuple(info.rows for info in self.network.infos.values())
        if design.needs_fills:
            kept = NetworkSites(network, design.keeping_missing(), sizes, self.exchanges)
            design = agree_on_fills(design, kept)
        sites = NetworkSites(network, design, sizes, self.exchanges)
        gaps = any(column.missing for info in network.infos.values() for column in info.columns)
        told = {column.name for info in network.infos.values() for column in info.columns}
        marked = any(part.markers or part.name not in told for part in parts(design))
        if (design.missing in ("drop", "impute") and (gaps or marked)) or design.weight is not None:
            sites.sizes = sites.rows_in_design()
        return sites

    def of_numbers(self) -> "NetworkSites":
        return self.with_target(classify=False)

    def of_classes(self) -> tuple["NetworkSites", np.ndarray]:
        sites = self.with_target(classify=True)
        classes = sites.agreed.classes
        assert classes is not None
        return sites, classes

    def of_responses(self) -> tuple["NetworkSites", tuple[str, ...]]:
        target = self.agreed.target
        sites = self if target is not None and target.responses else self.of_numbers()
        assert sites.agreed.target is not None
        return sites, tuple(one.name for one in sites.agreed.target.columns)

    def of_times(self) -> "NetworkSites":
        if self.agreed.target is None or self.agreed.target.event is None:
            raise QuestionRefused("the sites have no times to an event: give a target such as Target(name=, event=)")
        return self

    def with_target(self, classify: bool) -> "NetworkSites":
        """The same sites with a target that is a number or a class; what was asked counts on."""
        if self.agreed.target is None:
            raise ValueError("the sites have no target; say which column is predicted, such as target='cost'")
        if self.agreed.target.event is not None:
            raise QuestionRefused(f"the target {self.agreed.target.name!r} is times to an event, for FederatedCox")
        if self.agreed.target.responses:
            several = naming.listed(one.name for one in self.agreed.target.columns)
            raise QuestionRefused(f"the target is several responses, {several}, for FederatedMultiTaskLasso")
        if (self.agreed.classes is not None) == classify:
            return self
        if self.network.columns.design is not None:
            kinds = ("a number", "a class") if classify else ("a class", "a number")
            raise ValueError(
                f"the target {self.agreed.target.name!r} is {kinds[0]} by the design, but must be {kinds[1]}"
            )
        target = self.network.columns.agreed(self.infos, classify).target
        design = self.agreed.model_copy(update={"target": target})
        return NetworkSites(self.network, design, self.sizes, self.exchanges)

    def with_class_weight(self, weights: tuple[float, ...]) -> "NetworkSites":
        design = self.agreed.model_copy(update={"class_weight": weights})
        return NetworkSites(self.network, design, self.sizes, self.exchanges)

    def without(self, names: Sequence[str]) -> "NetworkSites":
        """The other sites alone, from the beginning: nothing that was asked counts.

        Parameters
        ----------
        names : sequence of str
            The sites to leave out, such as those of a `SitesMissing`.

        Returns
        -------
        NetworkSites
            The others, with a log of their own in a folder of the log, and `left_out` naming those without.
        """
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of the sites, which are {', '.join(self.names)}")
        return NetworkSites.begin(self.network.without(names))

    def after(self, error: SitesMissing | SiteRefused) -> "NetworkSites":
        """The sites that a fit goes on with where others are silent or refuse, from the beginning.

        Parameters
        ----------
        error : SitesMissing or SiteRefused
            What ended the fit.

        Returns
        -------
        NetworkSites
            The others, as `without` gives them.

        Raises
        ------
        SitesMissing, SiteRefused
            Where there can be no such fit: a site of a study with keys must agree first, a rule is about who takes
            part, or nobody may know which site it is.
        """
        return NetworkSites.begin(self.network.after(error), drop=True)

    def train(self, plan: TrainingPlan, w: Weights) -> NoReturn:
        """Algorithms run over the network with `cofed federate` or `cofed.flower.serve`, and not at this door."""
        raise NotImplementedError(
            f"sites over a network answer questions, and this fit needs rounds of {type(plan.algorithm).__name__}: use "
            "`cofed federate` or cofed.flower.serve for those, or a solver that asks questions"
        )


def folder_without(folder: Path, gone: Sequence[str]) -> Path:
    """The folder for the log of a fit without these sites: another for each such set, and the same for the same."""
    for place in itertools.count(1) if gone else ():
        found = folder / (f"without-{len(gone)}" + (f"-{place}" if place > 1 else ""))
        lines = read_log(found)
        if not lines or lines[0].get("left_out") == list(gone):
            return found
    return folder
