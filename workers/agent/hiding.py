"""Secrets of a run: kept in the agent's own directory while it lives, and hidden in what it prints before that is spooled."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

logger = logging.getLogger(__name__)

LINE_CHARACTERS_MIN = 6
"""A secret of several lines is printed line by line; a shorter line of it says nothing and would hide words."""
UNREADABLE = "[not shown: the secrets of this run cannot be read]"
FOLDER = "secrets"
Hide = Callable[[str], str]


def nothing(text: str) -> str:
    return text


def hiding(values: Mapping[str, str]) -> Hide:
    """Puts `[secret NAME]` in place of the value of each variable, whole or a line of it."""
    known: dict[str, str] = {}
    for name, value in values.items():
        for piece in (value, *value.splitlines()):
            if len(piece.strip()) >= LINE_CHARACTERS_MIN:
                known[piece.strip()] = f"[secret {name}]"
    longest_first = sorted(known, key=lambda piece: (-len(piece), piece))

    def hide(text: str) -> str:
        for piece in longest_first:
            text = text.replace(piece, known[piece])
        return text

    return hide if longest_first else nothing


def keep(directory: Path, allocation_id: str, values: Mapping[str, str]) -> None:
    """An agent that is started again on `directory` while the run goes on must still know what to hide. Raises OSError."""
    path = _path(directory, allocation_id)
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(values), file)


def kept_hiding(directory: Path, allocation_id: str) -> Hide:
    """Hides nothing where the run did not start, and everything where what it was started with cannot be read, as after a power
    failure."""
    try:
        values = json.loads(_path(directory, allocation_id).read_text())
    except FileNotFoundError:
        return nothing
    except (OSError, ValueError) as error:
        logger.error("what %s prints is not shown, as its secrets cannot be read: %s", allocation_id, error)
        return lambda text: UNREADABLE
    return hiding(values)


def forget(directory: Path, allocation_id: str) -> None:
    _path(directory, allocation_id).unlink(missing_ok=True)


def sweep(directory: Path, live: Collection[str]) -> None:
    """Removes what earlier agents on `directory` kept of runs that nobody carries on, as after their database was lost."""
    for path in (directory / FOLDER).glob("*.json"):
        if path.stem not in live:
            path.unlink(missing_ok=True)


def _path(directory: Path, allocation_id: str) -> Path:
    """Not in the run's own directory, which its workers' account can write."""
    return directory / FOLDER / f"{allocation_id}.json"
