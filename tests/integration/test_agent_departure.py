"""The agent's process at the end of its time, against a real NATS server and with real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import fields
from pathlib import Path

import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.kernel.settings import Settings
from tests.support.control_plane import ControlPlane, agent_settings, make_assignment, make_context
from tests.support.metadata_server import metadata_server
from tests.support.waiting import SECONDS_MAX

SCRIPT = Path(__file__).parents[1] / "support/run_agent.py"


@pytest.fixture
async def control(nats: NatsServer, tmp_path: Path) -> AsyncIterator[ControlPlane]:
    found = ControlPlane(agent_settings(nats.url, tmp_path))
    await found.start()
    yield found
    await found.stop()


async def _start(settings: Settings, **variables: str) -> asyncio.subprocess.Process:
    told = {f"TENUTO_{item.name.upper()}": str(getattr(settings, item.name)) for item in fields(Settings)} | variables
    return await asyncio.create_subprocess_exec(sys.executable, str(SCRIPT), env={**os.environ, **told})


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGTERM])
@pytest.mark.parametrize("moment", ["loop_closed", "at_exit"])
async def test_a_signal_to_an_agent_that_has_left_does_not_make_its_end_a_failure(
    control: ControlPlane, nats: NatsServer, tmp_path: Path, number: signal.Signals, moment: str
) -> None:
    """Slurm warns up to a minute early, and may do so while the agent is ending: its job would be FAILED, not COMPLETED."""
    settings = agent_settings(nats.url, tmp_path, leave_idle_seconds=1.0)
    agent = await _start(settings, TEST_SIGNAL_AT_END=f"{number:d} {moment}")
    async with asyncio.timeout(SECONDS_MAX):
        assert await agent.wait() == 0
    assert control.heartbeats[-1].gone


@pytest.mark.parametrize(("number", "known_end"), [(signal.SIGUSR1, False), (signal.SIGTERM, True)])
async def test_an_agent_that_is_told_to_go_has_its_work_go_on_elsewhere(
    control: ControlPlane, nats: NatsServer, tmp_path: Path, number: int, known_end: bool
) -> None:
    """It says so first; the scheduler has the workers leave, and then it says that it is gone."""
    leave_at = time.time() + 3600 if known_end else 0.0
    agent = await _start(agent_settings(nats.url, tmp_path, leave_at=leave_at))
    assignment = make_assignment(make_context(tmp_path / "shared"))
    await control.until(lambda: control.heartbeats)
    await control.assign(assignment)
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    agent.send_signal(number)
    await control.until(lambda: control.heartbeats[-1].leaving == "now")
    assert control.heartbeats[-1].allocations == ("1-1-1",)
    await control.assign(assignment.model_copy(update={"action": "preempt"}))
    assert (await control.exit_of("1-1-1")).outcome == "preempted"
    async with asyncio.timeout(SECONDS_MAX):
        assert await agent.wait() == 0
    await control.until(lambda: control.heartbeats[-1].gone)
    assert control.heartbeats[-1].allocations == ()


async def test_an_agent_whose_announcement_nobody_acts_on_ends_its_workers_itself(
    control: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    agent = await _start(agent_settings(nats.url, tmp_path, leave_save_seconds=10.0))
    await control.until(lambda: control.heartbeats)
    await control.assign(make_assignment(make_context(tmp_path / "shared")))
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    agent.send_signal(signal.SIGUSR1)
    assert (await control.exit_of("1-1-1")).outcome == "preempted"
    async with asyncio.timeout(SECONDS_MAX):
        assert await agent.wait() == 0


async def test_an_agent_on_a_preempted_machine_has_its_work_go_on_elsewhere(
    control: ControlPlane, nats: NatsServer, tmp_path: Path
) -> None:
    async with metadata_server() as cloud:
        agent = await _start(agent_settings(nats.url, tmp_path, end_notice="gcp", end_notice_url=cloud.url))
        assignment = make_assignment(make_context(tmp_path / "shared"))
        await control.until(lambda: control.heartbeats)
        await control.assign(assignment)
        await control.until(lambda: len(control.reports["tracker"]) == 2)
        await cloud.put("instance/preempted", "TRUE")
        await control.until(lambda: control.heartbeats[-1].leaving == "now")
        assert control.heartbeats[-1].leaves_at_us is not None
        await control.assign(assignment.model_copy(update={"action": "preempt"}))
        assert (await control.exit_of("1-1-1")).outcome == "preempted"
        async with asyncio.timeout(SECONDS_MAX):
            assert await agent.wait() == 0


async def test_an_agent_without_work_ends_by_itself(control: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    agent = await _start(agent_settings(nats.url, tmp_path, leave_idle_seconds=1.0))
    async with asyncio.timeout(SECONDS_MAX):
        assert await agent.wait() == 0
    await control.until(lambda: control.heartbeats[-1].gone)
    assert {beat.leaving for beat in control.heartbeats} == {"", "soon"}


async def test_an_agent_that_ends_says_so_until_it_is_on_record(control: ControlPlane, nats: NatsServer, tmp_path: Path) -> None:
    control.gone_unheard = 2
    agent = await _start(agent_settings(nats.url, tmp_path, leave_idle_seconds=1.0))
    async with asyncio.timeout(SECONDS_MAX):
        assert await agent.wait() == 0
    assert [beat.gone for beat in control.heartbeats[-4:]] == [False, True, True, True]
