"""Sites whose rows are elsewhere: the server's end of the door, whatever carries the messages."""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Generic, NamedTuple, NoReturn, TypeVar

import jax
import numpy as np
from jaxtyping import PyTree

from cofed._util import naming
from cofed.sites.base import AbstractSites, Exchange, QuestionRefused
from cofed.sites.exchange_log import Entry, ExchangeLog
from cofed.sites.packing import Head, Malformed, clipped, pack, unpack
from cofed.sites.queries.base import AbstractQuery, Message
from cofed.sites.questions import answer_arrays, question_bytes, question_hash, read_answer

T = TypeVar("T")
Label = bool | int | float | str


class SitesMissing(RuntimeError):
    """Sites did not answer, or answered badly, for as long as one was ready to wait; an exact sum needs them all.

    Attributes
    ----------
    sites : dict of str to str
        What is wrong with each of them.
    """

    def __init__(self, sentence: str, sites: Mapping[str, str]):
        super().__init__(sentence)
        self.sites = dict(sites)


class Replies(NamedTuple, Generic[T]):
    """What all sites have answered to one request."""

    by_site: dict[str, T]
    down: int  # bytes to all sites
    up: int  # bytes from all sites


class AbstractLink(ABC):
    """What carries requests to sites and their replies back."""

    @abstractmethod
    def gather(self, wanted: Sequence[str] | int) -> dict[str, Head]:
        """Wait for these sites, or for so many, and ask each what it tells of itself.

        Raises `SitesMissing` where they do not all come.
        """

    @abstractmethod
    def ask_all(self, request: bytes, sites: Sequence[str], read: Callable[[str, bytes], T]) -> Replies[T]:
        """Send a request to these sites until each has given a reply that `read` takes.

        A reply for which `read` raises a `Malformed` does not count. Any other error of it ends the exchange.
        Raises `SitesMissing` where one gives no such reply for long enough.
        """


class Network(NamedTuple):
    """What the views of the same sites share."""

    link: AbstractLink
    infos: Mapping[str, Head]  # what each site tells of itself, in the order in which answers are added up
    log: ExchangeLog | None
    left_out: tuple[str, ...] = ()


class NetworkSites(AbstractSites):
    """Sites whose rows are elsewhere; `cofed.flower.sites` gives them.

    Parameters
    ----------
    network : Network
        How they are reached, and what they tell of themselves.
    labels : str or list, optional
        How labels are read: "numbers", or as positions in this list of classes; None is not at all.

    Attributes
    ----------
    left_out : tuple of str
        Sites that were left out, see `without`.
    """

    def __init__(self, network: Network, labels: str | list | None = None):
        self.network, self.left_out = network, network.left_out
        self.view: dict[str, object] = {"labels": labels}
        self.names = tuple(network.infos)
        self.sizes = tuple(int(str(info["rows"])) for info in network.infos.values())
        first = next(iter(network.infos.values()))
        self.n_features = int(str(first["features"]))
        names = first["feature_names"]
        self.feature_names = tuple(map(str, names)) if isinstance(names, list) else None
        self.exchanges: list[Exchange] = []

    @classmethod
    def open(cls, link: AbstractLink, wanted: Sequence[str] | int, log: Path | None = None) -> "NetworkSites":
        """The sites that a link reaches, once they are all there, or those of a log that goes on."""
        infos = {site: checked_info(site, info) for site, info in link.gather(wanted).items()}
        order = sorted(infos, key=naming.natural)
        check_alike({site: infos[site] for site in order})
        return cls(begun(Network(link, {site: infos[site] for site in order}, None), log))

    def exchange(self, query: AbstractQuery, message: Message) -> tuple[PyTree, int, int]:
        jax.config.update("jax_enable_x64", True)
        shape = query.shape(message, self.n_features)

        def read(head: Head, arrays: Mapping[str, np.ndarray]) -> PyTree:
            finite = all(np.isfinite(array).all() for array in arrays.values())
            if head.get("finite") is not finite:  # a site says so where a model is so far off that a sum overflows
                raise Malformed(f"the answer {'says that it is not' if finite else 'is not'} finite")
            return read_answer(arrays, shape)

        def combine(answers: list[PyTree]) -> tuple[Head, dict[str, np.ndarray]]:
            return {}, answer_arrays(summed(answers))

        request = question_bytes(query, message, self.view)
        done, arrays = self.asked(request, (query.name, query.version), read, combine)
        return read_answer(arrays, shape), done.down, done.up

    def asked(
        self,
        request: bytes,
        what: tuple[str, int],
        read: Callable[[Head, Mapping[str, np.ndarray]], T],
        combine: Callable[[list[T]], tuple[Head, dict[str, np.ndarray]]],
    ) -> tuple[Entry, dict[str, np.ndarray]]:
        """One exchange: from the log where it has happened, else with the sites, and then into the log.

        `read` takes a site's reply, and `combine` what was read of all, in the sites' order.
        """
        number, mark, log = len(self.exchanges), question_hash(request), self.network.log
        if log is not None and (known := log.recall(number, what[0], mark)) is not None:
            return known
        began = time.perf_counter()
        replies = self.network.link.ask_all(
            request, self.names, lambda site, reply: read(*opened(site, mark, reply))
        )
        said, arrays = combine([replies.by_site[site] for site in self.names])
        seconds = time.perf_counter() - began
        done = Entry(number, *what, mark, replies.down, replies.up, seconds, self.names, said)
        if log is not None:
            log.add(done, arrays)
        return done, arrays

    def of_numbers(self) -> "NetworkSites":
        for site, info in self.network.infos.items():
            if info["labels"] != "numbers":
                raise ValueError(f"the labels of the site {site} must be numbers, but they are {info['labels'] or 'none'}")
        return self.read_as("numbers")

    def of_classes(self) -> tuple["NetworkSites", np.ndarray]:
        def combine(found: list[list[Label]]) -> tuple[Head, dict[str, np.ndarray]]:
            kinds = {isinstance(labels[0], str) for labels in found}
            if len(kinds) > 1:
                texts = [site for site, labels in zip(self.names, found, strict=True) if isinstance(labels[0], str)]
                raise ValueError(f"the labels are texts at the sites {', '.join(texts)}, and numbers at the others")
            return {"classes": np.unique(np.concatenate([np.asarray(labels) for labels in found])).tolist()}, {}

        began = time.perf_counter()
        request = pack({"kind": "classes", "view": self.view}, {})
        done, _ = self.asked(request, ("classes", 1), lambda head, _: read_classes(head), combine)
        self.exchanges.append(Exchange("classes", 1, done.down, done.up, time.perf_counter() - began))
        classes = read_classes(done.said)
        return self.read_as(classes), np.asarray(classes)

    def read_as(self, labels: str | list) -> "NetworkSites":
        """The same sites with labels read in another way; what was asked counts on."""
        other = NetworkSites(self.network, labels)
        other.exchanges = self.exchanges
        return other

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
        network = self.network
        unknown = [name for name in names if name not in self.names]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not one of the sites, which are {', '.join(self.names)}")
        infos = {site: info for site, info in network.infos.items() if site not in names}
        if not infos:
            raise ValueError("no site would be left")
        gone = (*network.left_out, *(site for site in self.names if site in names))
        folder = None if network.log is None else network.log.folder / f"without-{len(gone)}"
        return NetworkSites(begun(Network(network.link, infos, None, gone), folder))

    def train(self, *_: object) -> NoReturn:
        """Algorithms run over the network with `cofed federate` or `cofed.flower.serve`, and not at this door."""
        raise NotImplementedError(
            "sites over a network answer questions, and this fit needs rounds of an algorithm: use `cofed federate` or "
            "cofed.flower.serve for those, or a solver of the estimator that asks questions"
        )


def begun(network: Network, folder: Path | None) -> Network:
    """The network with its log in a folder, where one is given."""
    if folder is None:
        return network
    log = ExchangeLog(folder)
    log.begin({"sites": dict(network.infos), "left_out": list(network.left_out)})
    return network._replace(log=log)


def summed(answers: list[PyTree]) -> PyTree:
    """The sum of answers, added up in this order."""
    total = answers[0]
    for answer in answers[1:]:
        total = jax.tree.map(np.add, total, answer)
    return total


def opened(site: str, mark: str, reply: bytes) -> tuple[Head, dict[str, np.ndarray]]:
    """The head and arrays of a site's reply to the request with this hash."""
    head, arrays = unpack(reply)
    kind, trouble = head.get("kind"), head.get("trouble")
    if not isinstance(kind, str) or not isinstance(trouble, str):
        raise Malformed("the reply does not say whether it went well")
    words = trouble[:400] if trouble.isprintable() else clipped(trouble, 400)
    if kind == QuestionRefused.__name__:
        raise QuestionRefused(f"the site {site} does not answer: {words}")
    if kind or trouble:
        raise Malformed(words)
    if head.get("answers") != mark or head.get("site") != site:
        raise Malformed("the reply answers something else, or is of another site")
    return head, arrays


def read_classes(head: Head) -> list[Label]:
    """The labels that a site has told."""
    labels = head.get("classes")
    if not isinstance(labels, list) or not labels:
        raise Malformed(f"the reply gives the classes as {clipped(labels)}")
    if {type(label) for label in labels} not in ({bool}, {int}, {float}, {str}):
        raise Malformed(f"the reply gives the classes as {clipped(labels)}")
    return labels


def checked_info(site: str, info: Head) -> Head:
    """What a site tells of itself; what makes no sense is refused."""
    rows, features, names, labels = (info.get(key) for key in ("rows", "features", "feature_names", "labels"))
    fits = isinstance(rows, int) and isinstance(features, int) and 0 < rows < 2**40 and 0 < features < 2**31
    if names is not None:
        fits = fits and isinstance(names, list) and len(names) == features and all(isinstance(n, str) for n in names)
    if not fits or labels not in ("numbers", "classes", None):
        raise ValueError(f"the site {site} tells of itself what makes no sense: {clipped(info)}")
    return {"rows": rows, "features": features, "feature_names": names, "labels": labels}


def check_alike(infos: Mapping[str, Head]) -> None:
    """Refuse sites whose rows cannot belong to one problem."""
    (one, first), *others = infos.items()
    for site, info in others:
        for key, words in (("features", "features"), ("feature_names", "columns"), ("labels", "labels")):
            if info[key] != first[key]:
                raise ValueError(
                    f"the sites {one} and {site} have different {words}: "
                    f"{clipped(first[key], 200)} and {clipped(info[key], 200)}"
                )
