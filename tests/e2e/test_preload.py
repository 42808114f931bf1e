"""`tenuto up` with its preloaded parent: what happens to the parent stops nothing, and it is never left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tenuto.embedded.cluster import is_parent, marked_processes
from tenuto.embedded.files import Layout, read_state
from tests.e2e.test_up_down import COMMAND, PROCESSES, WAIT_SECONDS_MAX, User, alive, user

__all__ = ["user"]
PARTS = PROCESSES - {"postgres", "nats"}
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def started(user: User) -> None:
    """With interpreters of their own, as for any user."""
    user.forked_up = False


def parents(user: User) -> set[int]:
    """Ids of preloaded parents; at most one, beside what is just being forked."""
    return {process.pid for process in marked_processes(Layout(user.directory.resolve())) if is_parent(process)}


def parent(user: User, *, other_than: int | None = None) -> int:
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while len(found := parents(user) - {other_than}) != 1:
        assert time.monotonic() < deadline, "no preloaded parent came"
        time.sleep(0.02)
    return found.pop()


def log(user: User) -> str:
    return (user.directory / "logs/supervisor.log").read_text()


def comes_back(user: User, name: str) -> int:
    """Kills the process; returns the id of the next one."""
    pid = user.pid_of(name)
    os.kill(pid, signal.SIGKILL)
    user.wait_status(lambda now: now["processes"][name]["pid"] not in (None, pid) and "error" not in now)
    return user.pid_of(name)


def test_what_happens_to_the_parent_stops_nothing(user: User) -> None:
    user.ok("up", "-d")
    first, now = parent(user), user.status()
    assert set(now["processes"]) == PROCESSES
    assert {path.stem for path in (user.directory / "logs").glob("*.log")} == {*PARTS, "supervisor"}
    pids = {name: now["processes"][name]["pid"] for name in PARTS}
    for name, pid in pids.items():
        process = psutil.Process(pid)
        module = {"relay": "tenuto.kernel.relay", "agent": "tenuto.workers.agent"}.get(name, f"tenuto.services.{name}")
        assert (process.ppid(), process.cmdline()[1:], os.getsid(pid)) == (first, ["-m", module], pid)
        assert process.environ()["TENUTO_NATS_USER"].startswith(name)
        assert ("TENUTO_DATABASE_URL" in process.environ()) == (name != "agent")

    os.kill(first, signal.SIGKILL)
    second = parent(user, other_than=first)
    assert {name: user.pid_of(name) for name in PARTS} == pids
    assert psutil.Process(comes_back(user, "tracker")).ppid() == second
    assert "tracker ended (a signal, which is unknown" in log(user)

    os.kill(second, signal.SIGSTOP)
    comes_back(user, "searcher")
    third = parent(user, other_than=second)
    assert psutil.Process(comes_back(user, "relay")).ppid() == third
    assert log(user).count("warning: ") == 1
    assert "searcher starts as an interpreter of its own, without the preloaded parent: it was stopped" in log(user)
    user.ok("down")
    assert user.nothing_runs()


@pytest.mark.parametrize("stopped", [False, True])
def test_the_parent_leaves_with_its_supervisor(user: User, stopped: bool) -> None:
    user.forked_up = stopped  # the same parent: what it does is seen once in an interpreter of its own
    user.ok("up", "--detach")
    first, state = parent(user), read_state(Layout(user.directory.resolve()))
    assert state is not None
    if stopped:
        os.kill(first, signal.SIGSTOP)
    os.kill(state.supervisor_pid, signal.SIGKILL)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not stopped and alive(first):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert user.run("agent", "ls").returncode == 0  # the services go on without it
    user.ok("up", "--detach")
    assert not alive(first)
    again = user.status()["processes"]
    assert psutil.Process(again["gateway"]["pid"]).ppid() == parent(user)
    assert again["postgres"]["pid"] == state.processes["postgres"].pid
    assert not any(alive(pid) for name in PARTS if (pid := state.processes[name].pid) is not None)
    user.ok("down")
    assert user.nothing_runs()


@pytest.mark.parametrize("forks", [0, 1])
def test_a_parent_that_is_killed_in_the_middle_of_the_start(user: User, forks: int) -> None:
    starting = subprocess.Popen([COMMAND, "up", "-d"], env=user.environment)
    try:
        found = parent(user)
        with contextlib.suppress(psutil.NoSuchProcess):
            while len(psutil.Process(found).children()) < forks:
                time.sleep(0.001)
            os.kill(found, signal.SIGKILL)
        assert starting.wait(timeout=WAIT_SECONDS_MAX) == 0
    finally:
        starting.kill()
        starting.wait()
    assert set(user.status()["processes"]) == PROCESSES
    assert "preload ended (signal 9)" in log(user)
    user.ok("down")
    assert user.nothing_runs()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    (tmp_path / "sitecustomize.py").write_text("import os, sys\n'tenuto.embedded.preload' in sys.orig_argv and os._exit(3)\n")
    return tmp_path


def test_without_the_parent_each_is_an_interpreter_of_its_own(user: User, broken: Path) -> None:
    user.environment["TENUTO_PRELOAD"] = "0"
    user.ok("up", "-d")
    assert parents(user) == set()
    assert "warning" not in log(user)
    user.ok("down")
    del user.environment["TENUTO_PRELOAD"]
    user.environment["PYTHONPATH"] = str(broken)
    user.ok("up", "-d")
    assert set(user.status()["processes"]) == PROCESSES
    assert log(user).count("warning: ") == 1
    assert "an interpreter of its own, without the preloaded parent: exit code 3" in log(user)
    user.ok("down")
    assert user.nothing_runs()
