"""Prints for people and for programs: what came from others never reaches the terminal as a command to it."""

from __future__ import annotations

import json
from typing import IO, Any

from tenuto.schemas.text import is_control, visible_lines

as_json_lines = False
"""True: sentences on standard output are printed as JSON lines, for `--json` of a command that prints no value of its own."""


def say(*parts: object, end: str = "\n", file: IO[str] | None = None, flush: bool = False) -> None:
    """Prints like `print`, with control characters as escapes such as `\\x1b`; line breaks and tabs stay."""
    if as_json_lines and file is None:
        print(json_text({"message": " ".join(map(str, parts))}), flush=flush)
        return
    print(visible_lines(" ".join(map(str, parts))), end=end, file=file, flush=flush)


def json_text(value: Any, indent: int | None = None) -> str:
    return safe_json(json.dumps(value, indent=indent, ensure_ascii=False))


def safe_json(text: str) -> str:
    """JSON of the same meaning, in which control characters that JSON itself lets through are written as `\\u009b`."""
    if text.isascii() and "\x7f" not in text:
        return text
    return "".join(f"\\u{ord(character):04x}" if character != "\n" and is_control(character) else character for character in text)
