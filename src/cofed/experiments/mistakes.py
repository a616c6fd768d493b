"""What is wrong with an experiment file, in sentences: the line, the key, what was given and what is allowed there."""

import difflib
import re
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from pydantic_core import ErrorDetails

Place: TypeAlias = tuple[str | int, ...]  # keys and positions from the top of the file to a value
# Parts of pydantic's paths that are no keys: which branch of a union a value was held against.
BRANCHES = ("float", "int", "bool", "str", "list[float]", "list[int]", "list[bool]", "list[str]")


def sentence(mistake: ErrorDetails, text: str, raw: dict[str, Any], allowed: Mapping[int, Sequence[str]]) -> str:
    """One mistake in words.

    Parameters
    ----------
    mistake
        As pydantic reports it.
    text, raw
        The file, as it was written and as it was parsed.
    allowed
        The keys that each table of `raw` may have, by the table's identity.
    """
    place = tuple(part for part in mistake["loc"] if not is_branch(part))
    about, given = mistake.get("ctx", {}), mistake.get("input")
    if "tag" in about:
        found = given.get(about["tag"]) if isinstance(given, dict) else given
        place = (*place, about["tag"]) if isinstance(given, dict) else place
        return f"line {line_of(text, place)}: {dotted(place)} {unknown_name(mistake['type'], found, about)}"
    at, key = line_of(text, place), dotted(place)
    match mistake["type"]:
        case "extra_forbidden":
            known = sorted(allowed.get(id(table_around(raw, place)), ()))
            hint = did_you_mean(str(place[-1]), known)
            return f"line {at}: {key} is not a key here{hint}; allowed are {', '.join(known)}"
        case "missing":
            return f"line {at}: {key} is missing"
        case "literal_error":
            return f"line {at}: {key} is {given!r}; allowed are {about['expected']}"
    words = re.sub("^Input should be", "it should be", mistake["msg"])
    return f"line {at}: {key} is {given!r}; {words[0].lower()}{words[1:]}"


def unknown_name(kind: str, found: object, about: Mapping[str, Any]) -> str:
    """What is wrong with the name of an algorithm, a loss, a data source or the like."""
    said = "is missing" if found is None else f"is {found!r}"
    if kind == "import_path":
        return f"{said}; {about['why']}"
    if kind == "table_expected":
        return f"{said}; give a table with the key {about['tag']}"
    return f"{said}{did_you_mean(str(found), about['allowed'])}; allowed are {', '.join(about['allowed'])}"


def did_you_mean(word: str, known: Sequence[str]) -> str:
    """What somebody may have meant, in brackets."""
    near = difflib.get_close_matches(word, known, 1)
    return f" (did you mean {near[0]!r}?)" if near else ""


def is_branch(part: str | int) -> bool:
    """Whether a part of pydantic's path names a branch of a type, not a key."""
    return isinstance(part, str) and (part in BRANCHES or part.startswith(("function", "constrained")))


def table_around(raw: dict[str, Any], place: Place) -> object:
    """The table of the file in which a key stands."""
    table: Any = raw
    for part in place[:-1]:
        table = table[part]
    return table


def dotted(place: Place) -> str:
    """A path as it is written in TOML: algorithms[1].client_lr; entries are counted from 1."""
    words = "".join(f"[{part + 1}]" if isinstance(part, int) else f".{part}" for part in place)
    return words.lstrip(".")


def line_of(text: str, place: Place) -> int:
    """The line of a key, or of the nearest table around it; tables are headers or inline.

    >>> line_of("[[a]]\\nx = 1\\n[[a]]\\n[a.b]\\nx = 2", ("a", 1, "b", "x"))
    5
    """
    best, here = 1, ()
    counts: dict[Place, int] = {}  # of each list of tables, the position of the last one so far
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*(\[{1,2})\s*([\w.\-]+)\s*\]{1,2}\s*(#.*)?$", line)
        if header:
            here = header_place(header.group(2).split("."), header.group(1) == "[[", counts)
            if place[: len(here)] == here:
                best = number
            continue
        key = re.match(r"\s*([\w.\-]+)\s*=", line)
        if key:
            full = (*here, *key.group(1).split("."))
            if place[: len(full)] == full:
                return number
    return best


def header_place(names: list[str], is_list: bool, counts: dict[Place, int]) -> Place:
    """The path of a header: where it names a list of tables, the last one so far is meant, or a new one begins."""
    here: Place = ()
    for name in names:
        here = (*here, name)
        if is_list and name is names[-1]:
            counts[here] = counts.get(here, -1) + 1
        if here in counts:
            here = (*here, counts[here])
    return here
