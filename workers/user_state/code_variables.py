"""Variables of the user's code that outlive its calls: globals of modules, attributes of classes, and of functions the variables
that they close over, defaults that can be changed, and attributes."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from types import CellType, FunctionType, ModuleType
from typing import Any

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.still_code import StillCode

CODE_PREFIX = "code "
"""Begin of the names of modules among the roots: no attribute of a trial has such a name."""
WRITTEN_BYTES_MAX = 64 << 20
"""Most bytes of such variables in one checkpoint: a cache of records that grows would be written again and again."""
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, functools.cached_property)
_OF_ABSTRACT_CLASSES = "_abc_impl"
_CLASS_CELL = "__class__"


class UsersModules:
    """Loaded modules whose files lie in the model directory."""

    def __init__(self, directory: Path) -> None:
        self._begin = os.path.join(os.path.realpath(directory), "")
        self._seen: set[str] = set()
        self._found: dict[str, ModuleType] = {}

    def __call__(self) -> dict[str, ModuleType]:
        """The modules, by the names of their roots. Cheap where no module was loaded since the last call."""
        if len(sys.modules) != len(self._seen):
            for name in sorted(sys.modules.keys() - self._seen):
                if (module := sys.modules.get(name)) is not None and self._is_inside(name, module):
                    self._found[f"{CODE_PREFIX}{name}"] = module
            self._seen = set(sys.modules)
        return self._found

    def load(self, name: str) -> None:
        """Loads the module of this root, if its file lies in the model directory. Raises what the module raises."""
        found = importlib.util.find_spec(name.removeprefix(CODE_PREFIX))
        if found is not None and os.path.realpath(found.origin or "").startswith(self._begin):
            importlib.import_module(found.name)

    def _is_inside(self, name: str, module: Any) -> bool:
        file = getattr(module, "__file__", None)
        return (
            isinstance(module, ModuleType)
            and module.__name__ == name
            and isinstance(file, str)
            and os.path.isabs(file)  # torch gives modules that it makes the name of a file alone
            and generators.is_users_module(name)
            and os.path.realpath(file).startswith(self._begin)
        )


def has_variables(code: Any) -> bool:
    """True for a class of the user's, and for a function of the user's that has something to search."""
    if isinstance(code, FunctionType):
        return generators.is_users(code) and bool(code.__closure__ or code.__dict__ or _defaults(code))
    if isinstance(code, type):
        return generators.is_users(code) and not issubclass(code, (Enum, BaseException))
    return False


class Variables:
    """Variables of code, by name. It remembers the functions and classes that a module had first, so that only others are looked
    at again."""

    def __init__(self) -> None:
        self._first: dict[int, dict[str, Any]] = {}
        self._local: dict[type, list[tuple[int, type]]] = {}
        self._still = StillCode()
        self.only_changing = False
        """True: classes and functions that can hold no change are left out. They have to be seen once before."""

    def has(self, code: Any) -> bool:
        """True for a class or function that has something to search."""
        if not has_variables(code):
            return False
        if not self.only_changing:
            self._still.note(code)
            return True
        return not self._still.has(code)

    def local_classes(self, kind: type) -> list[tuple[int, type]]:
        """Classes of an object that no module has under their name, by their place in the order of bases."""
        found = self._local.get(kind)
        if found is None:
            kinds_of = [(place, base) for place, base in enumerate(kind.__mro__) if has_variables(base)]
            found = [(place, base) for place, base in kinds_of if kinds.found_by_name(kinds.name_of_class(base)) is not base]
            self._local[kind] = found
        return found

    def of(self, code: Any) -> list[tuple[str, Any]] | None:
        """Names and values; None: this is no code."""
        if isinstance(code, FunctionType):
            return _of_function(code)
        if isinstance(code, functools.partial):
            given = [(f"args {index}", item) for index, item in enumerate(code.args)]
            return [("func", code.func), *given, *sorted(code.keywords.items())]
        if not isinstance(code, (ModuleType, type)):
            return None
        found = [(name, _inner(value)) for name, value in list(vars(code).items()) if _is_variable(name, value)]
        first = self._first.get(id(code))
        if first is None:
            first = self._first[id(code)] = {name: value for name, value in found if isinstance(value, kinds.CODE)}
            return sorted(found, key=lambda pair: pair[0])
        kept = [(name, value) for name, value in found if first.get(name, first) is not value or self.has(value)]
        return sorted(kept, key=lambda pair: pair[0])


def _is_variable(name: str, value: Any) -> bool:
    return not (
        name.startswith("__")
        or name == _OF_ABSTRACT_CLASSES
        or isinstance(value, (ModuleType, *_DESCRIPTORS))
        or (isinstance(value, property) and not isinstance(value.fget, FunctionType))
    )


def _inner(value: Any) -> Any:
    """The function inside a descriptor of a class."""
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _of_function(function: FunctionType) -> list[tuple[str, Any]]:
    found = {name: value for name, value in function.__dict__.items() if not name.startswith("__")}
    found |= _defaults(function)
    for name, cell in _cells(function).items():
        if cell != CellType():
            found[name] = cell.cell_contents
    wrapped = function.__dict__.get("__wrapped__")
    if isinstance(wrapped, FunctionType):
        found.setdefault("wrapped function", wrapped)
    return sorted(found.items())


def _cells(function: FunctionType) -> dict[str, CellType]:
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell for name, cell in cells if name != _CLASS_CELL}


def _defaults(function: FunctionType) -> dict[str, Any]:
    """Defaults that can be changed in place, by the names of their arguments."""
    code, values = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount] if values else ()
    found = dict(zip(names, values, strict=True)) | (function.__kwdefaults__ or {})
    return {name: value for name, value in found.items() if not (isinstance(value, kinds.CODE) or kinds.is_constant(value))}


def set_of_function(function: FunctionType, name: str, value: Any) -> None:
    """Sets a variable of a function."""
    cell = _cells(function).get(name)
    if cell is not None:
        cell.cell_contents = value
    elif function.__kwdefaults__ is not None and name in function.__kwdefaults__:
        function.__kwdefaults__[name] = value
    elif name in (given := _defaults(function)):
        code, values = function.__code__, function.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(values) : code.co_argcount]
        function.__defaults__ = tuple(
            value if known == name and name in given else before for known, before in zip(names, values, strict=True)
        )
    else:
        setattr(function, name, value)


def names_in(function: Any) -> frozenset[str]:
    """Names of globals and attributes that a function's code uses."""
    code = getattr(function, "__code__", None)
    return frozenset(generators.names_in_code(code)) if code is not None else frozenset()


def bytes_of(encoded: Any) -> int:
    """Size of an encoded value, about."""
    if isinstance(encoded, Mapping):
        return sum(bytes_of(item) for item in encoded.values())
    if isinstance(encoded, (list, tuple)):
        return sum(map(bytes_of, encoded))
    size = getattr(encoded, "nbytes", None)
    return size if isinstance(size, int) else len(encoded) if isinstance(encoded, (str, bytes)) else 8
