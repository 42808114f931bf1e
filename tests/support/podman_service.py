"""A podman of the tests' own behind Docker's interface, with the images of `docker_daemon`. Its package is none of those that
tests ask for: where somebody has installed it, the contract of runtimes is tried on it, too."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tenuto.kernel.optional import needed
from tests.support import docker_daemon, litter

START_SECONDS_MAX = 60.0
CGROUP = "libpod_parent"
"""Of its containers, in each hierarchy; it leaves it behind."""
SETTINGS = """\
[containers]
default_ulimits = ["nofile=20000:20000", "nproc=32768:32768"]
log_driver = "k8s-file"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
"""Limits that root may set in a container, too, and what is there without systemd. runc, as crun refuses machines with both
versions of cgroups."""


def lack() -> str:
    missing = [name for name in ("podman", "runc") if shutil.which(name) is None]
    return f"There is no {' and no '.join(missing)}: apt-get install podman runc." if missing else ""


class Podman:
    """As `docker_daemon.Daemon`, for who only starts containers."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._listening = directory / "podman.sock"
        self.url = f"unix://{self._listening}"

    @contextlib.contextmanager
    def running(self) -> Iterator[str]:
        """Yields the reason why it does not run; empty if it does."""
        (self.directory / "containers.conf").write_text(SETTINGS)
        litter.outside("cgroup", CGROUP)
        command: list[str | Path] = [*self._command(), "system", "service", "--time", "0", self.url]
        with (self.directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=self._environment(), start_new_session=True)
        try:
            deadline = time.monotonic() + START_SECONDS_MAX
            while not docker_daemon.answers(self._listening) and process.poll() is None and time.monotonic() < deadline:
                time.sleep(0.05)
            yield "" if docker_daemon.answers(self._listening) else (self.directory / "log").read_text(errors="replace")[-300:]
        finally:
            for words in (("rm", "--all", "--force", "--time", "0"), ("rmi", "--all", "--force")):
                subprocess.run([*self._command(), *words], env=self._environment(), capture_output=True, check=False)
            process.terminate()
            process.wait(60)
            litter.remove_cgroup(CGROUP)
            docker_daemon.unmount(self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)

    def _command(self) -> list[str | Path]:
        return ["podman", "--root", self.directory / "data", "--runroot", self.directory / "run"]

    def _environment(self) -> dict[str, str]:
        return {**os.environ, "CONTAINERS_CONF": str(self.directory / "containers.conf")}


@contextlib.contextmanager
def service() -> Iterator[Podman | str]:
    """A running one, or the reason why there is none."""
    if reason := lack() or ("" if os.geteuid() == 0 else "Only root's podman has limits for containers."):
        yield reason
        return
    found = Podman(Path(tempfile.mkdtemp(prefix="tenuto-podman-")))
    with found.running() as reason:
        if reason:
            yield f"podman cannot run on this machine: {reason}"
            return
        with contextlib.closing(needed("docker").APIClient(found.url, version="auto")) as client:
            yield docker_daemon.make_images(client) or found
