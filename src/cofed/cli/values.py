"""What may stand after an option or as an argument, for shells that complete words; read where it is checked."""


def families(incomplete: str) -> list[str]:
    """The families of a fit."""
    from cofed.fitting.plan import FAMILIES

    return list(FAMILIES)


def penalties(incomplete: str) -> list[str]:
    """The penalties of a fit."""
    from cofed.fitting.plan import PENALTIES

    return list(PENALTIES)


def ways_to_choose(incomplete: str) -> list[str]:
    """What chooses the strength of the penalty."""
    from cofed.fitting.plan import CHOICES

    return list(CHOICES)


def measures(incomplete: str) -> list[str]:
    """What can be cross-validated."""
    from cofed.fitting.plan import MEASURES

    return list(MEASURES)


def experiments(incomplete: str) -> list[str]:
    """The papers' experiments."""
    from cofed.experiments import everything

    return list(everything())


def race_problems(incomplete: str) -> list[str]:
    """The problems of the race."""
    from cofed.race.problems import battery

    return after_commas(incomplete, list(battery()))


def race_algorithms(incomplete: str) -> list[str]:
    """The algorithms of the race."""
    from cofed.race.entrants import entrants

    return after_commas(incomplete, list(dict.fromkeys(one.method.__name__ for one in entrants())))


def after_commas(incomplete: str, names: list[str]) -> list[str]:
    """Names after those that have been given, with commas between them.

    >>> from cofed.cli.values import after_commas
    >>> after_commas("", ["a", "b"]), after_commas("a,", ["a", "b"])
    (['a', 'b'], ['a,b'])
    """
    given, comma, _ = incomplete.rpartition(",")
    return [f"{given}{comma}{name}" for name in names if name not in given.split(",")]
