"""Marks of encoded values: equal for equal values, and almost certainly different for others."""

from __future__ import annotations

import hashlib
import marshal
import struct
import sys
from collections import deque
from typing import Any

import numpy as np

from tenuto.workers.user_state.kinds import ITEMS_MAX, KIND, SCALARS, is_tensor

WHOLE_BYTES_MAX = 64 << 10
"""Size up to which an array, a tensor or bytes are marked by their whole content. Larger ones are marked by sums, which see
each change of one element and cost some 0.2 s for a GB."""
ROW = 4_096
MARSHAL_VERSION = 2
"""Later ones encode whether objects are the same, and not only whether they are equal."""


PLAIN_ITEMS_MIN = 1_000
"""Items from which a container is marked as a whole, if it can be."""
NUMBERS_MIN = 64
"""Least whole numbers that are marked together, where the mark is for this process only."""


def mark_of_plain(value: Any) -> str | None:
    """Mark of a long container of nothing but numbers, strings and tuples of them, by the interpreter's own encoding, and
    not item by item. Valid only in this process. None: it is another value."""
    if type(value) not in (list, deque) or not PLAIN_ITEMS_MIN <= len(value) <= ITEMS_MAX:
        return None
    if not all(
        type(item) in SCALARS
        or (type(item) is tuple and len(item) < PLAIN_ITEMS_MIN and all(type(part) in SCALARS for part in item))
        for item in value
    ):
        return None
    longest = value.maxlen if isinstance(value, deque) else None
    content = marshal.dumps(list(value), MARSHAL_VERSION)
    return f"plain {type(value).__name__} {longest} {hashlib.blake2b(content, digest_size=16).hexdigest()}"


def mark_of_encoded(encoded: Any, versions: bool = True) -> str:
    digest = hashlib.blake2b(digest_size=16)
    _update(digest, encoded, versions)
    return digest.hexdigest()


def _update(digest: Any, encoded: Any, versions: bool) -> None:
    if isinstance(encoded, dict) and encoded[KIND] == "ref":
        digest.update(f"ref {encoded['value']}".encode(errors="surrogatepass"))
    elif isinstance(encoded, dict):
        digest.update(f"{{{encoded[KIND]}".encode())
        if versions and encoded.get("leaf"):
            digest.update(b"learns" if encoded["gradient"] else b"")
        for name in sorted(encoded):
            if name not in (KIND, "device", "gradient", "parameter", "leaf"):
                digest.update(name.encode())
                _update(digest, encoded[name], versions)
    elif isinstance(encoded, list):
        digest.update(f"[{len(encoded)}".encode())
        if versions and len(encoded) >= NUMBERS_MIN and all(type(item) is int for item in encoded):
            digest.update(marshal.dumps(encoded, MARSHAL_VERSION))  # such as the state of a generator
            return
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
    """Adds an array of bytes to the digest."""
    if content.nbytes <= WHOLE_BYTES_MAX:
        digest.update(content.data)
        return
    whole = content.nbytes // (8 * ROW) * (8 * ROW)
    rows = np.frombuffer(content[:whole].data, np.uint64).reshape(-1, ROW)
    digest.update(rows.sum(axis=1).data)
    digest.update(rows.sum(axis=0).data)
    digest.update(content[whole:].data)


def _update_there(digest: Any, content: Any) -> None:
    """Adds a tensor of bytes on another device: only the sums leave it."""
    torch = sys.modules["torch"]
    whole = content.numel() // (8 * ROW) * (8 * ROW)
    if content.storage_offset() % 8:
        content = content.clone()
    rows = content[:whole].view(torch.int64).reshape(-1, ROW)
    for part in (rows.sum(dim=1), rows.sum(dim=0), content[whole:]):
        digest.update(part.cpu().numpy().tobytes())
