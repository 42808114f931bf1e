"""Values that a checkpoint can hold of a user's object: turned into plain data, and back; and marks that tell what changed.

Plain data here is what torch's loader reads without running any code: numbers, strings, tensors and their containers.
"""

from __future__ import annotations

import hashlib
import itertools
import pathlib
import struct
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from tenuto.workers.user_state import generators

SCALARS = (type(None), bool, int, float, complex, str, bytes)
ITEMS_MAX = 100_000
"""In one value: what is larger is data and no state, and would be looked through at each checkpoint."""
WHOLE_BYTES_MAX = 64 << 10
"""Of an array or tensor, and of bytes: up to here a mark is made of all; of larger ones of sums over them, which see each change
of one element and cost some 0.2 s for a GB."""
ROW = 4_096
SAMPLES = 4_096
"""Of a container with more than ITEMS_MAX items, to see whether it changed."""
_KIND = "tenuto_kind"
_LISTS: dict[type, str] = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_DICTS: dict[type, str] = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_MADE: dict[str, Callable[[Any], Any]] = {name: kind for kind, name in (*_LISTS.items(), *_DICTS.items())}


class NotPlain(Exception):
    """The value is none that can be saved."""


def is_tensor(value: Any) -> bool:
    """A tensor as it is: no subclass, such as one that is divided among ranks."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided


class Encoder:
    """Of one value. `copy`: tensors and arrays in it are copied, so that later changes do not reach what was encoded."""

    def __init__(self, copy: bool) -> None:
        self._copy, self._items, self._open = copy, 0, set[int]()

    def encode(self, value: Any) -> Any:
        """Raises NotPlain."""
        kind = type(value)
        if kind in SCALARS:
            return value
        if is_tensor(value):
            return self._tensor(value)
        if isinstance(value, (np.ndarray, np.generic)):
            return self._array(value)
        if generators.is_generator(value):
            return _generator(value, self)
        if kind.__module__.startswith("tensorflow.") and hasattr(value, "numpy") and not hasattr(value, "assign"):
            return {_KIND: "eager", "value": self._array(np.asarray(value.numpy()))}
        if isinstance(value, pathlib.PurePath):
            return {_KIND: "path", "value": str(value)}
        if kind is range:
            return {_KIND: "range", "value": [value.start, value.stop, value.step]}
        if id(value) in self._open:
            raise NotPlain
        self._open.add(id(value))
        try:
            return self._container(kind, value)
        finally:
            self._open.discard(id(value))

    def _container(self, kind: type, value: Any) -> Any:
        if kind in _LISTS:
            items = sorted(value, key=repr) if kind in (set, frozenset) else value
            return {_KIND: _LISTS[kind], "value": self._all(items)}
        if kind is deque:
            return {_KIND: "deque", "value": self._all(value), "longest": value.maxlen}
        if kind in _DICTS:
            return {_KIND: _DICTS[kind], "value": self._pairs(value)}
        if kind is defaultdict:
            return {_KIND: "defaultdict", "value": self._pairs(value)}
        raise NotPlain

    def _pairs(self, value: Any) -> list[Any]:
        return [[self.encode(key), self.encode(item)] for key, item in self._counted(value.items())]

    def _all(self, values: Any) -> list[Any]:
        return [self.encode(item) for item in self._counted(values)]

    def _counted(self, values: Any) -> list[Any]:
        self._items += len(values)
        if self._items > ITEMS_MAX:
            raise NotPlain
        return list(values)

    def _tensor(self, value: Any) -> Any:
        made = value.detach().clone() if self._copy else value.detach()
        return {_KIND: "tensor", "value": made, "device": str(value.device), "gradient": bool(value.requires_grad)}

    def _array(self, value: Any) -> Any:
        if value.dtype.hasobject or value.dtype.isbuiltin == 2:  # numbers of another library, such as bfloat16
            raise NotPlain
        array = np.array(value, order="C") if self._copy else np.ascontiguousarray(value)
        content: Any = array.reshape(-1).view(np.uint8)
        torch = sys.modules.get("torch")
        if torch is not None and self._copy:
            content = torch.from_numpy(content)
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return {_KIND: kind, "value": content, "type": np.lib.format.dtype_to_descr(array.dtype), "shape": list(array.shape)}


def encode(value: Any, copy: bool = False) -> Any:
    """Raises NotPlain."""
    return Encoder(copy).encode(value)


def decode(encoded: Any) -> Any:
    if not isinstance(encoded, dict):
        return encoded
    kind, value = encoded[_KIND], encoded["value"]
    if kind == "tensor":
        device = encoded["device"]
        torch = sys.modules["torch"]
        there = device if device == "cpu" or torch.cuda.is_available() else "cpu"
        return value.detach().clone().to(there).requires_grad_(encoded["gradient"])
    if kind in ("array", "number"):
        data = np.asarray(value).tobytes()
        array = np.frombuffer(data, np.lib.format.descr_to_dtype(encoded["type"])).reshape(encoded["shape"]).copy()
        return array if kind == "array" else array[()]
    if kind == "eager":
        return sys.modules["tensorflow"].constant(decode(value))
    if kind == "path":
        return pathlib.Path(value)
    if kind == "range":
        return range(*value)
    if kind == "generator":
        return _made_generator(encoded)
    if kind == "deque":
        return deque(map(decode, value), encoded["longest"])
    if kind in ("dict", "ordered", "counter", "defaultdict"):
        return _MADE.get(kind, dict)({decode(key): decode(item) for key, item in value})
    return _MADE[kind](map(decode, value))


def _generator(value: Any, encoder: Encoder) -> Any:
    try:
        state = encoder.encode(generators.state_of(value))
    except (TypeError, NotImplementedError) as error:
        raise NotPlain from error
    name = type(value.bit_generator).__name__ if isinstance(value, np.random.Generator) else type(value).__name__
    return {_KIND: "generator", "value": state, "type": name, "device": str(getattr(value, "device", ""))}


def _made_generator(encoded: Any) -> Any:
    import random

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


def put_into(existing: Any, encoded: Any) -> bool:
    """Changes `existing` to what was encoded, in place, so that others who hold it see it, too. False: that cannot be done."""
    kind = encoded[_KIND] if isinstance(encoded, dict) else None
    if kind == "generator" and generators.is_generator(existing):
        try:
            generators.restore(existing, decode(encoded["value"]))
        except (TypeError, ValueError, RuntimeError):
            return False
        return True
    if kind == "tensor" and is_tensor(existing):
        return _put_tensor(existing, encoded["value"])
    value = decode(encoded)
    if kind == "array" and isinstance(existing, np.ndarray) and existing.flags.writeable:
        if existing.shape != value.shape or existing.dtype != value.dtype:
            return False
        existing[...] = value
    elif isinstance(existing, list) and kind == "list":
        existing[:] = value
    elif isinstance(existing, deque) and kind == "deque" and existing.maxlen == value.maxlen:
        existing.clear()
        existing.extend(value)
    elif (isinstance(existing, set) and kind == "set") or (isinstance(existing, dict) and type(value) in _DICTS):
        existing.clear()
        existing.update(value)
    else:
        return False
    return True


def _put_tensor(existing: Any, value: Any) -> bool:
    torch = sys.modules["torch"]
    if existing.shape != value.shape or existing.dtype != value.dtype:
        return False
    try:
        with torch.no_grad():
            existing.copy_(value)
    except RuntimeError:  # such as one that is expanded, or was made in inference mode
        return False
    return True


def mark(value: Any, versions: bool = True) -> str:
    """Equal for equal values, and most probably only for these. `versions`: what torch counts of changes tells, too, so the mark
    means something in this process only; else it means the same in every process. Raises NotPlain."""
    return mark_of_encoded(encode(value), versions)


def mark_of_encoded(encoded: Any, versions: bool = True) -> str:
    digest = hashlib.blake2b(digest_size=16)
    _update(digest, encoded, versions)
    return digest.hexdigest()


def _update(digest: Any, encoded: Any, versions: bool) -> None:
    if isinstance(encoded, dict):
        digest.update(f"{{{encoded[_KIND]}".encode())
        for name in sorted(encoded):
            if name not in (_KIND, "device", "gradient"):
                digest.update(name.encode())
                _update(digest, encoded[name], versions)
    elif isinstance(encoded, list):
        digest.update(f"[{len(encoded)}".encode())
        for item in encoded:
            _update(digest, item, versions)
    elif type(encoded) in (bytes, str):
        data = encoded if isinstance(encoded, bytes) else encoded.encode(errors="surrogatepass")
        digest.update(f"{type(encoded).__name__}{len(data)}:".encode())
        _update_bytes(digest, np.frombuffer(data, np.uint8))
    elif type(encoded) in SCALARS or isinstance(encoded, tuple):
        data = struct.pack("<d", encoded) if type(encoded) is float else repr(encoded).encode()
        digest.update(f"{type(encoded).__name__}{len(data)}:".encode() + data)
    else:
        _update_array(digest, encoded)
        if versions and is_tensor(encoded) and not encoded.is_inference():
            digest.update(f"version {encoded._version}".encode())


def _update_array(digest: Any, array: Any) -> None:
    digest.update(f"{tuple(array.shape)} {array.dtype}".encode())
    if not isinstance(array, np.ndarray):
        torch = sys.modules["torch"]
        array = array.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
        if not array.numel():
            return
        array = array.view(torch.uint8)
        if array.device.type != "cpu" and array.numel() > WHOLE_BYTES_MAX:
            _update_there(digest, array)
            return
        array = array.cpu().numpy()
    if array.size:
        _update_bytes(digest, np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def _update_bytes(digest: Any, content: Any) -> None:
    """`content`: an array of bytes."""
    if content.nbytes <= WHOLE_BYTES_MAX:
        digest.update(content.data)
        return
    whole = content.nbytes // (8 * ROW) * (8 * ROW)
    rows = np.frombuffer(content[:whole].data, np.uint64).reshape(-1, ROW)
    digest.update(rows.sum(axis=1).data)
    digest.update(rows.sum(axis=0).data)
    digest.update(content[whole:].data)


def _update_there(digest: Any, content: Any) -> None:
    """The same of a tensor of bytes on another device: only the sums leave it."""
    torch = sys.modules["torch"]
    whole = content.numel() // (8 * ROW) * (8 * ROW)
    if content.storage_offset() % 8:
        content = content.clone()
    rows = content[:whole].view(torch.int64).reshape(-1, ROW)
    for part in (rows.sum(dim=1), rows.sum(dim=0), content[whole:]):
        digest.update(part.cpu().numpy().tobytes())


def mark_of_large(container: Any) -> str:
    """Of one with more than ITEMS_MAX items, by some of them: cheap, and in this process only."""
    step = max(1, len(container) // SAMPLES)
    items: Any = container.items() if isinstance(container, dict) else container
    last = list(itertools.islice(reversed(container), 8)) if not isinstance(container, (set, frozenset)) else []
    some = [id(item) if type(item) not in SCALARS else item for item in itertools.islice(items, 0, None, step)]
    return f"{len(container)} {hash(repr(some))} {hash(repr([item if type(item) in SCALARS else id(item) for item in last]))}"


def is_large(value: Any) -> bool:
    """Too large to be saved, or looked through at each checkpoint."""
    container: Any = value if isinstance(value, (*_LISTS, deque, dict)) else ()
    return len(container) > ITEMS_MAX
