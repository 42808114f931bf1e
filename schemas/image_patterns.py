"""Patterns of names of container images, in which `*` stands for any text. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

IMAGES_SHOWN = 5
"""Most patterns in a sentence."""
ImagePattern = Annotated[str, Field(pattern=r"^[A-Za-z0-9._:/@*\[\]-]{1,512}$")]


def fits(pattern: str, image: str) -> bool:
    """True if the pattern matches the whole name. Takes time in proportion to their lengths, however many stars there are."""
    first, *parts = pattern.split("*")
    if not parts:
        return image == pattern
    last = parts.pop()
    if not (image.startswith(first) and image.endswith(last) and len(first) + len(last) <= len(image)):
        return False
    at, end = len(first), len(image) - len(last)
    for part in parts:
        found = image.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True


def fits_any(patterns: Iterable[str], image: str) -> bool:
    return any(fits(pattern, image) for pattern in patterns)


def shown(patterns: Iterable[str]) -> str:
    """The first few patterns, for a sentence."""
    every = list(patterns)
    return ", ".join(every[:IMAGES_SHOWN]) + (", ..." if len(every) > IMAGES_SHOWN else "")
