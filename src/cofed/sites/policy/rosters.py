"""Which sites combinations of sums tell apart, where the sums were over different sets of sites.

A combination of sums weighs each site by the sets that it is in. It tells of the sites whose weight is not zero, and
these must be many. All combinations together are the span of the sets, as vectors with a 1 for each of their sites:
so the question is whether the span has a vector that is zero at all but few sites.
"""

import itertools
from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

MOST = 500  # groups that are tried; beyond, every small group counts as told apart
# No determinant of so many rows of zeros and ones is as large as the prime (Hadamard), so ranks are exact.
MOST_SETS = 36
PRIME = 2**61 - 1


class Atom(NamedTuple):
    """Sites that are in the same sets, and so have the same weight in all combinations."""

    place: tuple[bool, ...]  # in which of the sets
    sites: frozenset[str]
    is_released: bool


def rank(vectors: Sequence[Sequence[int]]) -> int:
    """The rank of a matrix of zeros and ones with at most `MOST_SETS` rows, exactly.

    >>> from cofed.sites.policy.rosters import rank
    >>> rank([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 1, 1]])
    2
    """
    rows, found = [list(row) for row in vectors], 0
    for column in range(len(rows[0]) if rows else 0):
        pivot = next((i for i in range(found, len(rows)) if rows[i][column]), None)
        if pivot is None:
            continue
        rows[found], rows[pivot] = rows[pivot], rows[found]
        inverse = pow(rows[found][column], -1, PRIME)
        for i in range(found + 1, len(rows)):
            factor = rows[i][column] * inverse % PRIME
            if factor:
                rows[i] = [(a - factor * b) % PRIME for a, b in zip(rows[i], rows[found], strict=True)]
        found += 1
    return found


def atoms_of(sets: Sequence[Set[str]], released: Set[str]) -> list[Atom]:
    """The atoms of some sets, those of released sites apart."""
    groups: dict[tuple[tuple[bool, ...], bool], set[str]] = {}
    for site in sorted(set().union(*sets)):
        groups.setdefault((tuple(site in one for one in sets), site in released), set()).add(site)
    return [Atom(place, frozenset(sites), is_released) for (place, is_released), sites in groups.items()]


def small_groups(atoms: Sequence[Atom], least: int) -> Iterator[tuple[Atom, ...]]:
    """The groups of atoms with fewer than `least` sites together, those of few atoms first."""
    small = [atom for atom in atoms if len(atom.sites) < least]
    for many in range(1, least):
        for group in itertools.combinations(small, many):
            if sum(len(atom.sites) for atom in group) < least:
                yield group


def told_apart(sets: Sequence[Set[str]], least: int, released: Set[str] = frozenset()) -> frozenset[str]:
    """Fewer than `least` sites that some combination of sums over these sets is about; empty where there are none.

    Parameters
    ----------
    sets : sequence of set of str
        The sites of each sum.
    least : int
        How many sites a combination must be about.
    released : set of str
        Sites that may be told apart; a combination of few sites may be about these alone.

    Examples
    --------
    >>> from cofed.sites.policy.rosters import told_apart
    >>> told_apart([set("abcd"), set("abc")], least=3), told_apart([set("abcd"), set("abc")], 3, released={"d"})
    (frozenset({'d'}), frozenset())
    >>> told_apart([set("abcde"), set("afghi")], least=3)  # one site in common: nothing but sums over five, or eight
    frozenset()
    >>> sorted(told_apart([set("abcx"), set("defy"), set("abcdef")], least=3))  # the first two, less the third
    ['x', 'y']
    """
    atoms = atoms_of(sets, released)
    whole = rank([[atom.place[i] for atom in atoms] for i in range(len(sets))])

    def within(group: Sequence[Atom]) -> int:
        """How many independent combinations are about no other sites than these."""
        others = [atom for atom in atoms if atom not in group]
        return whole - rank([[atom.place[i] for atom in others] for i in range(len(sets))])

    for tried, group in enumerate(small_groups(atoms, least)):
        told = frozenset(site for atom in group if not atom.is_released for site in atom.sites)
        if told and (tried >= MOST or within(group) > within([atom for atom in group if atom.is_released])):
            return told
    return frozenset()


def is_new(sets: Sequence[Set[str]], one: Set[str]) -> bool:
    """Whether a sum over this set tells more than combinations of sums over the others do."""
    sites = sorted(set().union(*sets, one))
    vectors = [[site in each for site in sites] for each in (*sets, one)]
    return rank(vectors) > rank(vectors[:-1])
