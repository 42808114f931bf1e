"""Modules of the user's that a process has imported, so that they can be forgotten: the next run imports them anew, with fresh
globals.

What holds on to their code afterwards (a function that was put into a library, a hook, a registry) would run in the next trial,
too. It is noticed by a mark in each module's globals, which every function of the module keeps alive, and by the classes.
"""

from __future__ import annotations

import gc
import os
import sys
import sysconfig
import weakref
from collections.abc import Iterator
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any

from tenuto.workers.harness.entrypoint import entered_context

NAMES_SHOWN_MAX = 3
_MARK = "__tenuto_mark__"


class _Mark:
    """Object that lives as long as the globals that it is in."""


def _places() -> tuple[str, ...]:
    """Directories of modules that are not the user's: Python's own, installed ones, and ours."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    found = {sysconfig.get_path(name) for name in names} | {str(Path(base, "lib")) for base in (sys.prefix, sys.base_prefix)}
    ours = sys.modules[__name__.partition(".")[0]].__path__
    found |= {str(Path(path, name)) for path in ours for name in (".", "schemas", "services", "workers")}
    return tuple(sorted({f"{os.path.realpath(path)}/" for path in found if path}))


class UsersCode:
    """Modules that are imported after this object was made, without those of libraries."""

    def __init__(self) -> None:
        self._known = dict(sys.modules)
        self._places = _places()

    def forget(self) -> list[weakref.ref[Any]]:
        """Removes the user's modules. Returns references to what must be gone once nothing holds it."""
        found = dict(self._users())
        held: list[weakref.ref[Any]] = []
        for name, module in found.items():
            values = vars(module)
            held += [weakref.ref(value) for value in values.values() if isinstance(value, type) and value.__module__ == name]
            values[_MARK] = mark = _Mark()
            held.append(weakref.ref(mark))
            parent, _, last = name.rpartition(".")
            if vars(sys.modules.get(parent) or sys).get(last) is module and parent:
                delattr(sys.modules[parent], last)
            del sys.modules[name]
        for name, known in self._known.items():  # a module that was replaced, or removed
            if sys.modules.get(name) is not known:
                sys.modules[name] = known
        self._known = dict(sys.modules)
        return held

    def unforgettable(self) -> str:
        """Reason why the user's modules cannot be imported anew; empty if they can."""
        for name, module in self._users():
            if str(getattr(module, "__file__", None) or "").endswith(tuple(EXTENSION_SUFFIXES)):
                return f"{name} is compiled code, which Python loads once"
        return ""

    def _users(self) -> Iterator[tuple[str, ModuleType]]:
        for name, module in list(sys.modules.items()):
            if self._known.get(name) is not module and isinstance(module, ModuleType) and not self._is_installed(module):
                yield name, module

    def _is_installed(self, module: ModuleType) -> bool:
        spec = module.__spec__
        if spec is not None and spec.origin in ("built-in", "frozen"):
            return True
        file = getattr(module, "__file__", None) or next(iter(getattr(module, "__path__", ())), None)
        if not isinstance(file, str) or not os.path.isabs(file):  # one that code has made: that of the package whose name it has
            top = sys.modules.get(module.__name__.partition(".")[0])
            return isinstance(top, ModuleType) and top is not module and self._is_installed(top)
        path = os.path.realpath(file)
        context = entered_context()
        return path.startswith(self._places) and not (context is not None and path.startswith(f"{context}/"))


def still_held(held: list[weakref.ref[Any]]) -> str:
    """Words for what is still alive of the user's code, after a full collection; empty: nothing."""
    gc.collect()
    alive = [value for reference in held if (value := reference()) is not None]
    if not alive:
        return ""
    names = sorted({value.__qualname__ for value in alive if isinstance(value, type)})[:NAMES_SHOWN_MAX]
    return f"something outside of it holds the trial's code ({', '.join(names) or 'a function'})"
