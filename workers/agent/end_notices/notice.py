"""Notice of a provider that a machine ends, and the protocol of classes that ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tenuto.schemas.events.agent import Leaving


@dataclass(frozen=True)
class Notice:
    """One that was read."""

    step: Leaving
    """Step that it means at once. Empty: the end is known, and the steps follow when it comes near."""
    ends_at_us: int | None
    """None: the provider names no time."""
    words: str
    """The provider's own terms, for the log."""


class Look(Protocol):
    """Something that is asked for again and again."""

    pause_seconds: float
    """Pause between an answer and the next question."""

    async def ask(self) -> Notice | None:
        """The notice that there is now. Raises NoAnswer."""
        ...
