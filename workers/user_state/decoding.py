"""Decodes values: makes them again, or puts them into the objects of a fresh process."""

from __future__ import annotations

import array
import enum
import pathlib
import random
import sys
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any

import numpy as np

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.kinds import KIND, MADE

HOLE = object()
"""Placeholder of a value that could not be saved."""
_DEPTH_MAX = 6
_DICTS = ("dict", "ordered", "counter", "defaultdict")


class Decoder:
    """`objects`: objects of this process, by path. `named`: classes and functions, by name, that no module has under that
    name. `theirs`: ids of objects that others restore."""

    def __init__(
        self,
        objects: Mapping[tuple[str, ...], Any] | None = None,
        named: Mapping[str, Any] | None = None,
        theirs: frozenset[int] = frozenset(),
    ) -> None:
        self._objects, self._named, self._theirs = objects or {}, named or {}, theirs
        self._numbered: dict[int, Any] = {}

    def decode(self, encoded: Any) -> Any:
        """The value. Raises LookupError for an object that this process does not have, TypeError and ValueError for content
        that does not fit."""
        if not isinstance(encoded, dict):
            return encoded
        kind, value = encoded[KIND], encoded["value"]
        if kind in _DICTS:
            return self._dict(encoded)
        if kind == "deque":
            return deque(self._all(value), encoded["longest"])
        if kind in MADE:
            return MADE[kind](self._all(value))
        if kind in ("tensor", "array", "number", "eager", "generator", "numbers"):
            return _made(kind, encoded)
        if kind in ("enum", "flag", "named", "frozen", "code", "method"):
            return self._of_code(kind, encoded)
        if kind == "ref":
            return self._objects[tuple(value)]
        if kind == "new":
            made = self.decode(value)
            if "number" in encoded:
                self._numbered[encoded["number"]] = made
            return made
        if kind == "again":
            return self._numbered[value]
        return HOLE if kind == "hole" else _PLAIN[kind](value)

    def _all(self, encoded: list[Any]) -> list[Any]:
        return [item for item in map(self.decode, encoded) if item is not HOLE]

    def _dict(self, encoded: Any) -> Any:
        made: dict[Any, Any] = MADE.get(encoded[KIND], dict)(dict(self._pairs(encoded["value"])))
        if encoded[KIND] == "defaultdict" and "factory" in encoded:
            factory = encoded["factory"]
            if factory is not None and factory not in kinds.FACTORIES:
                raise LookupError(factory)
            return defaultdict(None if factory is None else kinds.FACTORIES[factory], made)
        return made

    def _pairs(self, encoded: list[Any]) -> list[tuple[Any, Any]]:
        found = [(self.decode(key), self.decode(item)) for key, item in encoded]
        return [(key, item) for key, item in found if item is not HOLE]

    def _of_code(self, kind: str, encoded: Any) -> Any:
        value = encoded["value"]
        if kind == "method":
            return getattr(self.decode(encoded["owner"]), value)
        found = self.code(value if kind == "code" else encoded["class"])
        if kind == "code":
            return found
        if kind == "named" and issubclass(found, tuple):
            return tuple.__new__(found, self._all(value))
        if kind in ("enum", "flag") and issubclass(found, enum.Enum):
            return found[value] if kind == "enum" else found(value)
        if kind != "frozen" or not hasattr(found, "__dataclass_params__"):
            raise TypeError
        made = object.__new__(found)
        for name, item in value:
            object.__setattr__(made, name, self.decode(item))
        return made

    def code(self, name: str) -> Any:
        found = self._named.get(name)
        if found is None and (found := kinds.found_by_name(name)) is None:
            raise LookupError(name)
        return found

    def put_into(self, existing: Any, encoded: Any) -> bool:
        """Changes `existing` to the encoded content, in place, so that other holders see it, too; False if that is not
        possible. Raises as `decode` does."""
        kind = encoded[KIND] if isinstance(encoded, dict) else None
        if id(existing) in self._theirs:
            return False
        if kind == "generator" and generators.is_generator(existing):
            try:
                generators.restore(existing, decode(encoded["value"]))
            except (TypeError, ValueError, RuntimeError):
                return False
            return True
        if kind == "tensor" and kinds.is_tensor(existing):
            return _put_tensor(existing, encoded)
        if kind in ("array", "bytearray", "numbers"):
            return _put_array(existing, _made(kind, encoded) if kind != "bytearray" else encoded["value"])
        if kinds.is_container(existing) and (kind in _DICTS if isinstance(existing, dict) else kind in ("list", "set", "deque")):
            return self._fill(existing, encoded)
        return False

    def _fill(self, existing: Any, encoded: Any) -> bool:
        value = encoded["value"]
        if isinstance(existing, dict):
            before = dict(kinds.pairs(existing))
            keys = [(self.decode(key), item) for key, item in value]
            found = [(key, self._in_place(before.get(key, HOLE), item)) for key, item in keys]
            kinds.fill(existing, [(key, item) for key, item in found if item is not HOLE])
            return True
        if kinds.kind_of_container(existing) != encoded[KIND] or getattr(existing, "maxlen", None) != encoded.get("longest"):
            return False
        old = [] if isinstance(existing, set) else kinds.items(existing)
        old += [HOLE] * (len(value) - len(old))
        kinds.fill(existing, [item for item in map(self._in_place, old, value) if item is not HOLE])
        return True

    def _in_place(self, old: Any, encoded: Any) -> Any:
        """Item of a container, in place. It keeps its identity unless the checkpoint gives it another: others may hold it, and
        objects that they restore are never replaced by a copy."""
        kind = encoded[KIND] if isinstance(encoded, dict) else None
        if kind == "hole":
            return old
        if kind not in ("tensor", "array", "generator", "list", *_DICTS) or old is HOLE:
            return self.decode(encoded)
        if id(old) in self._theirs:  # a checkpoint that did not say which object it was
            return old
        if kind in ("list", *_DICTS) and not self._holds_theirs(old):
            return self.decode(encoded)
        return old if self.put_into(old, encoded) else self.decode(encoded)

    def _holds_theirs(self, value: Any, depth: int = 0) -> bool:
        if id(value) in self._theirs or depth > _DEPTH_MAX or not isinstance(value, (list, dict)):
            return id(value) in self._theirs
        items = [item for _, item in kinds.pairs(value)] if isinstance(value, dict) else kinds.items(value)
        return any(self._holds_theirs(item, depth + 1) for item in items)


def decode(encoded: Any) -> Any:
    """The value of an encoding that refers to no other object."""
    return Decoder().decode(encoded)


def _size(value: Any) -> Any:
    return sys.modules["torch"].Size(value)


_PLAIN: dict[str, Any] = {
    "path": pathlib.Path,
    "range": lambda value: range(*value),
    "bytearray": bytearray,
    "size": _size,
    "torch's device": lambda value: sys.modules["torch"].device(value),
    "torch's dtype": lambda value: getattr(sys.modules["torch"], value),
}


def _made(kind: str, encoded: Any) -> Any:
    value = encoded["value"]
    if kind == "generator":
        return _made_generator(encoded)
    if kind == "eager":
        return sys.modules["tensorflow"].constant(decode(value))
    if kind == "numbers":
        return array.array(encoded["type"], value)
    if kind == "tensor":
        device = encoded["device"]
        torch = sys.modules["torch"]
        there = device if device == "cpu" or torch.cuda.is_available() else "cpu"
        made = value.detach().clone().to(there)
        if encoded.get("parameter"):
            made = torch.nn.Parameter(made, requires_grad=encoded["gradient"])
        else:
            made.requires_grad_(encoded["gradient"])
        _put_gradient(made, encoded)
        return made
    data = np.asarray(value).tobytes()
    found = np.frombuffer(data, np.lib.format.descr_to_dtype(encoded["type"])).reshape(encoded["shape"]).copy()
    return found if kind == "array" else found[()]


def _made_generator(encoded: Any) -> Any:
    name = encoded["type"]
    if name == "RandomState":
        made: Any = np.random.RandomState()
    elif name == "Generator":
        made = sys.modules["torch"].Generator(encoded["device"])
    elif hasattr(np.random, name):
        made = np.random.Generator(getattr(np.random, name)())
    else:
        made = random.Random()
    generators.restore(made, decode(encoded["value"]))
    return made


def _put_array(existing: Any, value: Any) -> bool:
    if isinstance(existing, np.ndarray) and isinstance(value, np.ndarray) and existing.flags.writeable:
        if existing.shape != value.shape or existing.dtype != value.dtype:
            return False
        existing[...] = value
        return True
    if type(existing) not in (bytearray, array.array) or isinstance(value, np.ndarray):
        return False
    if isinstance(existing, array.array) and existing.typecode != getattr(value, "typecode", None):
        return False
    existing[:] = value
    return True


def _put_tensor(existing: Any, encoded: Any) -> bool:
    torch, value = sys.modules["torch"], encoded["value"]
    if existing.shape != value.shape or existing.dtype != value.dtype:
        return False
    try:
        with torch.no_grad():
            existing.copy_(value)
    except RuntimeError:  # such as one that is expanded, or was made in inference mode
        return False
    if existing.is_leaf and encoded.get("leaf", not encoded["gradient"]):
        existing.requires_grad_(encoded["gradient"])
    _put_gradient(existing, encoded)
    return True


def _put_gradient(tensor: Any, encoded: Any) -> None:
    if tensor.is_leaf and tensor.requires_grad:
        gradient = encoded.get("grad")
        tensor.grad = None if gradient is None else gradient.detach().clone().to(tensor.device)
