"""No combination of sums over sets of sites is about fewer sites than the policy asks for."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofed.sites.guard import SumOver
from cofed.sites.policy import Policy, PolicyGuard, parse_policy, rosters
from cofed.sites.policy.rosters import is_new, told_apart
from cofed.sites.queries import Message, sums
from tests.sites.policy.worlds import asked, design_of, federation, frame_of, logistic_rows, over

NAMES = "abcdefg"
SETS = st.lists(st.frozensets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=4)


def brute_force(sets, least, released):
    """Every group of few sites: whether a combination is zero elsewhere, and not zero at all that are not released."""
    matrix = np.array([[name in one for name in NAMES] for one in sets], float)
    found = []
    for many in range(1, least):
        for group in itertools.combinations(range(len(NAMES)), many):
            others = [j for j in range(len(NAMES)) if j not in group]
            _, values, right = np.linalg.svd(matrix[:, others].T)
            null = right[int((values > 1e-9).sum()) :]  # combinations that are zero at all others
            mine = [j for j in group if NAMES[j] not in released]
            if (np.abs(null @ matrix[:, mine]) > 1e-9).any():
                found.append({NAMES[j] for j in mine})
    return found


@given(SETS, st.integers(2, 4), st.frozensets(st.sampled_from(NAMES), max_size=3))
def test_what_is_told_apart_is_what_a_brute_force_search_finds(sets, least, released):
    told, found = told_apart(sets, least, released), brute_force(sets, least, released)
    assert bool(told) == bool(found)
    assert not told or set(told) in found


@given(SETS, st.frozensets(st.sampled_from(NAMES), min_size=1))
def test_a_set_is_new_where_it_is_no_combination_of_the_others(sets, one):
    matrix = np.array([[name in each for name in NAMES] for each in (*sets, one)], float)
    assert is_new(sets, one) == (np.linalg.matrix_rank(matrix) > np.linalg.matrix_rank(matrix[:-1]))


def test_of_very_many_small_groups_each_counts_as_told_apart(monkeypatch):
    """So that no server can make a site compute for hours; what is refused then may be harmless."""
    sets = [{"a", "b", "c", "d"}, {"a", "e", "f", "g"}, {"b", "e", "h", "i"}]
    assert told_apart(sets, least=3) == frozenset()
    monkeypatch.setattr(rosters, "MOST", 2)
    assert told_apart(sets, least=3)


def test_ranks_are_exact_for_as_many_sets_as_there_may_be():
    """No determinant of so many rows of zeros and ones is as large as the prime, so none is a multiple of it."""
    rows = rosters.MOST_SETS
    assert (rows + 1) ** ((rows + 1) / 2) / 2**rows < rosters.PRIME
    rng = np.random.default_rng(0)
    matrix = rng.integers(0, 2, (rows, 60))
    matrix[-5:] = matrix[:5]
    assert rosters.rank(matrix.tolist()) == np.linalg.matrix_rank(matrix) == rows - 5


def test_more_sets_than_that_are_refused(site):
    guard = PolicyGuard(Policy(), None, "s0")
    for i in range(rosters.MOST_SETS - 1):
        assert rule(site, guard, keyed(f"s0 a{i} b{i} c{i}", f"study {i}")) is None
    assert rule(site, guard, keyed("s0 x y z", "one more")) == "site sets"
    assert rule(site, guard, keyed("s0 a1 b1 c1", "study 1")) is None


# Over studies


@pytest.fixture(scope="module")
def site():
    X, y = logistic_rows(40, 2)
    return federation(frame_of(X, y), design_of(2), 1, Policy())


def keyed(names, study, **about):
    """A sum over sites whose keys are known; a name may be given as name=key."""
    keys = {one.partition("=")[0]: (one.partition("=")[2] or one) * 32 for one in names.split()}
    return over(dict.fromkeys(keys, 40), study=study, keys=keys, **about)


def rule(site, guard, whom: SumOver):
    refusal = guard.refuses(asked(site.tables["s0"], site.design, sums, Message(), whom))
    return None if refusal is None else refusal.rule


FIRST = "s0 s1 s2 s3 s4"


@pytest.mark.parametrize(
    ("second", "wanted"),
    [
        ("s0 s1 s2 s3 s4", None),
        ("s0 s1 s2 s3", "site sets"),  # the attack: the difference of the two sums is s4's answer
        ("s0 s1 s2", "site sets"),
        ("s0 s1 s2 s3 s4 s5", "site sets"),  # s5's
        ("s0 s1 s2 s3 s5", "site sets"),  # s4's less s5's, of which one may work with the server
        ("s0 s1 s2 s3 s4 s5 s6 s7", None),
        ("s0 s5 s6 s7", None),
        ("s0 s1 b2=s2 b3=s3", "site sets"),  # other names, the same keys
        ("s0 s1 s2 s3 s4=k4", "site sets"),  # the same name, another key
    ],
)
def test_studies_with_other_sites_are_held_against_each_other(site, second, wanted, tmp_path):
    assert rule(site, PolicyGuard(Policy(), tmp_path, "s0"), keyed(FIRST, "first")) is None
    again = PolicyGuard(Policy(), tmp_path, "s0")  # another process: the record is on disk
    assert rule(site, again, keyed(second, "second")) == wanted
    assert rule(site, again, keyed(FIRST, "first")) is None


def test_differences_of_three_studies_count_too(site):
    guard = PolicyGuard(Policy(sums={"sites": 4}), None, "s0")
    assert rule(site, guard, keyed("s0 s1 s2 s3 s4 s5", "one")) is None
    assert rule(site, guard, keyed("s0 s1 s6 s7 s8 s9", "two")) is None
    # The first two less this one are s0 and s1 twice, and nobody else.
    assert rule(site, guard, keyed("s2 s3 s4 s5 s6 s7 s8 s9 s0", "three")) == "site sets"


def test_sites_that_have_released_themselves_may_be_the_difference_also_in_later_studies(site, tmp_path):
    guard = PolicyGuard(Policy(), tmp_path, "s0")
    assert rule(site, guard, keyed(FIRST, "first", released=frozenset({"s4"}))) is None
    assert rule(site, PolicyGuard(Policy(), tmp_path, "s0"), keyed("s0 s1 s2 s3", "second")) is None


def test_the_policy_may_release_a_site_by_its_key(site):
    key = "5f0c" * 16
    policy = parse_policy(f'[sums]\nreleased = ["{key}"]')
    first = over(dict.fromkeys(("s0", "s1", "s2", "s3"), 40), keys={"s3": key})
    for rules, wanted in ((Policy(), "site sets"), (policy, None)):
        guard = PolicyGuard(rules, None, "s0")
        assert rule(site, guard, first) is None
        assert rule(site, guard, over(dict.fromkeys(("s0", "s1", "s2"), 40), study="second")) == wanted
    with pytest.raises(ValueError, match="'s3' is no long-term key of a site, of 64 hexadecimal digits"):
        parse_policy('[sums]\nreleased = ["s3"]')
