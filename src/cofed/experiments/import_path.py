"""Code of the user's own, by import path: `package.module:Class`, or a function or an object in its place.

Importing a module runs its code, with the rights of whoever runs the experiment file. So a file that names an import
path is as much to be trusted as a Python script.
"""

import contextlib
import difflib
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar, cast

import equinox as eqx

from cofed._util.contracts import lacking
from cofed.algorithms.base import FORMS, AbstractAlgorithm, AbstractGossipAlgorithm, AbstractServerAlgorithm, forms_of

T = TypeVar("T")


class NotImportable(ValueError):
    """Why an import path does not lead to what is wanted there, in a sentence."""


def import_class(path: str, folder: Path, contract: type[T]) -> type[T]:
    """The class at an import path.

    Parameters
    ----------
    path
        `package.module:Class`.
    folder
        Where modules are looked for that are not installed: the experiment file's own folder.
    contract
        What it must derive from. An algorithm may also have all methods of one of the contracts of
        `cofed.algorithms.base` without deriving from it.

    Raises
    ------
    NotImportable
        If there is no such module or class, if importing it fails, or if the class is something else.
    """
    kind, name = import_object(path, folder), path.partition(":")[2]
    if contract is AbstractAlgorithm:
        return cast(type[T], checked(kind, name))
    if not isinstance(kind, type) or not issubclass(kind, contract):
        raise NotImportable(f"{name} is no class that derives from {contract.__name__} of cofed")
    if missing := ", ".join(sorted(vars(kind).get("__abstractmethods__", ()))):
        raise NotImportable(f"{name} lacks {missing}, which {contract.__name__} asks for and explains")
    return kind


def import_function(path: str, folder: Path) -> Callable[..., Any]:
    """The function at an import path, or any other object that can be called; `import_class` has the rest."""
    found, name = import_object(path, folder), path.partition(":")[2]
    if not callable(found) or isinstance(found, type):
        raise NotImportable(f"{name} is no function")
    return found


def import_object(path: str, folder: Path) -> Any:
    """Whatever is at an import path."""
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise NotImportable("an import path is written package.module:Class")
    module = import_module(module_name, folder)
    found = vars(module).get(name)
    if found is None:
        near = difflib.get_close_matches(name, vars(module), 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise NotImportable(f"the module {module_name} ({module.__file__}) has no {name!r}{hint}")
    return found


def import_module(name: str, folder: Path) -> ModuleType:
    """The module, from what is installed or else from the folder; what its import raises becomes a sentence."""
    with also_from(folder):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                place = folder.resolve()
                raise NotImportable(f"there is no module {name}, neither installed nor in {place}") from error
            raise NotImportable(f"the module {name} cannot be imported: {error}") from error
        except Exception as error:  # it is the user's own code
            raise NotImportable(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def also_from(folder: Path) -> Iterator[None]:
    """Let Python import from a folder too. It comes last, so that no file in it hides a module that is installed."""
    place = str(folder.resolve())
    importlib.invalidate_caches()
    sys.path.append(place)
    try:
        yield
    finally:
        sys.path.remove(place)


def checked(kind: object, name: str) -> type[eqx.Module]:
    """The class, which must have all methods of a contract."""
    if not isinstance(kind, type):
        raise NotImportable(f"{name} is no class")
    if issubclass(kind, AbstractAlgorithm):
        forms = [form for form in FORMS.values() if issubclass(kind, form)]
        missing = sorted(kind.__abstractmethods__)
    else:
        forms = forms_of(kind)
        missing = [method for form in forms for method in lacking(kind, form)]
    if not forms:
        both = f"{AbstractServerAlgorithm.__name__} or {AbstractGossipAlgorithm.__name__}"
        raise NotImportable(f"{name} is no algorithm: one of your own derives from {both} of cofed")
    if missing:
        contract = forms[0].__name__
        raise NotImportable(f"{name} lacks {', '.join(missing)}, which {contract} asks for and explains")
    if not issubclass(kind, eqx.Module):
        raise NotImportable(f"{name} is no equinox.Module; derive it from {forms[0].__name__}")
    return kind


def source_file(path: str, folder: Path) -> Path | None:
    """The file that what is at an import path is written in, where there is one."""
    found = import_object(path, folder)
    with contextlib.suppress(TypeError, OSError):
        written = inspect.getsourcefile(found)
        return None if written is None else Path(written)
    place = import_module(path.partition(":")[0], folder).__file__  # of an object that is no class or function
    return None if place is None else Path(place)
