"""Sites elsewhere give the sums that sites in this process give, and the log takes a fit up where it was."""

import re

import jax
import numpy as np
import pandas as pd
import pytest

from cofed.losses import Logistic, Softmax, Squared
from cofed.sites import Exchanges, Folds, QuestionRefused, Scaling, SiteTable, TableMismatch, table_sites
from cofed.sites.chosen_columns import ChosenColumns
from cofed.sites.link import AbstractLink, Replies, SitesMissing
from cofed.sites.local import LocalSite, table_of_arrays
from cofed.sites.network import NetworkSites
from cofed.sites.packing import Malformed, pack, unpack
from cofed.sites.queries import LookMessage, Message, MomentsMessage, look, moments, sums
from cofed.sites.questions import question_bytes, question_hash, read_question
from cofed.sites.replies import opened, read_info

RNG = np.random.default_rng(0)
HELLO = pack({"kind": "hello"}, {})


def frame(n):
    """A table with text, gaps and numbers."""
    ward = RNG.choice(["x", "y", "z"], n)
    return pd.DataFrame(
        {
            "age": np.where(RNG.random(n) < 0.1, np.nan, RNG.normal(50, 9, n)),
            "ward": ward,
            "dose": RNG.normal(size=n),
            "ill": RNG.integers(0, 2, n),
            "kind": RNG.choice(["a", "b", "c"], n),
        }
    )


TABLES = {"oslo": frame(40), "rome": frame(23), "bern 2": frame(31), "bern 10": frame(12)}


class DirectLink(AbstractLink):
    """Sites in this process that are reached by bytes alone. `fault(site, reply)` may change a reply."""

    def __init__(self, tables=TABLES, fault=lambda site, reply: reply):
        self.sites = {name: LocalSite(name, lambda name=name: SiteTable(tables[name], name)) for name in tables}
        self.fault, self.asked, self.exchanges, self.away = fault, 0, Exchanges(), set()

    def gather(self, wanted):
        gone = {name: "it did not come" for name in wanted if name in self.away}
        if gone:
            raise SitesMissing(f"waiting for {', '.join(gone)}", gone)
        return {
            name: read_info(opened(name, question_hash(HELLO), self.sites[name].answer(HELLO))[0]) for name in wanted
        }

    def ask_all(self, request, sites, read):
        self.asked += 1
        found, up = {}, 0
        for site in sites:
            reply = self.fault(site, self.sites[site].answer(request))
            up += len(reply)
            try:
                found[site] = read(site, reply)
            except Malformed as error:
                raise SitesMissing(f"{site}: {error}", {site: str(error)}) from None
        return Replies(found, len(request) * len(sites), up)


def over(link, log=None, **columns):
    """The sites of a link."""
    return NetworkSites.open(link, list(TABLES), ChosenColumns(**columns), log)


def look_at(p, k, loss, **given):
    """A question about five models."""
    rng = np.random.default_rng(1)
    return LookMessage(
        rng.normal(size=(5, p, k)) / 10,
        np.zeros((5, k)),
        np.array([-1, 0, 1, 2, -1], np.int32),
        np.array([0, 2]),
        np.array([[0, 1, p * k], [1, 2, 3]]),
        loss=loss,
        **given,
    )


def assert_same(one, two, **close):
    """The same numbers."""
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, **({"rtol": 1e-12, "atol": 1e-12} | close))


@pytest.mark.parametrize("missing", ["drop", "impute"])
@pytest.mark.parametrize(
    ("target", "loss", "k"), [("dose", Squared(), 1), ("ill", Logistic(), 1), ("kind", Softmax(3), 3)]
)
def test_the_sums_are_those_of_sites_in_this_process(target, loss, k, missing):
    features = [name for name in ("age", "ward", "dose") if name != target]
    far = over(DirectLink(), target=target, features=tuple(features), missing=missing)
    near = table_sites(TABLES, target, features, missing=missing)
    assert (far.names, far.sizes, far.feature_names) == (near.names, near.sizes, near.feature_names)
    assert far.names == ("bern 2", "bern 10", "oslo", "rome")
    if target == "kind":
        (far, one), (near, two) = far.of_classes(), near.of_classes()
        assert one.tolist() == two.tolist() == ["a", "b", "c"]
    else:
        far, near = far.of_numbers(), near.of_numbers()
    p, folds = far.n_features, Folds(3, seed=5)
    units = Scaling(np.full(p, 2.0), np.full(p, 3.0))
    for query, message in (
        (sums, Message(loss=loss, folds=folds)),
        (moments, MomentsMessage(np.ones(p))),
        (look, look_at(p, k, loss, folds=folds, scaling=units)),
    ):
        assert_same(far.ask(query, message), near.ask(query, message))
    counted = [one for one in far.exchanges if one.what == "look"]
    request = question_bytes(look, look_at(p, k, loss, folds=folds, scaling=units), far.view)
    assert [one.down for one in counted] == [4 * len(request)]
    assert counted[0].up > 4 * 5 * 8  # five losses of eight bytes from each site at least


def test_labels_of_numbers_are_classes_where_a_classifier_asks():
    sites, classes = over(DirectLink(), target="ill", features=("dose",)).of_classes()
    assert classes.tolist() == [0, 1]
    total = sites.ask(sums, Message(loss=Logistic()))
    assert total.labels[0, 0] == sum(table["ill"].sum() for table in TABLES.values())


def test_text_is_no_number():
    with pytest.raises(TableMismatch, match="column 'kind' must hold numbers"):
        over(DirectLink(), target="kind", features=("dose",)).of_numbers()
    with pytest.raises(ValueError, match="have no target"):
        over(DirectLink(), features=("dose",)).of_numbers()


def asked_twice(sites):
    """Two exchanges."""
    sites = sites.of_numbers()
    return [sites.ask(sums, Message(loss=Squared())), sites.ask(moments, MomentsMessage(np.ones(sites.n_features)))]


def test_a_fit_is_taken_up_from_its_log(tmp_path):
    columns = {"target": "dose", "features": ("age", "ill"), "missing": "drop"}
    first = DirectLink()
    before = over(first, tmp_path, **columns)
    answers = asked_twice(before)
    before.network.log.close()
    second = DirectLink()
    after = over(second, tmp_path, **columns)
    again = asked_twice(after)
    assert second.asked == 0
    for one, two in zip(jax.tree.leaves(answers), jax.tree.leaves(again), strict=True):
        assert one.tobytes() == two.tobytes()
    assert [(e.what, e.down, e.up) for e in after.exchanges] == [(e.what, e.down, e.up) for e in before.exchanges]
    assert after.sizes == before.sizes
    after.of_numbers().ask(moments, MomentsMessage(np.zeros(2)))
    assert second.asked == 1


def test_a_log_of_other_data_or_settings_is_refused(tmp_path):
    sites = over(DirectLink(), tmp_path, target="dose", features=("ill",))
    asked_twice(sites)
    sites.network.log.close()
    with pytest.raises(ValueError, match="is of a fit with other columns"):
        over(DirectLink(), tmp_path, target="dose", features=("ill", "ward"))
    other = TABLES | {"oslo": TABLES["oslo"].iloc[1:]}
    with pytest.raises(ValueError, match="is of a fit with other tables"):
        over(DirectLink(other), tmp_path, target="dose", features=("ill",))
    sites = over(DirectLink(), tmp_path, target="dose", features=("ill",)).of_numbers()
    with pytest.raises(ValueError, match="asked another question"):
        sites.ask(sums, Message(loss=Squared(), folds=Folds(2)))


def test_the_others_can_begin_anew(tmp_path):
    sites = over(DirectLink(), tmp_path, target="dose", features=("ill",))
    asked_twice(sites)
    others = sites.without(["rome"])
    assert (others.left_out, others.names) == (("rome",), ("bern 2", "bern 10", "oslo"))
    assert others.exchanges == []
    kept = {name: table for name, table in TABLES.items() if name != "rome"}
    near = table_sites(kept, "dose", ["ill"])
    assert_same(asked_twice(others), asked_twice(near))
    assert (tmp_path / "without-1" / "exchanges.jsonl").exists()
    with pytest.raises(ValueError, match="'paris' is not one of the sites"):
        others.without(["paris"])
    with pytest.raises(ValueError, match="no site would be left"):
        others.without(list(others.names))


def begun_without(gone, log):
    """The sites of a fit that goes on without these, which do not come, and the link to them."""
    link = DirectLink()
    link.away = set(gone)
    sites = NetworkSites.open(link, list(TABLES), ChosenColumns("dose", ("ill",)), log, drop=True)
    return sites, link


def test_a_fit_begins_without_sites_that_do_not_come(tmp_path):
    sites, _ = begun_without(["rome"], tmp_path)
    assert (sites.left_out, sites.names) == (("rome",), ("bern 2", "bern 10", "oslo"))
    assert dict(sites.network.reasons) == {"rome": "it did not come"}
    kept = {name: table for name, table in TABLES.items() if name != "rome"}
    assert_same(asked_twice(sites), asked_twice(table_sites(kept, "dose", ["ill"])))
    link = DirectLink()
    link.away = {"rome"}
    with pytest.raises(SitesMissing, match=r"waiting for rome$"):
        over(link, target="dose")
    with pytest.raises(SitesMissing, match=r"It cannot go on without .*: no site would be left"):
        begun_without(TABLES, None)


def test_a_fit_that_lost_sites_goes_on_while_they_are_away(tmp_path):
    """It finds the log of each set of sites again, in whatever order they were lost."""
    first = over(DirectLink(), tmp_path, target="dose", features=("ill",))
    asked_twice(first)
    before, others = [], first
    for gone in ("rome", "bern 2"):
        others = others.without([gone])
        before.append(asked_twice(others))
    del first, others  # the server is killed
    for gone, known in ((["rome"], before[0]), (["bern 2", "rome"], before[1])):
        sites, link = begun_without(gone, tmp_path)
        assert_same(asked_twice(sites), known, rtol=0, atol=0)
        assert link.asked == 0
        del sites
    other, link = begun_without(["oslo"], tmp_path)  # another set of as many sites is another fit
    asked_twice(other)
    assert link.asked == 2


def rewritten(head=None, arrays=None):
    """A fault of rome: another head, other arrays."""

    def fault(site, reply):
        if site != "rome":
            return reply
        said, numbers = unpack(reply)
        return pack(said | (head or {}), numbers if arrays is None else arrays(numbers))

    return fault


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (lambda site, reply: b"garbage" if site == "rome" else reply, "not one of cofed's"),
        (lambda site, reply: reply[:-8] if site == "rome" else reply, "cut off"),
        (rewritten({"answers": "else"}), "answers something else"),
        (rewritten({"site": "oslo"}), "is of another site"),
        (rewritten({"trouble": 7}), "does not say whether it went well"),
        (rewritten({"kind": "Failed", "trouble": "it failed with a MemoryError"}), "failed with a MemoryError"),
        (rewritten({"finite": False}), "says that it is not finite"),
        (rewritten(arrays=lambda a: {n: np.full_like(x, np.nan) for n, x in a.items()}), "the answer is not finite"),
        (rewritten(arrays=lambda a: {n: x[:0] for n, x in a.items()}), "expected float64"),
        (rewritten(arrays=lambda a: {n: x.astype(np.float32) for n, x in a.items()}), "is float32"),
        (rewritten(arrays=lambda a: {}), r"the answer has the arrays \[\]"),
    ],
)
def test_bad_answers_are_named(fault, sentence):
    sites = over(DirectLink(fault=fault), target="dose", features=("ill",)).of_numbers()
    with pytest.raises(SitesMissing, match=f"rome: .*{sentence}") as caught:
        sites.ask(sums, Message(loss=Squared()))
    assert list(caught.value.sites) == ["rome"]


def test_a_sum_that_overflows_is_no_fault():
    sites = over(DirectLink(), target="dose", features=("ill",)).of_numbers()
    message = look_at(1, 1, Squared())
    message = LookMessage(
        message.coef * 1e300,
        message.intercept,
        message.without,
        message.closer[:0],
        message.where[:0, :1],
        loss=Squared(),
    )
    assert not np.isfinite(sites.ask(look, message).loss).all()


# A site's own end


def site_of(table):
    return LocalSite("oslo", lambda: SiteTable(table, "oslo"))


def answered(site, request):
    return unpack(site.answer(request))


def test_a_refusal_is_a_sentence_at_the_server():
    tables = TABLES | {"rome": TABLES["rome"].assign(dose=1e200)}
    sites = over(DirectLink(tables), target="dose", features=("ill",)).of_numbers()
    with pytest.raises(QuestionRefused, match="the site rome does not answer: y must be of a size between"):
        sites.ask(sums, Message(loss=Squared()))


def test_the_text_of_errors_stays_at_the_site(caplog):
    def broken():
        raise RuntimeError("patient 4711 is ill")

    head, arrays = answered(LocalSite("oslo", broken), HELLO)
    assert (head["kind"], arrays) == ("Failed", {})
    assert "4711" not in str(head)
    assert "RuntimeError" in head["trouble"]
    assert "4711" in caplog.text


def test_values_that_do_not_fit_a_design_stay_at_the_site(caplog):
    site = site_of(pd.DataFrame({"age": ["61", "secret"], "ill": [0, 1]}))
    view = {"design": {"features": [{"name": "age"}], "target": {"name": "ill"}}}
    head, _ = answered(site, question_bytes(sums, Message(loss=Squared()), view))
    assert head["kind"] == "QuestionRefused"
    assert "secret" not in str(head)
    assert "secret" in caplog.text


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (b"garbage", "not one of cofed's"),
        (pack({"kind": "everything"}, {}), "of the kind 'everything', which is not known here"),
        (pack({"kind": "rows", "view": 3}, {}), "no design that can be read"),
        (question_bytes(sums, Message(), {}), "no design that can be read"),
        (
            question_bytes(look, look_at(3, 1, Squared()), {"design": {"features": [{"name": "dose"}]}}),
            "does not fit 1",
        ),
        (
            question_bytes(
                sums,
                Message(scaling=Scaling(np.ones(2), np.ones(2))),
                {"design": {"features": [{"name": "dose"}]}},
            ),
            r"units are for \(2,\) features, but there are 1 here",
        ),
        (
            question_bytes(sums, Message(folds=Folds(0)), {"design": {"features": [{"name": "dose"}]}}),
            "speaks of 0 folds",
        ),
    ],
)
def test_bad_requests_are_named(request_, sentence):
    head, arrays = answered(site_of(TABLES["oslo"]), request_)
    assert (head["kind"], arrays) == ("Malformed", {})
    assert head["answers"] == question_hash(request_)
    assert re.search(sentence, head["trouble"])


def test_rows_can_be_arrays():
    table = table_of_arrays("oslo", np.ones((2, 2)), pd.Series(["a", "b"], name="kind"))
    assert table.frame.columns.tolist() == ["x0", "x1", "kind"]
    for X, y, sentence in (
        (np.ones(3), np.ones(3), "X must have rows and columns"),
        (np.ones((3, 1)), np.ones(2), "a label for each of 3 rows"),
        (pd.DataFrame({"y": [1.0]}), np.ones(1), "X has a column 'y'"),
    ):
        with pytest.raises(ValueError, match=sentence):
            table_of_arrays("oslo", X, y)


def test_a_question_that_came_over_the_wire_is_the_one_that_was_asked():
    message = look_at(2, 1, Logistic(), folds=Folds(3))
    assert_same(read_question(question_bytes(look, message)).message, message, rtol=0, atol=0)
