"""Notes of a conversion on fields, each one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from tenuto.schemas.config.errors import show


class Kind(StrEnum):
    CHANGED = "changed"
    """The field means the same, written otherwise."""
    LEFT_OUT = "left out"
    """The field cannot be carried over; the experiment runs without it."""
    REFUSED = "refused"
    """The experiment would be another one without the field: nothing is converted."""


@dataclass(frozen=True)
class Note:
    path: str
    kind: Kind
    sentence: str
    """Result of the field's conversion, or the reason why it is not carried over and what to do."""
    value: str = ""
    """The value as JSON, shortened; empty if it adds nothing."""

    def __str__(self) -> str:
        found = f" (found {self.value})" if self.value else ""
        return f"{self.path}: {self.kind}: {self.sentence}{found}"


@dataclass
class Notes:
    """Notes of one conversion, in the order of the fields."""

    found: list[Note] = field(default_factory=list)

    def changed(self, path: str, sentence: str) -> None:
        self.found.append(Note(path, Kind.CHANGED, sentence))

    def left_out(self, path: str, sentence: str, value: Any = None) -> None:
        shown = "" if value is None or isinstance(value, dict | list) else show(value)  # a section may hold a password
        self.found.append(Note(path, Kind.LEFT_OUT, sentence, shown))

    def refused(self, path: str, sentence: str, value: Any = None) -> None:
        self.found.append(Note(path, Kind.REFUSED, sentence, "" if value is None else show(value)))

    @property
    def refuses(self) -> bool:
        return any(note.kind is Kind.REFUSED for note in self.found)


def mapping(document: Mapping[str, Any], path: str, notes: Notes) -> dict[str, Any]:
    """The section of this name; empty if it is absent or null. Anything else is refused."""
    value = document.get(path.rpartition(".")[2])
    if value is None:
        return {}
    if not isinstance(value, dict):
        notes.refused(path, "must be a mapping of fields", value)
        return {}
    return value
