"""What is wrong with a TOML file, in sentences: the line, the key, what was given and what is allowed there."""

import dataclasses
import difflib
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import pydantic
from pydantic_core import ErrorDetails

Place: TypeAlias = tuple[str | int, ...]  # keys and positions from the top of the file to a value
Allowed: TypeAlias = Mapping[int, Sequence[str]]  # the keys that a table may have, by the table's identity
# Parts of pydantic's paths that are no keys: which branch of a union a value was held against.
BRANCHES = ("float", "int", "bool", "str")
KINDS = ("list[", "literal[", "function", "constrained")  # how others begin
KEY = re.compile(r"(?:[\w\-]+|\"[^\"]*\"|'[^']*')")  # a part of a dotted key
# What pydantic calls a value of the wrong type, and what belongs there.
WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "list_type": "a list",
    "model_type": "a table",
    "dict_type": "a table",
}
PATTERNS = {"^[0-9a-f]{64}$": "64 hexadecimal digits (0-9, a-f)"}  # what a text must look like, in words


M = TypeVar("M", bound=pydantic.BaseModel)


@dataclasses.dataclass(frozen=True)
class TomlFile(Generic[M]):
    """A kind of TOML file, of which every mistake is named.

    Attributes
    ----------
    model : type
        What such a file says.
    mistakes : callable
        What in it does not go together, where and why, though every value is allowed.
    allowed_keys : callable
        The keys that each table of a file may have, by the table's identity.
    error : type
        The error whose sentences name the mistakes, a line for each.
    absent : str
        What to do where there is no such file, as the end of a sentence.
    """

    model: type[M]
    mistakes: Callable[[M], Iterable[tuple[Place, str]]]
    allowed_keys: Callable[[dict[str, Any]], Allowed]
    error: type[ValueError]
    absent: str = ""

    def load(self, path: str | Path) -> M:
        """What a file says."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise self.error(f"there is no file {path}{self.absent}") from None
        except (OSError, UnicodeDecodeError) as error:
            raise self.error(f"{path} cannot be read: {error}") from None
        try:
            return self.parse(text)
        except self.error as error:
            raise self.error("\n".join(f"{path}, {line}" for line in str(error).splitlines())) from None

    def parse(self, text: str) -> M:
        """What a text says."""
        try:
            raw = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise self.error(str(error)) from None
        try:
            said = self.model.model_validate(raw)
        except pydantic.ValidationError as error:
            raise self.error("\n".join(sentences(error.errors(), text, raw, self.allowed_keys(raw)))) from None
        found = [f"line {line_of(text, place)}: {why}" for place, why in self.mistakes(said)]
        if found:
            raise self.error("\n".join(found))
        return said


def sentences(found: Sequence[ErrorDetails], text: str, raw: dict[str, Any], allowed: Allowed) -> list[str]:
    """All mistakes in words, one sentence for each value; parameters as in `sentence`.

    A value that may be a number or a list is held against both, and pydantic reports what is wrong for each.
    """
    values: dict[Place, list[ErrorDetails]] = {}
    for mistake in found:
        branches = [i for i, part in enumerate(mistake["loc"]) if is_branch(part)]
        values.setdefault(mistake["loc"][: branches[0]] if branches else mistake["loc"], []).append(mistake)
    said = []
    for place, group in values.items():
        within = [mistake for mistake in group if len(mistake["loc"]) > len(place) + 1]
        kinds = [WANTED.get(mistake["type"]) for mistake in group]
        lists = any(mistake["type"] in ("list_type", "too_short") for mistake in group)
        wanted = " or ".join(dict.fromkeys(kind for kind in kinds if kind not in (None, "a list")))
        if len(group) == 1 or within:
            said += [sentence(mistake, text, raw, allowed) for mistake in within or group]
            continue
        if not wanted:  # a number that is not allowed where a word is, too
            ways = [sentence(mistake, text, raw, allowed) for mistake in group]
            said.append("; or ".join([ways[0], *(way.split("; ", 1)[-1] for way in ways[1:])]))
            continue
        value = f"line {line_of(text, place)}: {dotted(place)} is {group[0]['input']!r}"
        said.append(f"{value}; it should be {wanted}{', or a list of at least 1 item of that kind' if lists else ''}")
    return list(dict.fromkeys(said))


def sentence(mistake: ErrorDetails, text: str, raw: dict[str, Any], allowed: Allowed) -> str:
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
        case "too_short":
            return f"line {at}: {key} is {given!r}; it should have at least {about['min_length']} item"
        case "string_pattern_mismatch":
            return f"line {at}: {key} is {given!r}; it should be {PATTERNS.get(about['pattern'], about['pattern'])}"
        case kind if kind in WANTED:
            return f"line {at}: {key} is {given!r}; it should be {WANTED[kind]}"
    words = re.sub("^Input should be", "it should be", mistake["msg"].removeprefix("Value error, "))
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
    return isinstance(part, str) and (part in BRANCHES or part.startswith(KINDS))


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

    >>> from cofed._util.toml_mistakes import line_of
    >>> line_of("[[a]]\\nx = 1\\n[[a]]\\n[a.b]\\nx = 2", ("a", 1, "b", "x"))
    5
    >>> line_of('[a]\\nx = 1\\n[a."two words"]\\nx = 2', ("a", "two words", "x"))
    4
    """
    best, here = 1, ()
    counts: dict[Place, int] = {}  # of each list of tables, the position of the last one so far
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(rf"\s*(\[{{1,2}})\s*({KEY.pattern}(\.{KEY.pattern})*)\s*\]{{1,2}}\s*(#.*)?$", line)
        if header:
            here = header_place(key_parts(header.group(2)), header.group(1) == "[[", counts)
            if place[: len(here)] == here:
                best = number
            continue
        key = re.match(rf"\s*({KEY.pattern}(\.{KEY.pattern})*)\s*=", line)
        if key:
            full = (*here, *key_parts(key.group(1)))
            if place[: len(full)] == full:
                return number
    return best


def key_parts(key: str) -> list[str]:
    """The parts of a dotted key, without quotation marks.

    >>> from cofed._util.toml_mistakes import key_parts
    >>> key_parts('variables."blood pressure".range')
    ['variables', 'blood pressure', 'range']
    """
    return [part.strip("\"'") for part in KEY.findall(key)]


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
