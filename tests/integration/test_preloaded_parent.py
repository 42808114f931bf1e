"""Processes forked from the preloaded parent are as interpreters of their own, and the supervisor learns how they end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.embedded.cluster import MARK, ProcessSpec, is_parent, is_part, marked_processes
from tenuto.embedded.files import Layout
from tenuto.embedded.preloaded_parent import END_UNSEEN, ForkedMember, PreloadedParent
from tenuto.embedded.starting import ProcessStarter
from tenuto.kernel.clock import SystemClock
from tests.support.waiting import SECONDS_MAX

PROBE = """
import gc, json, os, random, signal, sys, threading, uuid
import tenuto.schemas.envelope
mask = os.umask(0)
os.umask(mask)
print(json.dumps({
    "environment": dict(os.environ), "shown": open("/proc/self/environ").read().rstrip(chr(0)), "argv": sys.argv,
    "orig_argv": sys.orig_argv, "path": sys.path, "name": __name__, "cwd": os.getcwd(), "umask": mask, "random": random.random(),
    "uuid": str(uuid.uuid1()), "leads": os.getsid(0) == os.getpid() == os.getpgid(0), "collects": gc.isenabled(),
    "signals": [str(signal.getsignal(number)) for number in range(1, signal.NSIG)],
    "masked": [int(number) for number in signal.pthread_sigmask(signal.SIG_BLOCK, [])],
    "input": os.readlink("/proc/self/fd/0"), "output": [os.readlink(f"/proc/self/fd/{number}") for number in (1, 2)],
    "inheritable": [int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")
                    and os.get_inheritable(int(name))],
    "threads": threading.active_count(), "main": sys.modules["__main__"].__spec__.name,
}), flush=True)
"""
SLEEPER = "import time\ntime.sleep(600)\n"
LEAVER = "import os, sys\nos.read(0, 1)\nwhile not os.path.exists('go'): os.sched_yield()\nsys.exit(64)\n"
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    made = Layout(tmp_path.resolve())
    made.create()
    for name, text in (("probe", PROBE), ("sleeper", SLEEPER), ("leaver", LEAVER)):
        (tmp_path / f"{name}.py").write_text(text)
    return made


def environment(layout: Layout, **more: str) -> dict[str, str]:
    return {**os.environ, MARK: str(layout.root), **more}


def command(module: str) -> tuple[str, ...]:
    return (sys.executable, "-m", module)


async def opened(layout: Layout, **more: str) -> PreloadedParent:
    with layout.log("parent").open("ab") as log:
        made = PreloadedParent(environment(layout, **more), 16_384, layout.root, log)
    async with asyncio.timeout(SECONDS_MAX):
        await made.ready.wait()
    return made


@pytest.fixture
async def parent(layout: Layout) -> AsyncIterator[PreloadedParent]:
    made = await opened(layout)
    assert made.refused == ""
    yield made
    await made.close()


async def forked(parent: PreloadedParent, layout: Layout, module: str, **more: str) -> ForkedMember:
    with layout.log(module).open("ab") as log:
        return await parent.fork(command(module), environment(layout, **more), log)


async def told(parent: PreloadedParent, layout: Layout) -> dict[str, Any]:
    layout.log("probe").unlink(missing_ok=True)
    probe = await forked(parent, layout, "probe", OWN="value")
    async with asyncio.timeout(SECONDS_MAX):
        assert await probe.wait() == 0, layout.log("probe").read_text()
    found: dict[str, Any] = json.loads(layout.log("probe").read_text())
    return found


def run_probe(layout: Layout) -> None:
    with layout.log("probe").open("ab") as log:
        subprocess.run(
            command("probe"),
            env=environment(layout, OWN="value"),
            cwd=layout.root,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=True,
        )


async def test_a_fork_is_as_an_interpreter_of_its_own(parent: PreloadedParent, layout: Layout) -> None:
    found = await told(parent, layout)
    other = await told(parent, layout)
    layout.log("probe").unlink()
    await asyncio.to_thread(run_probe, layout)
    own = json.loads(layout.log("probe").read_text())
    for answer in (found, other, own):
        answer["shown"] = sorted(answer["shown"].split("\0"))
    assert len({answer.pop("random") for answer in (found, other, own)}) == 3
    assert len({answer.pop("uuid") for answer in (found, other, own)}) == 3
    assert found == own
    assert other == own


async def test_others_see_what_it_is_and_none_sees_the_secrets_of_another(parent: PreloadedParent, layout: Layout) -> None:
    first = await forked(parent, layout, "sleeper", PASSWORD="the password of the first")
    second = await forked(parent, layout, "sleeper", PASSWORD="the password of the second")
    seen = psutil.Process(first.pid)
    assert seen.cmdline() == list(command("sleeper"))
    assert seen.environ() == environment(layout, PASSWORD="the password of the first")
    assert {first.pid, second.pid} <= {process.pid for process in marked_processes(layout)}
    assert not is_part(seen)
    assert is_parent(psutil.Process(parent.process.pid))
    memories = [memory(pid) for pid in (first.pid, second.pid, parent.process.pid)]
    secrets = [f"the password of the {which}".encode() for which in ("first", "second")]
    assert [[secret in text for secret in secrets] for text in memories] == [[True, False], [False, True], [False, False]]
    for child in (first, second):
        child.kill()
        assert await child.wait() == -signal.SIGKILL


def memory(pid: int) -> bytes:
    """All that a process has written in its memory."""
    found = []
    with open(f"/proc/{pid}/maps") as maps, open(f"/proc/{pid}/mem", "rb", 0) as content:
        for line in maps:
            if matched := re.match(r"([0-9a-f]+)-([0-9a-f]+) rw", line):
                start, end = (int(part, 16) for part in matched.groups())
                content.seek(start)
                found.append(content.read(end - start))
    return b"".join(found)


async def test_its_exit_code_is_known_when_the_parent_is_gone(parent: PreloadedParent, layout: Layout) -> None:
    leaver, sleeper = await forked(parent, layout, "leaver"), await forked(parent, layout, "sleeper")
    parent.kill()
    await asyncio.shield(parent.ended)
    (layout.root / "go").touch()
    async with asyncio.timeout(SECONDS_MAX):
        assert await leaver.wait() == 64
    sleeper.kill()
    async with asyncio.timeout(SECONDS_MAX):
        assert await sleeper.wait() == END_UNSEEN
    assert not psutil.pid_exists(sleeper.pid) or psutil.Process(sleeper.pid).status() == psutil.STATUS_ZOMBIE


async def test_its_exit_code_is_known_while_the_parent_runs(parent: PreloadedParent, layout: Layout) -> None:
    (layout.root / "go").touch()
    child = await forked(parent, layout, "leaver")
    async with asyncio.timeout(SECONDS_MAX):
        assert (await child.wait(), child.returncode) == (64, 64)


async def test_a_fork_that_nobody_waits_for_any_more_starts_nothing(parent: PreloadedParent, layout: Layout) -> None:
    os.kill(parent.process.pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await forked(parent, layout, "probe")
    os.kill(parent.process.pid, signal.SIGCONT)
    assert (await told(parent, layout))["name"] == "__main__"  # served behind the other one
    assert layout.log("probe").read_text().count("\n") == 1


async def test_the_parent_leaves_when_its_supervisor_is_gone(parent: PreloadedParent, layout: Layout) -> None:
    child = await forked(parent, layout, "sleeper")
    assert await parent.close() == 0
    assert child.returncode is None
    child.kill()
    await child.wait()


async def test_an_import_that_starts_threads_is_noticed(layout: Layout) -> None:
    site = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True).start()\n"
    (layout.root / "site").mkdir()
    (layout.root / "site/sitecustomize.py").write_text(site)
    made = await opened(layout, PYTHONPATH=str(layout.root / "site"))
    assert made.refused == "an import started threads, it has 2"
    await made.close()


class Started:
    def __init__(self, layout: Layout) -> None:
        self.layout, self.lines = layout, list[str]()
        self.starter = ProcessStarter(layout, SystemClock(), self.lines.append, preload=True)
        self.starter.begin()

    async def start(self, name: str, module: str) -> bool:
        """True if it was forked."""
        child = await self.starter.start(ProcessSpec(name, command(module), environment(self.layout)))
        child.kill()
        await child.wait()
        return isinstance(child, ForkedMember)

    def warnings(self) -> list[str]:
        return [line for line in self.lines if line.startswith("warning: ")]


@pytest.fixture
async def started(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Started]:
    monkeypatch.setattr("tenuto.embedded.starting.is_forkable", lambda spec: True)
    made = Started(layout)
    yield made
    await made.starter.stop()
    assert [process for process in marked_processes(layout) if is_parent(process)] == []


async def other_parent(started: Started, pid: int | None) -> int:
    async with asyncio.timeout(SECONDS_MAX):
        while (found := started.starter.parent_pid) in (None, pid):  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.02)
    assert found is not None
    return found


async def test_a_parent_that_was_killed_is_replaced(started: Started) -> None:
    assert await started.start("one", "sleeper")
    pid = await other_parent(started, None)
    os.kill(pid, signal.SIGKILL)
    await other_parent(started, pid)
    assert await started.start("one", "sleeper")
    assert started.warnings() == []
    assert started.lines == ["preload ended (signal 9); it starts again in 0.1 s"]


async def test_a_parent_that_was_stopped_is_not_waited_for(started: Started) -> None:
    pid = await other_parent(started, None)
    os.kill(pid, signal.SIGSTOP)
    assert not await started.start("one", "sleeper")
    await other_parent(started, pid)
    assert await started.start("two", "sleeper")
    assert started.warnings() == [
        "warning: one starts as an interpreter of its own, without the preloaded parent: it was stopped"
    ]


async def test_a_parent_that_cannot_import_is_given_up(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tenuto.embedded.starting.is_forkable", lambda spec: True)
    (layout.root / "site").mkdir()
    (layout.root / "site/sitecustomize.py").write_text(
        "import os, sys\n'tenuto.embedded.preload' in sys.orig_argv and os._exit(3)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(layout.root / "site"))
    started = Started(layout)
    try:
        assert not any(await asyncio.gather(*(started.start(name, "sleeper") for name in ("one", "two"))))
        assert not await started.start("three", "sleeper")
    finally:
        await started.starter.stop()
    [warning] = started.warnings()
    assert warning.endswith("starts as an interpreter of its own, without the preloaded parent: exit code 3")
    assert len(started.lines) == 5
