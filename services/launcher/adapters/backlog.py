"""Backlogs of agents whose reports wait for the record, as they say in their heartbeats and as the bus holds them. Only shown:
nothing is decided by it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.js.errors import Error as JetStreamError

from tenuto.kernel.backoff import Seldom
from tenuto.kernel.clock import Clock
from tenuto.schemas import subjects
from tenuto.schemas.bus import Backlog, LaneBacklog
from tenuto.schemas.subjects import LANES, Lane

logger = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Time between two looks at the bus for the log."""
BACKLOG_REPORTS_MAX = 5_000
"""More reports of one agent and lane than this are worth a warning: a second of what can be received at full speed."""
SILENCE_SECONDS_MAX = 60.0
"""Age from which an agent's last figures are no longer shown."""
LANES_SHOWN_MAX = 1_000
COUNT_SECONDS_MAX = 2.0


class Backlogs:
    def __init__(self, bus: Client, clock: Clock) -> None:
        self._bus, self._clock = bus, clock
        self._heard: dict[str, tuple[float, Mapping[str, int]]] = {}
        self._warnings: dict[tuple[str, Lane], Seldom] = {}
        self.stream_bytes: tuple[int, int] | None = None
        """Size of the stream of reports at the last look, and its limit; None: it could not be asked."""

    def hear(self, agent_id: str, backlog: Mapping[str, int]) -> None:
        """Notes the backlog that an agent's heartbeat reports."""
        self._heard[agent_id] = self._clock.monotonic(), backlog

    async def run(self) -> None:
        """Answers questions, and warns of backlogs that grow, until cancelled."""
        answering = await self._bus.subscribe(subjects.BACKLOG, cb=self._answer)
        try:
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                self.warn((await self.look()).lanes)
        finally:
            with contextlib.suppress(NatsError):
                await answering.unsubscribe()

    async def look(self) -> Backlog:
        on_bus = await self._count()
        now = self._clock.monotonic()
        self._heard = {name: item for name, item in self._heard.items() if now - item[0] <= SILENCE_SECONDS_MAX}
        waiting = {(lane, name): count for name, (_, backlog) in self._heard.items() for lane, count in backlog.items()}
        lanes = [
            LaneBacklog(agent_id=name, lane=lane, waiting=waiting.get((lane, name), 0), on_bus=on_bus.get((lane, name), 0))
            for lane in LANES
            for name in sorted({name for known, name in (*waiting, *on_bus) if known == lane})
        ]
        lanes.sort(key=_length, reverse=True)
        return Backlog(lanes=tuple(lanes[:LANES_SHOWN_MAX]))

    async def _count(self) -> dict[tuple[str, str], int]:
        """Messages in the bus by lane and agent; none while it cannot be asked."""
        js = self._bus.jetstream(timeout=COUNT_SECONDS_MAX)
        try:
            info = await js.stream_info(subjects.INGRESS_STREAM, subjects_filter=subjects.INGRESS_SUBJECTS)
        except (NatsError, JetStreamError, OSError):
            self.stream_bytes = None
            return {}
        self.stream_bytes = info.state.bytes, info.config.max_bytes or 0
        return {subjects.lane_and_agent(subject): count for subject, count in (info.state.subjects or {}).items()}

    def warn(self, lanes: Sequence[LaneBacklog]) -> None:
        """Once when a backlog is long, seldom while it stays so, and once when it is over."""
        long = {(item.agent_id, item.lane): item for item in lanes if _length(item) > BACKLOG_REPORTS_MAX}
        for key, item in long.items():
            self._warnings.setdefault(key, Seldom(logger)).warn(
                f"more than {BACKLOG_REPORTS_MAX} reports of agent {item.agent_id}, lane {item.lane}, wait for the record; "
                "`tenuto status` shows how many"
            )
        for key in [key for key in self._warnings if key not in long]:
            self._warnings.pop(key).over(f"the reports of agent {key[0]}, lane {key[1]}, are in the record again")

    async def _answer(self, message: Msg) -> None:
        with contextlib.suppress(NatsError):
            await message.respond((await self.look()).to_json())


def _length(item: LaneBacklog) -> int:
    return max(item.waiting, item.on_bus)
