"""The marks by which the processes of a run and of a cluster are found: read from environments that the kernel does not always
show."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pytest

from tenuto.kernel.process_environment import variable_of
from tenuto.workers.agent.runtimes.process import processes
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE, marked

BECOMES_ANOTHER = 'exec /bin/sh -c "$0" "$0"'
LOOKS = 2_000
"""Without a second read, about one look in a hundred found nothing."""


def test_a_process_that_becomes_another_program_again_and_again_is_found_at_each_look(tmp_path: Path) -> None:
    restless = subprocess.Popen(["/bin/sh", "-c", BECOMES_ANOTHER, BECOMES_ANOTHER], env={RUN_VARIABLE: f"{tmp_path}:1-1-1"})
    try:
        assert {variable_of(restless.pid, RUN_VARIABLE) for _ in range(LOOKS)} == {f"{tmp_path}:1-1-1"}
        assert marked(tmp_path) == {restless.pid: "1-1-1"}
    finally:
        restless.kill()
        restless.wait()


def test_a_process_without_an_environment_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node has hundreds: the kernel's own, those that ended and are not collected, daemons."""

    def wait(seconds: float) -> None:
        raise AssertionError("nothing has to be waited for")

    bare = subprocess.Popen(["/bin/sh", "-c", "echo begun; read -r line"], env={}, stdin=-1, stdout=-1)
    ended = subprocess.Popen(["/bin/true"], env={})
    try:
        assert bare.stdout is not None
        assert bare.stdout.readline() == b"begun\n"
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        monkeypatch.setattr(time, "sleep", wait)
        assert [processes._mark_of(pid) for pid in (bare.pid, ended.pid, 2)] == ["", "", ""]
    finally:
        bare.communicate()
        ended.wait()
