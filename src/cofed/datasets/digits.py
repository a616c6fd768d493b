"""The handwritten digits that come with scikit-learn, split by the forms that they were written on."""

import numpy as np

from cofed._util import checks
from cofed._util.extras import imported
from cofed.datasets.synthetic import check_choices, check_sizes
from cofed.federation import Federation

# The digits that every form asks its writer for, in this order; see `digits`.
FORM = (
    "0123456789" * 3 + "09556509898417735100227820126337334666491509528200176321746313917684314053696175447282257954884"
    "90898"
)
# The first row of each form in scikit-learn's copy.
STARTS = (0, 130, 256, 386, 516, 646, 776, 906, 1029, 1157, 1287, 1415, 1545, 1667)


def digits(parts: int = 1, *, flat: bool = True, dtype: str = "float32") -> Federation:
    """1,797 digits of 8 x 8 pixels in [0, 1], one client per form: 14 clients of 122 to 130 images.

    `Federation.split` holds samples of each client out.

    What is known: the set is the test part of the UCI digits, written by 13 people on preprinted forms (says its
    description). Its labels, in the file's order, run through one and the same text of 130 digits 14 times, up to 23
    digits that are missing and one other label: each time is a form. What is not known: who filled in which form.
    With 14 forms of 13 people, somebody filled in more than one; so clients are forms, and nearly writers.

    Parameters
    ----------
    parts : int
        Cut each form into this many contiguous parts (digits of one hand), for more and smaller clients.
    flat : bool
        Images as vectors of 64 pixels instead of 8 x 8.
    dtype : {"float32", "float64"}
        The dtype of the pixels.

    Returns
    -------
    Federation
        One client per form, or part of one.

    Raises
    ------
    ValueError
        If there are more parts than images of a form.

    Examples
    --------
    >>> import cofed
    >>> fed = cofed.datasets.digits()
    >>> fed
    Federation(14 clients, 1797 samples (min 122, median 130, max 130 per client), 64 features, float32)
    >>> fed.names[:2], cofed.datasets.digits(parts=3).names[:2]
    (('form 0', 'form 1'), ('form 0 part 0', 'form 0 part 1'))
    """
    check_sizes("digits", parts=parts)
    parts = int(parts)
    check_choices("digits", 0, dtype)
    checks.flag("digits: flat", flat)
    most = min(np.diff([*STARTS, 1797]))
    if parts > most:
        raise ValueError(f"digits: parts must be at most {most}, the images of the smallest form, got {parts}")
    pixels, labels = imported("sklearn.datasets", "The digits", "scikit-learn", "data").load_digits(return_X_y=True)
    X = (pixels / 16).astype(dtype).reshape((-1, 64) if flat else (-1, 8, 8))
    clients = {}
    for form, rows in enumerate(np.split(np.arange(len(X)), STARTS[1:])):
        for part, own in enumerate(np.array_split(rows, parts)):
            clients[f"form {form}" + f" part {part}" * (parts > 1)] = (X[own], labels[own])
    return Federation.from_arrays(clients)
