"""An sshd of the tests' own on loopback, with a configuration, keys and a port of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

from tenuto.embedded.process import choose_port

START_SECONDS_MAX = 20.0
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
    found = Sshd(directory, choose_port())
    (directory / "sshd_config").write_text(CONFIGURATION.format(port=found.port, directory=directory))
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # Debian's sshd gives its rights up in there
    with (directory / "sshd.log").open("wb") as log:
        process = subprocess.Popen([PROGRAM, "-D", "-e", "-f", str(directory / "sshd_config")], stderr=log, stdout=log)
    try:
        _wait(found)
        yield found
    finally:
        process.terminate()
        process.wait(10)


def _wait(found: Sshd) -> None:
    deadline = time.monotonic() + START_SECONDS_MAX
    while True:
        try:
            socket.create_connection(("127.0.0.1", found.port), timeout=1).close()
            return
        except OSError:
            assert time.monotonic() < deadline, (found.directory / "sshd.log").read_text()
            time.sleep(0.05)
