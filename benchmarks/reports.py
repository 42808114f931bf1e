"""The road of reports: from the agent's disk over the bus into the record, with real processes for all but the trials.

    python benchmarks/reports.py [--part validations checkpoints beside left] [--hogs 4]

PostgreSQL (fsync on), NATS, relay and tracker are processes of their own. The agent's parts, spool and publisher, run here, so
that a report's time can be taken: from its write to the agent's disk until the agent is told that it is committed.

validations, checkpoints
          20,000 reports of ten agents stand in the stream when the tracker starts: committed reports per second, and per second
          of the tracker's processor time (which does not depend on what else the machine does). Once validations only, once
          validations and checkpoints in turns, of which all but the best and the latest are deleted again, as by default.
          Reference: appending as many events to the log, in batches as large, in the same run
beside    ten trials make five reports a second each; the same beside one that validates and saves every batch as fast as it is
          let. Milliseconds from disk to commit, p50 and p99, and the ratio between the two
left      300,000 repetitions of two reports, left in the stream by an agent of an earlier version: seconds until a new trial's
          first report on that agent is committed, and how many repetitions per second are dropped where the agent is gone

`--hogs`: so many processes compute beside all that, as on a busy machine.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from uuid import uuid4

import psutil
from figures import figure, parse
from report_world import LANE, QUIET_TRIALS, World, new_event, report_of, world

from tenuto.kernel.commit_sizes import COMMIT_REPORTS_MAX
from tenuto.kernel.eventlog import Append
from tenuto.kernel.tasks import stop_task
from tenuto.schemas.events.trial import TrialProgressed
from tenuto.workers.agent.change_signal import Changed
from tenuto.workers.agent.database import Disk, open_database
from tenuto.workers.agent.publishing import LanePublisher
from tenuto.workers.agent.rpc import PACED_REPORTS
from tenuto.workers.agent.spool import FACT_LANES, NewReport, Spool
from tenuto.workers.harness.reporter import BATCH_REPORTS_MAX as CALL_REPORTS_MAX
from tenuto.workers.harness.reporter import CALLS_PER_SECOND_MAX

AGENTS, REPORTS = 10, 20_000
QUIET_REPORTS_PER_SECOND = 5
REPETITIONS = 300_000
PROCESSOR_TICK_SECONDS = 0.01
PARTS = ["validations", "checkpoints", "beside", "left"]
HOG = "while True: sum(i * i for i in range(10**6))"


async def received(at: World, reports: int, kinds: int) -> dict[str, object]:
    """`kinds`: 1 for validations only."""
    each = reports // AGENTS
    for trial in range(1, AGENTS + 1):
        bodies = ((n + 1, report_of(trial, n if kinds == 2 else 2 * n + 1).to_json()) for n in range(each))
        await at.publish(f"agent-{trial}", trial, bodies)
    while await at.messages() < reports:  # noqa: ASYNC110 - asks the server
        await asyncio.sleep(0.02)
    with at.tracker() as process:
        await at.until_empty(reports - 1)  # from the first commit on: the start of a process is not what is measured
        begun, left, used = time.perf_counter(), await at.messages(), processor_seconds(process)
        await at.until_empty()
        seconds, used = time.perf_counter() - begun, processor_seconds(process) - used
    events = [new_event(TrialProgressed(trial_id="9-9", allocation_id="9-9-1", batches=n, length=n)) for n in range(left)]
    begun = time.perf_counter()
    for first in range(0, left, COMMIT_REPORTS_MAX):
        await at.log.append(Append(events[first : first + COMMIT_REPORTS_MAX]))
    reference = time.perf_counter() - begun
    name = "validations" if kinds == 1 else "validations and checkpoints"
    bar = "at least 5,000/s" if kinds == 1 else ""
    figure(f"{name} committed", left / seconds, "/s", beside="append to the log", of=left / reference, bar=bar)
    return {
        "committed_per_second": round(left / seconds),
        "committed_per_processor_second": round(left / max(used, PROCESSOR_TICK_SECONDS)),
        "log_append_per_second": round(left / reference),
        "ratio_to_log_append": round(reference / seconds, 2),
    }


def processor_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


class AgentParts:
    """The parts of an agent that carry reports, without its processes."""

    def __init__(self, at: World, name: str) -> None:
        self.disk = Disk()
        self.spool = Spool(open_database(at.directory / f"{name}.sqlite"), name)
        self.spooled, self.committed = Changed(), Changed()
        self._publishers = [
            LanePublisher(
                lane, name, at.bus, self.spool, self.disk, self.spooled, self.committed, lambda: f"{name}-{uuid4()}",
                token_of=lambda allocation_id: at.tokens.token(name, allocation_id),
            )
            for lane in FACT_LANES
        ]  # fmt: skip

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(publisher.run()) for publisher in self._publishers]
        yield
        await asyncio.gather(*map(stop_task, tasks))
        self.disk.close()

    async def report(self, trial: int, first: int, count: int) -> None:
        new = []
        for number in range(first, first + count):
            body = report_of(trial, number)
            new.append(NewReport(LANE, "bench", f"1-{trial}-1", body.to_json()))
        await self.disk(self.spool.append, *new)
        self.spooled.notify()

    async def until_committed(self, trial: int) -> None:
        while True:
            changed = self.committed.next()
            if not await self.disk(self.spool.waiting, LANE, f"1-{trial}-1"):
                return
            await changed.wait()


async def quiet_trial(agent: AgentParts, trial: int, first: int, seconds: float, due_at: list[float]) -> None:
    """Each report is made at its time, however long the one before it takes."""
    begun = time.perf_counter() + trial / (QUIET_TRIALS * QUIET_REPORTS_PER_SECOND)
    for number in range(int(seconds * QUIET_REPORTS_PER_SECOND)):
        due = begun + number / QUIET_REPORTS_PER_SECOND
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        await agent.report(trial, first + number, 1)
        due_at.append(due)


async def note_commits(agent: AgentParts, due_at: dict[int, list[float]], count: int) -> list[float]:
    """Seconds from the time at which each of `count` reports was due until the agent knows that it is committed, sorted."""

    def waiting() -> list[int]:
        return [agent.spool.waiting(LANE, f"1-{trial}-1") for trial in due_at]

    taken: dict[int, list[float]] = {trial: [] for trial in due_at}
    while sum(map(len, taken.values())) < count:
        changed = agent.committed.next()
        made = [len(times) for times in due_at.values()]
        left, now = await agent.disk(waiting), time.perf_counter()
        for trial, made_of_it, left_of_it in zip(due_at, made, left, strict=True):
            done = taken[trial]
            done.extend(now - due for due in due_at[trial][len(done) : made_of_it - left_of_it])
        if sum(map(len, taken.values())) < count:
            await changed.wait()
    return sorted(seconds for done in taken.values() for seconds in done)


async def noisy_trial(agent: AgentParts, trial: int, made: list[int]) -> None:
    """As a worker whose batches cost nothing: full calls, as many as its reporter makes, answered when the agent's door does."""
    while True:
        due = time.perf_counter() + 1 / CALLS_PER_SECOND_MAX
        await agent.report(trial, made[0], CALL_REPORTS_MAX)
        made[0] += CALL_REPORTS_MAX
        while True:
            changed = agent.committed.next()
            if agent.spool.queued_of(LANE, f"1-{trial}-1") < PACED_REPORTS:
                break
            await changed.wait()
        await asyncio.sleep(max(due - time.perf_counter(), 0))


async def beside(at: World, seconds: float) -> dict[str, object]:
    agent, noisy = AgentParts(at, "bench"), QUIET_TRIALS + 1
    found: dict[str, object] = {}
    with at.tracker():
        await at.tracker_is_up()
        async with agent.running():
            for name in ("alone", "beside"):
                made, first = [0], 0 if name == "alone" else 10_000
                noise = asyncio.create_task(noisy_trial(agent, noisy, made)) if name == "beside" else None
                due_at: dict[int, list[float]] = {trial: [] for trial in range(1, noisy)}
                count = QUIET_TRIALS * int(seconds * QUIET_REPORTS_PER_SECOND)
                noting = asyncio.create_task(note_commits(agent, due_at, count))
                await asyncio.gather(*(quiet_trial(agent, trial, first, seconds, due_at[trial]) for trial in due_at))
                await stop_task(noise)
                taken = await noting
                found[f"{name}_p50_ms"] = round(taken[len(taken) // 2] * 1e3, 1)
                found[f"{name}_p90_ms"] = round(taken[int(len(taken) * 0.9)] * 1e3, 1)
                found[f"{name}_p99_ms"] = round(taken[int(len(taken) * 0.99)] * 1e3, 1)
                found[f"{name}_reports"] = len(taken)
                if noise is not None:
                    waiting = await agent.disk(agent.spool.waiting, LANE, f"1-{noisy}-1")
                    found["noisy_made_per_second"] = round(made[0] / seconds)
                    found["noisy_committed_per_second"] = round((made[0] - waiting) / seconds)
                    await agent.until_committed(noisy)
    own, alone = float(str(found["beside_p99_ms"])), float(str(found["alone_p99_ms"]))
    found["ratio_p99"] = round(own / alone, 1)
    figure("beside a noisy trial, disk to commit, p99", own, "ms", beside="without it", of=alone, bar="at most 500 ms")
    return found


async def left(at: World, repetitions: int) -> dict[str, object]:
    found: dict[str, object] = {}
    gone, agent = report_of(1, 1).to_json(), AgentParts(at, "bench")
    await agent.report(2, 0, 2)  # these are in its spool still
    repeated = [(sequence, report_of(2, sequence - 1).to_json()) for sequence in (1, 2)]
    await at.publish("bench", 2, (repeated[n % 2] for n in range(repetitions)))
    with at.tracker():
        await at.tracker_is_up()
        begun = time.perf_counter()
        async with agent.running():
            await agent.report(3, 0, 1)
            await agent.until_committed(3)
            found["first_report_of_a_new_trial_seconds"] = round(time.perf_counter() - begun, 2)
            await agent.until_committed(2)
            await at.until_empty()
            found["stream_empty_seconds"] = round(time.perf_counter() - begun, 2)
        await at.publish("gone", 1, ((1, gone) for _ in range(repetitions // 3)))
        begun, before = time.perf_counter(), await at.messages()
        await at.until_empty()
        found["dropped_per_second_of_an_agent_that_is_gone"] = round(before / (time.perf_counter() - begun))
    seconds = float(str(found["first_report_of_a_new_trial_seconds"]))
    figure(f"first report behind {repetitions:,} repetitions", seconds, "s")
    return found


async def main(arguments: argparse.Namespace) -> None:
    hogs = [subprocess.Popen([sys.executable, "-c", HOG]) for _ in range(arguments.hogs)]  # noqa: ASYNC220
    report: dict[str, object] = {
        "machine": f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}",
        "load_before": round(os.getloadavg()[0], 1),
        "hogs": arguments.hogs,
    }
    try:
        for part in arguments.part:
            parts: dict[str, Callable[[World], Awaitable[object]]] = {
                "validations": partial(received, reports=arguments.reports, kinds=1),
                "checkpoints": partial(received, reports=arguments.reports, kinds=2),
                "beside": partial(beside, seconds=arguments.seconds),
                "left": partial(left, repetitions=arguments.repetitions),
            }
            async with world() as at:
                report[part] = await parts[part](at)
    finally:
        for hog in hogs:
            hog.kill()
    report["load_after"] = round(os.getloadavg()[0], 1)
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=PARTS)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each half of `beside`")
    parser.add_argument("--hogs", type=int, default=0)
    parser.add_argument("--reports", type=int, default=REPORTS, help="that stand in the stream")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS, help="of `left`")
    asyncio.run(main(parse(parser, part=["checkpoints", "beside"], seconds=0.2, reports=50, repetitions=300)))
