"""What the relay answers about the bus."""

from __future__ import annotations

from tenuto.schemas.base import Model


class BusState(Model):
    """Whether NATS can be reached and stores what it is sent."""

    ok: bool
    message: str = ""
    """What is wrong, and what follows from it."""
