"""A cgroup of the tests' own on this machine, in every hierarchy that limits memory or processors."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from tenuto.workers.agent.runtimes.process.cgroup_places import Controller, mount_of, mounts
from tenuto.workers.agent.runtimes.process.cgroups import Cgroups, ProcessLimits
from tests.support import litter

CONTROLLERS: tuple[Controller, ...] = ("memory", "cpu")


def directories(parent: str) -> list[Path]:
    """Directories of the cgroup `parent`, whether they exist or not."""
    found = [mount_of(controller, mounts(Path("/proc/self/mountinfo").read_text())) for controller in CONTROLLERS]
    return sorted({mount.point / parent.lstrip("/") for mount in found if mount is not None})


def lack() -> str:
    """Why this machine has no limits for processes; empty if it has."""
    parent = f"/tenuto-probe-{os.getpid()}"
    with removed(parent):
        probe = Cgroups(Path(f"/{os.getpid()}"), ProcessLimits(64 << 20, 1.0, parent))
        probe.open(tuple)
        return f"Processes cannot be limited here: {probe.problem}." if probe.problem else ""


@contextlib.contextmanager
def removed(parent: str) -> Iterator[str]:
    """Removes the cgroup afterwards, with all below it; one that still has processes stays, and the test fails."""
    litter.outside("cgroup", parent)
    try:
        yield parent
    finally:
        for top in directories(parent):
            for path in sorted(top.rglob("*/"), reverse=True):
                path.rmdir()
            if top.exists():
                top.rmdir()


def below(parent: str) -> list[str]:
    """Names of the cgroups directly below it."""
    return sorted(path.name for top in directories(parent) if top.exists() for path in top.iterdir() if path.is_dir())


def cgroups_of(pid: int) -> set[str]:
    """Paths of a process in all hierarchies."""
    return {line.split(":", 2)[2] for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()}
