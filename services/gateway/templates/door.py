"""The door, with the parts that the handlers of templates need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends

from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.reader.reader import UserFileReader
from tenuto.services.gateway.templates.state import TemplatesState


@dataclass(kw_only=True)
class TemplatesDoor(BaseDoor):
    reader: UserFileReader

    @property
    def state(self) -> TemplatesState:
        state: TemplatesState = self.loop.state
        return state


Door = Annotated[TemplatesDoor, Depends(door_of(TemplatesDoor))]
"""A handler's parameter of this type is given the door of its subject."""
