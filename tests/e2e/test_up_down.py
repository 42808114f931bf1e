"""`tenuto up`, `status`, `down` as a user runs them, with every process of the cluster."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tenuto.embedded.cluster import marked_processes
from tenuto.embedded.files import Layout
from tenuto.embedded.postgres_home import HOME_VARIABLE
from tenuto.embedded.process import REST_PORTS, is_alive
from tests.support.live_cluster import COLD, CONFINED, tenuto
from tests.support.ports import own_port

COMMAND = Path(sys.executable).with_name("tenuto")
PROCESSES = {"postgres", "nats", "relay", "searcher", "scheduler", "launcher", "tracker", "gateway", "agent"}
COMMAND_SECONDS_MAX = 240.0
"""`up` and `down` give up by themselves before that, and say why."""
WAIT_SECONDS_MAX = 240.0
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def alive(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False


class User:
    """Runs commands against one data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        kept = {name: value for name, value in os.environ.items() if not name.startswith("TENUTO_") or name == HOME_VARIABLE}
        # Nothing is trained here; one test has warm workers, to see that they end, too.
        self.environment = kept | {"TENUTO_DATA_DIRECTORY": str(directory), **COLD}
        self.forked_up = True
        """`up --detach` is forked, with what it starts: for tests of what happens after that."""
        self._has_port = False

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        if arguments[:1] == ("up",) and not {"--port", "--data-dir"} & {*arguments} and not self._has_port:
            # One of its own, which it keeps: before a second `up` another cluster may take the usual one.
            arguments, self._has_port = (*arguments, "--port", str(own_port(REST_PORTS))), True
        return tenuto(arguments, self.environment | environment, COMMAND_SECONDS_MAX, forked_up=self.forked_up)

    def ok(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def status(self, *options: str) -> dict[str, Any]:
        done = self.run("status", "--json", *options)
        assert done.stdout, done
        return json.loads(done.stdout)

    def wait_status(self, what: Callable[[dict[str, Any]], bool], *options: str) -> dict[str, Any]:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while not what(now := self.status(*options)):
            assert time.monotonic() < deadline, f"it did not come within {WAIT_SECONDS_MAX} s; last: {now}"
            time.sleep(0.5)  # each question is a command
        return now

    def pid_of(self, name: str) -> int:
        pid: int = self.wait_status(lambda now: now["processes"][name]["pid"] is not None)["processes"][name]["pid"]
        return pid

    def nothing_runs(self) -> bool:
        return not list(marked_processes(Layout(self.directory.resolve())))


@pytest.fixture
def user() -> Iterator[User]:
    directory = Path(tempfile.mkdtemp(prefix="tenuto-e2e-"))
    directory.chmod(0o711)
    made = User(directory)
    yield made
    made.run("down")
    shutil.rmtree(directory, ignore_errors=True)


def test_up_status_down_and_up_again_in_the_foreground(user: User) -> None:
    user.forked_up = False
    for name in COLD:
        del user.environment[name]
    said = user.ok("up", "--detach", "--cpu-slots", "2")
    before = user.status()
    url = before["url"]
    assert f"Tenuto is up at {url}" in said
    assert set(before["processes"]) == PROCESSES
    assert (user.directory / "rest.token").stat().st_mode & 0o777 == 0o600

    again = user.run("up", "--detach")
    assert again.returncode == 1
    assert again.stderr == f"Error: The cluster in {user.directory.resolve()} is already up at {url}; `tenuto down` stops it.\n"

    wrong = user.run("exp", "ls", TENUTO_TOKEN="wrong")
    assert wrong.returncode == 1
    assert "refused the token from TENUTO_TOKEN" in wrong.stderr

    assert json.loads(user.ok("log", "verify", "--json"))["tampered"] is None
    pids = [process["pid"] for process in before["processes"].values()]
    pids.append(json.loads((user.directory / "cluster.json").read_text())["supervisor_pid"])
    user.ok("down")
    assert not any(alive(pid) for pid in pids)
    assert user.nothing_runs()
    assert user.status()["up"] is False
    assert user.run("exp", "ls").returncode == 1

    up = subprocess.Popen([COMMAND, "up"], stdout=subprocess.PIPE, text=True, env=CONFINED | user.environment)
    assert up.stdout is not None
    assert f"Tenuto is up at {url}" in up.stdout.readline()
    assert user.status()["head"] >= before["head"]
    up.send_signal(signal.SIGINT)  # Ctrl-C, as it runs in the foreground
    assert up.wait(timeout=120) == 0
    up.stdout.close()
    assert user.nothing_runs()


def test_everything_that_is_killed_comes_back_and_down_needs_no_supervisor(user: User) -> None:
    user.ok("up", "--detach")
    for name in user.status()["processes"]:
        pid = user.pid_of(name)  # as it is now: what was killed before may have ended others, which then came back
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        user.wait_status(lambda now, name=name, pid=pid: now["processes"][name]["pid"] not in (None, pid) and "error" not in now)
    assert json.loads(user.ok("log", "verify", "--json"))["tampered"] is None

    state = json.loads((user.directory / "cluster.json").read_text())
    os.kill(state["supervisor_pid"], signal.SIGKILL)
    while alive(state["supervisor_pid"]):
        time.sleep(0.02)
    assert user.run("agent", "ls").returncode == 0  # the services go on without it
    user.ok("down")
    assert not any(alive(process["pid"]) for process in state["processes"].values())


CONFIG = "name: a\nentrypoint: train.py\nsearcher: {name: single, metric: a, max_length: {batches: 9}}\n"
SCRIPT = """
import os, pathlib, tempfile, time
pathlib.Path(tempfile.gettempdir(), "forgotten").touch()
print("TMPDIR", tempfile.gettempdir(), flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("killed", [False, True])
def test_nothing_is_left_in_the_temporary_directory(user: User, tmp_path: Path, killed: bool) -> None:
    """Of a data directory that is too deep for sockets. `killed`: all of it at once, and then it is started again."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text(SCRIPT)
    (tmp_path / "config.yaml").write_text(CONFIG)
    with tempfile.TemporaryDirectory(prefix="t-") as temporary:
        deep = user.directory / ("deep" * 20)
        user.directory = deep
        user.environment |= {"TENUTO_DATA_DIRECTORY": str(deep), "TMPDIR": temporary}
        try:
            user.ok("up", "--detach", "--cpu-slots", "1")
            user.ok("exp", "create", str(tmp_path / "config.yaml"), str(tmp_path / "code"))
            user.wait_status(lambda _: any(Path(temporary).glob("tenuto-*/tmp/*/forgotten")))
            assert list(Path(temporary).glob("tenuto-*/agent.sock"))
            if killed:
                os.kill(json.loads((deep / "cluster.json").read_text())["supervisor_pid"], signal.SIGKILL)
                for process in marked_processes(Layout(deep.resolve())):
                    with contextlib.suppress(psutil.NoSuchProcess):
                        process.kill()
                assert os.listdir(temporary) != []
                user.ok("up", "--detach", "--cpu-slots", "1")
        finally:
            user.run("down")
        assert os.listdir(temporary) == []


def test_a_taken_port(user: User) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = user.run("up", "--detach", "--port", str(port))
    assert (done.returncode, done.stderr) == (
        1,
        f"Error: Port {port} of 127.0.0.1 is taken by another program: choose another with --port.\n",
    )
    assert user.nothing_runs()


def test_a_file_in_the_way(user: User) -> None:
    (user.directory / "file").write_text("")
    done = user.run("up", "--detach", "--data-dir", str(user.directory / "file" / "data"))
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: Cannot use {user.directory.resolve()}/file/data: a part of this path is a file.")


@pytest.fixture
def mounted(user: User) -> Iterator[Path]:
    place = user.directory / "disk"
    place.mkdir()
    if (
        os.geteuid() != 0
        or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=300m", "none", place], capture_output=True).returncode
    ):
        pytest.skip("mounting needs root")
    yield place
    user.run("down", "--data-dir", str(place))
    subprocess.run(["umount", "-l", place], check=True)


def test_no_space_left(user: User, mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,size=20m", mounted], check=True)
    done = user.run("up", "--detach", "--data-dir", str(mounted))
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: No space left on the disk that holds {mounted.resolve()}: free some")


def test_a_disk_that_cannot_be_written(user: User, mounted: Path) -> None:
    subprocess.run(["mount", "-o", "remount,ro", mounted], check=True)
    done = user.run("up", "--detach", "--data-dir", str(mounted))
    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: Cannot write to {mounted.resolve()}: Read-only file system. Choose a directory")


def test_the_disk_fills_while_the_cluster_runs(user: User, mounted: Path) -> None:
    user.ok("up", "--detach", "--data-dir", str(mounted))
    free = shutil.disk_usage(mounted).free
    filler = mounted / "filler"
    subprocess.run(["fallocate", "-l", str(free), filler], check=False)
    state = json.loads((mounted / "cluster.json").read_text())
    assert alive(state["supervisor_pid"])
    filler.unlink()
    user.wait_status(lambda now: "error" not in now, "--data-dir", str(mounted))
    user.ok("down", "--data-dir", str(mounted))
