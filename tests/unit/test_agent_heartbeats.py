"""An agent's heartbeats go on while its disk is slow."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.settings import Settings
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.assignments import Assignments, Heartbeat, HeartbeatReply
from tenuto.workers.agent.app import AgentApp
from tenuto.workers.agent.departure import Departure
from tenuto.workers.agent.spare_heartbeat import SpareHeartbeat

BEATS = 5


class Bus:
    """Answers each heartbeat with assignments."""

    def __init__(self) -> None:
        self.beats = 0
        self.enough = asyncio.Event()

    async def request(self, subject: str, body: bytes, timeout: float) -> Any:
        self.beats += 1
        if self.beats == BEATS:
            self.enough.set()
        return SimpleNamespace(
            data=HeartbeatReply(lease_seconds=1, assignments=Assignments(position=self.beats, assignments=())).to_json()
        )


class SlowManager:
    def __init__(self) -> None:
        self.taken: list[int] = []
        self.disk, self.twice = asyncio.Event(), asyncio.Event()

    async def assign(self, assignments: Assignments) -> str:
        await self.disk.wait()
        self.taken.append(assignments.position)
        if len(self.taken) == 2:
            self.twice.set()
        return ""


async def test_heartbeats_do_not_wait_for_what_they_brought_to_be_written_down() -> None:
    bus, manager = Bus(), SlowManager()
    agent = cast(Any, AgentApp.__new__(AgentApp))
    agent._settings, agent._clock, agent._taking = Settings(heartbeat_seconds=0.01), SystemClock(), None
    agent._node, agent._told = SimpleNamespace(agent_id="a"), asyncio.Event()
    agent.departure = Departure(agent._settings, agent._clock)
    agent._spare_heart = SpareHeartbeat(agent._settings, "a")
    agent._seldom, agent.manager = SimpleNamespace(over=lambda: None, warn=lambda text: None), manager
    agent._heartbeat = lambda: Heartbeat(
        agent_id="a", spool_id="s", pool="default", host="h", version="1", slots=(), allocations=(), launcher_sequence=0
    )

    async def looked_at() -> None:
        await bus.enough.wait()
        assert manager.taken == []
        manager.disk.set()
        await manager.twice.wait()

    beating, looking = asyncio.create_task(agent._heartbeats(bus)), asyncio.create_task(looked_at())
    try:
        done, _ = await asyncio.wait({beating, looking}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
        for task in done:  # heartbeats that end say why, instead of a wait in vain
            task.result()
        assert looking in done
    finally:
        await stop_task(beating)
        await stop_task(looking)
    assert manager.taken[0] == 1
    assert manager.taken == sorted(set(manager.taken))
