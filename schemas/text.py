"""Limits of text and numbers from outside, so that they can be stored and shown: no NUL, no half of a surrogate pair, 64-bit
integers, and no control characters in names."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

INTEGER_MIN, INTEGER_MAX = -(2**63), 2**63 - 1
"""Range of integers that the database, other languages' clients and tensors can hold."""
DEPTH_MAX = 64
"""Most levels of lists and mappings in one document: people write a handful, and deeper ones exhaust a reader's stack."""
VALUES_MAX = 100_000
"""Most values in one document."""
NAMES_CHARACTERS_MAX = 1_000
"""Most characters of the names from the top of a document down to one value, together. A program that writes out the paths of
all values needs that length for each; VALUES_MAX of them stay below a hundred megabytes."""
NAME_SHOWN_MAX = 200
"""Most characters of one name in a path that is shown; the rest is cut."""
_DIRECTIONS = "\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
"""Characters that change the direction of writing: with them a name can look like another one."""
_KEPT = "\n\t"


def unstorable(text: str) -> str:
    """Reason why the text cannot be stored; empty if it can."""
    if "\0" in text:
        return "must not contain the character NUL, which no database stores as text"
    if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
        return "must not contain half of a surrogate pair, which is no character"
    return ""


def storable(text: str) -> str:
    """The text with U+FFFD (replacement character) in place of every character that cannot be stored."""
    return _UNSTORABLE.sub("\ufffd", text) if unstorable(text) else text


def storable_json(body: bytes) -> bytes:
    """A JSON document whose texts and names can be stored: the same bytes if they can already, as nearly always. Bytes that
    are not JSON are returned unchanged, so that their reader can report the error."""
    if not _ESCAPED_UNSTORABLE.search(body):
        return body
    try:
        return json.dumps(storable_document(json.loads(body))).encode()
    except (ValueError, RecursionError):
        return body


def storable_document(value: Any) -> Any:
    """Plain data with texts and names that can be stored, as in `storable_json`. Raises RecursionError."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, dict):
        return {storable(name): storable_document(item) for name, item in value.items()}
    return [storable_document(item) for item in value] if isinstance(value, (list, tuple)) else value


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_ESCAPED_UNSTORABLE = re.compile(rb"\\u(?:0000|[dD][89a-fA-F])")
"""Escapes of characters that cannot be stored, as JSON writes them. Without an escape, a NUL or half of a surrogate pair makes
the document invalid JSON."""


def unprintable(name: str) -> str:
    """Reason why the name cannot be shown as one piece of a line; empty if it can."""
    for character in name:
        if is_control(character):
            return f"must not contain control characters (found {visible(character)})"
    return ""


def is_control(character: str) -> bool:
    return character in _DIRECTIONS or unicodedata.category(character) in ("Cc", "Zl", "Zp", "Cs")


def visible(text: str, kept: str = "") -> str:
    """The text with its control characters as escapes (`\\x1b`), so that a terminal shows them and does not obey them. `kept`:
    control characters that are not escaped."""
    if text.isascii() and text.isprintable():
        return text
    shown = (character if character in kept or not is_control(character) else _escaped(character) for character in text)
    return "".join(shown)


def visible_lines(text: str) -> str:
    """Like `visible`, but keeps line breaks and tabs."""
    return visible(text, _KEPT)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


class ValuePath(NamedTuple):
    """Position of a value in a document, as a linked list of names. A path is written out only for the value that is refused:
    written for each value it would repeat all names above it, so a few kilobytes with one long name would fill the memory."""

    above: ValuePath | None
    name: str | int
    """Key in a mapping, or index in a list."""


def path_of(place: ValuePath | None) -> str:
    """Path such as `hyperparameters.layers[2]`; empty for the document itself. Long names are cut."""
    names: list[str | int] = []
    while place is not None:
        names.append(place.name)
        place = place.above
    path = ""
    for name in reversed(names):
        if isinstance(name, int):
            path += f"[{name}]"
        else:
            shown = visible(name[:NAME_SHOWN_MAX]) + ("..." if len(name) > NAME_SHOWN_MAX else "")
            path += f".{shown}" if path else shown
    return path


def unacceptable(document: Any, *, integers: bool = True) -> tuple[str, str] | None:
    """Path of the first value in a parsed document (lists, mappings, texts, numbers) that cannot be stored, and the reason;
    None if all can. `integers`: check their range, too. It never descends below DEPTH_MAX, so it needs no stack of its own."""
    waiting: list[tuple[ValuePath | None, Any, int, int]] = [(None, document, 0, 0)]
    seen = 0
    while waiting:
        place, value, depth, characters = waiting.pop()
        seen += 1
        if isinstance(value, str):
            if why := unstorable(value):
                return path_of(place), why
        elif isinstance(value, int):
            if integers and not INTEGER_MIN <= value <= INTEGER_MAX:
                return path_of(place), "must be an integer of 64 bits: from -2^63 to 2^63 - 1"
        elif isinstance(value, (Mapping, list, tuple)):
            if depth == DEPTH_MAX:
                return path_of(place), f"is nested more than {DEPTH_MAX} levels deep"
            if seen + len(waiting) + len(value) > VALUES_MAX:
                return path_of(place), f"brings the document to more than the {VALUES_MAX} values that it may have"
            if isinstance(value, Mapping):
                if why := _unacceptable_name(value, characters):
                    return path_of(place), f"a name in it {why}"
                items = [
                    (ValuePath(place, str(name)), item, depth + 1, characters + len(str(name))) for name, item in value.items()
                ]
            else:
                items = [(ValuePath(place, index), item, depth + 1, characters) for index, item in enumerate(value)]
            waiting.extend(reversed(items))
    return None


def _unacceptable_name(names: Iterable[Any], characters: int) -> str:
    """Reason why one of these names cannot be stored; empty if all can. `characters`: total length of the names above them."""
    for name in names:
        if isinstance(name, str) and (why := unstorable(name)):
            return why
        if characters + len(str(name)) > NAMES_CHARACTERS_MAX:
            return f"is too long: the names down to one value may have {NAMES_CHARACTERS_MAX} characters together"
    return ""
