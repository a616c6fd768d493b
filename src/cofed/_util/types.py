"""Types of what users give.

Arguments of public functions are checked by the functions themselves, which answer in a sentence. Where a type check at
run time (the tests switch one on) would answer first, in its own words, the annotation is `Given[...]`: the type for
readers, editors and type checkers, and anything at run time (where the type is kept as a note, for experiment files).
"""

from typing import TYPE_CHECKING, Annotated, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from jaxtyping import Array, Float

    Given = Annotated[T, "checked by the function, in words"]
    # A field of an algorithm, regularizer or mirror: a number, or an array while it is traced or of a whole grid.
    Hyperparameter = float | Float[Array, "..."]
else:

    class Given:
        """`Given[T]` is T for a type checker and anything at run time."""

        def __class_getitem__(cls, item: Any) -> Any:
            return Annotated[Any, item]

    Hyperparameter = Any
