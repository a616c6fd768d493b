"""Whether the public guesses of a private fit can be right, as far as its noised sums show. Asks for nothing more."""

import numpy as np

from cofed.estimators.noised import NoisedMoments, PublicUnits
from cofed.privacy import Privacy

SURE = 3.0  # standard deviations of the noise: what is nearer is not spoken of
LIGHT = 0.5  # rows of normal numbers with right guesses count with 0.8 and more on average
FAR = 2.0  # guessed spreads between a mean and its guess
WIDE, NARROW = 3.0, 0.1  # a spread beside its guess: rows beyond the bound count less, and below it drown in noise
MOST = 5  # columns that a warning names


def assumed(privacy: Privacy, linear: bool) -> str:
    """What a private fit takes rows to be like, in words.

    >>> import cofed
    >>> from cofed.estimators.guesses import assumed
    >>> assumed(cofed.Privacy(1), linear=True)
    'features around 0 with a spread of 1, y around 0 with a spread of 1'
    """
    words = f"features around {shown(privacy.centre)} with a spread of {shown(privacy.spread)}"
    return words + f", y around {privacy.label_centre:g} with a spread of {privacy.label_spread:g}" * linear


def shown(guess: object) -> str:
    """The first numbers of a guess."""
    values = np.ravel(np.asarray(guess, np.float64))
    return ", ".join(f"{value:g}" for value in values[:MOST]) + ", ..." * (len(values) > MOST)


def doubts(moments: NoisedMoments, units: PublicUnits, rows: int, names: list[str]) -> str:
    """Which guesses cannot be right, in a sentence; empty where noised moments show nothing of the kind.

    Parameters
    ----------
    moments : NoisedMoments
        Of rows (x, y, 1) in public units.
    units : PublicUnits
        The units, and so the guesses.
    rows : int
        How many rows there are.
    names : list of str
        The columns of (x, y), as far as they are of interest.
    """
    M, labels = moments.folds.sum(axis=0), units.units.labels
    weight, margin = M[-1, -1], SURE * moments.sigma * np.sqrt(len(moments.folds))
    if rows < 2 * margin:
        return ""  # nothing can be told from noise
    total = max(weight, margin)
    centre, spread = np.append(units.units.mean, labels.centre), np.append(units.units.width, labels.size)
    found = []
    for j, name in enumerate(names):
        mean, square, error = M[j, -1] / total, M[j, j] / total, margin / total
        wide = float(np.sqrt(max(square - mean**2, 0.0)))
        if abs(mean) - error > FAR or wide - error > WIDE or np.sqrt(max(square, 0.0) + error) < NARROW:
            seems = f"around {centre[j] + spread[j] * mean:.3g} with a spread of {spread[j] * wide:.2g}"
            known = f"seems to be {seems}" if weight > 2 * margin else "is far off"
            found.append(f"; {name} {known} (guessed: {centre[j]:g} and {spread[j]:g})")
    if not found and weight + margin >= LIGHT * rows:
        return ""
    more = f"; and {len(found) - MOST} more" if len(found) > MOST else ""
    return (
        "the guesses of Privacy(centre=, spread=, label_centre=, label_spread=) do not fit the rows, which makes the "
        f"model worse: rows count with {max(weight, 0) / rows:.2g} of their weight on average"
        f"{''.join(found[:MOST])}{more}. Give better ones, from what is public or from this sentence (its numbers are "
        "noised); another fit spends its own epsilon"
    )
