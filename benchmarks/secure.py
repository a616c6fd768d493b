"""What sums cost of which nobody sees the parts: bytes, seconds at a site and at the server, exchanges.

    python -m benchmarks.secure --sites 3 --sites 200 --numbers 1000 --numbers 1000000

All sites are in this process and make their cards, masks and signatures as sites over a network do; of large sums not
all, since all sites have the same work: three sites make their answers, and the server adds up copies of them. The
question itself, a model or the like, is not counted: it goes to the sites in plain fits too.
"""

import argparse
import time
from collections.abc import Iterator, Sequence

import numpy as np

from cofed.sites.packing import pack, unpack
from cofed.sites.questions import question_hash
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.keys import SiteKeys
from cofed.sites.secure.masks import neighbours
from cofed.sites.secure.server_end import read_masked, sum_request, unmasked
from cofed.sites.secure.site_end import LANES, SiteMasks, reply_words
from cofed.sites.secure.sum_request import read_sum
from cofed.sites.secure.wide import SCALED, add

WHOLE = 2_000_000  # numbers of all sites together up to which every site makes its answer
FEW = 3


class Parties:
    """Sites and a server of one fit, at their first sum."""

    def __init__(self, sites: int, numbers: int):
        self.names = [f"site {i:03d}" for i in range(sites)]
        self.invitation, self.numbers = Invitation.masked(), numbers
        self.sites = {name: SiteMasks(name, SiteKeys.new()) for name in self.names}
        self.cards = {name: self.sites[name].card("", self.invitation.run, 1000, b"") for name in self.names}
        asked = sum_request(self.invitation, self.cards, (1, 0), SCALED, {})
        self.request = pack({"kind": "question", "sum": asked.model_dump(mode="json")}, {})

    def answer(self, name: str, values: np.ndarray) -> bytes:
        """A site's reply, from the request's bytes to those of the reply."""
        site, mark = self.sites[name], question_hash(self.request)
        asked = read_sum(unpack(self.request)[0]["sum"])
        own = site.run_keys("", asked.run, b"")
        site.over(asked, self.cards[name], None)
        planes = site.masked(asked, mark, own, values)
        return pack({"signature": site.keys.sign(reply_words(mark, planes))}, {"masked": planes.view(np.int64)})

    def read(self, name: str, reply: bytes) -> np.ndarray:
        """What the server takes of a reply, its signature checked."""
        shape = (SCALED.limbs, self.numbers + LANES)
        return read_masked(self.cards[name], question_hash(self.request), *unpack(reply), shape)


def measure(sites: int, numbers: int) -> dict[str, float]:
    """One sum."""
    parties, rng = Parties(sites, numbers), np.random.default_rng(0)
    whole = sites * numbers <= WHOLE or sites <= FEW
    some = parties.names if whole else parties.names[:FEW]
    values, replies, at_site = rng.normal(size=(FEW, numbers)), {}, []
    for place, name in enumerate(some):
        began = time.process_time()
        replies[name] = parties.answer(name, values[place % FEW])
        at_site.append(time.process_time() - began)
    began = time.process_time()
    answers = [parties.read(name, reply) for name, reply in replies.items()]
    reading = (time.process_time() - began) * sites / len(some)
    began = time.process_time()
    if whole:
        found = unmasked(SCALED, answers, "numbers")
        exact = sum(values[place % FEW] for place in range(sites))
        np.testing.assert_allclose(found, exact, rtol=1e-12, atol=1e-12)
    else:
        add_up(answers, sites)
    adding = time.process_time() - began
    return {
        "sites": sites,
        "numbers": numbers,
        "exchanges": 1,
        "neighbours": len(neighbours(parties.names[0], parties.names, "")),
        "bytes down": len(parties.request),
        "bytes up": len(next(iter(replies.values()))),
        "plain bytes up": len(pack({}, {"plain": values[0]})),
        "s at a site": float(np.median(at_site)),
        "s at the server": reading + adding,
    }


def add_up(answers: Sequence[np.ndarray], sites: int) -> None:
    """The work of a server that adds up the answers of so many sites, with those of a few again and again."""
    total = answers[0]
    for place in range(1, sites):
        total = add(total, answers[place % len(answers)])
    SCALED.decode(total)


def table(rows: Sequence[dict[str, float]]) -> Iterator[str]:
    """The lines of a table for people."""
    yield "| " + " | ".join(rows[0]) + " |"
    yield "| " + " | ".join("---:" for _ in rows[0]) + " |"
    for row in rows:
        cells = [f"{value:.2g}" if isinstance(value, float) else f"{value:,}" for value in row.values()]
        yield "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="What sums cost of which nobody sees the parts.")
    parser.add_argument("--sites", type=int, action="append", help="may be repeated")
    parser.add_argument("--numbers", type=int, action="append", help="of an answer; may be repeated")
    given = parser.parse_args()
    pairs = [(m, d) for m in given.sites or [3, 10, 50, 200] for d in given.numbers or [10**3, 10**4, 10**5, 10**6]]
    print("\n".join(table([measure(*pair) for pair in pairs])))
