"""Encoding of the user's values as plain data for a checkpoint, and marks that show changes.

Plain data here is what torch's loader reads without running any code: numbers, strings, tensors and their containers.
"""

from __future__ import annotations

import enum
import pathlib
import sys
import types
from collections import defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tenuto.workers.user_state import generators, kinds
from tenuto.workers.user_state.decoding import decode as decode
from tenuto.workers.user_state.kinds import ITEMS_MAX as ITEMS_MAX
from tenuto.workers.user_state.kinds import KIND, SCALARS
from tenuto.workers.user_state.kinds import NotPlain as NotPlain
from tenuto.workers.user_state.marks import PLAIN_ITEMS_MIN, mark_of_encoded


class Encoder:
    """`copy`: tensors and arrays are copied, so that later changes do not affect the encoding. `refer`: function that returns
    the encoding of a value that may have other holders, or None to encode its content. It raises NotPlain for values that
    cannot be encoded."""

    def __init__(self, copy: bool, refer: Callable[[Any], Any] | None = None) -> None:
        self._copy, self._items, self._open = copy, 0, set[int]()
        self._refer = refer if refer is not None else lambda value: None
        self._whole = refer is None

    def encode(self, value: Any) -> Any:
        """The encoded value. Raises NotPlain."""
        if type(value) in SCALARS:
            return value
        if type(value) not in kinds.LISTS and type(value) is not dict:
            if isinstance(value, kinds.CODE):
                return self._code(value)
            if kinds.is_constant(value):
                return self._constant(value)
        said = self._refer(value)
        return self.content(value) if said is None else said

    def content(self, value: Any, holes: bool = False) -> Any:
        """The encoded content. `holes`: items of this container that cannot be saved are left out. Raises NotPlain."""
        if type(value) not in kinds.LISTS and type(value) is not dict and kinds.is_leaf(value):
            return self._leaf(value)
        if id(value) in self._open:
            raise NotPlain
        self._open.add(id(value))
        try:
            return self._container(value, holes)
        except RecursionError as error:
            raise NotPlain from error
        finally:
            self._open.discard(id(value))

    def _leaf(self, value: Any) -> Any:
        if kinds.is_tensor(value):
            return self._tensor(value)
        if isinstance(value, np.ndarray):
            return self._array(value)
        if generators.is_generator(value):
            return _generator(value, self._copy)
        if type(value) is bytearray:
            return {KIND: "bytearray", "value": bytes(value)}
        return {KIND: "numbers", "value": value.tobytes(), "type": value.typecode}

    def _container(self, value: Any, holes: bool) -> Any:
        kind = kinds.kind_of_container(value)
        if kind is None:
            return self._value_class(value)
        if isinstance(value, dict):
            encoded: dict[str, Any] = {KIND: kind, "value": self._pairs(value, holes)}
            if kind == "defaultdict" and isinstance(value, defaultdict):
                encoded["factory"] = getattr(value.default_factory, "__name__", None)
            return encoded
        if kind in ("set", "frozenset"):
            content = sorted(kinds.items(value), key=repr)
            if any(kinds.is_leaf(item) and self._refer(item) is None for item in content):
                raise NotPlain  # it is in the set as what it is, and not with its content
            return {KIND: kind, "value": self._all(content, False)}
        encoded = {KIND: kind, "value": self._all(kinds.items(value), holes and kind != "tuple")}
        return encoded | {"longest": value.maxlen} if isinstance(value, deque) else encoded

    def _value_class(self, value: Any) -> Any:
        """A tuple or an immutable dataclass, of a class that the code has."""
        torch = sys.modules.get("torch")
        if torch is not None and isinstance(value, torch.Size):
            return {KIND: "size", "value": list(value)}
        name = kinds.name_of_class(type(value))
        if kinds.is_frozen(value):
            parts = [[key, self.encode(item)] for key, item in self._counted(generators.attributes(value))]
            return {KIND: "frozen", "value": parts, "class": name}
        if isinstance(value, tuple) and not getattr(value, "__dict__", None):
            return {KIND: "named", "value": self._all(kinds.items(value), False), "class": name}
        raise NotPlain

    def _pairs(self, value: dict[Any, Any], holes: bool) -> list[Any]:
        return [[self.encode(key), self._item(item, holes)] for key, item in self._counted(kinds.pairs(value))]

    def _all(self, values: list[Any], holes: bool) -> list[Any]:
        return [self._item(item, holes) for item in self._counted(values)]

    def _item(self, value: Any, holes: bool) -> Any:
        if type(value) in SCALARS:
            return value
        if (
            type(value) is tuple
            and len(value) < PLAIN_ITEMS_MIN
            and not self._whole
            and all(type(part) in SCALARS for part in value)
        ):
            return {KIND: "tuple", "value": list(value)}  # as below, for long memories of small tuples
        try:
            return self.encode(value)
        except NotPlain:
            if not holes:
                raise
            return {KIND: "hole", "value": None}

    def _counted(self, values: list[Any]) -> list[Any]:
        self._items = len(values) + (self._items if self._whole else 0)
        if self._items > ITEMS_MAX:
            raise NotPlain
        return values

    def _tensor(self, value: Any) -> Any:
        made = value.detach().clone() if self._copy else value.detach()
        encoded = {KIND: "tensor", "value": made, "device": str(value.device), "gradient": bool(value.requires_grad)}
        if value.is_leaf:
            encoded["leaf"] = True  # one that learns, or does not
        if type(value) is not sys.modules["torch"].Tensor:
            encoded["parameter"] = True
        if value.is_leaf and value.requires_grad and kinds.is_tensor(value.grad):
            encoded["grad"] = value.grad.clone() if self._copy else value.grad
        return encoded

    def _array(self, value: Any) -> Any:
        if value.dtype.hasobject or value.dtype.isbuiltin == 2:  # numbers of another library, such as bfloat16
            raise NotPlain
        made = np.array(value, order="C") if self._copy else np.ascontiguousarray(value)
        content: Any = made.reshape(-1).view(np.uint8)
        torch = sys.modules.get("torch")
        if torch is not None and self._copy:
            content = torch.from_numpy(content)
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {KIND: kind, "value": content, "type": np.lib.format.dtype_to_descr(made.dtype), "shape": list(made.shape)}

    def _constant(self, value: Any) -> Any:
        if isinstance(value, enum.Flag):
            return {KIND: "flag", "value": int(value.value), "class": kinds.name_of_class(type(value))}
        if isinstance(value, enum.Enum):
            return {KIND: "enum", "value": value.name, "class": kinds.name_of_class(type(value))}
        if isinstance(value, np.generic):
            return self._array(value)
        if isinstance(value, pathlib.PurePath):
            return {KIND: "path", "value": str(value)}
        if kinds.is_torchs_constant(value):
            return {KIND: f"torch's {type(value).__name__}", "value": str(value).removeprefix("torch.")}
        if type(value) is range:
            return {KIND: "range", "value": [value.start, value.stop, value.step]}
        return {KIND: "eager", "value": self._array(np.asarray(value.numpy()))}

    def _code(self, value: Any) -> Any:
        """A function or class, encoded by its name: it belongs to the code."""
        if isinstance(value, types.MethodType):
            return {KIND: "method", "value": value.__func__.__name__, "owner": self.encode(value.__self__)}
        if not hasattr(value, "__qualname__"):
            raise NotPlain
        return {KIND: "code", "value": kinds.name_of_class(value)}


def encode(value: Any, copy: bool = False) -> Any:
    """The encoded value. Raises NotPlain."""
    return Encoder(copy).encode(value)


def _generator(value: Any, copy: bool) -> Any:
    try:
        state = encode(generators.state_of(value), copy)
    except (TypeError, NotImplementedError) as error:
        raise NotPlain from error
    name = type(value.bit_generator).__name__ if isinstance(value, np.random.Generator) else type(value).__name__
    return {KIND: "generator", "value": state, "type": name, "device": str(getattr(value, "device", ""))}


def mark(value: Any, versions: bool = True) -> str:
    """Mark that is equal for equal values, and almost certainly different for others. `versions`: include torch's counts of
    changes, so the mark is valid only in this process; otherwise it is the same in every process. Raises NotPlain."""
    return mark_of_encoded(encode(value), versions)
