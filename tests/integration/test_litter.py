"""Whoever runs tests to their end, interrupts or kills them finds no process and no file of theirs afterwards."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import janitor, litter
from tests.support.janitor import Owner

ROOT = Path(__file__).parents[2]
GONE_SECONDS_MAX = 240.0
"""Of a machine on which much else computes; the wait ends as soon as they are gone."""
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(sys.platform != "linux", reason="processes are found in /proc"),
]
REAL = """
import contextlib, json, os, tempfile
from pathlib import Path
from tests.support import janitor, sshd
from tests.support.live_cluster import LiveCluster

def test_real(postgres_server, nats, tmp_path):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/train.py").write_text("import time; time.sleep(600)")
    config = tmp_path / "config.yaml"
    config.write_text("name: a\\nentrypoint: train.py\\nsearcher: {{name: single, metric: a, max_length: {{batches: 9}}}}\\n")
    # Beside the cluster there is what a test may forget.
    Path(tempfile.mkstemp()[1]).write_text("forgotten")
    cluster = LiveCluster(Path(tempfile.mkdtemp()) / "data", warm=False)
    try:
        cluster.up()
        cluster.cli("exp", "create", config, tmp_path / "code")
        cluster.wait_for(lambda: bool(cluster.workers()))
        with contextlib.ExitStack() as stack:
            if not sshd.lack():  # it writes its title over its environment
                (tmp_path / "sshd").mkdir()
                stack.enter_context(sshd.sshd(tmp_path / "sshd"))
            pids = janitor.processes_of(os.getpid())
            with open({channel!r}, "w") as channel:
                channel.write(json.dumps({{"owner": str(janitor.Owner.this()), "pids": pids}}))
            with open({channel!r}) as channel:
                channel.read()
    finally:
        cluster.down()
"""
IDLE = "def test_idle():\n    pass\n"


@dataclass
class Run:
    """A run of tests in a temporary directory of its own."""

    temporary: Path
    process: subprocess.Popen[bytes]
    channel: Path

    def began(self) -> dict[str, object]:
        """What its test says once everything runs."""
        channel, ended = os.open(self.channel, os.O_RDONLY | os.O_NONBLOCK), os.pidfd_open(self.process.pid)
        try:
            poller = select.poll()
            for descriptor in (channel, ended):
                poller.register(descriptor, select.POLLIN)
            if ended in dict(poller.poll()):
                pytest.fail(f"its test failed: {self.process.communicate()[0].decode()}")
            os.set_blocking(channel, True)
            with open(channel, closefd=False) as text:
                said: dict[str, object] = json.loads(text.read())
            return said
        finally:
            os.close(channel)
            os.close(ended)

    def go_on(self) -> None:
        self.channel.open("w").close()

    def janitors(self) -> list[int]:
        """Descriptors of its janitors, which wait for its end."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if any(word.endswith(b"litter.watch(sys.argv[3])") for word in words) and str(self.temporary).encode() in words[-2]:
                found.append(os.pidfd_open(int(path.parent.name)))
        return found

    def all_ended(self, descriptors: list[int]) -> None:
        said, _ = self.process.communicate(timeout=GONE_SECONDS_MAX)
        for descriptor in descriptors:
            poller = select.poll()
            poller.register(descriptor, select.POLLIN)
            assert poller.poll(GONE_SECONDS_MAX * 1000), f"a janitor does not end: {said.decode()}"
            os.close(descriptor)


@pytest.fixture
def temporary(tmp_path: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="t-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o711)
        yield Path(name)


def run_of(text: str, temporary: Path, tmp_path: Path) -> Run:
    channel, file = tmp_path / "channel", tmp_path / "test_inner.py"
    if not channel.exists():
        os.mkfifo(channel)
    file.write_text(text.format(channel=str(channel)) if text == REAL else text)
    # A process of its own for the tests, as `make test` has them.
    options = ["-q", "-n", "1", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "tests.conftest", "--rootdir", str(ROOT)]
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *options, "-c", str(ROOT / "pyproject.toml"), str(file)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, "TMPDIR": str(temporary)},
        # Who runs these tests in the background (`make test &` in a script) has it ignored, which is inherited.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return Run(temporary, process, channel)


def left_of(run: Run, owner: Owner, before: litter.Seen) -> list[str]:
    """What others on this machine do meanwhile does not count."""
    found = [line for line in litter.left_behind(before, run.temporary) if str(run.temporary) in line]
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if str(run.temporary).encode() in (words := path.read_bytes()):
                found.append(f"process {path.parent.name}: {words!r}")
    return [*found, *(f"process {pid}" for pid in janitor.processes_of(owner.pid, owner.started))]


@pytest.mark.parametrize("how", ["to the end", "interrupted", "killed", "killed with its janitors"])
def test_nothing_is_left(temporary: Path, tmp_path: Path, how: str) -> None:
    before = litter.snapshot(temporary)
    run = run_of(REAL, temporary, tmp_path)
    try:
        said = run.began()
        (tmp_path / "owner").write_text(str(said["owner"]))
        owner = Owner.read(tmp_path / "owner")
        assert owner is not None
        pids = said["pids"]
        assert isinstance(pids, list)
        names = [Path(f"/proc/{pid}/comm").read_text().strip() for pid in pids if Path(f"/proc/{pid}").exists()]
        assert names.count("nats-server") == 2
        assert names.count("postgres") == 2, "its own children hide their environment"
        memory = {path for pid in pids for path in janitor.memory_of(pid)}
        assert memory
        janitors = run.janitors()
        assert len(janitors) == 2, "that of the run, and that of its process"
        if how == "to the end":
            run.go_on()
        elif how == "killed with its janitors":
            for descriptor in janitors:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        if how == "killed":  # it alone, as by `kill`: the rest of its group goes on
            run.process.kill()
        elif how != "to the end":
            os.killpg(run.process.pid, signal.SIGINT if how == "interrupted" else signal.SIGKILL)
        run.all_ended(janitors)
        if how == "killed with its janitors":
            assert left_of(run, owner, before)
            again = run_of(IDLE, temporary, tmp_path)
            again.process.communicate(timeout=GONE_SECONDS_MAX)
        assert left_of(run, owner, before) == []
        assert list(temporary.iterdir()) == []
        assert not [path for path in memory if path.exists()]
    finally:
        if run.process.poll() is None:
            os.killpg(run.process.pid, signal.SIGKILL)
