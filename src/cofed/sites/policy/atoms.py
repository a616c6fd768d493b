"""Atoms: the smallest sets that a combination of answers can stand for.

Each answer is a sum over a set. Sums and differences of answers weigh all members of an atom alike, an atom being
those that are in just the same sets. So no combination stands for fewer than the smallest atom has.
"""

import numpy as np


def split(labels: np.ndarray, part: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Split atoms by new sets.

    Parameters
    ----------
    labels : array of int
        The atom of each row; 0 where it was in no set so far.
    part : array of int
        Which of some new, disjoint sets each row is in, from 1 on; 0 is none of them.

    Returns
    -------
    labels, sizes : arrays of int
        The new atoms of the rows, and the sizes of the atoms 1, 2, ...: those of rows that are in some set.

    Examples
    --------
    >>> import numpy as np
    >>> from cofed.sites.policy.atoms import split
    >>> labels, sizes = split(np.zeros(5, int), np.array([1, 1, 1, 1, 0]))
    >>> labels.tolist(), sizes.tolist()
    ([1, 1, 1, 1, 0], [4])
    >>> split(labels, np.array([1, 1, 1, 1, 1]))[1].tolist()  # the fifth row alone is the difference
    [1, 4]
    """
    both = labels.astype(np.int64) * (int(part.max(initial=0)) + 1) + part
    found, place, counts = np.unique(both, return_inverse=True, return_counts=True)
    nowhere = bool(len(found) and found[0] == 0)
    return (place if nowhere else place + 1).astype(np.int32), counts[1:] if nowhere else counts
