"""The door, with the parts that the handlers of people need."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends

from tenuto.kernel.secrets import Secrets
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.http.guess_limits import Throttle
from tenuto.services.gateway.people.adapters.page_links import PageLinks
from tenuto.services.gateway.people.adapters.passwords import Passwords
from tenuto.services.gateway.people.adapters.sso_visits import Sso
from tenuto.services.gateway.read_models.places import OwnershipQueries


@dataclass(kw_only=True)
class PeopleDoor(BaseDoor):
    views: OwnershipQueries
    secrets: Secrets
    passwords: Passwords
    sso: Sso | None
    """Sign-in at the provider of identities; None: there is no provider."""
    forget_user: Callable[[str], Awaitable[None]]
    """Removes what an earlier user of the name made, so that a new one does not get it."""
    page_links: PageLinks = field(default_factory=PageLinks)
    throttle: Throttle = field(default_factory=Throttle)
    """Throttle of guesses at passwords."""
    secrets_change: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Lock for setting secrets and for forgetting those of an earlier user, so that the two do not mix."""


Door = Annotated[PeopleDoor, Depends(door_of(PeopleDoor))]
"""A handler's parameter of this type is given the door of its subject."""
