"""Messages between agent and gateway about contexts: an agent without a shared directory asks for them in pieces."""

from __future__ import annotations

from pydantic import Field

from tenuto.schemas.base import Model

PIECE_BYTES = 512 * 1024
"""Size of a piece. Heartbeats use the same connection, and wait for no more than one."""
HEADER_SIZE = "Tenuto-Size"
"""Header of an answer: bytes of the whole archive. The body is the piece."""
HEADER_REFUSED = "Tenuto-Refused"
"""Header of an answer without a piece: the reason, one sentence."""


class ContextRequest(Model):
    """Request of an agent for a piece of the archive that an allocation of its own runs."""

    allocation_id: str = Field(pattern=r"^[1-9][0-9]{0,17}-[0-9]{1,9}-[0-9]{1,9}$")
    token: str = Field(max_length=128, repr=False)
    """Token of the allocation, which the launcher sent with the assignment: it shows that the allocation is this agent's."""
    offset: int = Field(ge=0, le=2**62)
    """Position in the archive at which the piece begins, in bytes."""
