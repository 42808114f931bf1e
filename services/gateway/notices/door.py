"""The door, with what the handlers of webhooks need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from tenuto.schemas.envelope import Event
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.notices.adapters.deliveries import Deliveries
from tenuto.services.gateway.notices.adapters.targets.opening import Vault
from tenuto.services.gateway.notices.queries import DeliveryRecord
from tenuto.services.gateway.notices.state import NoticesState


@dataclass(kw_only=True)
class NoticesDoor(BaseDoor):
    vault: Vault
    """Store of the webhooks' targets."""
    deliveries: Deliveries
    delivery_record: DeliveryRecord
    sees: Callable[[Event], Awaitable[bool]]
    """True if the user of the request may see the event."""

    @property
    def state(self) -> NoticesState:
        state: NoticesState = self.loop.state
        return state


Door = Annotated[NoticesDoor, Depends(door_of(NoticesDoor))]
"""A handler's parameter of this type is given the door of its subject."""
