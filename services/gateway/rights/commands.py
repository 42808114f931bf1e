"""Bases of commands. The decisions on a command are recorded; the command itself is not."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, kw_only=True)
class GatewayCommand:
    """Command of the gateway itself, or of another service."""

    id: UUID
    time_us: int


@dataclass(frozen=True, kw_only=True)
class UserCommand(GatewayCommand):
    user: str

    @property
    def actor(self) -> str:
        """Recorded actor of the events."""
        return f"user:{self.user}"
