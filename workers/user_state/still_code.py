"""Code that holds nothing that can have changed: most classes and functions of a large model directory, which is looked through
at each checkpoint."""

from __future__ import annotations

import types
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np

from tenuto.workers.user_state import generators, kinds

_STILL_MODULES = frozenset(("logging", "re", "typing", "types", "_abc", "__future__"))
"""Modules of types whose objects hold nothing that training depends on, except those that are searched."""
_DESCRIPTORS = (types.MemberDescriptorType, types.GetSetDescriptorType, types.ModuleType, np.ufunc)


@dataclass(frozen=True, slots=True)
class _Record:
    values: list[Any]
    """All values that the code held first: none of their ids is given to another one."""
    ids: tuple[int, ...]
    is_loud: bool
    """True: some of them can change inside."""
    inner: list[Any]
    """Functions and classes of the user's among them."""


class StillCode:
    def __init__(self) -> None:
        self._records: dict[int, tuple[Any, _Record]] = {}
        self._open: set[int] = set()

    def note(self, code: Any) -> None:
        """Notes what a class or function of the beginning holds, and those that it holds."""
        if id(code) not in self._records:
            _, record = self._records[id(code)] = code, _record(code)
            for inner in record.inner:
                self.note(inner)

    def has(self, code: Any) -> bool:
        """True if a class or function holds what it held in the beginning, and none of it can change inside."""
        known = self._records.get(id(code))
        if known is None:
            return False
        record = known[1]
        if record.is_loud or tuple(map(id, _values(code))) != record.ids:
            return False
        if id(code) in self._open:
            return True  # it holds itself
        self._open.add(id(code))
        try:
            return all(map(self.has, record.inner))
        finally:
            self._open.discard(id(code))


def _record(code: Any) -> _Record:
    values = _values(code)
    named = [value for name, value in vars(code).items() if not name.startswith("__")] if isinstance(code, type) else values
    insides = [_inside(value) for value in named]
    inner = [value for value in insides if isinstance(value, (FunctionType, type)) and generators.is_users(value)]
    if not all(map(_is_still, insides)):
        return _Record([], (), True, [])  # which keeps nothing alive
    return _Record(values, tuple(map(id, values)), False, inner)


def _values(code: Any) -> list[Any]:
    if isinstance(code, type):
        return list(vars(code).values())
    found: list[Any] = list(code.__dict__.values()) if code.__dict__ else []
    if code.__defaults__:
        found += code.__defaults__
    if code.__kwdefaults__:
        found += code.__kwdefaults__.values()
    for cell in code.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # it is empty
            found.append(None)
    return found


def _inside(value: Any) -> Any:
    if isinstance(value, (staticmethod, classmethod)):
        return value.__func__
    return value.fget if isinstance(value, property) else value


def _is_still(value: Any) -> bool:
    """True for a value that cannot change inside; a function or class of the user's is looked at for itself."""
    if isinstance(value, types.MethodType):
        return not generators.is_users(type(value.__self__))
    if isinstance(value, tuple):
        return all(_is_still(item) and not (isinstance(item, kinds.CODE) and generators.is_users(item)) for item in value)
    if isinstance(value, (*kinds.CODE, *_DESCRIPTORS)) or kinds.is_constant(value):
        return True
    return type(value).__module__ in _STILL_MODULES and type(value) not in (types.SimpleNamespace, types.MappingProxyType)
