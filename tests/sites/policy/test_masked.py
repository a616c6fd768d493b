"""The rules of sites whose answers are masked, reached by bytes alone."""

import numpy as np
import pytest

from cofed.sites import ChosenColumns, QuestionRefused
from cofed.sites.network import NetworkSites
from cofed.sites.policy import Policy, PolicyGuard
from cofed.sites.queries import Message, sums
from tests.sites.secure.worlds import MaskedLink, tables

POLICY = Policy(sums={"masked": "required"})


def opened(frames, features=("a", "b")) -> NetworkSites:
    link = MaskedLink(frames, guard=lambda site: PolicyGuard(POLICY, None, site))
    return NetworkSites.open(link, len(frames), ChosenColumns("cost", features))


def test_sites_with_their_rules_answer_with_a_sum():
    frames = tables()
    answer = opened(frames).ask(sums, Message())
    assert answer.X[0] == pytest.approx(sum(one[["a", "b"]].to_numpy().sum(axis=0) for one in frames.values()))


@pytest.mark.parametrize("varying", [1, 2, 3])
def test_a_column_must_vary_at_three_sites(varying):
    """The sites' cards say where it does: elsewhere it is 0, so that sums about it tell of these sites alone."""
    frames = tables()
    for name in list(frames)[varying:]:
        frames[name] = frames[name].assign(b=0.0)
    sites = opened(frames)
    if varying < 3:
        with pytest.raises(QuestionRefused, match="columns"):
            sites.ask(sums, Message())
    else:
        assert np.isfinite(sites.ask(sums, Message()).X).all()
    assert opened(frames, ("a", "c")).ask(sums, Message()).X.shape == (1, 2)
