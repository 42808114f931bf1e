"""An sshd of the tests' own on loopback, with a configuration, keys and a port of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tests.support.ports import own_port

START_SECONDS_MAX = 120.0
START_TRIES_MAX = 5
PROGRAM = shutil.which("sshd", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"])) or ""
CONFIGURATION = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {directory}/host_key
AuthorizedKeysFile {directory}/authorized_keys
PidFile {directory}/pid
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UsePAM no
StrictModes no
MaxStartups 100
"""


def lack() -> str:
    return "" if PROGRAM else "There is no sshd: make system-packages."


@dataclass(frozen=True)
class Sshd:
    directory: Path
    port: int

    @property
    def known_hosts(self) -> str:
        return f"[127.0.0.1]:{self.port} {(self.directory / 'host_key.pub').read_text()}"


@contextlib.contextmanager
def sshd(directory: Path) -> Iterator[Sshd]:
    """Listening. Who has `directory/key` is let in."""
    for name in ("host_key", "key"):
        made = asyncssh.generate_private_key("ssh-ed25519")
        made.write_private_key(directory / name)
        (directory / name).chmod(0o600)
        made.write_public_key(directory / f"{name}.pub")
    shutil.copy(directory / "key.pub", directory / "authorized_keys")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian's sshd gives its rights up in there
    with contextlib.ExitStack() as stack:
        for _ in range(START_TRIES_MAX):
            found = Sshd(directory, own_port())
            if stack.enter_context(_running(found)):
                break
        else:
            raise AssertionError(f"sshd does not start: {(directory / 'sshd.log').read_text()}")
        yield found


@contextlib.contextmanager
def _running(found: Sshd) -> Iterator[bool]:
    """False if another program took its port first."""
    configuration = found.directory / "sshd_config"
    configuration.write_text(CONFIGURATION.format(port=found.port, directory=found.directory))
    with (found.directory / "sshd.log").open("wb") as log:
        # It writes its title over its environment, by which a killed run's processes are found: so it ends with its parent.
        command = ["setpriv", "--pdeathsig", "KILL", PROGRAM, "-D", "-e", "-f", str(configuration)]
        process = subprocess.Popen(command, stderr=log, stdout=log)
    try:
        yield _listens(found, process)
    finally:
        process.terminate()
        process.wait(60)


def _listens(found: Sshd, process: subprocess.Popen[bytes]) -> bool:
    deadline, log = time.monotonic() + START_SECONDS_MAX, found.directory / "sshd.log"
    while "Server listening" not in log.read_text(errors="replace"):
        if process.poll() is not None:
            return False
        assert time.monotonic() < deadline, log.read_text(errors="replace")
        time.sleep(0.05)
    return True
