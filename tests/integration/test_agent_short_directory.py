"""The directory that an agent has under the usual temporary directory, where its own is too deep: nothing is left of it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tenuto.workers.agent.rpc import WorkerDoor, WorkerServer
from tenuto.workers.agent.runtimes.docker.door import ContainerSocket
from tenuto.workers.agent.runtimes.endpoint import UnixEndpoint
from tenuto.workers.agent.runtimes.private_directories import ShortDirectory, short_directory, sweep_short_directories
from tenuto.workers.agent.runtimes.process.processes import RUN_VARIABLE
from tenuto.workers.agent.runtimes.process.scratch import Scratch

DEEP = "deep" * 30
AGENT = """
import sys
from pathlib import Path
from tenuto.workers.agent.runtimes.process.scratch import Scratch
print(Scratch(Path(sys.argv[1]), {"TMPDIR": "/fast"}).make("1-1-1"), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The usual temporary directory, of which pytest has made its own before. Its path is short, for sockets."""
    with tempfile.TemporaryDirectory(prefix="t-") as name:
        monkeypatch.setattr(tempfile, "tempdir", name)
        monkeypatch.setenv("TMPDIR", name)
        yield Path(name)


@contextmanager
def agent_on(directory: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has made the temporary directory of a run."""
    process = subprocess.Popen([sys.executable, "-c", AGENT, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        made = Path(process.stdout.readline().decode().strip())
        assert made.is_dir()
        (made / "file").touch()
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("kind", [UnixEndpoint, ContainerSocket])
async def test_an_agent_that_ends_removes_its_socket_s_directory(
    temporary: Path, tmp_path: Path, kind: type[UnixEndpoint]
) -> None:
    endpoint, scratch = kind(tmp_path / DEEP), Scratch(tmp_path / DEEP, {})
    server = WorkerServer(WorkerDoor.__new__(WorkerDoor), endpoint)  # nobody calls
    await server.start()
    scratch.make("1-1-1")
    [socket] = temporary.glob("*/agent.sock")
    await server.stop()
    assert not socket.exists()
    assert socket.parent.exists(), "a run has its temporary directory there, or a container has it mounted"
    scratch.remove("1-1-1")
    endpoint.forsake(in_use=False)
    scratch.close()
    assert list(temporary.iterdir()) == []


def test_the_next_agent_removes_what_a_killed_one_left(temporary: Path, tmp_path: Path) -> None:
    left = short_directory(tmp_path / DEEP)
    with agent_on(tmp_path / DEEP) as agent:
        sweep_short_directories()
        assert (left / "tmp/1-1-1/file").exists(), "its agent lives"
        agent.kill()
        agent.wait()
        worker = subprocess.Popen(["sleep", "600"], env={**os.environ, RUN_VARIABLE: f"{tmp_path / DEEP}:1-1-1"})
        try:
            sweep_short_directories()
            assert (left / "tmp/1-1-1/file").exists(), "its worker lives"
        finally:
            worker.kill()
            worker.wait()
    other = UnixEndpoint(tmp_path / "other")
    other.prepare()
    assert not left.exists()
    other.closed()  # its path, too, may be too deep where tests run side by side
    assert list(temporary.iterdir()) == []


def test_what_no_agent_is_known_to_have_left_stays(temporary: Path, tmp_path: Path) -> None:
    taken = ShortDirectory(tmp_path / DEEP)
    taken.take(open_for_passing=False)
    taken._let_go()  # as the kernel does at its agent's end
    note = taken.path / "agent"
    note.write_text(note.read_text().replace("pid:[", "pid:[1"))
    mounted = ShortDirectory(tmp_path / DEEP / "door", for_containers=True)
    mounted.take(open_for_passing=False)
    mounted._let_go()
    others = temporary / f"tenuto-{os.getuid()}-0123456789abcdef"
    others.mkdir(mode=0o700)
    sweep_short_directories()
    assert {path.name for path in temporary.iterdir()} == {taken.path.name, mounted.path.name, others.name}


def test_one_that_is_removed_meanwhile_is_made_again(temporary: Path, tmp_path: Path) -> None:
    first, second = ShortDirectory(tmp_path / DEEP), ShortDirectory(tmp_path / DEEP)
    first.take(open_for_passing=False)
    second.take(open_for_passing=False)
    first.leave()
    assert first.path.exists(), "the other part of the agent has it"
    second.leave()
    assert not first.path.exists()
    first.take(open_for_passing=True)
    assert first.path.stat().st_mode & 0o777 == 0o711
    first.leave()
    assert list(temporary.iterdir()) == []
