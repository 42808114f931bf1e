"""What text and numbers from outside must hold to be stored and shown: no NUL, no half of a surrogate pair, 64-bit integers, and
in names no control characters."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from typing import Any

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""What the database, other languages' clients and tensors can hold."""
DEPTH_MAX = 64
"""Levels of lists and mappings in one document: people write a handful, and deeper ones exhaust a reader's stack."""
VALUES_MAX = 100_000
"""Values in one document."""
_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Marks that turn the direction of writing: they make a name look like another one."""
_KEPT = "\n\t"


def unstorable(text: str) -> str:
    """Why the text cannot be stored; empty if it can."""
    if "\0" in text:
        return "must not contain the character NUL, which no database stores as text"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "must not contain half of a surrogate pair, which is no character"
    return ""


def storable(text: str) -> str:
    """The text with U+FFFD, which stands for what is no text, in place of what cannot be stored."""
    return _UNSTORABLE.sub("\ufffd", text) if unstorable(text) else text


def storable_json(body: bytes) -> bytes:
    """A JSON document whose texts and names can be stored: the very bytes where they can, as nearly always. What is no JSON stays
    as it is, for whoever reads it to say so."""
    if not _ESCAPED_UNSTORABLE.search(body):
        return body
    try:
        return json.dumps(storable_document(json.loads(body))).encode()
    except (ValueError, RecursionError):
        return body


def storable_document(value: Any) -> Any:
    """The same for plain data. Raises RecursionError."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(name): storable_document(item) for name, item in value.items()}
    return [storable_document(item) for item in value] if isinstance(value, (list, tuple)) else value


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
"""As JSON writes them; a NUL or half of a surrogate pair that is not escaped makes it no JSON."""


def unprintable(name: str) -> str:
    """Why the name cannot be shown as one piece of a line; empty if it can."""
    for character in name:
        if is_control(character):
            return f"must not contain control characters (found {visible(character)})"
    return ""


def is_control(character: str) -> bool:
    return character in _DIRECTIONS or unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs")


def visible(text: str, kept: str = "") -> str:
    """The text with its control characters as escapes (`\\x1b`), so that showing it changes nothing on a terminal. `kept`: those
    that stay as they are."""
    if text.isascii() and text.isprintable():
        return text
    shown = (character if character in kept or not is_control(character) else _escaped(character) for character in text)
    return "".join(shown)


def visible_lines(text: str) -> str:
    """As `visible`, of text that may have several lines and tabs."""
    return visible(text, _KEPT)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def unacceptable(document: Any, *, integers: bool = True) -> tuple[str, str] | None:
    """The path of the first value of a parsed document (lists, mappings, texts, numbers) that cannot be stored, and why; None
    where all can. `integers`: these, too. Never deeper than DEPTH_MAX, so that it needs no stack of its own."""
    waiting: list[tuple[str, Any, int]] = [("", document, 0)]
    seen = 0
    while waiting:
        path, value, depth = waiting.pop()
        seen += 1
        if seen > VALUES_MAX:
            return path, f"is the one value more than the {VALUES_MAX} that a document may have"
        if isinstance(value, str):
            if why := unstorable(value):
                return path, why
        elif isinstance(value, int):
            if integers and not INTEGER_MIN <= value <= INTEGER_MAX:
                return path, "must be an integer of 64 bits: from -2^63 to 2^63 - 1"
        elif isinstance(value, (Mapping, list, tuple)):
            if depth == DEPTH_MAX:
                return path, f"is nested more than {DEPTH_MAX} levels deep"
            if isinstance(value, Mapping):
                for name in value:
                    if isinstance(name, str) and (why := unstorable(name)):
                        return path, f"a name in it {why}"
                items = [(f"{path}.{visible(str(name))}" if path else visible(str(name)), item) for name, item in value.items()]
            else:
                items = [(f"{path}[{index}]", item) for index, item in enumerate(value)]
            waiting.extend((where, item, depth + 1) for where, item in reversed(items))
    return None
