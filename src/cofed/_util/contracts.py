"""Objects of the user's own, held against the abstract class that they stand for."""

import copy
import dataclasses
import functools
from typing import Any

import equinox as eqx


def as_given(own: Any) -> Any:
    """A copy of a user's object as it is now: a program that was compiled from it would not see a later change."""
    try:
        return copy.deepcopy(own)
    except Exception:  # what cannot be copied stays as it is
        return own


def lacking(value: object, contract: type) -> list[str]:
    """The methods that a contract asks for and an object does not have."""
    methods: frozenset[str] = getattr(contract, "__abstractmethods__", frozenset())
    return sorted(name for name in methods if not callable(getattr(value, name, None)))


def adopted(value: eqx.Module, *contracts: type) -> Any:
    """An equinox module that has all methods of the contracts without deriving from them, as one that does.

    It gets the defaults of what else the contracts offer. The fields, and so the pytree, stay as they are.
    """
    adoptive = deriving(type(value), contracts)
    new = object.__new__(adoptive)
    for field in dataclasses.fields(value):  # type: ignore[arg-type]
        object.__setattr__(new, field.name, getattr(value, field.name))
    return new


@functools.cache  # one class for one class: JAX compiles anew for another
def deriving(own: type, contracts: tuple[type, ...]) -> type:
    """The user's class, derived from the contracts too, under its own name."""
    members = {"__module__": own.__module__, "__qualname__": own.__qualname__, "__doc__": own.__doc__}
    return type(own)(own.__name__, (own, *contracts), members)
