"""Cohorts: the sites whose masked updates are added up together, and count whole or not at all."""

from collections.abc import Sequence

from cofed._util import checks, naming
from cofed.sites.secure.wide import MOST_SITES

LEAST = 3  # sites in a cohort that was chosen: of two, each knows the other's part of the sum

Cohorts = tuple[tuple[str, ...], ...]


def read_cohorts(given: object) -> Cohorts:
    """Cohorts as lists of names, or as one text (Flower's configurations hold no lists); none is everybody together.

    >>> from cofed.flower.cohorts import read_cohorts
    >>> read_cohorts("oslo rome bern; turku padua leiden")
    (('bern', 'oslo', 'rome'), ('leiden', 'padua', 'turku'))
    >>> read_cohorts([["oslo", "rome"]])
    Traceback (most recent call last):
    ValueError: cohorts must each have 3 to 256 sites, got ['oslo', 'rome']
    """
    if given is None:
        return ()
    if isinstance(given, str):
        given = [part.replace(",", " ").split() for part in given.split(";")]
    if not isinstance(given, (list, tuple)) or not given or not all(is_names(one) for one in given):
        raise ValueError(
            "cohorts must be lists of sites' names, such as [['a', 'b', 'c'], ['d', 'e', 'f']], "
            f"got {checks.shown(given)}"
        )
    for one in given:
        if not LEAST <= len(one) <= MOST_SITES:
            raise ValueError(f"cohorts must each have {LEAST} to {MOST_SITES} sites, got {list(one)!r}")
    everybody = [name for one in given for name in one]
    twice = [name for name in everybody if everybody.count(name) > 1]
    if twice:
        raise ValueError(f"cohorts must hold each site once, but {twice[0]!r} is given twice")
    return tuple(tuple(sorted(one, key=naming.natural)) for one in given)


def is_names(value: object) -> bool:
    """Whether this is a list of names."""
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) and name.isprintable() for name in value)


def everybody_in(cohorts: Cohorts) -> tuple[str, ...]:
    """The sites of all cohorts."""
    return tuple(sorted((name for one in cohorts for name in one), key=naming.natural))


def check_rounds(sizes: Sequence[int], asked: int, quorum: int) -> None:
    """Refuse rounds of masked updates that cohorts of these sizes cannot have.

    Parameters
    ----------
    sizes : sequence of int
        How many sites each cohort has.
    asked : int
        How many sites are asked in a round.
    quorum : int
        How many of them a round needs.
    """
    clients = sum(sizes)
    if clients < 2:
        raise ValueError(
            "clients: the updates of a single site cannot be masked, as their sum would be its own; give plain=True "
            "(--plain) where the server may see them"
        )
    if len(sizes) == 1 and clients > MOST_SITES:
        raise ValueError(f"clients: at most {MOST_SITES} sites are masked together, got {clients}; give cohorts=")
    ways = "give cohorts=, lists of at least 3 sites each, or plain=True (--plain), with which the server sees updates"
    if asked < clients and (len(set(sizes)) > 1 or asked % sizes[0]):
        raise ValueError(
            f"clients_per_round is {asked}, but masked updates are drawn in whole cohorts, all of one size, and those "
            f"here have {', '.join(map(str, sizes))} sites; {ways}"
        )
    if asked - min(sizes) < quorum < asked:
        raise ValueError(
            f"quorum is {quorum}, but masked updates count in whole cohorts, so each round needs all {asked}; {ways}"
        )
