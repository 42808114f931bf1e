"""Places in the user's code where an attribute is set, so that a sentence about it says where to look."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path as FilePath
from types import FunctionType, ModuleType
from typing import Any

from tenuto.workers.user_state import generators


def place_of(roots: Mapping[str, Any], path: tuple[str, ...]) -> str:
    """`file:line` of the last assignment to the attribute that the path names, or to the innermost one that contains it, in a
    class of the user's; empty if none is found."""
    value = roots.get(path[0])
    place = ""
    for part in path[1:]:
        if value is None:
            break
        if part.startswith("."):
            place = _place_of_attribute(value, part[1:]) or place
            value = functools.reduce(lambda owner, name: getattr(owner, name, None), part[1:].split("."), value)
        else:
            value = _item(value, part)
    return place


def _place_of_attribute(owner: Any, name: str) -> str:
    if isinstance(owner, ModuleType):
        return _place_in_module(owner, name)
    if isinstance(owner, FunctionType):
        return f"{_shown(owner.__code__.co_filename)}:{owner.__code__.co_firstlineno}"
    return _place_in(owner if isinstance(owner, type) else type(owner), name)


@functools.lru_cache(maxsize=256)
def _place_in_module(module: Any, name: str) -> str:
    """`file:line` of the last assignment to a global variable, in the module's code or in a function that declares it."""
    try:
        tree = ast.parse(inspect.getsource(module))
    except (OSError, TypeError, SyntaxError, ValueError):
        return ""
    found = [node.lineno for node in _outside_functions(tree) if _stores(node, name)]
    for function in ast.walk(tree):
        if isinstance(function, _FUNCTIONS):
            inner = list(ast.walk(function))
            if any(isinstance(node, ast.Global) and name in node.names for node in inner):
                found += [getattr(node, "lineno", 0) for node in inner if _stores(node, name)]
    return f"{_shown(getattr(module, '__file__', None) or '')}:{max(found)}" if found else ""


_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


def _outside_functions(tree: ast.AST) -> Iterator[Any]:
    for node in ast.iter_child_nodes(tree):
        if not isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            yield node
            yield from _outside_functions(node)


def _stores(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)


def place_of_method(kind: type, name: str) -> str:
    """`file:line` of a method; empty if it is unknown."""
    try:
        method = inspect.unwrap(getattr(kind, name))
        return f"{_shown(inspect.getsourcefile(method) or '')}:{inspect.getsourcelines(method)[1]}"
    except (OSError, TypeError, ValueError, AttributeError):
        return ""


def _item(value: Any, part: str) -> Any:
    if isinstance(value, dict):
        return next((item for key, item in value.items() if f"[{key!r}]" == part), None)
    try:
        return value[int(part[1:-1])]
    except (TypeError, ValueError, LookupError):
        return None


@functools.lru_cache(maxsize=256)
def _place_in(kind: Any, name: str) -> str:
    for base in kind.__mro__:
        if not generators.is_users(base):
            continue
        try:
            lines, first = inspect.getsourcelines(base)
            file = inspect.getsourcefile(base) or ""
            tree = ast.parse(textwrap.dedent("".join(lines)))
        except (OSError, TypeError, SyntaxError, ValueError):
            continue
        found = [
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute) and node.attr == name and isinstance(node.ctx, ast.Store)
        ] or [node.lineno for node in _outside_functions(tree.body[0]) if _stores(node, name)]
        if found:
            return f"{_shown(file)}:{first + max(found) - 1}"
    return ""


def _shown(file: str) -> str:
    """The file as the user knows it: from the model directory, in which a trial runs."""
    path = FilePath(os.path.realpath(file))
    here = FilePath(os.path.realpath(os.curdir))
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.name
