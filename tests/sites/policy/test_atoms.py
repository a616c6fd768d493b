"""No combination of answers stands for fewer rows than the smallest atom has."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofed.sites.policy.atoms import split


def fewest(sets: list[frozenset[int]], n: int) -> int:
    """By brute force: the fewest rows that have the same non-zero weight in some combination of sums over the sets."""
    patterns = [tuple(row in one for one in sets) for row in range(n)]
    seen = [pattern for pattern in patterns if any(pattern)]
    return min((seen.count(pattern) for pattern in seen), default=0)


@given(
    st.integers(1, 8).flatmap(
        lambda n: st.tuples(st.just(n), st.lists(st.frozensets(st.integers(0, n - 1)), max_size=5))
    )
)
def test_the_smallest_atom_is_that_of_a_brute_force_search(case):
    n, sets = case
    labels, sizes = np.zeros(n, np.int32), np.zeros(0, int)
    for one in sets:
        labels, sizes = split(labels, np.array([row in one for row in range(n)], int))
    assert sizes.min(initial=n + 1) == (fewest(sets, n) or n + 1)
    assert (labels == 0).tolist() == [all(row not in one for one in sets) for row in range(n)]


@given(st.lists(st.lists(st.integers(0, 3), min_size=9, max_size=9), min_size=1, max_size=3))
def test_disjoint_sets_at_once_are_as_one_after_another(parts):
    together, apart = np.zeros(9, np.int32), np.zeros(9, np.int32)
    for part in parts:
        together, _ = split(together, np.array(part))
        for one in (1, 2, 3):
            apart, _ = split(apart, (np.array(part) == one).astype(int))
    same = [(together[i] == together[j]) == (apart[i] == apart[j]) for i, j in itertools.combinations(range(9), 2)]
    assert all(same)


def test_what_an_atom_hides_can_be_computed_from_the_sums():
    """The bound is sharp: the difference of two sums is the sum over the atom."""
    rows = np.random.default_rng(0).normal(size=(7, 2))
    one, other = np.arange(7) < 7, np.arange(7) < 5
    labels, sizes = split(split(np.zeros(7, int), one.astype(int))[0], other.astype(int))
    assert sorted(sizes.tolist()) == [2, 5]
    assert rows[one].sum(0) - rows[other].sum(0) == pytest.approx(rows[labels == labels[6]].sum(0))
