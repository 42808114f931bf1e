"""Secrets of a run: kept in the agent's own directory while it lives, and hidden in what it prints before that is spooled."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from tenuto.workers.agent.processes import RunFiles

LINE_CHARACTERS_MIN = 6
"""A secret of several lines is printed line by line; a shorter line of it says nothing and would hide words."""
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


def keep(files: RunFiles, values: Mapping[str, str]) -> None:
    """An agent that is started again while the run goes on must still know what to hide. Raises OSError."""
    _path(files).parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    _path(files).unlink(missing_ok=True)
    descriptor = os.open(_path(files), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(values), file)


def kept(files: RunFiles) -> dict[str, str]:
    """Empty where the run did not start, so that there is nothing to hide."""
    try:
        found: dict[str, str] = json.loads(_path(files).read_text())
    except FileNotFoundError:
        return {}
    return found


def forget(files: RunFiles) -> None:
    _path(files).unlink(missing_ok=True)


def _path(files: RunFiles) -> Path:
    """Not in the run's own directory, which its workers' account can write."""
    return files.directory.parent.parent / "secrets" / f"{files.directory.name}.json"
