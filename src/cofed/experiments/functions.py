"""Functions that an experiment file names: those of optax by their names, one's own by import path."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, PrivateAttr, ValidationInfo, model_serializer
from pydantic_core import PydanticCustomError

from cofed._util.extras import imported
from cofed._util.types import Given
from cofed.experiments.import_path import NotImportable, import_function


class FunctionTable(BaseModel):
    """A function, and the numbers that it is called with: its other keys."""

    model_config = ConfigDict(extra="allow")

    name: str
    _function: Callable[..., Any] = PrivateAttr()
    _name_alone: bool = PrivateAttr(default=False)  # whether the file has the name only, and no table around it

    @model_serializer(mode="wrap")
    def as_in_the_file(self, handler: Callable[[Any], dict[str, Any]]) -> Any:
        """A name that stood alone is written so again."""
        return self.name if self._name_alone else handler(self)

    @property
    def function(self) -> Callable[..., Any]:
        """The function."""
        return self._function

    @property
    def options(self) -> dict[str, Any]:
        """What it is called with."""
        return dict(self.model_extra or {})

    def schedule(self) -> Callable[..., Any]:
        """The function of the round: what a function of optax makes of its keys, or one's own that stands alone."""
        return self.function if self._name_alone and ":" in self.name else self.function(**self.options)


def read_function(raw: object, folder: Path) -> FunctionTable:
    """The table of a function, checked. A name alone stands for a table with nothing else in it."""
    given = {"name": raw} if isinstance(raw, str) else raw
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise PydanticCustomError("table_expected", "it should be a table with the key {tag}", {"tag": "name"})
    table = FunctionTable.model_validate(given)
    try:
        table._function = function_called(table.name, folder)
    except NotImportable as error:
        raise PydanticCustomError("import_path", "{why}", {"tag": "name", "why": str(error)}) from error
    table._name_alone = isinstance(raw, str)
    return table


def read(raw: object, info: Given[ValidationInfo[Any]]) -> FunctionTable:
    """The same while a file is read."""
    return read_function(raw, info.context.folder)


def function_called(name: str, folder: Path) -> Callable[..., Any]:
    """The function of this name."""
    if ":" in name:
        return import_function(name, folder)
    imported("optax", "A function of optax in an experiment file", "optax", "optimizers")
    found = getattr(importlib.import_module("optax"), name, None)
    if not callable(found) or isinstance(found, type):
        raise NotImportable(
            "it is neither a function of optax, such as adam or cosine_decay_schedule, nor an import path "
            "(package.module:function)"
        )
    return found
