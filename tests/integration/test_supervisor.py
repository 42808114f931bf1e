"""The supervisor with real servers and stand-in processes: what dies comes back, what it started it stops."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from tenuto.embedded import cluster, port_claims, supervisor
from tenuto.embedded.cluster import MARK, ProcessSpec, marked_processes, stop_everything
from tenuto.embedded.files import Layout, Lock, is_up, read_state
from tenuto.embedded.options import Options
from tenuto.embedded.port_claims import PortClaim
from tenuto.embedded.process import ServerError, port_is_free
from tenuto.embedded.supervisor import ClusterSupervisor
from tenuto.embedded.worker_account import WorkerRights
from tenuto.kernel.clock import SystemClock
from tests.support.ports import own_port
from tests.support.waiting import until_on_loop

SLEEPER = (sys.executable, "-c", "import time; time.sleep(600)", "-m", "tenuto.services.sleeper")
WORKER = (sys.executable, "-c", "import time; time.sleep(600)")


@pytest.fixture
def layout() -> Iterator[Layout]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-up-"))
    directory.chmod(0o711)
    made = Layout(directory)
    made.create()
    yield made
    asyncio.run(stop_everything(made))
    shutil.rmtree(directory, ignore_errors=True)


def worker_of(layout: Layout) -> subprocess.Popen[bytes]:
    return subprocess.Popen(WORKER, env={**os.environ, MARK: str(layout.root)})


@pytest.fixture
async def up(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ClusterSupervisor]:
    environment = {**os.environ, MARK: str(layout.root)}
    monkeypatch.setattr(supervisor, "process_specs", lambda *_, **__: [ProcessSpec("sleeper", SLEEPER, environment)])
    monkeypatch.setattr(supervisor, "_answers", lambda *_: True)
    monkeypatch.setenv("TENUTO_PRELOAD", "0")  # stand-ins are not forked
    made = ClusterSupervisor(Options(layout), SystemClock(), lambda _: None, WorkerRights())
    await made.start()
    yield made
    await made.stop()


async def changed(layout: Layout, name: str, old_pid: int | None) -> int:
    """The pid of the process once it runs under another one."""
    while True:
        state = read_state(layout)
        if state is not None and (found := state.processes.get(name)) and found.pid not in (None, old_pid):
            assert found.pid is not None
            return found.pid
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("name", ["sleeper", "postgres", "nats"])
async def test_what_is_killed_comes_back(up: ClusterSupervisor, layout: Layout, name: str) -> None:
    pid = await changed(layout, name, None)
    os.kill(pid, signal.SIGKILL)
    again = await changed(layout, name, pid)
    assert psutil.pid_exists(again)
    state = read_state(layout)
    assert state is not None
    assert state.processes[name].restarts >= 1


async def test_stop_leaves_nothing_running(up: ClusterSupervisor, layout: Layout) -> None:
    worker = worker_of(layout)
    servers = [await changed(layout, name, None) for name in ("postgres", "nats", "sleeper")]
    await up.stop()
    worker.wait(timeout=120)
    assert not list(marked_processes(layout))
    assert not [pid for pid in servers if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


async def test_a_killed_supervisor_leaves_things_that_the_next_one_takes_over(
    up: ClusterSupervisor, layout: Layout, monkeypatch: pytest.MonkeyPatch
) -> None:
    pids = {name: await changed(layout, name, None) for name in ("postgres", "nats", "sleeper")}
    for task in up._tasks:  # as if it was killed: it acts no more
        task.cancel()
    if up._port_claim is not None:
        up._port_claim.release()
    worker = worker_of(layout)
    second = ClusterSupervisor(Options(layout), SystemClock(), lambda _: None, WorkerRights())
    await second.start()
    try:
        state = read_state(layout)
        assert state is not None
        assert (state.processes["postgres"].pid, state.processes["nats"].pid) == (pids["postgres"], pids["nats"])
        assert state.processes["sleeper"].pid != pids["sleeper"]
        assert worker.poll() is None  # the agent finds its workers again
    finally:
        await second.stop()
        worker.wait(timeout=120)


async def test_a_process_that_never_starts_is_named(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TENUTO_PRELOAD", "0")
    broken = (sys.executable, "-c", "import sys; sys.exit('its setting is wrong')")
    monkeypatch.setattr(supervisor, "process_specs", lambda *_, **__: [ProcessSpec("broken", broken, dict(os.environ))])
    made = ClusterSupervisor(Options(layout), SystemClock(), lambda _: None, WorkerRights())
    with pytest.raises(ServerError, match="broken does not start: exit code 1: its setting is wrong"):
        await made.start()
    await made.stop()


def test_the_lock_says_who_holds_it(layout: Layout) -> None:
    assert not is_up(layout)
    lock = Lock(layout.lock)
    assert lock.acquire()
    assert is_up(layout)
    assert not Lock(layout.lock).acquire()
    assert lock.holder() == os.getpid()
    lock.release()
    assert not is_up(layout)


def test_the_rest_port_stays_and_a_taken_one_is_named(layout: Layout) -> None:
    port, claim = cluster.rest_port(layout, None)
    with pytest.raises(ServerError, match=f"^Port {port} "):  # claimed, if not bound yet
        cluster.rest_port(layout, port)
    other = Layout(layout.root / "agent")
    elsewhere, others = cluster.rest_port(other, None)
    assert elsewhere != port
    others.release()
    claim.release()
    again, claim = cluster.rest_port(layout, None)
    assert again == port
    claim.release()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = taken.getsockname()[1]
        assert not port_is_free(number)
        with pytest.raises(
            ServerError, match=rf"^Port {number} of 127.0.0.1 is taken by another program: choose another with --port.$"
        ):
            cluster.rest_port(layout, number)


@pytest.mark.parametrize("platform", ["linux", "darwin"])
def test_a_claim_on_a_port_leaves_no_file(platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port_claims, "sys", SimpleNamespace(platform=platform))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    port = own_port()
    claim, other = PortClaim(port), PortClaim(port)
    assert claim.acquire()
    assert not other.acquire()
    claim.release()
    assert list(tmp_path.iterdir()) == []
    assert other.acquire()
    other.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("removed", ["nats/jetstream", "nats/jetstream/jetstream/TENUTO_SERVICES", "nats"])
async def test_a_bus_whose_store_is_removed_gets_a_fresh_one_on_the_same_port(
    up: ClusterSupervisor, layout: Layout, removed: str
) -> None:
    from tenuto.kernel import bus
    from tenuto.kernel.settings import Settings
    from tenuto.schemas import subjects

    pid, server = await changed(layout, "nats", None), up._nats
    settings = Settings(nats_url=server.url, nats_user="relay", nats_password=up._users.services()["relay"])
    client = await bus.connect(settings)
    try:
        js = client.jetstream()
        await bus.ensure_streams(js, settings)
        await js.publish(subjects.INGRESS_PROBE, b"lost")
        await until_on_loop(lambda: len(server._seen), lambda seen: seen >= 4)  # seen as it was, with its streams
        shutil.rmtree(layout.root / removed)
        await changed(layout, "nats", pid)
        assert settings.nats_url == server.url
        await until_on_loop(lambda: client.is_connected)  # it reconnects by itself
        await bus.ensure_streams(js, settings)
        assert (await js.publish(subjects.INGRESS_PROBE, b"kept")).seq == 1
    finally:
        await bus.close(client)
    state = read_state(layout)
    assert state is not None
    assert "was removed while it ran" in state.processes["nats"].message
