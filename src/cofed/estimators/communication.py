"""What a fit sends: every exchange between the server and its clients, with the bytes that its numbers take."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Exchange:
    """Some rounds of one kind."""

    what: str
    rounds: int
    down: int  # bytes to all clients
    up: int  # bytes from all clients


@dataclasses.dataclass
class Traffic:
    """The exchanges of a fit, by kind.

    >>> traffic = Traffic(clients=3)
    >>> traffic.add("moments", rounds=1, down=0, up=80)
    >>> traffic.rounds, traffic.bytes
    (1, 240)
    """

    clients: int
    exchanges: list[Exchange] = dataclasses.field(default_factory=list)

    def add(self, what: str, rounds: int, down: int, up: int) -> None:
        """So many rounds, in each of which so many bytes go to each client and come from each."""
        many = rounds * self.clients
        before = next((exchange for exchange in self.exchanges if exchange.what == what), None)
        if before is not None:
            new = Exchange(what, before.rounds + rounds, before.down + many * down, before.up + many * up)
            self.exchanges[self.exchanges.index(before)] = new
        elif rounds:
            self.exchanges.append(Exchange(what, rounds, many * down, many * up))

    @property
    def rounds(self) -> int:
        """All rounds."""
        return sum(exchange.rounds for exchange in self.exchanges)

    @property
    def bytes(self) -> int:
        """All bytes, both ways, of all clients."""
        return sum(exchange.down + exchange.up for exchange in self.exchanges)
