"""A Docker daemon of the tests' own, with an image that was in no registry. It weighs nothing: a container mounts directories of
this machine, its Python among them."""

from __future__ import annotations

import contextlib
import io
import json
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
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tenuto.kernel.optional import NotInstalled, needed
from tests.support import litter

START_SECONDS_MAX = 60.0
DAEMON_PLACES = ("/run/docker", "/run/docker/plugins", "/run/containerd", "/run/containerd/s")
"""Where a daemon makes directories whatever it is told."""
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


class Daemon:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._listening = directory / "docker.sock"
        self.url = f"unix://{self._listening}"
        self.log = directory / "log"
        self.client: Any = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self, *options: str) -> bool:
        """False: it does not answer."""
        for place in DAEMON_PLACES:
            if not Path(place).exists():
                litter.outside("empty", place)
        command: list[str | Path] = [
            "dockerd", "--data-root", self.directory / "data", "--exec-root", self.directory / "exec", "-H", self.url,
            "--pidfile", self.directory / "docker.pid", "--bridge=none", "--iptables=false", *self._groups(), *options,
        ]  # fmt: skip
        with self.log.open("ab") as output:
            self._process = process = subprocess.Popen(command, stdout=output, stderr=output, start_new_session=True)
        deadline = time.monotonic() + START_SECONDS_MAX
        while not answers(self._listening) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        return answers(self._listening)

    def _groups(self) -> list[str]:
        """Groups of processes that are known as this daemon's, for those who clear up after it. systemd does so itself."""
        if Path("/run/systemd/system").exists():
            return []
        litter.outside("cgroup", self.directory.name)
        return [f"--cgroup-parent=/{self.directory.name}"]

    def kill(self) -> None:
        """SIGKILL, which takes its containerd along; the next daemon takes one that is not collected yet for a living one."""
        assert self._process is not None
        self._process.kill()
        self._process.wait()
        containerd = int((self.directory / "exec" / "containerd" / "containerd.pid").read_text())
        deadline = time.monotonic() + START_SECONDS_MAX
        while Path(f"/proc/{containerd}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def end(self) -> None:
        if self._process is not None:
            _end(self._process)
            litter.remove_cgroup(self.directory.name)
        unmount(self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)


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
    found = Daemon(Path(tempfile.mkdtemp(prefix="tenuto-docker-")))
    try:
        if not found.start():
            yield f"A Docker daemon cannot run on this machine: {found.log.read_text(errors='replace').strip()[-300:]}"
            return
        found.client = docker.APIClient(found.url, version="auto")
        with contextlib.closing(found.client):
            if reason := make_images(found.client):
                yield reason
            else:
                yield found
                for container in found.client.containers(all=True):  # of a test that failed
                    found.client.remove_container(container, force=True)
    finally:
        found.end()


def answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


def make_images(client: Any) -> str:
    """Makes both images, and starts a container; the reason if this machine does not allow that."""
    if not client.info().get("MemoryLimit"):
        return "This machine has no limits of memory for containers"
    make_image(client, IMAGE)
    repository, _, tag = BARE_IMAGE.partition(":")
    _import(client, _root(), repository, tag)
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


def make_image(client: Any, name: str, *changes: str, python: str = "", files: Mapping[str, bytes | str] | None = None) -> None:
    """An image with the Python of the tests. `changes`: further instructions of a Dockerfile, for one that differs. `python`:
    what its python3 is in truth. `files`: files of its own, by their paths; a text is where a link leads."""
    path = os.pathsep.join([str(Path(sys.executable).parent), "/usr/bin", "/bin"])
    repository, _, tag = name.rpartition(":")
    if python:
        path = f"/false:{path}"
    _import(client, _root(python, files or {}), repository, tag, f"ENV PATH={path}", *changes)


def _import(client: Any, data: bytes, repository: str, tag: str, *changes: str) -> None:
    said = client.import_image_from_data(data, repository=repository, tag=tag, changes=list(changes))
    image = json.loads(said.splitlines()[-1])["status"].strip()
    client.tag(image, repository, tag)  # podman 4.3 names it as it likes


def _root(python: str = "", files: Mapping[str, bytes | str] | None = None) -> bytes:
    """The smallest root file system: directories to mount at, and the links that Debian has."""
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        for name in ("usr", "etc", "proc", "sys", "dev", "tmp", "run"):
            item = tarfile.TarInfo(name)
            item.type, item.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(item)
        links = {name.lstrip("/"): os.readlink(name) for name in SYSTEM if Path(name).is_symlink()}
        for name, target in (links | ({"false/python3": python} if python else {})).items():
            item = tarfile.TarInfo(name)
            item.type, item.linkname = tarfile.SYMTYPE, target
            tar.addfile(item)
        for name, content in (files or {}).items():
            item = tarfile.TarInfo(name.lstrip("/"))
            if isinstance(content, str):
                item.type, item.linkname = tarfile.SYMTYPE, content
                tar.addfile(item)
            else:
                item.size, item.mode = len(content), 0o644
                tar.addfile(item, io.BytesIO(content))
    return data.getvalue()


def unmount(directory: Path) -> None:
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


@contextlib.contextmanager
def network(daemon: Daemon, name: str) -> Iterator[None]:
    """A network for containers, with no way out of it. Its addresses are no other test's."""
    mark = os.getpid()
    pool = {"Subnet": f"10.{64 + mark // 250 % 50}.{mark % 250}.0/24"}
    device = f"tenutod{mark}"
    litter.outside("device", device)
    options = {"com.docker.network.bridge.name": device}
    made = daemon.client.create_network(
        name, driver="bridge", internal=True, ipam={"Driver": "default", "Config": [pool]}, options=options
    )
    try:
        yield
    finally:
        daemon.client.remove_network(made["Id"])
