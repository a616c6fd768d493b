"""Types of what users give.

Arguments of public functions are checked by the functions themselves, which answer in a sentence. Where a type check at
run time (the tests switch one on) would answer first, in its own words, the annotation is `Given[...]`: the type for
readers, editors and type checkers, and anything at run time (where the type is kept as a note, for experiment files).
"""

import re
import types
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, Union, get_args, get_origin

import numpy.typing as npt

T = TypeVar("T")


class Noted(type):
    """A type at run time that every object is an instance of, and that reads as the type that it notes.

    So `help()` and `inspect.signature` show `rounds: int`, and a type check at run time has nothing to say.

    >>> import inspect
    >>> import numpy.typing as npt
    >>> from cofed._util.types import Given, Hyperparameter
    >>> def run(rounds: Given[int], weights: Given[str | npt.ArrayLike] = "uniform", lr: Hyperparameter = 0.1): ...
    >>> inspect.signature(run)
    <Signature (rounds: int, weights: ArrayLike = 'uniform', lr: float | Array = 0.1)>
    """

    note: Any

    def __new__(cls, note: object, text: str) -> Any:
        # `inspect` writes the module of a class in front of its name, unless that is "builtins".
        made = super().__new__(cls, text, (), {"__module__": "builtins", "__slots__": ()})
        made.note = note
        return made

    def __init__(cls, note: object, text: str):
        super().__init__(text, (), {})

    def __instancecheck__(cls, instance: object) -> bool:
        return True

    def __or__(cls, other: Any) -> Any:
        return Noted(Union[cls.note, noted(other)], f"{cls.__name__} | {in_words(other)}")  # noqa: UP007

    def __ror__(cls, other: Any) -> Any:
        return Noted(Union[noted(other), cls.note], f"{in_words(other)} | {cls.__name__}")  # noqa: UP007


def noted(annotation: object) -> Any:
    """The type that `Given` notes in an annotation, or the annotation as it is."""
    return annotation.note if isinstance(annotation, Noted) else annotation


def in_words(hint: object) -> str:
    """A type as one would write it, without the modules of its names.

    >>> import numpy.typing as npt
    >>> from cofed._util.types import in_words
    >>> in_words(int | None), in_words(tuple[npt.ArrayLike, ...]), in_words("Problem")
    ('int | None', 'tuple[ArrayLike, ...]', 'Problem')
    """
    origin, args = get_origin(hint), list(get_args(hint))
    if origin in (Union, types.UnionType):
        aliases = []
        for name, alias in (("ArrayLike", npt.ArrayLike), ("DTypeLike", npt.DTypeLike)):
            parts = get_args(alias)
            if parts and all(part in args for part in parts):
                aliases.append(name)
                args = [one for one in args if one not in parts]
        return " | ".join(aliases + [in_words(one) for one in args])
    if isinstance(hint, (list, tuple)):  # the parameters of a Callable
        return f"[{', '.join(map(in_words, hint))}]"
    if hint is Ellipsis or hint is None or hint is type(None):
        return "..." if hint is Ellipsis else "None"
    if origin is not None and args:
        return f"{in_words(origin)}[{', '.join(map(in_words, args))}]"
    if isinstance(hint, (type, TypeVar)):
        return hint.__name__
    return re.sub(r"\b(?:\w+\.)+", "", hint if isinstance(hint, str) else repr(hint))


if TYPE_CHECKING:
    from jaxtyping import Array, Float

    Given = Annotated[T, "checked by the function, in words"]
    # A field of an algorithm, regularizer or mirror: a number, or an array while it is traced or of a whole grid.
    Hyperparameter = float | Float[Array, "..."]
else:

    class Given:
        """`Given[T]` is T for a type checker and anything at run time."""

        def __class_getitem__(cls, item: Any) -> Any:
            return Noted(noted(item), in_words(item))

    Hyperparameter = Noted(Any, "float | Array")
