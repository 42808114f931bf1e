"""Commands that tests have forked say and do what the same commands do that a user starts."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import psutil
import pytest

from tenuto.embedded.cluster import is_parent, marked_processes
from tenuto.embedded.files import Layout
from tenuto.embedded.preload import SPACE_VARIABLE
from tenuto.embedded.process import is_alive
from tests.support import commands
from tests.support.live_cluster import COMMAND_SECONDS_MAX, CONFINED, ROOT, TENUTO, LiveCluster

CONFIG = ROOT / "tests" / "e2e" / "models" / "regression" / "config.yaml"


def seen(done: subprocess.CompletedProcess[str]) -> tuple[int, str, str]:
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("--version",),
        ("exp", "--help"),
        ("exp", "ls"),
        ("exp", "create", "nothing.yaml", "."),
        ("no-such-command",),
        ("exp", "create", str(CONFIG), "--no-such-option"),
    ],
    ids=["version", "help", "no cluster", "no file", "no command", "no option"],
)
def test_it_says_what_a_started_one_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]) -> None:
    monkeypatch.chdir(tmp_path)
    environment = {**os.environ, "TENUTO_DATA_DIRECTORY": str(tmp_path / "nothing"), "COLUMNS": "61"}
    environment = {name: value for name, value in environment.items() if name not in ("TENUTO_URL", "TENUTO_TOKEN")}
    command = [str(TENUTO), *words]
    started = subprocess.run(
        command,
        capture_output=True,
        text=True,
        env=environment,
        stdin=subprocess.DEVNULL,
        timeout=COMMAND_SECONDS_MAX,
        check=False,
    )
    assert started.stdout + started.stderr
    assert seen(commands.run(words, environment, COMMAND_SECONDS_MAX)) == seen(started)


def test_one_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    fifo = tmp_path / "config.yaml"
    os.mkfifo(fifo)  # reading it takes until somebody writes
    with pytest.raises(subprocess.TimeoutExpired):
        commands.run(("exp", "create", str(fifo), str(tmp_path)), os.environ, 0.5)
    assert commands.run(("--version",), os.environ, COMMAND_SECONDS_MAX).returncode == 0
    # Ended children of other tests, which nobody has waited for, have no command line.
    living = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    [server] = [child for child in living if str(commands.SERVER) in child.cmdline()]
    psutil.wait_procs(server.children(), timeout=COMMAND_SECONDS_MAX)
    assert server.children() == []


@pytest.mark.slow
def test_a_forked_cluster_looks_like_a_started_one(tmp_path: Path) -> None:
    layout = Layout.of(str(tmp_path / "cluster"))
    with LiveCluster(tmp_path / "cluster", warm=False) as live:
        supervisor = psutil.Process(live.state()["supervisor_pid"])
        shown = ["-m", "tenuto.embedded.detached", "--data-dir", str(layout.root)]
        assert (supervisor.cmdline()[1:5], os.getsid(supervisor.pid)) == (shown, supervisor.pid)
        assert supervisor.environ() == {
            name: value for name, value in {**live.environment, **CONFINED}.items() if name != SPACE_VARIABLE
        }
        [parent] = [process for process in marked_processes(layout) if is_parent(process)]
        assert (parent.ppid(), os.getsid(parent.pid)) == (supervisor.pid, parent.pid)
        gateway = psutil.Process(live.pid("gateway"))
        assert (gateway.ppid(), gateway.cmdline()[1:]) == (parent.pid, ["-m", "tenuto.services.gateway"])
        assert gateway.cwd() == str(layout.root)
        assert live.cli("agent", "ls").returncode == 0

        parent.kill()
        live.kill("tracker")
        live.wait_for(lambda: [process.ppid() for process in marked_processes(layout) if is_parent(process)] == [supervisor.pid])
        live.wait_for(lambda: live.state()["processes"]["tracker"]["state"] == "running")
    assert list(marked_processes(layout)) == []
    assert not is_alive(supervisor)
