"""Folds that are sites, and folds of groups, under a site's policy."""

import numpy as np
import pytest

from cofed.sites import Folds, GroupFolds, SiteFolds, SiteTable
from cofed.sites.policy import Policy, PolicyGuard
from cofed.sites.queries import Message, sums
from tests.sites.policy.worlds import asked, design_of, frame_of, over

SITES = {"s0": 30, "s1": 40, "s2": 50, "s3": 60}


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    frame = frame_of(rng.normal(size=(30, 2)), np.arange(30) % 2).assign(patient=np.arange(30) // 5)
    return SiteTable(frame, "s0")


def test_a_fold_for_each_site_needs_that_all_have_released_themselves(table):
    design, message = design_of(2), Message(folds=SiteFolds.of(tuple(SITES)))
    some = over(SITES, released=frozenset({"s0", "s1", "s2"}))
    for whom in (over(SITES), some):
        refusal = PolicyGuard(Policy(), None, "s0").refuses(asked(table, design, sums, message, whom))
        assert refusal is not None
        assert refusal.rule == "site sets"
        assert "answered alone" in refusal.sentence
    released = over(SITES, released=frozenset(SITES))
    assert PolicyGuard(Policy(), None, "s0").refuses(asked(table, design, sums, message, released)) is None


def test_a_fold_that_is_left_out_makes_no_smaller_sets_of_rows(table):
    guard, design = PolicyGuard(Policy(), None, "s0"), design_of(2)
    for left_out in (-1, 0, 1, 2):
        message = Message(folds=Folds(3, left_out=left_out))
        assert guard.refuses(asked(table, design, sums, message, over(SITES))) is None
    again = guard.refuses(asked(table, design, sums, Message(folds=Folds(9, seed=5)), over(SITES)))
    assert again is not None
    assert again.rule in ("row sets", "folds")


def test_groups_that_are_few_make_folds_that_are_too_small(table):
    design = design_of(2).with_columns(None, None, "patient")
    guard = PolicyGuard(Policy.model_validate({"rows": {"fold": 6}}), None, "s0")
    assert guard.refuses(asked(table, design, sums, Message(folds=GroupFolds(3)), over(SITES))) is None
    refusal = guard.refuses(asked(table, design, sums, Message(folds=GroupFolds(6)), over(SITES)))
    assert refusal is not None
    assert refusal.rule == "folds"
