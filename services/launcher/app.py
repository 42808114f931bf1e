"""The launcher's composition root: the deciding loop, the lane of reports, heartbeats with leases, and assignments.

Assignments are sent when events change them and again in every answer to a heartbeat, which repairs whatever was lost on the
way; so they need no queue of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

import asyncpg
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from tenuto.kernel.clock import Clock
from tenuto.kernel.eventlog import EventLog, LogError
from tenuto.kernel.feed import Feed
from tenuto.kernel.ingress import Ingress
from tenuto.kernel.loop import ServiceLoop
from tenuto.kernel.settings import Settings
from tenuto.kernel.stream_feed import StreamFeed
from tenuto.kernel.tasks import run_together
from tenuto.schemas import subjects
from tenuto.schemas.assignments import Heartbeat, HeartbeatReply
from tenuto.schemas.envelope import Event
from tenuto.services.launcher.assigning import agents_concerned, assignments_of
from tenuto.services.launcher.commands import ExpireLease, RecordHeartbeat
from tenuto.services.launcher.core import LauncherCore
from tenuto.services.launcher.handlers import Receiver
from tenuto.services.launcher.leases import Leases
from tenuto.services.launcher.state import State

logger = logging.getLogger(__name__)

POOL_CONNECTIONS_MAX = 2
"""One for the lane of reports, one to spare."""
QUERY_SECONDS_MAX = 30.0
CONNECT_SECONDS_MAX = 5.0
ASSIGN_SECONDS_MAX = 1.0
"""For an agent's answer; after it the next heartbeat carries the same."""
LEASE_CHECK_SECONDS = 0.5


class Launcher:
    def __init__(
        self, loop: ServiceLoop[State], lane: Ingress, bus: Client, clock: Clock, settings: Settings, pool: asyncpg.Pool
    ) -> None:
        self.loop = loop
        self._lane, self._bus, self._clock, self._settings, self._pool = lane, bus, clock, settings, pool
        self._leases = Leases(clock, settings.lease_seconds_max)
        self._concerned: set[str] = set()
        self._wake = asyncio.Event()
        loop.on_folded(self._folded)

    async def run(self) -> None:
        """Until cancelled."""
        listening = await self._bus.subscribe(subjects.HEARTBEAT, queue="launcher", cb=self._heartbeat)
        try:
            await run_together(loop=self.loop.run(), lane=self._lane.run(), assign=self._assign(), leases=self._watch_leases())
        finally:
            self._pool.terminate()
            with contextlib.suppress(nats.errors.Error):
                await listening.unsubscribe()

    def _folded(self, state: State, events: Sequence[Event]) -> None:
        self._concerned.update(agents_concerned(state, events))
        if self._concerned:
            self._wake.set()

    async def _assign(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            agents, self._concerned = sorted(self._concerned), set()
            await asyncio.gather(*(self._send(agent_id) for agent_id in agents))

    async def _send(self, agent_id: str) -> None:
        assignments = assignments_of(self.loop.state, agent_id, self.loop.position)
        try:
            await self._bus.request(subjects.assign(agent_id), assignments.to_json(), timeout=ASSIGN_SECONDS_MAX)
        except (nats.errors.Error, TimeoutError, OSError) as error:
            logger.info("agent %s did not take its assignments (%s); its next heartbeat carries them", agent_id, error)

    async def _heartbeat(self, message: Msg) -> None:
        lease_seconds = self._settings.lease_seconds_max
        try:
            heartbeat = Heartbeat.from_json(message.data)
        except ValueError as error:
            reply = HeartbeatReply(lease_seconds=lease_seconds, assignments=None, error=f"the heartbeat cannot be read: {error}")
        else:
            self._leases.heard(heartbeat.agent_id)
            reply = await self._answer(heartbeat)
        with contextlib.suppress(nats.errors.Error):
            await message.respond(reply.to_json())

    async def _answer(self, heartbeat: Heartbeat) -> HeartbeatReply:
        lease_seconds = self._settings.lease_seconds_max
        if not self.loop.available:
            return HeartbeatReply(lease_seconds=lease_seconds, assignments=None)
        await self.loop.wait_ready()
        # A report may overtake the heartbeat, so a missing allocation proves nothing here: the agent reports its exits.
        command = RecordHeartbeat(self._clock.new_id(), self._clock.now_us(), heartbeat, fresh=False)
        try:
            await self.loop.submit(command)
        except LogError:
            return HeartbeatReply(lease_seconds=lease_seconds, assignments=None)
        assignments = assignments_of(self.loop.state, heartbeat.agent_id, self.loop.position)
        return HeartbeatReply(lease_seconds=lease_seconds, assignments=assignments)

    async def _watch_leases(self) -> None:
        await self.loop.wait_ready()
        while True:
            await asyncio.sleep(LEASE_CHECK_SECONDS)
            connected = self._bus.is_connected and self.loop.available
            for agent_id in self._leases.expired(self.loop.state.agents.keys(), connected):
                reason = f"no heartbeat for {self._settings.lease_seconds_max:g} s"
                with contextlib.suppress(LogError):
                    await self.loop.submit(ExpireLease(self._clock.new_id(), self._clock.now_us(), agent_id, reason))


async def build(
    settings: Settings, log: EventLog, bus: Client, clock: Clock, *, feed: Feed | None = None, checks: bool = False
) -> Launcher:
    """`feed` and `checks` are for tests: where the events come from, and whether invariants are asserted after each commit."""
    pool = await asyncpg.create_pool(
        settings.database_url,
        min_size=1,
        max_size=POOL_CONNECTIONS_MAX,
        command_timeout=QUERY_SECONDS_MAX,
        timeout=CONNECT_SECONDS_MAX,
    )
    loop = ServiceLoop(LauncherCore(), log, feed or StreamFeed(log, bus), clock, settings, checks=checks)
    lane = Ingress("launcher", settings, bus, pool, Receiver(loop, log, clock).record)
    return Launcher(loop, lane, bus, clock, settings, pool)
