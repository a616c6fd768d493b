"""Attacks by a server on a site's rows: each reads rows where its rule is off, and is refused where it is on."""

import contextlib

import numpy as np
import pytest
import scipy.linalg

from cofed import Logistic
from cofed.sites import Design, Feature, Folds, QuestionRefused, Scaling, SiteTable
from cofed.sites.policy import TRIAL, Policy, PolicyGuard
from cofed.sites.queries import GramMessage, LookMessage, Message, MomentsMessage, gram, look, observed, sums
from cofed.solvers.curvature import unpack
from tests.sites.policy.worlds import (
    Guarded,
    alone,
    asked,
    design_of,
    federation,
    frame_of,
    logistic_rows,
    models,
    over,
)


def one_site(X: np.ndarray, y: np.ndarray, policy: Policy) -> Guarded:
    """A site whose answers the server sees."""
    return federation(frame_of(X, y), design_of(X.shape[1]), 1, policy)


def has_rows(found: np.ndarray, X: np.ndarray, error: float = 1e-6) -> int:
    """How many of the rows are among those found."""
    return int((np.abs(found[:, None] - X[None]).max(axis=2).min(axis=0) < error).sum())


# Few rows in a fold


@pytest.mark.parametrize(("rows", "count", "rule"), [(3, 5, "rows"), (60, 60, "folds"), (12, 10, "folds")])
def test_folds_of_single_rows(rows, count, rule):
    X, y = logistic_rows(rows, 3)
    found = one_site(X, y, TRIAL).ask(sums, Message(folds=Folds(count)))
    alone_in_fold = int((found.n == 1).sum())
    assert has_rows(found.X[found.n == 1], X) == alone_in_fold == {3: 3, 60: 60, 12: 8}[rows]
    with pytest.raises(QuestionRefused, match=rule):
        one_site(X, y, alone()).ask(sums, Message(folds=Folds(count)))


def test_two_hessians_of_as_many_rows_as_columns():
    """H1 = X' D1 X and H2 = X' D2 X have the rows in common, as the dual of their generalized eigenvectors."""
    X, y = logistic_rows(12, 12)
    y[:6], y[6:] = 0, 1
    message = models(np.stack([np.zeros(12), np.linspace(-1, 1, 12)]), np.zeros(2), hessians=True)

    answer = one_site(X, y, TRIAL).ask(look, message)
    first, second = (np.asarray(unpack(one, 12)) for one in answer.hessian)
    rows = np.linalg.inv(scipy.linalg.eigh(second, first)[1])  # each is a row, times a number
    cosines = np.abs(rows @ X.T) / np.linalg.norm(rows, axis=1)[:, None] / np.linalg.norm(X, axis=1)[None, :]
    assert (cosines.max(axis=0) > 1 - 1e-9).all()

    with pytest.raises(QuestionRefused, match="parameters"):
        one_site(X, y, alone()).ask(look, message)


# Differences of sets of rows


def test_all_rows_but_one():
    """A column with one gap is part of one question, and not of another: the difference is the row with the gap."""
    X, y = logistic_rows(40, 3)
    frame = frame_of(X, y)
    frame.loc[7, "x2"] = np.nan
    table = SiteTable(frame, "oslo")
    features = tuple(Feature(name=f"x{j}") for j in range(3))
    wide, narrow = Design(features=features, missing="drop"), Design(features=features[:2], missing="drop")
    total = [table.rows(one).answer(sums, Message()).X[0, :2] for one in (narrow, wide)]
    assert total[0] - total[1] == pytest.approx(X[7, :2])

    guard = PolicyGuard(alone(), None, "oslo")
    assert guard.refuses(asked(table, wide, sums, Message())) is None
    assert rule_of(guard, table, narrow) == "row sets"
    lenient = PolicyGuard(TRIAL, None, "oslo")
    assert [rule_of(lenient, table, one) for one in (wide, narrow)] == [None, None]


def rule_of(guard: PolicyGuard, table: SiteTable, design: Design, message: Message | None = None) -> str | None:
    refusal = guard.refuses(asked(table, design, sums, message or Message()))
    return None if refusal is None else refusal.rule


def test_another_seed_of_the_folds():
    """Folds follow from the seed and the number of rows: the sums over those of eight seeds are solved for the rows.

    The folds of two seeds cut each other into pieces, here of a row, which is where the site stops.
    """
    X, y = logistic_rows(30, 2)
    table, design = SiteTable(frame_of(X, y), "oslo"), design_of(2)
    rows, seeds = table.rows(design), [Folds(5, seed=seed) for seed in range(8)]
    known = np.concatenate([np.eye(5)[:, rows.folds(folds)] for folds in seeds])  # which rows each sum is over
    told = np.concatenate([rows.answer(sums, Message(folds=folds)).X for folds in seeds])
    assert has_rows(np.linalg.lstsq(known, told)[0], X) == 30
    assert 1 in np.bincount(rows.folds(seeds[0]) * 5 + rows.folds(seeds[1]), minlength=25)
    guard = PolicyGuard(alone(), None, "oslo")
    assert rule_of(guard, table, design, Message(folds=Folds(5))) is None
    assert rule_of(guard, table, design, Message(folds=Folds(5))) is None  # the same folds as often as one likes
    assert rule_of(guard, table, design, Message()) is None  # all rows differ from all but a fold by a fold
    assert rule_of(guard, table, design, Message(folds=Folds(5, seed=1))) == "row sets"


@pytest.mark.parametrize("change", ["new", "gone", "changed"])
@pytest.mark.parametrize("many", [1, 3])
def test_one_new_row(change, many, tmp_path):
    X, y = logistic_rows(43, 2)
    frame = frame_of(X, y)
    before, after = {
        "new": (frame[: 43 - many], frame),
        "gone": (frame, frame[many:]),
        "changed": (frame, frame.assign(x0=np.where(np.arange(43) < many, 9.0 + np.arange(43), frame["x0"]))),
    }[change]
    design = design_of(2)
    told = [SiteTable(one, "oslo").rows(design).answer(sums, Message()).X[0] for one in (before, after)]
    if change == "new" and many == 1:
        assert told[1] - told[0] == pytest.approx(X[42])  # the row that has come
    assert rule_of(PolicyGuard(alone(), tmp_path, "oslo"), SiteTable(before, "oslo"), design) is None
    expected = "row sets" if many == 1 else None
    assert rule_of(PolicyGuard(alone(), tmp_path, "oslo"), SiteTable(after, "oslo"), design) == expected


def test_the_values_of_a_column_that_are_there():
    """Sums over the values that are there, less sums over rows without gaps, are the values of the rows with gaps."""
    X, y = logistic_rows(40, 2)
    frame = frame_of(X, y)
    frame.loc[3, "x1"] = np.nan
    table = SiteTable(frame, "oslo")
    features = (Feature(name="x0"), Feature(name="x1"))
    kept, dropped = (Design(features=features, missing=missing) for missing in ("keep", "drop"))
    told = table.rows(kept).answer(observed, MomentsMessage(np.zeros(2))).X[0]
    assert told - table.rows(dropped).answer(sums, Message()).X[0, 0] == pytest.approx(X[3, 0])

    guard = PolicyGuard(alone(), None, "oslo")
    assert rule_of(guard, table, dropped) is None
    refusal = guard.refuses(asked(table, kept, observed, MomentsMessage(np.zeros(2))))
    assert refusal is not None
    assert refusal.rule == "row sets"


# Differences of sets of sites


def test_sums_with_and_without_a_site():
    X, y = logistic_rows(160, 2)
    sites = federation(frame_of(X, y), design_of(2), 4, TRIAL)
    whole = sites.ask(sums, Message())
    fewer = Guarded({n: sites.tables[n] for n in ("s0", "s1", "s2")}, sites.design, {})
    difference = whole.X[0] - fewer.ask(sums, Message()).X[0]
    assert difference == pytest.approx(sites.tables["s3"].rows(sites.design).X.sum(axis=0))

    rows = {f"s{m}": 40 for m in range(4)}
    without = {name: rows[name] for name in ("s0", "s1", "s2")}
    for second in (Message(), Message(folds=Folds(5))):  # the same question, or another
        guard = PolicyGuard(Policy(), None, "s0")
        table = sites.tables["s0"]
        assert guard.refuses(asked(table, sites.design, sums, Message(), over(rows))) is None
        refusal = guard.refuses(asked(table, sites.design, sums, second, over(without)))
        assert refusal is not None
        assert refusal.rule == "site sets"
        assert "what s3 answered alone" in refusal.sentence
        released = over(without, released=frozenset({"s3"}))
        assert guard.refuses(asked(table, sites.design, sums, second, released)) is None


def test_a_column_that_varies_at_one_site():
    """Products with a column that is 0 elsewhere are those of the one site."""
    X, y = logistic_rows(120, 2)
    own = np.arange(120) % 3
    X[own != 0, 1] = 0.0
    sites = federation(frame_of(X, y), design_of(2), 3, TRIAL)
    message = GramMessage(
        np.zeros(2), np.zeros(1), np.arange(2, dtype=np.int32), np.zeros(1), loss=Logistic(), folds=None
    )
    mine = sites.tables["s0"].rows(sites.design).X
    assert sites.ask(gram, message).products[0, 1] == pytest.approx((mine[:, 0] * mine[:, 1]).sum())

    guard = PolicyGuard(Policy(), None, "s0")
    rows = {f"s{m}": 40 for m in range(3)}
    refusal = guard.refuses(asked(sites.tables["s0"], sites.design, gram, message, over(rows, varying={"x1": 1})))
    assert refusal is not None
    assert (refusal.rule, refusal.is_silent) == ("columns", False)
    assert guard.refuses(asked(sites.tables["s0"], sites.design, gram, message, over(rows, varying={"x1": 3}))) is None


# Models that fish for rows


def steps(X: np.ndarray, size: float, places: np.ndarray) -> LookMessage:
    """Models whose predictions are a step in the first feature, at these places."""
    coef = np.zeros((len(places), X.shape[1]))
    coef[:, 0] = size
    units = Scaling(np.zeros(X.shape[1]), np.ones(X.shape[1]))
    return models(coef, -size * places, scaling=units)


def between(values: np.ndarray) -> np.ndarray:
    """Places below, between and above sorted values."""
    ordered = np.sort(values)
    return np.concatenate([[ordered[0] - 1], (ordered[1:] + ordered[:-1]) / 2, [ordered[-1] + 1]])


def test_steps_between_all_rows():
    """61 points read 60 rows: the differences of gradients at neighbouring steps are the rows, one by one."""
    X, y = logistic_rows(60, 4)
    message = steps(X, 1e7, between(X[:, 0]))
    answer = one_site(X, y, TRIAL).ask(look, message)
    assert has_rows(-np.diff(answer.gradient[:, :, 0], axis=0), X) == 60

    with pytest.raises(QuestionRefused, match="size"):
        one_site(X, y, alone()).ask(look, message)
    only_points = alone(points={"size": 1e300, "dominance": 1.0, "leverage": 1.0})
    with pytest.raises(QuestionRefused, match="points"):
        one_site(X, y, only_points).ask(look, message)
    # One by one, the budget ends after 19: with a third of 60 rows as points most rows cannot be told apart.
    site, told = one_site(X, y, only_points), 0
    while not site.refusals:
        with contextlib.suppress(QuestionRefused):
            site.ask(look, steps(X, 1e7, between(X[:, 0])[[told]]))
            told += 1
    assert (told, site.refusals[0].rule) == (19, "points")


@pytest.mark.parametrize("size", [50.0, 1e4])
def test_two_points_around_the_largest_row(size):
    """Two points are within any budget, and the row with the largest value is what they differ by."""
    X, y = logistic_rows(200, 4)
    X[11, 0] = 6.0  # far from the others, so that also a step of size 50 tells it from them
    message = steps(X, size, np.array([5.0, 7.0]))
    answer = one_site(X, y, TRIAL).ask(look, message)
    assert has_rows(-np.diff(answer.gradient[:, :, 0], axis=0), X, 1e-9) == 1

    site = one_site(X, y, alone())
    with pytest.raises(QuestionRefused, match="leverage" if size == 50.0 else "size"):
        site.ask(look, message)
    assert site.refusals[0].is_silent == (size == 50.0)  # that it failed would tell that a row is there


def test_units_that_are_not_those_of_the_rows():
    """A small model in false units is a large one: the site compares them with its own rows, and says nothing."""
    X, y = logistic_rows(200, 4)
    places = between(X[:, 0])[[60, 61]]
    coef = np.zeros((2, 4))
    coef[:, 0] = 10.0
    units = Scaling(np.zeros(4), np.full(4, 1e-6))
    message = models(coef, -10.0 * places / 1e-6, scaling=units)
    answer = one_site(X, y, TRIAL).ask(look, message)
    assert has_rows(-np.diff(answer.gradient[:, :, 0], axis=0) * 1e-6, X) == 1

    site = one_site(X, y, alone())
    with pytest.raises(QuestionRefused, match="size"):
        site.ask(look, message)
    assert site.refusals[0].is_silent


def test_an_intercept_that_fishes_for_one_row():
    """Where all but one row are predicted well, the gradient is that row."""
    X, y = logistic_rows(200, 4)
    y[:] = 1
    y[5:40] = 0
    X[:, 0] = np.where(y == 1, 3.0, -3.0)
    X[7, 0] = 3.0  # the only 0 among the ones
    message = models(np.array([[12.0, 0, 0, 0]]), np.zeros(1))
    answer = one_site(X, y, TRIAL).ask(look, message)
    assert has_rows(answer.gradient[:, :, 0], X, 1e-6) == 1

    site = one_site(X, y, alone())
    with pytest.raises(QuestionRefused, match="dominance"):
        site.ask(look, message)
    assert site.refusals[0].is_silent


def test_a_rare_level():
    X, y = logistic_rows(60, 2)
    frame = frame_of(X, y).assign(ward=np.where(np.arange(60) < 2, "b", "a"))
    table = SiteTable(frame, "oslo")
    ward = Feature(name="ward", levels=("a", "b"))
    design = Design(features=(Feature(name="x0"), ward))
    mean = table.rows(design).answer(sums, Message()).X[0, 1] / 60
    assert mean == pytest.approx(2 / 60)  # who knows one of the two knows the ward of the other
    refusal = PolicyGuard(alone(), None, "oslo").refuses(asked(table, design, sums, Message()))
    assert refusal is not None
    assert refusal.rule == "cells"
    assert "is 'b' in 2 of the rows" in refusal.sentence
    assert refusal.noted == refusal.told == "its rule 'cells' forbids it"  # in a log that others may be given
    common = SiteTable(frame.assign(ward=np.where(np.arange(60) < 3, "b", "a")), "oslo")
    assert rule_of(PolicyGuard(alone(), None, "oslo"), common, design) is None
