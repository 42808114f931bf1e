"""A function or class of a notebook or script as a module of its own: its source, and that of what it uses.

Source, and not a pickle: the code is part of the record, where people read it, `tenuto diff` compares it and a reproduction runs
it, also with another Python; and unpickling runs any code that was put there.
"""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import sys
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from tenuto.client.errors import ClientError

PLAIN = (int, float, str, bytes, bool, type(None))
PLAIN_CHARACTERS_MAX = 10_000
"""Most characters of a constant that is written into the source: more is data, which belongs into a file."""
OBJECTS_MAX = 1_000


class NotPortable(ClientError):
    """The code cannot be sent to a worker. `str(error)` is one sentence: what, why, what to do."""


def module_source(target: Any, beside: frozenset[str] = frozenset()) -> str:
    """Source of a module that defines `target` and all that it uses. `beside`: modules that are sent with it. Raises
    NotPortable."""
    return _Module(target, beside).source()


class _Module:
    def __init__(self, target: Any, beside: frozenset[str]) -> None:
        self._target, self._beside = target, beside
        self._imports: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._sources: dict[str, tuple[object, str]] = {}
        self._future = False

    def source(self) -> str:
        self._define(self._target.__name__, self._target, self._target.__name__)
        parts = ["from __future__ import annotations"] if self._future else []
        parts += sorted(set(self._imports.values()))
        parts += [f"{name} = {value}" for name, value in sorted(self._constants.items())]
        parts += [text for _, text in self._sources.values()]
        return "\n\n".join(parts) + "\n"

    def _define(self, name: str, value: Any, user: str) -> None:
        """Whatever `value` uses comes before it, as decorators and base classes need it."""
        if name in self._sources:
            if self._sources[name][0] is not value:
                raise NotPortable(f"{user} uses two different things that are named {name}: rename one of them.")
            return
        if len(self._sources) >= OBJECTS_MAX:
            raise NotPortable(f"{user} uses more than {OBJECTS_MAX} functions and classes: put them into a package.")
        text = _source_of(value)
        names = _globals_of(value)
        self._future |= type(names.get("annotations")).__name__ == "_Feature"
        if isinstance(value, FunctionType) and value.__code__.co_freevars:
            variables = ", ".join(value.__code__.co_freevars)
            raise NotPortable(
                f"{name} uses {variables} of the function around it: define it outside, or pass the value in the space."
            )
        placed = (value, text)
        self._sources[name] = placed
        for used in _names_in(text):
            if used != name and used in names:
                self._use(used, names[used], name)
        self._sources[name] = self._sources.pop(name)  # behind what it uses

    def _use(self, name: str, value: Any, user: str) -> None:
        if isinstance(value, ModuleType):
            if not self._importable(value.__name__):
                raise NotPortable(
                    f"{user} uses the module {value.__name__}, which is not installed: give its directory as `model_dir`."
                )
            self._imports[name] = f"import {value.__name__}" + ("" if name == value.__name__ else f" as {name}")
            if "." in value.__name__ and name == value.__name__.partition(".")[0]:
                self._imports[name] = f"import {value.__name__}"
            return
        home = getattr(value, "__module__", None)
        own = getattr(value, "__qualname__", None)
        if isinstance(home, str) and isinstance(own, str) and home != "__main__" and self._importable(home) and "." not in own:
            self._imports[name] = f"from {home} import {own}" + ("" if own == name else f" as {name}")
            return
        if isinstance(value, (FunctionType, type)):
            if value.__name__ != name:
                raise NotPortable(f"{user} uses {value.__name__} by the name {name}: use its own name.")
            self._define(name, value, user)
            return
        self._constants[name] = _constant(name, value, user)

    def _importable(self, module: str) -> bool:
        return module.partition(".")[0] in self._beside or _installed(module)


def _installed(module: str) -> bool:
    """True if a worker on this machine, or one with the same packages, can import the module: it is of the standard library or of
    the environment's packages, and not a file of the user's."""
    top = module.partition(".")[0]
    if top in sys.builtin_module_names or top in sys.stdlib_module_names or top == "tenuto":
        return True
    found = sys.modules.get(top)
    places = [getattr(found, "__file__", None) or "", *(str(item) for item in getattr(found, "__path__", ()))]
    packages = [Path(sysconfig.get_path(kind)).resolve() for kind in ("purelib", "platlib")]
    return any(place and Path(place).resolve().is_relative_to(folder) for place in places for folder in packages)


def _constant(name: str, value: Any, user: str) -> str:
    if _plain(value) and len(text := repr(value)) <= PLAIN_CHARACTERS_MAX:
        return text
    if isinstance(value, float):
        return f"float({str(value)!r})"
    raise NotPortable(
        f"{user} uses {name}, a {type(value).__name__} of this program, which a worker does not have: make it inside {user}, "
        "or read it from a file."
    )


def _plain(value: Any) -> bool:
    if type(value) in (list, tuple, set, frozenset):
        return all(map(_plain, value))
    if type(value) is dict:
        return all(_plain(key) and _plain(item) for key, item in value.items())
    return type(value) in PLAIN and not (type(value) is float and not math.isfinite(value))


def _source_of(value: Any) -> str:
    if getattr(value, "__name__", "") == "<lambda>":
        raise NotPortable("A lambda has no source of its own: define a function with `def`.")
    try:
        return textwrap.dedent(inspect.getsource(value)).rstrip("\n")
    except (OSError, TypeError) as error:
        # `inspect` finds no class of a notebook, whose module has no file.
        if isinstance(value, type) and (found := _class_source(value)):
            return found
        name = getattr(value, "__name__", repr(value))
        raise NotPortable(
            f"The source of {name} cannot be found ({error}): define it in a file or in a cell of a notebook."
        ) from error


def _class_source(value: type) -> str:
    """The text around one of its methods; of a class without any, the last cell's that defines one of this name."""
    codes = [item.__code__ for item in vars(value).values() if isinstance(item, FunctionType)]
    for code in codes:
        if found := _definition(linecache.getlines(code.co_filename), value.__name__, code.co_firstlineno):
            return found
    for file in reversed(list(linecache.cache)):
        if not codes and not Path(file).exists() and (found := _definition(linecache.getlines(file), value.__name__, None)):
            return found
    return ""


def _definition(lines: list[str], name: str, line: int | None) -> str:
    """Text of the class of that name which includes that line; None: the last one."""
    try:
        tree = ast.parse("".join(lines))
    except (SyntaxError, ValueError):
        return ""
    for node in reversed(tree.body):
        if isinstance(node, ast.ClassDef) and node.name == name:
            first = min([node.lineno, *(item.lineno for item in node.decorator_list)])
            last = node.end_lineno or node.lineno
            if line is None or first <= line <= last:
                return "".join(lines[first - 1 : last]).rstrip("\n")
    return ""


def _globals_of(value: Any) -> Mapping[str, Any]:
    if isinstance(value, FunctionType):
        return value.__globals__
    return vars(sys.modules[value.__module__])


def _names_in(text: str) -> Iterator[str]:
    """Names that are read, each once, in a defined order; dotted ones by their beginning."""
    found = {node.id: None for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
    return iter(sorted(found))
