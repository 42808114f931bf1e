"""Reads the head of the log, and the positions of its readers."""

from __future__ import annotations

import asyncio
from importlib.metadata import version

from tenuto.schemas.bus import Backlog, BusState
from tenuto.services.gateway.cluster.queries import ClusterQueries
from tenuto.services.gateway.log.queries.event_search import EventSearch
from tenuto.services.gateway.log.views import ConsumerView, StatusView
from tenuto.services.gateway.read_models.decision_rows import Hidden

SILENT_SECONDS_MIN = 600.0
"""Silence after which a trial is named in the status: most report every few seconds, and few do anything for ten minutes without
a word."""
SILENT_MAX = 20
"""Most silent trials that are named."""


class LogQueries(EventSearch, ClusterQueries):
    async def status(self, bus: BusState, backlog: Backlog, hidden: Hidden = frozenset()) -> StatusView:
        head, consumers, parked, agents = await asyncio.gather(
            self._rows("SELECT position FROM log_head"),
            self._rows(
                """SELECT consumer AS name, position FROM checkpoints UNION ALL
                   SELECT projection, position FROM projection_cursors UNION ALL
                   SELECT consumer, position FROM effect_positions ORDER BY name"""
            ),
            self._rows("SELECT count(*) AS parked FROM parked"),
            self.agents(),
        )
        silent = await self.silent(SILENT_SECONDS_MIN, SILENT_MAX, hidden)
        position = head[0]["position"]
        slots = [slot for agent in agents if agent.state != "lost" for slot in agent.slots]
        return StatusView(
            bus=bus,
            backlog=backlog.lanes,
            version=version("tenuto"),
            head=position,
            consumers=tuple(ConsumerView(**row, lag=max(0, position - row["position"])) for row in consumers),
            parked=parked[0]["parked"],
            silent_trials=tuple(silent),
            agents=sum(agent.state != "lost" for agent in agents),
            slots=sum(slot.enabled for slot in slots),
            slots_used=sum(slot.allocation_id is not None for slot in slots),
        )
