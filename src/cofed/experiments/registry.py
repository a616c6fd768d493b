"""What an experiment file can name, and with which keys: read from cofed's own classes and functions.

A public class is known here as soon as it derives from its contract (AbstractAlgorithm, AbstractLoss, ...): its fields
are the keys. The keys of a generator of `cofed.datasets` are its parameters.
"""

import contextlib
import dataclasses
import inspect
import types
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import equinox as eqx
import jaxtyping

import cofed
from cofed._util.types import noted
from cofed.algorithms.base import AbstractAlgorithm
from cofed.compressors import AbstractCompressor
from cofed.datasets.synthetic import Synthetic
from cofed.engine.callbacks import AbstractCallback

T = TypeVar("T")
# What a table of the file stands for; callbacks keep what they have seen, and so are no modules.
Kind = type[eqx.Module] | type[AbstractCallback] | Callable[..., Synthetic]

COMBINED = ("On", "Sum", "Scaled", "Translated")  # regularizers made of others; the key `on` stands for the first
PAPERS_DATA = ("yuan_", "bao_", "liang_", "zhang_", "chen_")
NOT_IN_FILES = ("activation", "seed", "dtype")  # a function, and what the run itself decides
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def public(contract: type[T]) -> dict[str, type[T]]:
    """The classes among cofed's public names that fulfil a contract.

    >>> sorted(public(AbstractCompressor))
    ['Quantised', 'RandomK', 'TopK']
    """
    named = {name: getattr(cofed, name) for name in dir(cofed) if name[0].isupper() and not name.startswith("Abstract")}
    return {name: kind for name, kind in named.items() if isinstance(kind, type) and issubclass(kind, contract)}


def in_room(room: types.ModuleType, contract: type[T]) -> dict[str, type[T]]:
    """The classes among a room's public names that fulfil a contract.

    >>> sorted(in_room(cofed.means, cofed.means.AbstractMean))
    ['Clipped', 'Geometric', 'Median', 'Trimmed']
    """
    named = {name: getattr(room, name) for name in room.__all__ if not name.startswith("Abstract")}
    return {name: kind for name, kind in named.items() if isinstance(kind, type) and issubclass(kind, contract)}


OF_FUNCTIONS = ("Scheduled", "ServerOptimizer")  # their keys are functions: schema.py has tables for them
ALGORITHMS = {name: kind for name, kind in public(AbstractAlgorithm).items() if name not in OF_FUNCTIONS}
COMPRESSORS = public(AbstractCompressor)
LOSSES = public(cofed.AbstractLoss)
MIRRORS = public(cofed.AbstractMirror)
MODELS = public(cofed.AbstractModel)
MEANS = in_room(cofed.means, cofed.means.AbstractMean)
SAMPLERS = in_room(cofed.samplers, cofed.samplers.AbstractSampler)
BATCHES = in_room(cofed.batches, cofed.batches.AbstractBatches)
CALLBACKS = in_room(cofed.callbacks, AbstractCallback)
REGULARIZERS = {name: kind for name, kind in public(cofed.AbstractRegularizer).items() if name not in COMBINED}
GENERATORS: dict[str, Callable[..., Synthetic]] = {
    name: getattr(cofed.datasets, name) for name in cofed.datasets.__all__ if name.startswith(PAPERS_DATA)
}
TOPOLOGIES = ("chain", "ring", "star", "complete")  # those that the number of nodes alone determines


class Key(NamedTuple):
    """A key of a table that holds a value: its name, its type as pydantic takes it, whether it must be given."""

    name: str
    type: Any
    required: bool


def keys_of(kind: Kind) -> Iterator[Key]:
    """The keys of a class or generator that hold a number, a text, a truth value or a list of these.

    >>> [key.name for key in keys_of(cofed.FedDualAvg)]
    ['client_lr', 'server_lr', 'client_prox']
    >>> [key.name for key in keys_of(cofed.callbacks.KeepBest)]
    ['column', 'maximise']
    """
    if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
        yield from parameters_of(kind)
        return
    hints = hints_of(kind)
    for field in fields_of(kind):
        hint = hints[field.name]
        if field.name in NOT_IN_FILES or contract_of(hint) is not None or typing.get_origin(hint) is Callable:
            continue
        type_ = value_type(hint, None if field.default is dataclasses.MISSING else field.default)
        if hint is Any and type_ is float and field.metadata.get("static"):
            type_ = int | float  # it is no traced hyperparameter, so a whole number stays whole
        yield Key(field.name, type_, is_required(field))


def parameters_of(called: Callable[..., object]) -> Iterator[Key]:
    """The keys of a generator, or of a class that is made by its parameters."""
    for name, parameter in inspect.signature(called).parameters.items():
        if name not in NOT_IN_FILES and parameter.kind in BY_NAME:
            required = parameter.default is inspect.Parameter.empty
            default = None if required else parameter.default
            yield Key(name, value_type(noted(parameter.annotation), default), required)


def parts_of(kind: Kind) -> Iterator[Key]:
    """The keys of a class that hold a table of their own; the type is the contract of what that table describes.

    >>> [(key.name, key.type.__name__) for key in parts_of(cofed.Compressed)]
    [('algorithm', 'AbstractAlgorithm'), ('compressor', 'AbstractCompressor')]
    """
    if not (isinstance(kind, type) and issubclass(kind, eqx.Module)):
        return
    hints = hints_of(kind)
    for field in fields_of(kind):
        contract = contract_of(hints[field.name])
        if contract is not None:
            yield Key(field.name, contract, is_required(field))


def contract_of(hint: object) -> type[eqx.Module] | None:
    """The contract that a field's value fulfils, where the field holds an algorithm, a compressor or a mirror."""
    for one in typing.get_args(hint) if is_union(hint) else (hint,):
        for contract in (AbstractAlgorithm, AbstractCompressor, cofed.AbstractMirror):
            if isinstance(one, type) and issubclass(one, contract):
                return contract
    return None


def is_required(field: dataclasses.Field) -> bool:
    """Whether a field has no default."""
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def fields_of(kind: type[eqx.Module]) -> list[dataclasses.Field]:
    """The fields that are given to a class when an object is made."""
    return [field for field in dataclasses.fields(kind) if field.init]  # type: ignore[arg-type]


def hints_of(kind: type[eqx.Module]) -> dict[str, Any]:
    """The annotations of a class's fields, resolved where they are texts."""
    resolved: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # an annotation of a user's own class may name what is not there at run time
        resolved = typing.get_type_hints(kind, include_extras=True)
    return {field.name: noted(resolved.get(field.name, field.type)) for field in fields_of(kind)}


def is_union(annotation: object) -> bool:
    """Whether an annotation is a union, written in either way."""
    return typing.get_origin(annotation) in (types.UnionType, typing.Union)


def value_type(annotation: object, default: object) -> Any:
    """The type of a key's values, from an annotation or, where that says nothing, from the default.

    >>> value_type(tuple[int, ...] | None, None), value_type(typing.Any, True), value_type("L", None)
    (list[int], <class 'bool'>, <class 'float'>)
    """
    if annotation in (Any, inspect.Parameter.empty) or isinstance(annotation, str):
        return type_of_default(default)
    if is_union(annotation):
        parts = [one for one in typing.get_args(annotation) if one is not type(None)]
        kinds = tuple(dict.fromkeys(value_type(one, default) for one in parts))
        return typing.Union[kinds]  # noqa: UP007
    if typing.get_origin(annotation) in (tuple, list, Sequence):
        return list[value_type(typing.get_args(annotation)[0], None)]
    if isinstance(annotation, type) and issubclass(annotation, jaxtyping.AbstractArray):
        # A hyperparameter is an array only while JAX traces it; what has a length is a list.
        return list[float] if annotation.dim_str.strip() else float
    return annotation if annotation in (bool, int, float, str) else Any


def type_of_default(default: object) -> Any:
    """The type of a key whose default is all that is known: without one it is a number."""
    if isinstance(default, (bool, int, float)):
        return type(default)
    return float if default is None else Any
