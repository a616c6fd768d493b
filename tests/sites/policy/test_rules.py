"""Each rule of a policy: what it refuses, in which words, and what it lets through."""

import numpy as np
import pytest

from cofed import Logistic, Poisson, Squared
from cofed.privacy import sigma_for
from cofed.sites import Folds, Scaling, SiteTable
from cofed.sites.policy import TRIAL, Policy, PolicyGuard
from cofed.sites.queries import (
    ColumnsMessage,
    HistogramMessage,
    LookMessage,
    Message,
    PrivateMomentsMessage,
    columns,
    histogram,
    look,
    private_moments,
    sums,
)
from tests.sites.policy.worlds import alone, asked, design_of, frame_of, logistic_rows, over

X, Y = logistic_rows(60, 3)
TABLE, DESIGN = SiteTable(frame_of(X, Y), "oslo"), design_of(3)
ROWS = {"oslo": 60, "rome": 60, "bonn": 60}


def judged(policy: Policy, whom=None, query=sums, message: Message | None = None, design=DESIGN, table=TABLE):
    return PolicyGuard(policy, None, "oslo").refuses(asked(table, design, query, message or Message(), whom))


@pytest.mark.parametrize(
    ("policy", "whom", "rule"),
    [
        (Policy(), over(ROWS), None),
        (Policy(), None, "masked"),
        (Policy(), over(ROWS, is_pinned=False), "masked"),
        (Policy(sums={"masked": "required"}), over(ROWS, is_pinned=False), None),
        (Policy(sums={"masked": "required"}), None, "masked"),
        (Policy(sums={"masked": "optional"}), None, None),
        (Policy(), over({"oslo": 60, "rome": 60}), "sites"),
        (Policy(), over({"rome": 60, "bonn": 60, "lima": 60}), "sites"),
        (Policy(sums={"colluding": 2}), over(ROWS), "sites"),
        (Policy(rows={"site": 61}), over(ROWS), "rows"),
        (Policy(rows={"cell": 40}), over(ROWS), "cells"),
        (Policy(questions={"queries": ["gram"]}), over(ROWS), "queries"),
        (Policy(questions={"queries": ["gram", "sums"]}), over(ROWS), None),
        (Policy(questions={"text": 1}), over(ROWS), "text"),
    ],
)
def test_who_and_what(policy, whom, rule):
    refusal = judged(policy, whom)
    assert (None if refusal is None else refusal.rule) == rule


def test_a_site_without_a_file_answers_nobody_who_sees_its_answer():
    assert judged(Policy()).sentence.startswith("the server would see this site's own answer")


def test_a_trial_answers_everything():
    few = SiteTable(frame_of(X[:2], Y[:2]), "oslo")
    assert judged(TRIAL, table=few, message=Message(folds=Folds(2))) is None


def test_the_sentence_says_what_is_asked_and_what_is_allowed():
    refusal = judged(Policy(rows={"site": 61}), over(ROWS))
    assert refusal.sentence == "the question is about 60 rows here; 61 must be (rows.site)"


def test_silent_refusals_end_a_study(tmp_path):
    """Each tells the server a little: that some site has a row there."""
    steep = asked(TABLE, DESIGN, look, a_look(1, size=1e3), over(ROWS))
    other = over(ROWS, study="another")
    for _ in range(3):  # also after a restart
        refusal = PolicyGuard(Policy(), tmp_path, "oslo").refuses(steep)
        assert (refusal.rule, refusal.is_silent) == ("size", True)
    guard = PolicyGuard(Policy(), tmp_path, "oslo")
    for question in (steep, asked(TABLE, DESIGN, sums, Message(), over(ROWS))):
        refusal = guard.refuses(question)
        assert (refusal.rule, refusal.is_silent) == ("failures", False)
    assert guard.refuses(asked(TABLE, DESIGN, sums, Message(), other)) is None
    raised = PolicyGuard(Policy(questions={"failures": 4}), tmp_path, "oslo")
    assert raised.refuses(asked(TABLE, DESIGN, sums, Message(), over(ROWS))) is None


def test_exchanges_are_counted_by_day_and_in_all():
    days = iter("aaaabbbbbb")
    guard = PolicyGuard(alone(questions={"per_day": 2, "in_all": 3}), None, "oslo", lambda: next(days))
    one, two, three, four = (asked(TABLE, DESIGN, sums, Message(folds=Folds(k))) for k in (1, 2, 4, 8))
    five = asked(TABLE, DESIGN, sums, Message())
    rules = [guard.refuses(question) for question in (one, one, five, two, two, one)]
    assert [None if refusal is None else refusal.rule for refusal in rules] == [
        *(None, None, None, "exchanges"),  # the same question again was free; the day is over
        *(None, None),
    ]
    assert guard.refuses(four).rule == "exchanges"  # for good
    assert guard.refuses(three).rule == "exchanges"
    assert guard.refuses(one) is None


def a_look(models: int, loss=None, p: int = 3, seed: int = 0, size: float = 0.1) -> LookMessage:
    rng = np.random.default_rng(seed)
    nothing = np.zeros(0, np.int32)
    return LookMessage(
        rng.normal(size=(models, p, 1)) * size,
        rng.normal(size=(models, 1)) * size,
        np.full(models, -1, np.int32),
        nothing,
        nothing.reshape(0, 0),
        loss=loss or Logistic(),
    )


def test_points_of_all_questions_count_together():
    guard = PolicyGuard(Policy(), None, "oslo")
    limit = int(0.33 * 120)  # without the largest of the others
    first = asked(TABLE, DESIGN, look, a_look(limit - 1), over(ROWS))
    assert guard.refuses(first) is None
    assert guard.refuses(first) is None
    assert guard.refuses(asked(TABLE, DESIGN, look, a_look(1, seed=1), over(ROWS))) is None
    refusal = guard.refuses(asked(TABLE, DESIGN, look, a_look(1, seed=2), over(ROWS)))
    assert refusal.rule == "points"
    assert "39 points were told about this target, and 1 are asked for; of 120 rows of all sites 39" in refusal.sentence


def test_points_of_a_squared_loss_are_the_gram_matrix():
    table, design = SiteTable(frame_of(X, X[:, 0] - 0.3), "oslo"), design_of(3, None)
    assert judged(Policy(), over(ROWS), look, a_look(500, Squared()), design, table) is None
    refusal = judged(Policy(parameters={"per_row": 0.02}), over(ROWS), look, a_look(500, Squared()), design, table)
    assert refusal.rule == "parameters"


def test_columns_of_products_count_by_fold():
    message = a_look(1)
    wide = LookMessage(
        message.coef, message.intercept, message.without, np.zeros(1, np.int32), np.array([[0, 1, 2, 3]], np.int32),
        loss=Logistic(), folds=Folds(10),
    )  # fmt: skip
    assert judged(Policy(), over(ROWS), look, wide) is None  # 12 rows of a fold, 3 columns, and the intercept
    assert judged(Policy(parameters={"per_row": 0.24}), over(ROWS), look, wide).rule == "parameters"
    some = ColumnsMessage(np.arange(3, dtype=np.int32), folds=Folds(10))
    assert judged(Policy(), over(ROWS), columns, some) is None
    assert judged(Policy(parameters={"per_row": 0.24}), over(ROWS), columns, some).rule == "parameters"


def test_bins_of_a_histogram():
    def question(bins: int):
        return HistogramMessage(np.zeros(1, np.int32), np.linspace(-1, 1, bins - 1)[None])

    assert judged(Policy(), over(ROWS), histogram, question(39)) is None
    assert judged(Policy(), over(ROWS), histogram, question(40)).rule == "bins"


def test_algorithms_have_their_rule():
    guard = PolicyGuard(Policy(questions={"algorithms": ["FedDualAvg"]}), None, "oslo")
    assert guard.refuses_algorithm("FedDualAvg") is None
    assert guard.refuses_algorithm("FedAvg").rule == "algorithms"


def a_noised_question(sigma: float, shares: int) -> PrivateMomentsMessage:
    numbers = np.array([2.0]), np.array([sigma]), np.array([float(shares)]), np.ones(1)
    return PrivateMomentsMessage(*numbers, scaling=Scaling(np.zeros(3), np.ones(3)))


def test_answers_with_noise_have_a_budget_that_is_kept(tmp_path):
    """Without it, a question with next to no noise would be a Gram matrix that no other rule knows."""
    policy = Policy(privacy={"epsilon": 3.0})
    told = lambda sigma, shares=2: PolicyGuard(policy, tmp_path, "oslo").refuses(  # noqa: E731
        asked(TABLE, DESIGN, private_moments, a_noised_question(sigma, shares), over(ROWS))
    )
    assert told(1e-9).rule == "epsilon"
    enough = private_moments.sensitivity(2.0) * sigma_for(3.0, 1e-6, rounds=4, size=15)
    answers = [told(enough) for _ in range(5)]
    assert [one is None for one in answers] == [True] * 4 + [False]
    assert "spent an epsilon of 3." in answers[-1].sentence
    assert told(1e9) is None  # next to nothing more
    assert told(1e9, shares=3).rule == "noise"


def test_a_refused_question_leaves_no_trace(tmp_path):
    guard = PolicyGuard(Policy(), tmp_path, "oslo")
    assert guard.refuses(asked(TABLE, DESIGN, sums, Message(), over(ROWS))) is None
    before = guard.ledger
    assert guard.refuses(asked(TABLE, DESIGN, look, a_look(1000), over(ROWS))).rule == "points"
    assert guard.ledger is before
    assert before.analyses["y"].points == 0


@pytest.mark.parametrize(
    ("values", "level"),
    [
        ([0] * 58 + [1] * 2, "1"),
        ([2.5] * 59 + [-1], "-1"),
        ([1] * 57 + [0] * 3, None),
        ([7] * 60, None),
        (list(range(60)), None),
        ([0] * 58 + [1, 2], None),  # numbers are not levels, but where there are two
    ],
)
def test_columns_of_two_values_have_cells(values, level):
    table = SiteTable(frame_of(X, Y).assign(x1=values), "oslo")
    refusal = judged(alone(), table=table)
    if level is None:
        assert refusal is None
    else:
        assert (refusal.rule, f"is {level!r} in" in refusal.sentence) == ("cells", True)


def test_models_whose_slopes_overflow_are_refused():
    table, design = SiteTable(frame_of(X, np.arange(60) % 5), "oslo"), design_of(3, None)
    wide = Policy(points={"size": 1e6, "grid_rows": 50})
    refusal = judged(wide, over(ROWS), look, a_look(2, Poisson(), size=1e4), design, table)
    assert refusal.rule == "size"


@pytest.mark.parametrize(
    ("weight", "said"),
    [
        (np.linspace(1, 2, 60), None),
        (np.r_[1e6, np.linspace(1, 2, 59)], "by their weights the rows count as 1 alike; 10 must"),
        (np.r_[2.0, 3.0, np.ones(58)], "sums with and without weights differ as those of 1.2"),
    ],
)
def test_weights_that_are_about_single_rows_are_not_told_of(weight, said):
    table = SiteTable(frame_of(X, Y).assign(w=weight), "oslo")
    found = judged(Policy(), over(ROWS), design=DESIGN.with_columns("w", None), table=table)
    if said is None:
        assert found is None
        return
    assert (found.rule, found.is_silent) == ("weights", True)
    assert found.sentence.startswith(said)


def test_slopes_are_judged_with_weights_and_offsets():
    message = a_look(1)
    assert judged(Policy(), over(ROWS), look, message) is None
    # All rows but the first are predicted to near certainty: the answer would be about that row alone.
    certain = np.where(Y > 0, 9.0, -9.0) * np.r_[-1.0, np.ones(59)]
    table = SiteTable(frame_of(X, Y).assign(o=certain), "oslo")
    assert judged(Policy(), over(ROWS), look, message, table=table) is None
    assert judged(Policy(), over(ROWS), look, message, DESIGN.with_columns(None, "o"), table).rule == "dominance"
