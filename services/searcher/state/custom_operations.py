"""Operations of a user's own searcher that wait for a free place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypedDict


class AskedNumbers(TypedDict):
    """Fields of `schemas.sentences.search.Asked`."""

    searcher: str
    cause_position: int
    index: int


@dataclass(frozen=True)
class WaitingOperation:
    """An operation of a user's own searcher that waits for a free place."""

    by: str
    """Class that asked for it."""
    position: int
    """Log position of the event on which it was asked for."""
    index: int
    """Place among the operations of that decision."""
    operation: str
    """The operation, as JSON."""
    stopped: bool = False
    """True if the class has stopped a new trial before it could start."""

    @property
    def numbers(self) -> AskedNumbers:
        return {"searcher": self.by, "cause_position": self.position, "index": self.index}
