"""Notice of a provider that a machine ends, and the protocol of classes that ask for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tenuto.schemas.events.agent import Leaving


@dataclass(frozen=True)
class EndNotice:
    """A notice that was read."""

    step: Leaving
    """Step to take at once. Empty: the end is known, and the steps follow when it comes near."""
    ends_at_us: int | None
    """Time of the end; None if the provider names none."""
    words: str
    """The provider's own terms, for the log."""


class Look(Protocol):
    """One kind of notice, asked for repeatedly."""

    pause_seconds: float
    """Pause between an answer and the next question."""

    async def ask(self) -> EndNotice | None:
        """Present notice; None if there is none. Raises NoAnswer."""
        ...
