"""How a run ended is what its worker tells the agent, and never its exit code alone: real agents, worker processes and bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from tenuto.embedded.nats import NatsServer
from tenuto.schemas.wire import worker_pb2 as pb
from tenuto.schemas.wire.worker_pb2_grpc import AgentForWorkersStub
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint
from tests.support.agent_bench import Bench, agent_bench
from tests.support.control_plane import make_assignment
from tests.support.waiting import until_on_loop


@pytest.fixture
async def bench(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Bench]:
    async with agent_bench(nats, tmp_path) as opened:
        yield opened


async def test_a_bare_exit_code_is_a_failure_whatever_it_is(bench: Bench) -> None:
    await bench.start()
    await bench.control.until(lambda: bench.control.heartbeats)
    for number, code in enumerate((0, 80, 81, 82, 83, 84, 85, 86, 137), start=1):
        bare = {"mode": "bare", "code": code}
        await bench.control.assign(make_assignment(bench.context, allocation=number, hyperparameters=bare))
        report = await bench.control.exit_of(f"1-1-{number}")
        assert (report.outcome, report.exit_code, report.cause, report.followed) == ("failed", code, None, False)
        assert f"exited with code {code}, and told nothing of its end" in (report.error or "")


async def test_the_word_of_an_end_outlives_the_agent_that_heard_it(bench: Bench) -> None:
    """The worker ends while no agent is there."""
    agent = await bench.start()
    await bench.control.until(lambda: bench.control.heartbeats)
    paused = make_assignment(bench.context, mode="lingers")
    await bench.control.assign(paused)
    await bench.control.until(lambda: bench.control.reports["tracker"])
    await bench.control.assign(paused.model_copy(update={"action": "pause"}))
    told = bench.directory / "told"
    await until_on_loop(told.exists)
    await agent.drop()
    (bench.directory / "go").touch()
    await until_on_loop(lambda: not bench.workers("1-1-1"))
    await bench.start()
    report = await bench.control.exit_of("1-1-1")
    assert (report.outcome, report.exit_code) == ("paused", 7)


async def test_only_the_worker_itself_tells_its_end(bench: Bench) -> None:
    await bench.start()
    await bench.control.until(lambda: bench.control.heartbeats)
    await bench.control.assign(make_assignment(bench.context))
    await bench.control.until(lambda: bench.control.reports["tracker"])
    async with grpc.aio.insecure_channel(UnixEndpoint(bench.directory).address) as channel:
        stub = AgentForWorkersStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.End(pb.EndRequest(allocation_id="1-1-1", ending="paused"), metadata=(("authorization", "Bearer x"),))
    assert refused.value.code() == grpc.StatusCode.UNAUTHENTICATED
