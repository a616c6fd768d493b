"""Names of clients and features: checked, sorted and listed in sentences."""

import datetime
import re
import unicodedata
from collections.abc import Hashable, Iterable, Sequence

import numpy as np

from cofed._util import checks
from cofed._util.checks import shown

# The types that a name may have. Each turns into a text that still says what it was.
NAME_TYPES = (str, int, float, tuple, np.integer, np.floating, datetime.date, np.datetime64)
NUMBERS = re.compile(r"([0-9]+)")
LISTED = 10  # the most names that a sentence lists


def listed(names: Iterable[Hashable]) -> str:
    """Names for a sentence, of which a thousand would bury it.

    >>> from cofed._util.naming import listed
    >>> listed("ab"), listed(range(12))
    ("'a', 'b'", '0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more')
    """
    texts = [repr(name) for name in names]
    return ", ".join(texts[:LISTED]) + (f" and {len(texts) - LISTED} more" if len(texts) > LISTED else "")


def natural(name: str) -> bytes:
    """A sort key with "2" < "10": digits compare as numbers (by length, then by value), the rest as text.

    The key is bytes, because they compare fast and there may be a million names. Each text part ends with a mark that
    sorts below anything that could follow in a longer name, and each number starts with its length. The name itself
    comes last and breaks ties such as "1" and "01".
    """
    if name.isascii() and name.isdigit():  # the same key, sooner: a million names are often a million numbers
        digits = name.lstrip("0")
        return f"\x00\x01\x01{chr(len(digits))}{digits}\x00\x01\x00{name}".encode()
    parts = NUMBERS.split(name)
    for i, part in enumerate(parts):
        if i % 2:
            digits = part.lstrip("0")
            parts[i] = f"\x01{chr(len(digits))}{digits}"  # no name has more digits than Unicode has characters
        else:
            parts[i] = part.replace("\x00", "\x00\x02") + "\x00\x01"
    return "".join([*parts, "\x00", name]).encode("utf-8", "surrogatepass")


def ranks(names: Sequence[str]) -> np.ndarray:
    """The place of each name in the natural order."""
    ranks = np.empty(len(names), np.int32)
    ranks[sorted(range(len(names)), key=lambda m: natural(names[m]))] = np.arange(len(names), dtype=np.int32)
    return ranks


def client_names(names: object, count: int) -> tuple[str, ...]:
    """The names of `count` clients as text, checked; "0", "1", ... where none are given."""
    if names is None:
        return tuple(str(m) for m in range(count))
    labels = tuple(as_text("names", name) for name in checks.items("names", names, "client names"))
    if len(labels) != count:
        raise ValueError(f"names= holds {len(labels)} names for {count} clients; give one name per client")
    require_different("client names", labels)
    return labels


def feature_names(names: object) -> tuple[str, ...] | None:
    """The names of features as text, checked to differ; None where none are given."""
    if names is None:
        return None
    labels = tuple(as_text("feature_names", name) for name in checks.items("feature_names", names, "names of features"))
    require_different("feature_names", labels)
    return labels


def as_text(given: str, name: object) -> str:
    """The text of a name that is a text, a number, a date or a tuple of these; anything else is refused."""
    if isinstance(name, (bool, np.bool_)) or not isinstance(name, NAME_TYPES) or name != name:
        raise TypeError(f"{given} must hold texts or whole numbers, got {shown(name)}")
    return str(name)


def require_different(what: str, labels: Iterable[str]) -> None:
    """Refuse a name that is there twice, even if only its invisible Unicode form differs."""
    seen: set[str] = set()
    for label in labels:
        same = label if label.isascii() else unicodedata.normalize("NFC", label)
        if same in seen:
            raise ValueError(f"{what} must differ, but {label!r} is given twice")
        seen.add(same)
