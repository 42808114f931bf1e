"""A Docker daemon of the tests' own, with an image that was in no registry. It weighs nothing: a container mounts directories of
this machine, its Python among them."""

from __future__ import annotations

import contextlib
import io
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tenuto.kernel.optional import NotInstalled, needed

START_SECONDS_MAX = 60.0
IMAGE, BARE_IMAGE = "tenuto/test:1", "tenuto/bare:1"
"""An image with the Python of the tests, and one without any Python."""
SYSTEM = ("/usr", "/lib", "/lib64", "/bin", "/sbin", "/etc")


def python_directories() -> tuple[str, ...]:
    """Directories of the tests' Python and of what is installed for it."""
    return tuple(sorted({sys.prefix, sys.base_prefix}))


def mounts() -> list[str]:
    """What a container of IMAGE has to mount to have a system and a Python."""
    directories = [path for path in SYSTEM if Path(path).is_dir() and not Path(path).is_symlink()]
    inside = [path for path in python_directories() if not any(Path(path).is_relative_to(item) for item in directories)]
    return [*directories, *inside]


def environment() -> dict[str, Any]:
    """`environment` of a configuration that runs in IMAGE."""
    return {"image": IMAGE, "pull": "never", "mounts": [{"source": item} for item in mounts()]}


def nobody() -> int:
    return pwd.getpwnam("nobody").pw_uid


def lack() -> str:
    """What packages of Debian would bring; empty if it is there."""
    return "" if shutil.which("dockerd") else "There is no Docker daemon: make system-packages."


def why_not() -> str:
    """Why there can be no daemon here; empty if there can."""
    if reason := lack():
        return reason
    if os.geteuid() != 0:
        return "Only root may start a Docker daemon"
    return ""


@dataclass
class Daemon:
    url: str
    directory: Path
    client: Any


@contextlib.contextmanager
def daemon() -> Iterator[Daemon | str]:
    """A daemon, or the reason why there is none."""
    if reason := why_not():
        yield reason
        return
    try:
        docker = needed("docker")
    except NotInstalled as error:
        yield str(error)
        return
    directory = Path(tempfile.mkdtemp(prefix="tenuto-docker-"))
    listening = directory / "docker.sock"
    log = directory / "log"
    command: list[str | Path] = [
        "dockerd", "--data-root", directory / "data", "--exec-root", directory / "exec", "-H", f"unix://{listening}",
        "--pidfile", directory / "docker.pid", "--bridge=none", "--iptables=false",
    ]  # fmt: skip
    try:
        with log.open("wb") as output:
            process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not _answers(listening) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if not _answers(listening):
            yield f"A Docker daemon cannot run on this machine: {log.read_text(errors='replace').strip()[-300:]}"
            return
        client = docker.APIClient(f"unix://{listening}", version="auto")
        with contextlib.closing(client):
            if reason := _make_images(client):
                yield reason
            else:
                yield Daemon(f"unix://{listening}", directory, client)
                for container in client.containers(all=True):  # of a test that failed
                    client.remove_container(container, force=True)
    finally:
        _end(process)
        _unmount(directory)
        shutil.rmtree(directory, ignore_errors=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def _make_images(client: Any) -> str:
    """Makes both images, and starts a container; the reason if this machine does not allow that."""
    if not client.info().get("MemoryLimit"):
        return "This machine has no limits of memory for containers"
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    for name, variables in ((IMAGE, [f"ENV PATH={path}"]), (BARE_IMAGE, [])):
        repository, _, tag = name.partition(":")
        client.import_image_from_data(_root(), repository=repository, tag=tag, changes=variables)
    binds = [{"Type": "bind", "Source": item, "Target": item, "ReadOnly": True} for item in mounts()]
    config = {"Image": IMAGE, "Cmd": ["/bin/true"], "HostConfig": {"Mounts": binds, "NetworkMode": "none"}}
    made = client.create_container_from_config(config)
    try:
        client.start(made)
        client.wait(made)
    except OSError as error:
        return f"This machine starts no containers: {getattr(error, 'explanation', None) or error}"
    finally:
        client.remove_container(made, force=True)
    return ""


def _root() -> bytes:
    """The smallest root file system: directories to mount at, and the links that Debian has."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run"):
            item = tarfile.TarInfo(name)
            item.type, item.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(item)
        for name in SYSTEM:
            if Path(name).is_symlink():
                item = tarfile.TarInfo(name.lstrip("/"))
                item.type, item.linkname = tarfile.SYMTYPE, os.readlink(name)
                tar.addfile(item)
    return data.getvalue()


def _unmount(directory: Path) -> None:
    """The daemon leaves its name of the network namespace behind."""
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in reversed([path for path in mounted if path.startswith(f"{directory}/")]):
        subprocess.run(["umount", "-l", path], check=False, capture_output=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
