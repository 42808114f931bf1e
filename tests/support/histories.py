"""Recorded histories: whole logs of real clusters, one file each. Every later version must read them, and decide as they say."""

from __future__ import annotations

import lzma
from collections.abc import Iterable
from pathlib import Path

from tenuto.schemas.envelope import Event, decode_event, encode_event

DIRECTORY = Path(__file__).parents[1] / "golden" / "histories"
SUFFIX = ".jsonl.xz"


def names() -> list[str]:
    return sorted(path.name.removesuffix(SUFFIX) for path in DIRECTORY.glob(f"*{SUFFIX}"))


def read(name: str) -> list[Event]:
    """Events of this history in the order of the log, unchanged to the byte."""
    with lzma.open(DIRECTORY / f"{name}{SUFFIX}") as file:
        return [decode_event(line.rstrip(b"\n")) for line in file]


def write(name: str, events: Iterable[Event]) -> Path:
    DIRECTORY.mkdir(exist_ok=True)
    path = DIRECTORY / f"{name}{SUFFIX}"
    with lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME) as file:
        file.writelines(encode_event(event) + b"\n" for event in events)
    return path
