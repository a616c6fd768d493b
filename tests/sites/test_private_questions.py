"""Noised questions over the door: masked and plain, asked again, of other sites, and with too little noise."""

import numpy as np
import pytest

from cofed import Privacy
from cofed.estimators import FederatedLasso, FederatedLogisticRegression
from cofed.privacy import NoisedSum
from cofed.sites import QuestionRefused, Scaling, SiteRows
from cofed.sites.queries import PrivateMomentsMessage, private_moments
from cofed.sites.secure.invitation import PLAIN, Invitation
from tests.sites.secure.worlds import MaskedLink, over, tables

FEATURES = ("a", "b", "c")
SCALING = Scaling(np.array([0.0, 1e4, 5.0]), np.array([1.0, 30.0, 1e-3]), 1e3, 4.0)
TABLES = tables()
PRIVACY = {"centre": SCALING.centre, "spread": SCALING.width, "label_centre": 1e3, "label_spread": 4.0}


def message(shares, sigma=5.0, bound=3.0):
    """A question for noised second moments."""
    numbers = (np.array([bound]), np.array([sigma]), np.array([float(shares)]), np.ones(1))
    return PrivateMomentsMessage(*numbers, scaling=SCALING)


def asked(link, shares, **given):
    """The noised sum of all sites."""
    return np.asarray(
        over(link, target="cost", features=FEATURES).of_numbers().ask(private_moments, message(shares, **given))
    )


def exact():
    """The sum without noise."""
    parts = [
        SiteRows.of_sites((name,), [rows[list(FEATURES)].to_numpy()], [rows["cost"].to_numpy()])
        for name, rows in TABLES.items()
    ]
    return sum(rows.exact(private_moments, message(1)) for rows in parts)


def test_a_masked_sum_has_the_noise_of_its_shares_and_is_on_the_grid():
    grid, away = NoisedSum(1.0, 5.0, 1).grid, []
    for _ in range(8):
        found = asked(MaskedLink(TABLES), 3)
        assert np.all(found / grid % 1 == 0)
        away.append(found - exact())
    # 120 numbers: the standard deviation is known to 6.5%. Four sites add noise, of which three are enough.
    assert np.std(away) == pytest.approx(5 * np.sqrt(4 / 3), rel=0.35)
    assert abs(np.mean(away)) < 2.5


def test_asked_again_in_one_fit_it_has_the_same_noise(tmp_path):
    link = MaskedLink(TABLES, keep=tmp_path)
    sites = over(link, target="cost", features=FEATURES).of_numbers()
    first = sites.ask(private_moments, message(3))
    assert np.array_equal(first, sites.ask(private_moments, message(3)))
    link.sites = {name: link.started(name) for name in TABLES}  # all sites begin anew, with their folders
    assert np.array_equal(first, sites.ask(private_moments, message(3)))
    assert not np.array_equal(first, sites.ask(private_moments, message(3, sigma=6.0)))


def test_another_fit_and_other_sites_have_other_noise(tmp_path):
    fewer = {name: rows for name, rows in TABLES.items() if name != "cork"}
    both = [[asked(MaskedLink(own, keep=tmp_path), 2) for _ in range(4)] for own in (TABLES, fewer)]
    assert not np.array_equal(*both[0][:2])
    rest = SiteRows.of_sites(
        ("cork",), [TABLES["cork"][list(FEATURES)].to_numpy()], [TABLES["cork"]["cost"].to_numpy()]
    )
    own = rest.exact(private_moments, message(1))
    # If the other sites' noise were the same in both sums, their difference would be this site's part with its own
    # noise alone, whose standard deviation is 5 / sqrt(2) = 3.5; it is that of seven shares, 9.4, known to 9% here.
    assert np.std(np.subtract(*both) - own) > 5


def test_where_answers_are_seen_each_site_adds_all_of_the_noise():
    link = MaskedLink(TABLES, invitation=PLAIN)
    with pytest.raises(QuestionRefused, match="its rule 'noise' forbids it"):
        asked(link, 2)
    away = [asked(MaskedLink(TABLES, invitation=PLAIN), 1) - exact() for _ in range(6)]
    assert np.std(away) == pytest.approx(10, rel=0.4)  # of four sites; 90 numbers, so it is known to 7.5%


def test_a_site_counts_on_all_but_one_of_the_others():
    with pytest.raises(QuestionRefused, match="its rule 'noise' forbids it"):
        asked(MaskedLink(TABLES), 4)
    assert asked(MaskedLink(TABLES), 3).shape == (1, 15)


@pytest.mark.parametrize("given", [{"sigma": np.nan}, {"sigma": 0.0}, {"bound": -1.0}, {"bound": np.inf}])
def test_noise_that_means_nothing_is_refused(given):
    for invitation in (PLAIN, Invitation.masked()):
        with pytest.raises(QuestionRefused, match="its rule 'noise' forbids it"):
            asked(MaskedLink(TABLES, invitation=invitation), 1, **given)
    assert "must be one finite number > 0" in str(private_moments.wrong(message(1, **given)))


def test_rows_answer_no_private_question_without_a_secret():
    rows = SiteRows.of_sites(("oslo",), [np.zeros((3, 3))], [np.zeros(3)])
    with pytest.raises(ValueError, match="is answered with noise, for which a site needs a secret"):
        rows.answer(private_moments, message(1))


@pytest.mark.parametrize("invitation", [Invitation.masked(), PLAIN])
def test_private_estimators_fit_over_the_door(invitation):
    sites = over(MaskedLink(TABLES, invitation=invitation), target="cost", features=FEATURES)
    model = FederatedLasso(0.1, privacy=Privacy(1e6, **PRIVACY)).fit(sites)
    near = FederatedLasso(0.1, privacy=Privacy(1e6, **PRIVACY)).fit(
        np.concatenate([rows[list(FEATURES)] for rows in TABLES.values()]),
        np.concatenate([rows["cost"] for rows in TABLES.values()]),
    )
    assert model.coef_ == pytest.approx(near.coef_, rel=0.01, abs=0.01)
    assert model.privacy_.shares == (3 if invitation.is_masked else 1)
    sites = over(MaskedLink(TABLES, invitation=invitation), target="ill", features=FEATURES)
    logistic = FederatedLogisticRegression(0.05, privacy=Privacy(1, rounds=3)).fit(sites)
    assert logistic.privacy_.releases == ("private_moments 1", "private_gradient 3")
