"""The door, with what the handlers of automations need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from tenuto.services.gateway.automations.adapters.positions import Automations
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of


@dataclass(kw_only=True)
class AutomationsDoor(BaseDoor):
    automations: Automations


Door = Annotated[AutomationsDoor, Depends(door_of(AutomationsDoor))]
"""A handler's parameter of this type is given the door of its subject."""
