"""Wide integers are Python's integers, and their sums are exact."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cofed.sites.secure.wide import FORMATS, MOST_SITES, RAW, SCALED, add, negated

KINDS = pytest.mark.parametrize("kind", FORMATS, ids=("scaled", "raw"))
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


def integers(planes):
    """The same as Python's integers."""
    limbs, found = len(planes), []
    for column in planes.T:
        whole = sum(int(word) << (64 * place) for place, word in enumerate(column))
        found.append(whole - (1 << 64 * limbs) if whole >> (64 * limbs - 1) else whole)
    return found


def rounded(x, kind):
    """The integer that stands for a number; Python rounds halves to even too."""
    return round(Fraction(x) * 2**kind.fraction)


@KINDS
@given(x=st.lists(FLOATS, min_size=1, max_size=20))
def test_numbers_become_the_nearest_integers(kind, x):
    x = [one for one in x if abs(one) <= kind.most] or [0.0]
    assert integers(kind.encode(np.array(x))) == [rounded(one, kind) for one in x]


@KINDS
def test_numbers_at_the_edges_become_the_nearest_integers(kind):
    last = 2.0**-kind.fraction
    edges = [0.0, -0.0, last, last / 2, 1.5 * last, 2.5 * last, kind.most, np.nextafter(kind.most, 0), 1.0, np.pi]
    edges += [last * 2.0**place for place in (52, 53, 54, 63, 64, 65, 127, 128)]
    edges += [np.nextafter(one, np.inf) for one in edges if one < kind.most] + [5e-324]
    x = np.array([*edges, *(-one for one in edges)])
    assert integers(kind.encode(x)) == [rounded(one, kind) for one in x]


@KINDS
@given(data=st.data())
def test_sums_and_negatives_are_those_of_integers(kind, data):
    words = st.integers(0, 2**64 - 1)
    columns = st.lists(st.lists(words, min_size=kind.limbs, max_size=kind.limbs), min_size=3, max_size=3)
    a, b = (np.array(data.draw(columns), np.uint64).T for _ in range(2))
    modulus = 1 << 64 * kind.limbs

    def wrapped(whole):
        whole %= modulus
        return whole - modulus if whole >= modulus // 2 else whole

    pairs = zip(integers(a), integers(b), strict=True)
    assert integers(add(a, b)) == [wrapped(one + two) for one, two in pairs]
    assert integers(negated(a)) == [wrapped(-one) for one in integers(a)]


@given(x=st.lists(st.lists(st.floats(-1e15, 1e15), min_size=4, max_size=4), min_size=2, max_size=8))
def test_a_sum_is_that_of_exact_addition_to_the_last_digit(x):
    answers = [np.array(one) for one in x]
    total = SCALED.encode(answers[0])
    for one in answers[1:]:
        total = add(total, SCALED.encode(one))
    exact = np.array([math.fsum(column) for column in zip(*x, strict=True)])
    bound = 2 * np.spacing(np.abs(exact)) + len(x) * 2.0**-SCALED.fraction
    assert np.all(np.abs(SCALED.decode(total) - exact) <= bound)


@KINDS
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e300, -1e300])
def test_what_no_integer_stands_for_is_refused(kind, bad):
    assert not kind.fits(np.array([bad]))
    with pytest.raises(ValueError, match="numbers must be finite and at most"):
        kind.encode(np.array([1.0, bad]))


@KINDS
def test_the_largest_sums_are_numbers_and_all_beyond_is_infinite(kind):
    lowest = kind.encode(np.array([-kind.most]))
    least = lowest
    for _ in range(MOST_SITES - 1):
        least = add(least, lowest)
    assert kind.decode(least) == -kind.most * MOST_SITES
    assert kind.decode(negated(least)) == kind.most * MOST_SITES
    assert kind.decode(add(least, lowest)) == kind.decode(negated(add(least, lowest))) == np.inf


@KINDS
def test_random_words_are_no_sum(kind):
    words = np.random.default_rng(0).integers(0, 2**64, (kind.limbs, 100_000), np.uint64)
    assert np.isinf(kind.decode(words)).all()


def test_raw_numbers_of_any_unit_keep_their_digits():
    x = 10.0 ** np.arange(-30, 50) * np.pi
    np.testing.assert_allclose(RAW.decode(add(RAW.encode(x), RAW.encode(2 * x))), 3 * x, rtol=1e-15)
