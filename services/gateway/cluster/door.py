"""The door, with what the handlers of the cluster need."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends

from tenuto.services.gateway.cluster.adapters.bus_keeper import BusKeeper
from tenuto.services.gateway.cluster.adapters.past_queue import Earlier
from tenuto.services.gateway.cluster.adapters.what_ifs import WhatIfQuestions
from tenuto.services.gateway.cluster.queries import ClusterQueries
from tenuto.services.gateway.cluster.state import ClusterState
from tenuto.services.gateway.http.context import Door as BaseDoor
from tenuto.services.gateway.http.context import door_of
from tenuto.services.gateway.http.guess_limits import Throttle
from tenuto.services.gateway.http.rate_limits import StandingPace


@dataclass(kw_only=True)
class ClusterDoor(BaseDoor):
    views: ClusterQueries
    fingerprint: str
    """SHA-256 of the door's own certificate, if that is self-made. Empty: it is not, or the door speaks HTTP."""
    nats_ca: str
    """Certificate (PEM) by which agents verify that of the bus. Empty: the machine's authorities, or no TLS."""
    keeper: BusKeeper | None
    """None: agents join only by credentials from the operator."""
    join_throttle: Throttle = field(default_factory=Throttle)
    """Limit on guesses at join tokens."""
    standing_pace: StandingPace = field(default_factory=StandingPace)
    earlier: Earlier = field(default_factory=Earlier)
    what_ifs: WhatIfQuestions = field(default_factory=WhatIfQuestions)

    @property
    def state(self) -> ClusterState:
        state: ClusterState = self.loop.state
        return state


Door = Annotated[ClusterDoor, Depends(door_of(ClusterDoor))]
"""A handler's parameter of this type is given the door of its subject."""
