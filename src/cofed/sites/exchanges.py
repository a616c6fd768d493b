"""What was asked of the sites, how often, and how many bytes went each way."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import NamedTuple


@dataclasses.dataclass(frozen=True)
class Exchange:
    """One question to all sites and their answers, or some rounds of an algorithm.

    Attributes
    ----------
    what : str
        The query's name, or the algorithm's.
    rounds : int
        How often messages went to the sites and back.
    down, up : int
        Bytes to all sites, and from all sites.
    seconds : float
        How long it took.
    """

    what: str
    rounds: int
    down: int
    up: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class ExchangeTotal:
    """All exchanges of one kind.

    Attributes
    ----------
    what : str
        What was exchanged: a query's name, such as "sums", or an algorithm's.
    rounds : int
        How often.
    down, up : int
        Bytes to all clients, and from all clients.
    """

    what: str
    rounds: int
    down: int
    up: int


class Spent(NamedTuple):
    """What some exchanges took."""

    rounds: int  # how often messages went to the sites and back
    bytes: int  # both ways, of all sites


class Exchanges(list[Exchange]):
    """What has been asked so far, in order. Whoever listens hears of it at once.

    Attributes
    ----------
    listeners : list of callable
        Each is called with the kind of what has happened and, as keywords, its details.

    Examples
    --------
    >>> from cofed.sites import Exchange, Exchanges
    >>> exchanges = Exchanges()
    >>> exchanges.listeners.append(lambda kind, **details: print(kind, details["what"]))
    >>> exchanges.append(Exchange("look", 1, 10, 20, 0.1))
    exchange look
    """

    def __init__(self, before: Iterable[Exchange] = ()):
        super().__init__(before)
        self.listeners: list[Callable[..., None]] = []

    def append(self, exchange: Exchange) -> None:
        """Count an exchange."""
        super().append(exchange)
        self.tell("exchange", **dataclasses.asdict(exchange))

    def tell(self, kind: str, **details: str | int | float) -> None:
        """Tell whoever listens that something has happened."""
        for hear in self.listeners:
            hear(kind, **details)


def totals(exchanges: Iterable[Exchange]) -> tuple[ExchangeTotal, ...]:
    """The exchanges by kind, in the order of the first of each.

    >>> from cofed.sites import Exchange, totals
    >>> totals([Exchange("look", 1, 10, 20, 0.1), Exchange("look", 1, 5, 5, 0.1)])
    (ExchangeTotal(what='look', rounds=2, down=15, up=25),)
    """
    found: dict[str, ExchangeTotal] = {}
    for one in exchanges:
        before = found.get(one.what, ExchangeTotal(one.what, 0, 0, 0))
        found[one.what] = ExchangeTotal(
            one.what, before.rounds + one.rounds, before.down + one.down, before.up + one.up
        )
    return tuple(found.values())


def spent(exchanges: Iterable[Exchange | ExchangeTotal]) -> Spent:
    """What exchanges took in all.

    >>> from cofed.sites import Exchange, spent
    >>> spent([Exchange("look", 1, 10, 20, 0.1), Exchange("FedAvg", 3, 5, 5, 0.1)])
    Spent(rounds=4, bytes=40)
    """
    listed = list(exchanges)
    return Spent(sum(one.rounds for one in listed), sum(one.down + one.up for one in listed))
