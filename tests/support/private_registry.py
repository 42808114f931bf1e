"""A registry of images that asks for a password: Debian's docker-registry, on a port of this machine."""

from __future__ import annotations

import contextlib
import io
import shutil
import signal
import socket
import subprocess
import tarfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import docker_daemon
from tests.support.ports import own_port

START_SECONDS_MAX = 60.0
USER, PASSWORD = "olga", "word-of-olga"
OTHER_USER, OTHER_PASSWORD = "paul", "word-of-paul"
_PASSWORDS = """\
olga:$2b$05$abcdefghijklmnopqrstuu/CG9QPlPdF/O7vRnwTNV0eXNRagWIaG
paul:$2b$05$abcdefghijklmnopqrstuuwE8N8A5RLXuFldjgC94QgWmwlDFgdF.
"""
_SETTINGS = """\
version: 0.1
log: {{level: info, accesslog: {{disabled: false}}}}
storage: {{filesystem: {{rootdirectory: {directory}/data}}}}
http: {{addr: "127.0.0.1:{port}"}}
auth: {{htpasswd: {{realm: private, path: {directory}/htpasswd}}}}
"""


def lack() -> str:
    """What packages of Debian would bring; empty if it is there."""
    if reason := docker_daemon.lack():
        return reason
    return "" if shutil.which("docker-registry") else "There is no docker-registry: make system-packages."


@dataclass
class Registry:
    host: str
    log: Path

    def store(self, client: Any, name: str) -> str:
        """Stores an image that no other registry has, and removes it from the daemon: its name."""
        client.import_image_from_data(_unique(), repository=f"{self.host}/{name}", tag="1", changes=[])
        return self.push(client, f"{self.host}/{name}:1")

    def push(self, client: Any, image: str) -> str:
        """Stores the daemon's image of this name, and removes it from the daemon."""
        repository, _, tag = image.rpartition(":")
        words = client.push(repository, tag=tag, stream=True, decode=True, auth_config={"username": USER, "password": PASSWORD})
        assert not [line for line in words if "error" in line]
        client.remove_image(image)
        return image


@contextlib.contextmanager
def registry(directory: Path) -> Iterator[Registry]:
    port = own_port()
    (directory / "htpasswd").write_text(_PASSWORDS)
    (directory / "config.yml").write_text(_SETTINGS.format(directory=directory, port=port))
    log = directory / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(["docker-registry", "serve", directory / "config.yml"], stdout=output, stderr=output)
    try:
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"docker-registry does not start: {log.read_text()[-500:]}")
            time.sleep(0.05)
        yield Registry(f"127.0.0.1:{port}", log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _unique() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        word = uuid.uuid4().hex.encode()
        item = tarfile.TarInfo("word")
        item.size = len(word)
        tar.addfile(item, io.BytesIO(word))
    return data.getvalue()
