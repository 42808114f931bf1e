"""Secrets and options as programs in Go send them: Kubernetes' envelope of protocol buffers, read without its descriptions."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

CONTENT_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_TEXTS = {1: "name", 2: "generateName", 3: "namespace", 5: "uid", 6: "resourceVersion"}
_MAPS = {11: "labels", 12: "annotations"}
"""Fields of ObjectMeta, by their numbers in its published description."""


def read(body: bytes) -> dict[str, Any]:
    """A Secret; of another kind, its kind alone."""
    if not body.startswith(_MAGIC):
        raise ValueError("this is no message of Kubernetes")
    envelope = dict(_fields(body[len(_MAGIC) :]))
    kind = {number: text.decode() for number, text in _fields(envelope[1])}
    found: dict[str, Any] = {"apiVersion": kind.get(1, ""), "kind": kind.get(2, ""), "metadata": {}}
    if found["kind"] != "Secret":
        return found
    for number, value in _fields(envelope[2]):
        if number == 1:
            found["metadata"] = _metadata(value)
        elif number == 2:
            name, content = _pair(value)
            found.setdefault("data", {})[name] = base64.b64encode(content).decode()
        elif number == 3:
            found["type"] = value.decode()
    return found


def _metadata(body: bytes) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for number, value in _fields(body):
        if number in _TEXTS and value:
            found[_TEXTS[number]] = value.decode()
        elif number in _MAPS:
            name, content = _pair(value)
            found.setdefault(_MAPS[number], {})[name] = content.decode()
    return found


def _pair(body: bytes) -> tuple[str, bytes]:
    found = dict(_fields(body))
    return found.get(1, b"").decode(), found.get(2, b"")


def _fields(body: bytes) -> Iterator[tuple[int, bytes]]:
    """Number and content of each field that has a length; numbers are passed over."""
    at = 0
    while at < len(body):
        key, at = _number(body, at)
        length, after = _number(body, at)
        if key & 7 == 0:
            at = after
            continue
        if key & 7 != 2:
            raise ValueError(f"a field of type {key & 7}")
        yield key >> 3, body[after : after + length]
        at = after + length


def _number(body: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (body[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if body[at - 1] < 128:
            return value, at
