"""Limits of processes, by this machine's real cgroups."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tenuto.schemas.events.pool import AgentSlots
from tenuto.workers.agent.node import AgentNode
from tenuto.workers.agent.outcome import End, name_end
from tenuto.workers.agent.runtimes.process.cgroups import ProcessLimits
from tenuto.workers.agent.runtimes.process.runtime import ProcessRuntime
from tenuto.workers.agent.runtimes.runtime import Exit, Handle, RuntimeUnavailable, Work
from tenuto.workers.agent.secret_masks import NO_MASK
from tests.support import cgroups
from tests.support.control_plane import AGENT, make_assignment, make_config
from tests.support.runtimes import SLOTS, gang_work_of, shell, work_of
from tests.support.waiting import SECONDS_MAX, until_on_loop

pytestmark = pytest.mark.real_part(cgroups.lack(), installable=False)
MEMORY_BYTES = 96 << 20
"""More than an interpreter with the harness needs."""
LIMITS = ProcessLimits(MEMORY_BYTES, 1.5)
TAKES = "x = b'x' * (400 << 20)"
SAYS_WHERE = "cat /proc/self/cgroup; "


@pytest.fixture
def parent(tmp_path: Path) -> Iterator[str]:
    with cgroups.removed(f"/tenuto-test-{os.getpid()}-{tmp_path.name}") as parent:
        yield parent


@pytest.fixture
def bench(tmp_path: Path, parent: str) -> Bench:
    return Bench(tmp_path, parent)


class Bench:
    def __init__(self, directory: Path, parent: str) -> None:
        self.agent, self.context, self.parent = directory / "agent", directory / "context", parent
        self.agent.mkdir(mode=0o700)
        self.context.mkdir()

    async def open(self, *command: str, limits: ProcessLimits = LIMITS, warm: int = 0) -> ProcessRuntime:
        """The next agent's runtime. The one before it is not closed, as after SIGKILL."""
        runtime = ProcessRuntime(
            AgentNode(AGENT, self.agent),
            None,
            slots=SLOTS,
            base={"PATH": os.environ["PATH"]},
            command=command,
            limits=replace(limits, parent=self.parent),
            warm_environments_max=warm,
            limits_required=True,
        )
        await runtime.open()
        return runtime

    async def ended(self, runtime: ProcessRuntime, handle: Handle) -> Exit:
        async with asyncio.timeout(SECONDS_MAX):
            return await runtime.wait("1-1-1", handle)

    async def begin(self, runtime: ProcessRuntime, work: Work | None = None) -> Handle:
        work = work or work_of(self.context)
        await runtime.prepare(work)
        handle = await runtime.start(work)
        await runtime.go(handle)
        return handle

    async def printed(self, runtime: ProcessRuntime, rank: int | None = None) -> tuple[str, ...]:
        return (await runtime.output("1-1-1", rank, (0, 0), final=True)).stdout


async def test_memory_of_all_processes_of_a_run_is_limited_and_its_end_is_told(bench: Bench) -> None:
    """The one that takes too much is not the worker but a child that left its session and dropped its mark."""
    hungry = f'exec setsid env -i {sys.executable} -c "{TAKES}"'
    runtime = await bench.open(*shell(f"{SAYS_WHERE} ({hungry}); exit 1"))
    found = await bench.ended(runtime, await bench.begin(runtime))
    assert (found.code, found.out_of_memory) == (128 + signal.SIGKILL, True)
    assert found.said.startswith("The trial ran out of memory: it used its limit of 96 MiB.")
    assert "TENUTO_MEMORY_BYTES_PER_SLOT" in found.said
    where = [line for line in await bench.printed(runtime) if bench.parent in line]
    assert len(where) == len(cgroups.directories(bench.parent)), "it was there from its first line on"
    assert await bench.ended(runtime, Handle("1:1")) == found, "it is known until it is cleaned"
    await runtime.clean("1-1-1")
    assert cgroups.below(bench.parent) == []
    assert not list((bench.agent / "cgroups").iterdir())


async def test_a_worker_killed_otherwise_has_not_run_out_of_memory(bench: Bench) -> None:
    runtime = await bench.open(*shell("kill -9 $$"))
    found = await bench.ended(runtime, await bench.begin(runtime))
    assert (found.code, found.out_of_memory, found.said) == (128 + signal.SIGKILL, False, "")
    await runtime.clean("1-1-1")


async def test_a_worker_that_left_as_it_was_told_has_not_failed_for_a_helper_without_memory(bench: Bench) -> None:
    """Only its word counts: one that ends with the same code and has told nothing has failed, for its memory."""
    runtime = await bench.open(*shell(f'{sys.executable} -c "{TAKES}"; exit 80'))
    found = await bench.ended(runtime, await bench.begin(runtime))
    assert name_end(found, "preempted", None, NO_MASK) == End("preempted", 80, None)
    without_word = name_end(found, None, None, NO_MASK)
    assert (without_word.outcome, without_word.exit_code) == ("failed", 128 + signal.SIGKILL)
    assert "ran out of memory" in (without_word.error or "")
    await runtime.clean("1-1-1")


async def test_limits_are_for_each_slot(bench: Bench) -> None:
    runtime = await bench.open(*shell("sleep 600"))
    work = gang_work_of(bench.context, (AgentSlots(agent_id=AGENT, slot_ids=(0, 1)),))
    handle = await bench.begin(runtime, work)
    read = {}
    for top in cgroups.directories(bench.parent):
        [group] = [path for path in top.iterdir() if path.is_dir()]
        for name in ("memory.limit_in_bytes", "memory.max", "cpu.cfs_quota_us", "cpu.max"):
            if (group / name).exists():
                read[name] = (group / name).read_text().split()[0]
    assert sorted(read.values(), key=int) == ["300000", str(2 * MEMORY_BYTES)]
    await runtime.kill(handle)
    await bench.ended(runtime, handle)
    await runtime.clean("1-1-1")
    assert cgroups.below(bench.parent) == []


async def test_ranks_of_a_gang_are_in_the_cgroup_of_their_run(bench: Bench) -> None:
    runtime = await bench.open(*shell(f'{SAYS_WHERE} [ $TENUTO_RANK = 0 ] || {sys.executable} -c "{TAKES}"; sleep 600'))
    work = gang_work_of(bench.context, (AgentSlots(agent_id=AGENT, slot_ids=(0, 1)),))
    limits = ProcessLimits(MEMORY_BYTES, 0)
    runtime = await bench.open(*runtime.host.command, limits=limits)
    handle = await bench.begin(runtime, work)
    await until_on_loop(lambda: runtime._cgroups.memory_end("1-1-1").killed)
    await runtime.kill(handle)
    found = await bench.ended(runtime, handle)
    assert found.out_of_memory
    assert "its limit of 192 MiB" in found.said
    for rank in (0, 1):
        assert [line for line in await bench.printed(runtime, rank) if bench.parent in line]
    await runtime.clean("1-1-1")


async def test_a_warm_worker_is_limited_too(bench: Bench) -> None:
    """Its user's code runs in the cgroup from its first line on."""
    (bench.context / "train.py").write_text(f"print(open('/proc/self/cgroup').read(), flush=True)\n{TAKES}\n")
    runtime = await bench.open(sys.executable, "-m", "tenuto.workers.harness", warm=1)
    work = work_of(bench.context, make_assignment("0" * 64, config=make_config(entrypoint="train.py")))
    try:
        await runtime.warm_up()
        handle = await bench.begin(runtime, work)
        assert runtime.warm.forks == 1
        pid = int(handle.partition(":")[0])
        [worker] = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
        inside = [path for path in cgroups.cgroups_of(worker) if path.startswith(bench.parent)]
        assert inside
        await runtime.kill(handle)
        await bench.ended(runtime, handle)
        await runtime.clean("1-1-1")
    finally:
        await runtime.close()
    assert cgroups.below(bench.parent) == []


async def test_an_agent_after_one_that_was_killed_finds_the_limits_and_removes_them(bench: Bench) -> None:
    """Also where it is set up otherwise."""
    first = await bench.open(*shell(f'read x <$PWD/now; exec {sys.executable} -c "{TAKES}"'))
    os.mkfifo(bench.context / "now")
    handle = await bench.begin(first)
    other = Bench.__new__(Bench)
    other.agent, other.context, other.parent = bench.agent, bench.context, ""
    second = await other.open(*shell("exit 0"), limits=ProcessLimits())
    assert list(await second.find()) == ["1-1-1"]
    await second.sweep({"1-1-1"})
    assert cgroups.below(bench.parent), "a run that goes on keeps its limits"
    await asyncio.to_thread((bench.context / "now").write_text, "go\n")
    assert (await bench.ended(second, handle)).out_of_memory
    third = await other.open(*shell("exit 0"), limits=ProcessLimits())
    assert (await bench.ended(third, handle)).out_of_memory, "the kernel's count outlives the agents"
    await third.sweep(())
    assert cgroups.below(bench.parent) == []
    assert not list((bench.agent / "cgroups").iterdir())


async def test_cgroups_that_no_note_names_are_swept_and_those_of_others_are_not(bench: Bench) -> None:
    runtime = await bench.open(*shell("sleep 600"))
    handle = await bench.begin(runtime)
    others = [top / "tenuto-000000000000-1-1-1" for top in cgroups.directories(bench.parent)]
    for path in others:
        path.mkdir()
    (bench.agent / "cgroups" / "1-1-1.json").unlink()
    await runtime.kill(handle)
    await bench.ended(runtime, handle)
    await runtime.sweep(())
    assert set(cgroups.below(bench.parent)) == {others[0].name}


async def test_a_parent_that_cannot_be_used_is_said_and_refused_where_limits_are_required(bench: Bench) -> None:
    runtime = ProcessRuntime(
        AgentNode(AGENT, bench.agent), None, slots=SLOTS, base={"PATH": os.environ["PATH"]}, command=shell("exit 3"),
        limits=ProcessLimits(MEMORY_BYTES, 0, "/cgroup.procs/no-directory"),
    )  # fmt: skip
    await runtime.open()
    assert runtime.unlimited.startswith("no limit of memory, because the agent cannot limit cgroups below")
    assert (await bench.ended(runtime, await bench.begin(runtime))).code == 3, "it runs all the same"
    bench.parent = "/cgroup.procs/no-directory"
    with pytest.raises(RuntimeUnavailable, match="TENUTO_LIMITS_REQUIRED"):
        await bench.open(*shell("exit 0"))
