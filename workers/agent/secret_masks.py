"""Secrets of a run: kept in the agent's own directory while the run lives, and masked in its output before that is spooled."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Collection, Mapping
from pathlib import Path

from tenuto.kernel.private_files import make_private_directory

logger = logging.getLogger(__name__)

LINE_CHARACTERS_MIN = 6
"""Shortest line of a secret that is masked: a secret of several lines is printed line by line, and a shorter line gives
nothing away but would mask ordinary words."""
UNREADABLE = "[not shown: the secrets of this run cannot be read]"
FOLDER = "secrets"


class Mask:
    """Replaces secrets by marks. `known`: mark of each secret."""

    def __init__(self, known: Mapping[str, str]) -> None:
        self._known = {piece: known[piece] for piece in sorted(known, key=lambda piece: (-len(piece), piece))}

    def __call__(self, text: str) -> str:
        for piece, mark in self._known.items():
            text = text.replace(piece, mark)
        return text

    def torn(self, text: str, *, at_end: bool) -> str:
        """Masks a text that was put together from parts of longer ones: also the rest of a secret at the beginning of a line,
        and (`at_end`) the beginning of a secret at the end of the text. The first line is complete at its beginning."""
        first, *rest = self(text).split("\n")
        text = "\n".join([first, *map(self._without_suffix, rest)])
        for piece, mark in self._known.items() if at_end and len(text) >= LINE_CHARACTERS_MIN else ():
            found = piece.rfind(text[-LINE_CHARACTERS_MIN:])
            while found >= 0:
                if text.endswith(left := piece[: found + LINE_CHARACTERS_MIN]):
                    return text.removesuffix(left) + mark
                found = piece.rfind(text[-LINE_CHARACTERS_MIN:], 0, found + LINE_CHARACTERS_MIN - 1)
        return text

    def _without_suffix(self, line: str) -> str:
        for piece, mark in self._known.items() if len(line) >= LINE_CHARACTERS_MIN else ():
            found = piece.find(line[:LINE_CHARACTERS_MIN])
            while found >= 0:
                if line.startswith(left := piece[found:]):
                    return mark + line.removeprefix(left)
                found = piece.find(line[:LINE_CHARACTERS_MIN], found + 1)
        return line

    def cut(self, data: bytes) -> int:
        """Number of bytes of `data`, which continues, that can be masked on their own: no secret lies across the cut."""
        pieces = [piece.encode() for piece in self._known]
        end = len(data) - max((len(piece) for piece in pieces), default=1) + 1
        if end <= 0:
            return len(data)
        crossed = True
        while crossed:
            crossed = False
            for piece in pieces:
                start = data.find(piece, max(0, end - len(piece) + 1), end + len(piece) - 1)
                if start >= 0:
                    end, crossed = start + len(piece), True
        return end


class _MaskAll(Mask):
    def __call__(self, text: str) -> str:
        return UNREADABLE

    def torn(self, text: str, *, at_end: bool) -> str:
        return UNREADABLE if text else ""


NO_MASK = Mask({})


def mask_of(values: Mapping[str, str]) -> Mask:
    """Mask that puts `[secret NAME]` in place of the value of each variable, whole or a line of it."""
    known: dict[str, str] = {}
    for name, value in values.items():
        for piece in (value, *value.splitlines()):
            if len(piece.strip()) >= LINE_CHARACTERS_MIN:
                known[piece.strip()] = f"[secret {name}]"
    return Mask(known)


def store(directory: Path, allocation_id: str, values: Mapping[str, str]) -> None:
    """Stores the secrets of a run, so that an agent that is restarted on `directory` while the run goes on can mask them.
    Raises OSError."""
    path = _path(directory, allocation_id)
    make_private_directory(path.parent)
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w") as file:
        json.dump(dict(values), file)


def stored_mask(directory: Path, allocation_id: str) -> Mask:
    """Mask of a run. It masks nothing if the run did not start, and everything if the stored secrets cannot be read, as after
    a power failure."""
    try:
        values = json.loads(_path(directory, allocation_id).read_text())
    except FileNotFoundError:
        return NO_MASK
    except (OSError, ValueError) as error:
        logger.error("the output of %s is not shown, because its secrets cannot be read: %s", allocation_id, error)
        return _MaskAll({})
    return mask_of(values)


def remove(directory: Path, allocation_id: str) -> None:
    _path(directory, allocation_id).unlink(missing_ok=True)


def sweep(directory: Path, live: Collection[str]) -> None:
    """Removes stored secrets of runs that no agent carries on, such as after a loss of the database."""
    for path in (directory / FOLDER).glob("*.json"):
        if path.stem not in live:
            path.unlink(missing_ok=True)


def _path(directory: Path, allocation_id: str) -> Path:
    """File of the secrets; not in the run's own directory, which its workers' account can write."""
    return directory / FOLDER / f"{allocation_id}.json"
