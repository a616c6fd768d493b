"""Hyperparameters: plain floats that jit traces, checked where they are given."""

from typing import Literal, cast

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.core import Tracer
from jaxtyping import Array

from cofed._util import checks
from cofed._util.checks import as_float, is_real, shown
from cofed._util.types import Given, Hyperparameter


def number(value: Given[Hyperparameter]) -> Hyperparameter:
    """A field converter: integers and NumPy scalars become floats; arrays (a grid, a tracer) pass as they are.

    An integer field would be one more compiled program (or a wrong dtype) for `L1(1)` than for `L1(1.0)`.

    >>> from cofed._util.scalars import number
    >>> number(1)
    1.0
    """
    return as_float(value) if is_real(value) and not isinstance(value, np.ndarray) else value


def optional_number(value: Given[Hyperparameter | None]) -> Hyperparameter | None:
    """A field converter: a number as `number` gives it, or None."""
    return None if value is None else number(value)


def rate(value: Given[Hyperparameter | Literal["auto"]]) -> Hyperparameter:
    """A field converter of what may be "auto", which stays as it is until the engine has settled it.

    >>> from cofed._util.scalars import rate
    >>> rate(1), rate("auto")
    (1.0, 'auto')
    """
    return number(cast("Hyperparameter", value))


def optional_rate(value: Given[Hyperparameter | Literal["auto"] | None]) -> Hyperparameter | None:
    """A field converter: a number or "auto" as `rate` gives it, or None."""
    return None if value is None else rate(value)


def constant(value: object, dtype: npt.DTypeLike) -> Array:
    """The numbers as an array of a program's arguments. `jnp.asarray` would compile a program of its own for them."""
    return jax.device_put(np.array(value, dtype))  # a copy: JAX may work on the very memory that it is given


def zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> Array:
    """`jnp.zeros`, without a program for every shape."""
    return jax.device_put(np.zeros(shape, dtype))


def as_array(value: npt.ArrayLike) -> Array:
    """A field converter: `jnp.asarray`, without a program for every shape of a NumPy array.

    >>> import numpy as np
    >>> from cofed._util.scalars import as_array
    >>> as_array(np.arange(3)).tolist()
    [0, 1, 2]
    """
    return constant(value, value.dtype) if type(value) is np.ndarray else jnp.asarray(value)


def known(value: object) -> bool:
    """Whether the value can be looked at now: a number, and not a tracer, a grid or a placeholder."""
    return isinstance(value, (int, float)) or (
        isinstance(value, (jax.Array, np.ndarray)) and not isinstance(value, Tracer) and value.ndim == 0
    )


def is_numbers(value: object) -> bool:
    """Whether this is a number, an array of them, a tracer, or what stands for an array (its shape)."""
    if isinstance(value, (jax.Array, np.ndarray, jax.ShapeDtypeStruct)):
        return (
            not np.ma.isMaskedArray(value)
            and value.size > 0
            and (jnp.issubdtype(value.dtype, jnp.floating) or jnp.issubdtype(value.dtype, jnp.integer))
        )
    return is_real(value)


def entries(value: object) -> np.ndarray:
    """The numbers that can be looked at now; none of a tracer or a placeholder."""
    if isinstance(value, (Tracer, jax.ShapeDtypeStruct)) or is_auto(value):
        return np.empty(0)
    return np.atleast_1d(np.asarray(as_float(value) if is_real(value) else value, float))


# What stands for a number that the engine is to settle before a run, and where it may stand.
AUTO = "auto"
AUTOMATIC = ("client_lr", "server_lr", "L", "mu", "eta", "probability", "step", "prox_step")


def is_auto(value: object) -> bool:
    """Whether this stands for a number that is still to be settled."""
    return isinstance(value, str) and value == AUTO


def require_number(owner: str, name: str, value: object) -> None:
    """Refuse what is no number at all (strings, None, flags), naming the owner and the field."""
    if is_auto(value) and name in AUTOMATIC:
        return
    if not is_numbers(value):
        raise TypeError(f"{owner}: {name} must be a number, got {shown(value)}")


def require_positive(owner: str, **fields: object) -> None:
    """Refuse numbers that are not finite and > 0, naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        found = entries(value)
        if not (np.isfinite(found) & (found > 0)).all():
            raise ValueError(f"{owner}: {name} must be a finite number > 0, got {shown(value)}")


def require_nonnegative(owner: str, **fields: object) -> None:
    """Refuse numbers that are not finite and >= 0, naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        found = entries(value)
        if not (np.isfinite(found) & (found >= 0)).all():
            raise ValueError(f"{owner}: {name} must be a finite number >= 0, got {shown(value)}")


def require_above(owner: str, bound: float, **fields: object) -> None:
    """Refuse numbers that are not finite and > bound, naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        found = entries(value)
        if not (np.isfinite(found) & (found > bound)).all():
            raise ValueError(f"{owner}: {name} must be > {bound:g}, got {shown(value)}")


def require_between(owner: str, low: float, high: float, **fields: object) -> None:
    """Refuse numbers outside [low, high], naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        found = entries(value)
        if not ((found >= low) & (found <= high)).all():
            raise ValueError(f"{owner}: {name} must be in [{low:g}, {high:g}], got {shown(value)}")


def require_radius(owner: str, **fields: object) -> None:
    """Refuse what is not a number > 0, which may be infinite, naming the owner and the field."""
    for name, value in fields.items():
        require_number(owner, name, value)
        if not (entries(value) > 0).all():
            raise ValueError(f"{owner}: {name} must be > 0, and may be infinite, got {shown(value)}")


def require_count(owner: str, **fields: object) -> None:
    """Refuse what is not an integer >= 1, naming the owner and the field."""
    for name, value in fields.items():
        checks.integer(f"{owner}: {name}", value, most=None)


def require_flag(owner: str, **fields: object) -> None:
    """Refuse what is neither True nor False, naming the owner and the field."""
    for name, value in fields.items():
        checks.flag(f"{owner}: {name}", value)
