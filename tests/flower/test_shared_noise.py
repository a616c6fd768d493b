"""Masked rounds with differential privacy: the sites' shares make the noise that one trusted server would add."""

import json

import numpy as np
import pytest

import cofed
from cofed.flower import ClientPrivacy, client_app, serve
from cofed.flower.messages import SumTerms
from cofed.flower.site_sums import SiteSum, UpdateNoise
from cofed.privacy import epsilon_of
from cofed.sites.guard import SumOver
from cofed.sites.policy import Policy
from cofed.sites.secure.invitation import Invitation
from cofed.sites.secure.keys import SiteKeys
from cofed.sites.secure.server_end import sum_request, unmasked
from cofed.sites.secure.site_end import SiteMasks
from cofed.sites.secure.wide import SCALED
from tests import worlds
from tests.flower.loopback import Loopback

NAMES, SIZE = tuple("abcdef"), 4000
ROWS = {"a": 10, "b": 40, "c": 20, "d": 30, "e": 40, "f": 10}
PRIVACY = ClientPrivacy(clip=0.5, noise=6.0, delta=1e-6)
UPDATE = {"model": np.zeros(SIZE), "time": np.ones(1)}  # the time is told without noise
MOVES = {"model": True, "time": False}


def total(is_pinned=True, weighting="samples", colluding=1):
    """The noise of a masked sum of updates that are all 0, the noise as a site counts it, and the sum of the times."""
    invitation = Invitation.masked()
    masks = {name: SiteMasks(name, SiteKeys.new()) for name in NAMES}
    cards = {name: one.card("", invitation.run, ROWS[name], name.encode()) for name, one in masks.items()}
    asked = sum_request(invitation, cards, (1, 0), SCALED, {})
    terms = SumTerms(json.dumps(asked.model_dump(mode="json")), [0] * 6, [0] * 6, weighting, False)
    over, answers, noise = SumOver("", is_pinned, invitation.run, ROWS), [], None
    for name, one in masks.items():
        own = SiteSum(one, one.run_keys("", invitation.run, name.encode()), terms, "5f" * 32, over)
        noise = own.noise(PRIVACY.clip, PRIVACY.noise, SIZE, colluding)
        answers.append(own.masked(UPDATE, {}, True, UpdateNoise(noise, MOVES))[0])
    found = unmasked(SCALED, answers, "update")
    return found[:SIZE], noise, found[SIZE]


@pytest.mark.parametrize(("weighting", "largest", "weights"), [("samples", 40, 150), ("uniform", 1, 6)])
def test_the_sum_has_the_noise_that_a_trusted_server_would_add(weighting, largest, weights):
    noise, counted, time = total(weighting=weighting)
    wanted = PRIVACY.noise * PRIVACY.clip * largest  # for the site that weighs most
    # One site may tell its own noise, so that five shares must be enough; of 4,000 numbers a spread is known to 1.1%.
    assert noise.std() == pytest.approx(wanted * np.sqrt(6 / 5), rel=0.05)
    assert abs(noise.mean()) < 5 * wanted / np.sqrt(SIZE)
    assert np.array_equal(noise, np.rint(noise / counted.grid) * counted.grid)  # whole steps: no low bits to look at
    assert time == pytest.approx(weights)


def test_without_a_roster_every_site_adds_all_of_the_noise():
    wanted = PRIVACY.noise * PRIVACY.clip * 40
    assert total(is_pinned=False)[0].std() == pytest.approx(wanted * np.sqrt(6), rel=0.05)


def test_a_site_that_fears_more_of_the_others_adds_more():
    """With two that may tell theirs, 4 shares are left: its own must be two fifths, where the others' are one."""
    assert total(colluding=2)[1].shares == 2
    assert total(colluding=9)[1].shares == 1


def test_epsilon_is_that_of_the_noise_without_the_share_of_one():
    _, counted, _ = total()
    for rounds in (1, 20):
        exact = epsilon_of([counted.release] * rounds, PRIVACY.delta)
        said = PRIVACY.epsilon_of_sums(rounds, SIZE)
        assert exact <= said * (1 + 1e-9) < 1.02 * exact
        assert 1 <= said / PRIVACY.epsilon(rounds) < 1.02  # as of Gaussian noise, but for rounding


def run(folder, policy, rounds=2):
    """A run over three sites with rosters."""
    world = worlds.linear(sizes=(12, 15, 11), names=list("abc"))
    method, keep = cofed.FedDualAvg(0.02, 1.2), lambda node: folder / node["site"]
    roster = {name: SiteKeys.of_folder(folder / name).public for name in "abc"}
    app = client_app(
        worlds.problem(), method, lambda node: world.client(node["site"]), keep=keep, roster=roster, policy=policy
    )
    grid = Loopback()
    for name in "abc":
        grid.add(app, site=name)
    options = {"clients": 3, "local_steps": 2, "deadline": 0.2, "patience": 1.0, "batch_size": 3}
    return serve(grid, worlds.problem(), method, rounds=rounds, privacy=PRIVACY, checkpoint=folder / "out", **options)


def test_the_policy_counts_what_rounds_have_spent(tmp_path):
    one, two = (PRIVACY.epsilon_of_sums(rounds, 10) for rounds in (1, 2))
    lenient = Policy.model_validate({"privacy": {"epsilon": 1.05 * two}})
    assert run(tmp_path / "lenient", lenient).outcome is cofed.Outcome.COMPLETED
    told = json.loads((tmp_path / "lenient" / "out" / "result.json").read_text())
    assert told["epsilon"] == pytest.approx(two, rel=0.01)
    strict = Policy.model_validate({"privacy": {"epsilon": (one + two) / 2}})
    result = run(tmp_path / "strict", strict)
    assert result.outcome is cofed.Outcome.STARVED
    assert {event.why for event in result.history.left_out} == {"its rule 'epsilon' forbids it"}
