"""The agent against a real NATS server and real worker processes."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import psutil
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.embedded.process import is_alive
from tenuto.schemas.reports import LogsReport, ValidationReport
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.schemas.wire.worker_pb2_grpc import AgentForWorkersStub
from tenuto.workers.agent.checked_settings import AgentError
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE, marked
from tests.support.agent_bench import Bench, agent_bench
from tests.support.control_plane import AGENT, make_assignment
from tests.support.waiting import SECONDS_MAX

RUN_AGENT = Path(__file__).parents[1] / "support" / "run_agent.py"


@pytest.fixture
async def bench(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Bench]:
    async with agent_bench(nats, tmp_path) as opened:
        yield opened


async def test_an_agent_whose_event_loop_is_busy_is_alive(bench: Bench) -> None:
    """As with many large reports at once, for longer than any lease: what it last said is said again, and marked as that."""
    control = bench.control
    await bench.start()
    await control.until(lambda: len(control.heartbeats) > 2)
    time.sleep(20 * bench.settings.heartbeat_seconds)  # noqa: ASYNC251 - nothing else in this process gets a turn
    await control.until(lambda: sum(heartbeat.repeated for heartbeat in control.heartbeats) >= 5)
    own = len([heartbeat for heartbeat in control.heartbeats if not heartbeat.repeated])
    await control.until(lambda: len([item for item in control.heartbeats if not item.repeated]) > own)


async def test_a_trial_trains_validates_is_extended_and_stops(bench: Bench) -> None:
    control = bench.control
    await bench.start()
    assignment = make_assignment(bench.context)
    await control.until(lambda: control.heartbeats)
    assert (await control.assign(assignment)).accepted
    await control.until(lambda: control.kinds("tracker") == ["checkpoint", "validation"])
    assert control.heartbeats[-1].slots[0].kind == "cpu"
    longer = assignment.model_copy(update={"target_length": 25})
    await control.assign(longer)
    await control.until(lambda: len(control.reports["tracker"]) == 4)
    assert ValidationReport.from_json(control.reports["tracker"][-1][1]).length == 25
    await control.assign(longer.model_copy(update={"action": "stop"}))
    exit_report = await control.exit_of("1-1-1")
    assert (exit_report.outcome, exit_report.exit_code) == ("finished", 0)
    assert control.kinds("launcher") == ["workers_starting", "workers_started", "workers_exited"]
    await control.assign()
    await control.until(lambda: control.heartbeats[-1].allocations == ())

    def lines() -> list[str]:
        return [line.text for _, body in control.reports["logs"] for line in LogsReport.from_json(body).lines]

    await control.until(lambda: lines()[-1:] == ["leaving: STOP"])  # no exit waits for what was printed
    assert any("hello from 1-1-1" in line and bench.context in line for line in lines())
    assert not marked(bench.directory)


@pytest.mark.parametrize(
    ("mode", "outcome", "code", "said"),
    [
        ("crash", "failed", 1, "model_def.py:3: ValueError: no data"),
        ("vanish", "failed", 7, "something bad"),
        ("killed", "lost", 137, "SIGKILL"),
    ],
)
async def test_how_a_worker_ended_is_reported(bench: Bench, mode: str, outcome: str, code: int, said: str) -> None:
    await bench.start()
    await bench.control.until(lambda: bench.control.heartbeats)
    await bench.control.assign(make_assignment(bench.context, mode=mode))
    report = await bench.control.exit_of("1-1-1")
    assert (report.outcome, report.exit_code) == (outcome, code)
    assert said in (report.error or "")


async def test_a_worker_that_does_not_leave_is_killed_after_its_grace(bench: Bench) -> None:
    await bench.start(preempt_grace_seconds_max=0.5)
    await bench.control.until(lambda: bench.control.heartbeats)
    assignment = make_assignment(bench.context, mode="stubborn")
    await bench.control.assign(assignment)
    await bench.control.until(lambda: bench.control.reports["logs"])
    await bench.control.assign(assignment.model_copy(update={"action": "preempt"}))
    report = await bench.control.exit_of("1-1-1")
    assert report.outcome == "preempted"
    assert "did not leave in time" in (report.error or "")


async def test_what_is_not_assigned_any_more_is_killed_with_its_helpers(bench: Bench) -> None:
    await bench.start()
    await bench.control.until(lambda: bench.control.heartbeats)
    await bench.control.assign(make_assignment(bench.context, mode="helper"))
    await bench.control.until(lambda: bench.control.reports["tracker"])
    assert any(psutil.Process(pid).name() == "sleep" for pid in marked(bench.directory))
    await bench.control.assign()
    assert (await bench.control.exit_of("1-1-1")).outcome == "lost"
    assert not marked(bench.directory)


async def test_slots_are_used_by_one_run_at_a_time(bench: Bench) -> None:
    control = bench.control
    await bench.start()
    await control.until(lambda: control.heartbeats)
    first, second = make_assignment(bench.context, trial=1), make_assignment(bench.context, trial=2)
    await control.assign(first)
    await control.until(lambda: control.reports["tracker"])
    await control.assign(first.model_copy(update={"action": "pause"}), second)
    assert (await control.exit_of("1-1-1")).outcome == "paused"
    await control.until(lambda: len(control.reports["tracker"]) == 4)
    kinds = [(LAUNCHER["kind"], LAUNCHER["allocation_id"]) for LAUNCHER in map(_json, control.reports["launcher"])]
    assert kinds.index(("workers_exited", "1-1-1")) >= 0
    assert kinds.index(("workers_starting", "1-2-1")) > kinds.index(("workers_started", "1-1-1"))


def _json(report: tuple[str, bytes]) -> dict[str, object]:
    import json

    value: dict[str, object] = json.loads(report[1])
    return value


async def test_an_agent_that_starts_again_finds_its_workers_and_loses_no_report(bench: Bench) -> None:
    control = bench.control
    agent = await bench.start()
    assignment = make_assignment(bench.context)
    await control.until(lambda: control.heartbeats)
    await control.assign(assignment)
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-1")
    await agent.drop()
    assert worker.is_running()
    control.assigned = None  # the launcher is busy: nothing may be killed on suspicion
    seen = len(control.heartbeats)
    await bench.start()
    await control.until(lambda: len(control.heartbeats) > seen + 1)
    assert control.heartbeats[-1].allocations == ("1-1-1",)
    await control.assign(assignment.model_copy(update={"target_length": 20}))
    await control.until(lambda: len(control.reports["tracker"]) == 4)
    assert [process.pid for process in bench.workers("1-1-1")] == [worker.pid]
    assert control.kinds("launcher") == ["workers_starting", "workers_started"]


async def test_a_worker_that_ends_without_an_agent_keeps_its_exit_code(bench: Bench) -> None:
    control = bench.control
    agent = await bench.start()
    await control.until(lambda: control.heartbeats)
    await control.assign(make_assignment(bench.context))
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-1")
    await agent.drop()
    worker.terminate()
    worker.wait(SECONDS_MAX)
    await bench.start()
    report = await control.exit_of("1-1-1")
    assert (report.outcome, report.exit_code) == ("lost", 128 + signal.SIGTERM)


async def test_reports_wait_on_disk_while_the_bus_is_away_and_wiped(bench: Bench, nats: NatsServer) -> None:
    control = bench.control
    await bench.start()
    assignment = make_assignment(bench.context)
    await control.until(lambda: control.heartbeats)
    control.held.update(("tracker", "launcher"))
    await control.assign(assignment)
    await control.until(lambda: control.reports["logs"])
    [worker] = bench.workers("1-1-1")
    await nats.kill()
    await nats.wipe()
    worker_door = grpc.aio.insecure_channel(UnixEndpoint(bench.directory).address)
    with pytest.raises(grpc.aio.AioRpcError) as refused:  # the door is open while the bus is away
        await AgentForWorkersStub(worker_door).Hello(
            pb.HelloRequest(allocation_id="1-1-1", rank=0), metadata=(("authorization", "Bearer no"),)
        )
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
    await worker_door.close()
    assert worker.is_running()
    await nats.start()
    control.held.clear()
    await control.until(lambda: control.kinds("tracker") == ["checkpoint", "validation"])
    await control.assign(assignment.model_copy(update={"action": "stop"}))
    assert (await control.exit_of("1-1-1")).outcome == "finished"
    assert control.kinds("launcher") == ["workers_starting", "workers_started", "workers_exited"]


async def test_the_exit_is_reported_after_the_last_checkpoint_is_committed(bench: Bench) -> None:
    control = bench.control
    await bench.start()
    assignment = make_assignment(bench.context)
    await control.until(lambda: control.heartbeats)
    control.held.add("tracker")
    await control.assign(assignment)
    await control.until(lambda: control.reports["logs"])
    await control.assign(assignment.model_copy(update={"action": "preempt"}))
    await control.until(lambda: any(b"leaving" in body for _, body in control.reports["logs"]))
    seen = len(control.heartbeats)
    await control.until(lambda: len(control.heartbeats) > seen + 3)
    assert not control.exits()
    assert control.heartbeats[-1].allocations == ("1-1-1",)
    control.held.clear()
    assert (await control.exit_of("1-1-1")).outcome == "preempted"
    assert control.kinds("tracker") == ["checkpoint", "validation"]


async def test_a_second_agent_on_the_same_directory_is_refused(bench: Bench) -> None:
    await bench.start()
    with pytest.raises(AgentError, match="Another agent uses"):
        await bench.start()


async def test_a_missing_context_is_not_the_users_fault(bench: Bench) -> None:
    await bench.start()
    await bench.control.until(lambda: bench.control.heartbeats)
    await bench.control.assign(make_assignment("0" * 64))
    report = await bench.control.exit_of("1-1-1")
    assert report.outcome == "lost"
    assert "cannot be unpacked" in (report.error or "")


async def test_an_allocation_never_runs_twice(bench: Bench) -> None:
    control = bench.control
    await bench.start()
    await control.until(lambda: control.heartbeats)
    assignment = make_assignment(bench.context, mode="crash")
    await control.assign(assignment)
    await control.exit_of("1-1-1")
    await control.until(lambda: control.heartbeats[-1].allocations == ())
    await control.assign(assignment)
    seen = len(control.heartbeats)
    await control.until(lambda: len(control.heartbeats) > seen + 1)
    assert control.heartbeats[-1].allocations == ()
    assert control.kinds("launcher") == ["workers_starting", "workers_started", "workers_exited"]


async def test_killed_and_told_to_stop_as_a_process(bench: Bench) -> None:
    """kill -9 of the agent leaves the worker alone; SIGTERM of the next one ends the worker in order."""
    control = bench.control
    environment = os.environ | {
        "TENUTO_NATS_URL": bench.settings.nats_url,
        "TENUTO_AGENT_DIRECTORY": bench.settings.agent_directory,
        "TENUTO_SHARED_DIRECTORY": bench.settings.shared_directory,
        "TENUTO_AGENT_ID": AGENT,
        "TENUTO_CPU_SLOTS": "1",
        "TENUTO_HEARTBEAT_SECONDS": "0.2",
    }
    assert RUN_VARIABLE not in environment

    async def start() -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(sys.executable, str(RUN_AGENT), env=environment)

    first = await start()
    await control.until(lambda: control.heartbeats)
    await control.assign(make_assignment(bench.context))
    await control.until(lambda: len(control.reports["tracker"]) == 2)
    [worker] = bench.workers("1-1-1")
    first.kill()
    await first.wait()
    assert worker.is_running()
    seen = len(control.heartbeats)
    second = await start()
    # One of the first agent's may be on its way still.
    await control.until(lambda: len(control.heartbeats) > seen + 1)
    assert control.heartbeats[-1].allocations == ("1-1-1",)
    second.terminate()
    assert await second.wait() == 0
    assert control.exits()["1-1-1"].outcome == "preempted"
    assert not is_alive(worker)
    assert not marked(bench.directory)
