"""What the provider of a machine says of its end, and who asks for it."""

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
    """For the log: the provider's own terms."""


class Look(Protocol):
    """Something that is asked for again and again."""

    pause_seconds: float
    """Between an answer and the next question."""

    async def ask(self) -> Notice | None:
        """The notice that there is now. Raises NoAnswer."""
        ...
