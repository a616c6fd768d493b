"""Algorithms of the user's own, by import path: `package.module:Class`.

Importing a module runs its code, with the rights of whoever runs the experiment file. So a file that names an import
path is as much to be trusted as a Python script.
"""

import contextlib
import difflib
import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import equinox as eqx

from cofed._util.contracts import lacking
from cofed.algorithms.base import FORMS, AbstractAlgorithm, AbstractGossipAlgorithm, AbstractServerAlgorithm, forms_of


class NotAnAlgorithm(ValueError):
    """Why an import path does not lead to an algorithm, in a sentence."""


def import_algorithm(path: str, folder: Path) -> type[eqx.Module]:
    """The class at an import path.

    Parameters
    ----------
    path
        `package.module:Class`.
    folder
        Where modules are looked for that are not installed: the experiment file's own folder.

    Returns
    -------
    type
        A class with all methods of one of the contracts of `cofed.algorithms.base`.

    Raises
    ------
    NotAnAlgorithm
        If there is no such module or class, if importing it fails, or if the class is no algorithm.
    """
    module_name, _, name = path.partition(":")
    if not all(part.isidentifier() for part in (*module_name.split("."), name)):
        raise NotAnAlgorithm("an import path is written package.module:Class")
    module = import_module(module_name, folder)
    kind = vars(module).get(name)
    if kind is None:
        near = difflib.get_close_matches(name, vars(module), 1)
        hint = f" (did you mean {near[0]!r}?)" if near else ""
        raise NotAnAlgorithm(f"the module {module_name} ({module.__file__}) has no {name!r}{hint}")
    return checked(kind, name)


def import_module(name: str, folder: Path) -> ModuleType:
    """The module, from what is installed or else from the folder; what its import raises becomes a sentence."""
    with also_from(folder):
        try:
            return importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is not None and f"{name}.".startswith(f"{error.name}."):
                place = folder.resolve()
                raise NotAnAlgorithm(f"there is no module {name}, neither installed nor in {place}") from error
            raise NotAnAlgorithm(f"the module {name} cannot be imported: {error}") from error
        except Exception as error:  # it is the user's own code
            raise NotAnAlgorithm(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error


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
        raise NotAnAlgorithm(f"{name} is no class")
    if issubclass(kind, AbstractAlgorithm):
        forms = [form for form in FORMS.values() if issubclass(kind, form)]
        missing = sorted(kind.__abstractmethods__)
    else:
        forms = forms_of(kind)
        missing = [method for form in forms for method in lacking(kind, form)]
    if not forms:
        both = f"{AbstractServerAlgorithm.__name__} or {AbstractGossipAlgorithm.__name__}"
        raise NotAnAlgorithm(f"{name} is no algorithm: one of your own derives from {both} of cofed")
    if missing:
        contract = forms[0].__name__
        raise NotAnAlgorithm(f"{name} lacks {', '.join(missing)}, which {contract} asks for and explains")
    if not issubclass(kind, eqx.Module):
        raise NotAnAlgorithm(f"{name} is no equinox.Module; derive it from {forms[0].__name__}")
    return kind


def source_file(kind: type) -> Path | None:
    """The file that a class is written in, where there is one."""
    with contextlib.suppress(TypeError, OSError):
        found = inspect.getsourcefile(kind)
        return None if found is None else Path(found)
    return None
