"""The door, with the parts that the handlers of the log need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends
from nats.aio.client import Client

from tenuto.services.gateway.automations.bodies import AutomationTroubleView
from tenuto.services.gateway.experiments.state import ExperimentsState
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.log.adapters.anchoring import Anchors
from tenuto.services.gateway.log.adapters.upkeep import Upkeep
from tenuto.services.gateway.log.handling.seen_events import SeenEvents
from tenuto.services.gateway.log.handling.tail import Tail
from tenuto.services.gateway.log.queries.log import LogQueries
from tenuto.services.gateway.notices.bodies import WebhookTroubleView


@dataclass(kw_only=True)
class LogDoor(BaseDoor):
    views: LogQueries
    tail: Tail
    anchors: Anchors
    upkeep: Upkeep
    seen_events: SeenEvents
    webhook_troubles: Callable[[], tuple[WebhookTroubleView, ...]]
    """Webhooks with troubles that need attention, of those that the user sees; and so for automations."""
    automation_troubles: Callable[[], Awaitable[tuple[AutomationTroubleView, ...]]]
    bus: Client | None
    """Client of the bus; None in tests without one."""

    @property
    def state(self) -> ExperimentsState:
        state: ExperimentsState = self.loop.state
        return state


Door = Annotated[LogDoor, Depends(door_of(LogDoor))]
"""A handler's parameter of this type is given the door of its subject."""
