"""Answers to commands that are only recorded."""

from __future__ import annotations

from fastapi import Response

from tenuto.kernel.core import Command
from tenuto.services.gateway.http.bodies import Recorded, RightsChanged
from tenuto.services.gateway.http.context import Door, answer


async def record(door: Door, command: Command) -> Response:
    """Carries out a command that always records an event. Raises Refused."""
    events = await door.carry_out(command)
    return answer(Recorded(position=events[-1].position))


async def record_change(door: Door, command: Command, status: int = 200) -> Response:
    """Carries out a command that may change nothing. Raises Refused."""
    return answer(RightsChanged(changed=bool(await door.carry_out(command))), status)
