"""What a fit sends: every exchange between the server and its clients, with the bytes that its numbers take."""

import dataclasses

NUMBER = 8  # bytes: estimators compute and send in float64


@dataclasses.dataclass(frozen=True)
class ExchangeTotal:
    """All exchanges of one kind.

    Attributes
    ----------
    what : str
        What was exchanged, such as "moments" or "certificate".
    rounds : int
        How often.
    down, up : int
        Bytes to all clients, and from all clients.
    """

    what: str
    rounds: int
    down: int
    up: int


@dataclasses.dataclass
class CommunicationLog:
    """The exchanges of a fit, by kind.

    >>> log = CommunicationLog(clients=3)
    >>> log.add("moments", rounds=1, down=0, up=80)
    >>> log.rounds, log.bytes
    (1, 240)
    """

    clients: int
    exchanges: list[ExchangeTotal] = dataclasses.field(default_factory=list)

    def add(self, what: str, rounds: int, down: int, up: int) -> None:
        """Count rounds in each of which so many bytes go to each client and come from each."""
        many = rounds * self.clients
        before = next((exchange for exchange in self.exchanges if exchange.what == what), None)
        if before is not None:
            new = ExchangeTotal(what, before.rounds + rounds, before.down + many * down, before.up + many * up)
            self.exchanges[self.exchanges.index(before)] = new
        elif rounds:
            self.exchanges.append(ExchangeTotal(what, rounds, many * down, many * up))

    def total(self, what: str) -> ExchangeTotal:
        """Everything together, under one name."""
        down, up = sum(one.down for one in self.exchanges), sum(one.up for one in self.exchanges)
        return ExchangeTotal(what, self.rounds, down, up)

    @property
    def rounds(self) -> int:
        """All rounds."""
        return sum(exchange.rounds for exchange in self.exchanges)

    @property
    def bytes(self) -> int:
        """All bytes, both ways, of all clients."""
        return sum(exchange.down + exchange.up for exchange in self.exchanges)
