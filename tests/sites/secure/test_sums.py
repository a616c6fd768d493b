"""Masked answers give the sums that plain ones give, to every estimator, and the server sees nothing else."""

import functools
import hashlib
import json

import jax
import numpy as np
import pytest

from cofed import estimators
from cofed.losses import Poisson, Squared, Tweedie
from cofed.sites import QuestionRefused, Scaling, table_sites
from cofed.sites.audit import verify
from cofed.sites.link import SitesMissing
from cofed.sites.packing import pack, unpack
from cofed.sites.queries import LookMessage, Message, look, sums
from tests.sites.secure.worlds import MaskedLink, over, tables

TABLES = tables()
FITS = [
    (estimators.FederatedLasso(alpha=0.05), "cost"),
    (estimators.FederatedLassoCV(cv=3), "cost"),
    (estimators.FederatedLogisticRegression(alpha=0.02), "ill"),
    (estimators.FederatedPoisson(alpha=0.02), "visits"),
    (estimators.FederatedGLM(Tweedie(1.5), alpha=0.02), "visits"),
    (estimators.FederatedStandardScaler(), "cost"),
]


@pytest.mark.parametrize(("estimator", "target"), FITS, ids=lambda one: getattr(one, "__class__", type(one)).__name__)
def test_an_estimator_finds_what_it_finds_in_this_process(estimator, target):
    others = {"cost", "ill", "visits"} - {target}
    own = {name: rows.drop(columns=list(others)) for name, rows in TABLES.items()}
    far = estimator.fit(over(MaskedLink(own), target=target))
    found = {name: np.array(value) for name, value in vars(far).items() if name in ("coef_", "mean_", "var_", "alpha_")}
    assert found
    near = estimator.fit(table_sites(own, target))
    for name, value in found.items():
        np.testing.assert_allclose(value, getattr(near, name), rtol=1e-10, atol=1e-13)


def test_the_sum_is_exact_whatever_the_units():
    far = over(MaskedLink(TABLES), target="cost", features=("a", "b", "c")).of_numbers()
    near = table_sites(TABLES, "cost", ["a", "b", "c"]).of_numbers()
    for one, two in zip(*(jax.tree.leaves(s.ask(sums, Message(loss=Squared()))) for s in (far, near)), strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-14)


def test_a_model_that_is_far_off_has_an_infinite_loss_and_ends_nothing():
    sites = over(MaskedLink(TABLES), target="visits", features=("a",)).of_numbers()
    scaling = Scaling(np.zeros(1), np.ones(1), 0.0, 1.0)
    coef = np.array([1e4, 0.1]).reshape(2, 1, 1)
    empty = np.zeros(0, np.int32)
    message = LookMessage(
        coef, np.zeros((2, 1)), np.full(2, -1, np.int32), empty, empty.reshape(0, 0), loss=Poisson(), scaling=scaling
    )
    found = sites.ask(look, message)
    assert np.isinf(found.loss[0])
    assert np.isfinite(found.loss[1])


def test_a_reply_says_nothing_but_masked_words():
    link = MaskedLink(TABLES)
    over(link, target="cost", features=("a",)).of_numbers().ask(sums, Message(loss=Squared()))
    for replies in link.replies.values():
        head, arrays = unpack(replies[-1])
        assert set(head) == {"site", "answers", "kind", "trouble", "signature"}
        assert list(arrays) == ["masked"]


def test_a_site_that_cannot_answer_is_not_named():
    own = {name: rows.assign(visits=rows["visits"].astype(float)) for name, rows in TABLES.items()}
    own["rome"].loc[3, "visits"] = -1.0
    link = MaskedLink(own)
    with pytest.raises(ValueError, match="one site of 4 could not answer the question sums") as caught:
        estimators.FederatedPoisson(alpha=0.1).fit(over(link, target="visits", features=("a",)))
    assert "rome" not in str(caught.value)
    told = {site: [unpack(reply)[0] for reply in replies] for site, replies in link.replies.items()}
    assert all(head["kind"] == head["trouble"] == "" for heads in told.values() for head in heads)


def test_what_left_is_in_the_site_s_log(tmp_path):
    link = MaskedLink(TABLES, tmp_path)
    sites = over(link, target="cost", features=("a",)).of_numbers()
    for _ in range(2):
        sites.ask(sums, Message(loss=Squared()))
    paths = {name: tmp_path / name / "audit.jsonl" for name in TABLES}
    for name, path in paths.items():
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["event"] for line in lines] == ["hello", "answer", "answer"]
        _, arrays = unpack(link.replies[name][-1])
        assert lines[-1]["content"] == hashlib.sha256(arrays["masked"].tobytes()).hexdigest()
        assert (lines[-1]["is_masked"], lines[-1]["sites"]) == (True, sorted(TABLES))
        assert lines[-1]["size"] == arrays["masked"].nbytes
        assert set(lines[-1]["heads"]) == set(TABLES) - {name}  # each site's log vouches for the others'
        assert verify(path, link.sites[name].masks.keys.public).holds


def test_a_server_cannot_make_up_the_newest_line_of_a_log(tmp_path):
    link = MaskedLink(TABLES, tmp_path)
    sites = over(link, target="cost", features=("a",)).of_numbers()
    sites.ask(sums, Message(loss=Squared()))
    true = sites.network.heads["rome"]

    def replaced(made_up, site, request):
        head, arrays = unpack(request)
        return pack(head | {"sum": head["sum"] | {"heads": {"rome": made_up}}}, arrays)

    for made_up in ("0" * 64 + true[64:], true[:64], sites.network.heads["oslo"]):
        link.tamper = functools.partial(replaced, made_up)
        with pytest.raises(SitesMissing, match="the newest line of the log of 'rome' is not signed by it"):
            sites.ask(sums, Message(loss=Squared()))


def test_the_answers_of_single_sites_are_not_to_be_had():
    sites = over(MaskedLink(TABLES), target="cost")
    with pytest.raises(QuestionRefused, match="nobody learns more than their sum"):
        sites.ask_each(sums, Message(loss=Squared()))


@pytest.mark.parametrize("keeps", [True, False])
def test_a_site_that_was_started_anew_goes_on(keeps, tmp_path):
    link = MaskedLink(TABLES, tmp_path if keeps else None)
    sites = over(link, target="cost", features=("a",)).of_numbers()
    message = Message(loss=Squared())
    before = sites.ask(sums, message)
    link.sites["rome"] = link.started("rome")
    after = sites.ask(sums, message)
    for one, two in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(one, two)
    assert len(link.requests) == (2 if keeps else 3)  # without a folder its keys are new, and all are asked again
