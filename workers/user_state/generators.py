"""Random number generators that a user's objects hold: found, seeded by position, saved and restored.

Needs no framework: torch's generators are known if torch is loaded.
"""

from __future__ import annotations

import functools
import inspect
import os
import random
import sys
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

DEPTH_MAX = 6
"""Deepest nesting that is searched: a dataset, its transforms, their parts; generators are not deep."""
OBJECTS_MAX = 10_000
"""Most objects searched: a dataset may hold millions of records, and is searched once per loader worker."""
_LEAVES = (str, bytes, int, float, complex, bool, type(None), np.ndarray, np.generic, ModuleType)
_LIBRARIES = ("site-packages", "dist-packages")
_STANDARD = os.path.join(os.path.dirname(os.__file__), "")
"""Directory of Python's own modules."""


def is_generator(value: Any) -> bool:
    """True for a generator with a state; SystemRandom has none."""
    if isinstance(value, random.Random):
        return not isinstance(value, random.SystemRandom)
    if isinstance(value, (np.random.Generator, np.random.RandomState)):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Generator)


def own_generators(*owners: Any, skip: Iterable[Any] = ()) -> list[Any]:
    """Generators that the objects, or their parts, hold as attributes, or that their code uses as global variables, in a fixed
    order. `skip` is not searched."""
    found: list[Any] = []
    seen = {id(value) for value in skip}
    queue = deque((owner, 0) for owner in owners)
    while queue and len(seen) < OBJECTS_MAX:
        value, depth = queue.popleft()
        if _is_leaf(value) or id(value) in seen:
            continue
        seen.add(id(value))
        if is_generator(value):
            found.append(value)
        elif depth < DEPTH_MAX:
            queue.extend((part, depth + 1) for part in _parts(value))
    return found


def _is_leaf(value: Any) -> bool:
    if isinstance(value, _LEAVES):
        return True
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def _parts(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return list(value.values())[:OBJECTS_MAX] if isinstance(value, dict) else []
    if isinstance(value, (list, tuple, deque, set, frozenset)):
        return [item for item, _ in zip(value, range(OBJECTS_MAX), strict=False)]
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, FunctionType):
        return _parts_of_function(value)
    if isinstance(value, MethodType):
        return [value.__self__, value.__func__]
    if isinstance(value, type):
        return _parts_of_class(value) if is_users(value) else []
    return [*(item for _, item in attributes(value)), type(value)]


def _parts_of_function(function: FunctionType) -> list[Any]:
    parts = [cell.cell_contents for cell in function.__closure__ or () if cell != CellType()]
    parts += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if is_users(function):
        values = function.__globals__
        parts += [values[name] for name in sorted(names_in_code(function.__code__)) if name in values]
    return parts


def names_in_code(code: CodeType) -> set[str]:
    """Names of globals and attributes that code uses, that of its inner functions included."""
    inner = [names_in_code(item) for item in code.co_consts if isinstance(item, CodeType)]
    return set(code.co_names).union(*inner)


def _parts_of_class(kind: type) -> list[Any]:
    parts: list[Any] = [base for base in kind.__bases__ if base is not object]
    for name, item in sorted(vars(kind).items(), key=lambda pair: pair[0]):
        if isinstance(item, (staticmethod, classmethod)):
            parts.append(item.__func__)
        elif isinstance(item, property):
            parts.append(item.fget)
        elif not name.startswith("__") or isinstance(item, FunctionType):
            parts.append(item)
    return parts


def attributes(value: Any) -> list[tuple[str, Any]]:
    """Attributes by name, including those in slots."""
    found = dict(getattr(value, "__dict__", None) or {})
    for kind in type(value).__mro__:
        slots = kind.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if isinstance(inspect.getattr_static(kind, name, None), _SLOT) and hasattr(value, name):
                found.setdefault(name, getattr(value, name))
    return sorted(((name, item) for name, item in found.items() if isinstance(name, str)), key=lambda pair: pair[0])


class _Slotted:
    __slots__ = ("slot",)


_SLOT = type(inspect.getattr_static(_Slotted, "slot"))


def is_users(value: Any) -> bool:
    """True for a class or function of the user's own code, false for a library's."""
    name = getattr(value, "__module__", None)
    return isinstance(name, str) and is_users_module(name)


def is_users_module(name: str) -> bool:
    """True for the name of a loaded module that is no library's."""
    return _is_users_file(name, getattr(sys.modules.get(name), "__file__", None) or "")


@functools.cache
def _is_users_file(name: str, file: str) -> bool:
    root = name.partition(".")[0]
    if root in ("tenuto", "builtins"):
        return False
    if root in sys.stdlib_module_names and root != "__main__" and (not file or file.startswith(_STANDARD)):
        return False  # a file of the user's may have the name of one of Python's: profile.py, sched.py
    return not any(f"/{part}/" in file.replace("\\", "/") for part in _LIBRARIES)


def reseed(generator: Any, seed: int) -> None:
    """Seeds a generator of any kind that `own_generators` finds."""
    if isinstance(generator, random.Random):
        generator.seed(seed)
    elif isinstance(generator, np.random.RandomState):
        generator.seed([seed & 0xFFFFFFFF, seed >> 32])
    elif isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state  # type: ignore[call-arg]
    else:
        generator.manual_seed(seed)


def state_of(generator: Any) -> Any:
    """State for `restore`. Raises TypeError for a bit generator of the user's own without a state."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.get_state()


def restore(generator: Any, state: Any) -> None:
    if isinstance(generator, random.Random):
        version, internal, gauss = state
        generator.setstate((version, tuple(internal), gauss))
    elif isinstance(generator, np.random.RandomState):
        generator.set_state(state)
    elif isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


@contextmanager
def aside(generators: Iterable[Any]) -> Iterator[None]:
    """Context that restores the generators' states at its end."""
    before = [(generator, state_of(generator)) for generator in generators]
    try:
        yield
    finally:
        for generator, state in before:
            restore(generator, state)
