"""A site that is killed, silent, late or back at every stage of a fit, and a server that is killed and goes on.

None of it hangs, gives a wrong sum, or gives a second one: over other sites, or of other numbers under the same masks.
"""

import itertools

import numpy as np
import pandas as pd
import pytest

from cofed.flower import link, site_app, sites
from cofed.losses import Squared
from cofed.sites import Folds, table_sites
from cofed.sites import queries as asked
from cofed.sites.link import SitesMissing
from cofed.sites.packing import unpack
from cofed.sites.policy import TRIAL
from cofed.sites.questions import question_hash, read_question
from cofed.sites.secure.server_end import unmasked
from cofed.sites.secure.sum_request import read_sum
from tests.flower.loopback import Loopback

RNG = np.random.default_rng(0)
TABLES = {
    name: pd.DataFrame(RNG.normal(size=(n, 3)), columns=["a", "b", "cost"])
    for name, n in (("oslo", 12), ("rome", 9), ("bern", 10))
}
QUESTIONS = [asked.Message(loss=Squared(), folds=Folds(2, seed=seed)) for seed in range(3)]
STAGES = ("hello", "first sum", "later sum", "end")
FAULTS = ("killed", "silent", "late", "back with its folder", "back without its folder")
LATER = 5  # looks of the server until something late comes


class Killed(BaseException):
    """The end of a server's process."""


@pytest.fixture(autouse=True)
def hurry(monkeypatch):
    """Nothing here takes time."""
    for name, seconds in {"PAUSE": 0.002, "LOOK_AROUND": 0.0, "AGAIN": 0.01, "FAREWELL": 0.1}.items():
        monkeypatch.setattr(link, name, seconds)


class Stages(Loopback):
    """Sites of which rome has a fault at a stage, once: what it has answered by then is lost."""

    def __init__(self, folder, stage, fault):
        super().__init__(self.faulty)
        self.folder, self.stage, self.kind = folder, stage, fault
        self.asked: list[str] = []  # the questions that rome has heard
        self.looks, self.due, self.is_done = itertools.count(), [], False
        for name in TABLES:
            self.start(name, folder / name)

    def start(self, name, keep):
        """A new process of a site."""
        self.add(site_app(lambda node: TABLES[name], keep=lambda node: keep, policy=TRIAL), site=name)

    def faulty(self, site, message, reply):
        if site != "rome":
            return reply
        request = link.payload(message)
        if self.stage_of(request) == self.stage and not self.is_done:
            self.is_done = True
            return self.fails(message, reply)
        return None if self.is_done and self.kind == "silent" else reply

    def stage_of(self, request):
        kind = unpack(request)[0]["kind"]
        if kind != "question":
            return kind
        digest = read_question(request).digest
        self.asked = [*self.asked, digest] if digest not in self.asked else self.asked
        return "first sum" if digest == self.asked[0] else "later sum"

    def fails(self, message, reply):
        """What becomes of a reply."""
        at = next(self.looks) + LATER
        if self.kind == "late":
            self.due.append((at, lambda: self.replies.update({message.metadata.message_id: reply})))
        if self.kind == "killed" or self.kind.startswith("back"):
            del self.nodes[message.metadata.dst_node_id]
        if self.kind.startswith("back"):
            keep = self.folder / ("rome" if self.kind == "back with its folder" else "rome anew")
            self.due.append((at, lambda: self.start("rome", keep)))

    def get_node_ids(self):
        look = next(self.looks)
        for at, happens in [one for one in self.due if one[0] <= look]:
            self.due.remove((at, happens))
            happens()
        return super().get_node_ids()

    def push_messages(self, messages):
        # Flower gives an empty name for a message to a node that is gone.
        there = [m if m.metadata.dst_node_id in self.nodes else None for m in messages]
        return ["" if one is None else super(Stages, self).push_messages([one])[0] for one in there]


def fit(grid, log, after=None):
    """Sums, one after another; the server is killed after so many of them."""
    lasting = grid.kind not in ("killed", "silent")
    far = sites(grid, clients=list(TABLES), target="cost", patience=60.0 if lasting else 0.3, log=log).of_numbers()
    found = []
    try:
        for message in QUESTIONS:
            if len(found) == after:
                raise Killed
            found.append(far.ask(asked.sums, message))
        far.network.link.end(list(TABLES))
        return found
    finally:
        far.network.log.close()


def expected():
    near = table_sites(TABLES, "cost").of_numbers()
    return [near.ask(asked.sums, message) for message in QUESTIONS]


def assert_one_sum_each(grid, truth):
    """Whatever a server has, put together in whichever way, is the one sum over all sites, question by question."""
    by_request, requests = {}, {}
    for site, message, reply in grid.seen:
        request = link.payload(message)
        arrays = unpack(link.payload(reply))[1]
        if unpack(request)[0]["kind"] == "question" and "masked" in arrays:
            mark = question_hash(request)
            planes, requests[mark] = arrays["masked"].view(np.uint64), request
            before = by_request.setdefault(mark, {}).setdefault(site, planes)
            np.testing.assert_array_equal(before, planes)
    digests = {}
    for mark, answers in by_request.items():
        total, question = read_sum(unpack(requests[mark])[0]["sum"]), read_question(requests[mark])
        assert total.names == sorted(TABLES)
        place = digests.setdefault(question.digest, len(digests))
        if len(answers) == len(TABLES):
            numbers = unmasked(total.kind, list(answers.values()), "sums")
            flat = np.concatenate([np.ravel(leaf) for leaf in truth[place]])
            np.testing.assert_allclose(numbers, flat, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("resumed", [False, True], ids=["", "server killed"])
@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("stage", STAGES)
def test_a_fault_of_a_site_at_a_stage(stage, fault, resumed, tmp_path):
    grid, truth = Stages(tmp_path, stage, fault), expected()
    ends_it = fault in ("killed", "silent") and stage != "end"
    if resumed:
        with pytest.raises((Killed, SitesMissing) if ends_it else Killed):
            fit(grid, tmp_path / "log", after=2)
    if ends_it:
        with pytest.raises(SitesMissing) as missing:
            fit(grid, tmp_path / "log")
        assert list(missing.value.sites) == ["rome"]
    else:
        for one, two in zip(fit(grid, tmp_path / "log"), truth, strict=True):
            for a, b in zip(one, two, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert grid.is_done
    assert_one_sum_each(grid, truth)
