"""Places of cgroups: which hierarchy of this machine has a controller, and where in it a process is. Pure.

Linux has two layouts. In version 1 each controller has a hierarchy of its own, in version 2 one hierarchy has all of them; a
machine may have both (hybrid), and then a controller is in one of them. Paths in /proc/self/cgroup count from the root of the
hierarchy, of which a mount may show only a part."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

Controller = Literal["memory", "cpu"]
Version = Literal[1, 2]
PERIOD_US = 100_000
"""Period of the processor limit: the kernel's own default."""
QUOTA_US_MIN = 1_000
"""Least quota that the kernel accepts."""
FULL = 0.95
"""Part of its limit that a cgroup of version 1 has used if that was the limit which ended it. The kernel counts failures only of
the limit without swap, and takes memory in portions, the last of which may not fit."""


@dataclass(frozen=True)
class CgroupMount:
    """A mounted hierarchy."""

    version: Version
    root: PurePosixPath
    """Directory of the hierarchy that is visible at `point`."""
    point: Path
    controllers: frozenset[str]
    """Controllers of a hierarchy of version 1. Version 2 lists its own in its files."""

    def directory(self, path: str) -> Path | None:
        """Directory of a cgroup; None if this mount does not show it."""
        if ".." in PurePosixPath(path).parts:  # outside of this process's cgroup namespace
            return None
        try:
            return self.point / PurePosixPath(path).relative_to(self.root)
        except ValueError:
            return None


def mounts(mountinfo: str) -> list[CgroupMount]:
    """Hierarchies in /proc/self/mountinfo."""
    found = []
    for line in mountinfo.splitlines():
        before, dash, after = line.partition(" - ")
        fields, kind = before.split(), after.split()
        if not dash or len(fields) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        version: Version = 2 if kind[0] == "cgroup2" else 1
        controllers = frozenset(kind[2].split(",")) if version == 1 else frozenset[str]()
        found.append(CgroupMount(version, PurePosixPath(_plain(fields[3])), Path(_plain(fields[4])), controllers))
    return found


def _plain(text: str) -> str:
    """The text without the kernel's escapes of blanks and backslashes, such as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), text)


def own_paths(cgroup: str) -> Mapping[str, str]:
    """Path of the process in each hierarchy, from /proc/self/cgroup: by controller of version 1; "" is that of version 2."""
    found: dict[str, str] = {}
    for line in cgroup.splitlines():
        _, _, rest = line.partition(":")
        names, colon, path = rest.partition(":")
        for name in names.split(",") if colon else ():
            found[name] = path
    return found


def mount_of(controller: Controller, found: list[CgroupMount]) -> CgroupMount | None:
    """The hierarchy that may have a controller: version 1 if one is mounted with it, else version 2; None: there is neither."""
    first = next((mount for mount in found if controller in mount.controllers), None)
    return first or next((mount for mount in found if mount.version == 2), None)


def limits(controller: Controller, version: Version, value: float) -> list[tuple[str, str, bool]]:
    """Files of a cgroup with what is written there, in this order, for `value` bytes or processors. The third is True where the
    limit holds only with this file; others are missing on kernels that do not account for swap."""
    if controller == "cpu":
        quota = max(QUOTA_US_MIN, round(value * PERIOD_US))
        if version == 2:
            return [("cpu.max", f"{quota} {PERIOD_US}", True)]
        return [("cpu.cfs_period_us", str(PERIOD_US), True), ("cpu.cfs_quota_us", str(quota), True)]
    number = str(int(value))
    if version == 2:  # no swap, in which a training process would only crawl
        return [("memory.max", number, True), ("memory.swap.max", "0", False)]
    return [("memory.limit_in_bytes", number, True), ("memory.memsw.limit_in_bytes", number, False)]


@dataclass(frozen=True)
class MemoryEnd:
    """Killings for want of memory in a cgroup."""

    killed: bool
    """True: the kernel killed at least one of its processes."""
    limit_bytes: int
    """Limit that they had reached; 0: none, and the node itself or a cgroup above had no memory left."""


def memory_end(version: Version, files: Mapping[str, str]) -> MemoryEnd:
    """`files`: contents of MEMORY_FILES, as far as they exist."""
    counts = _counts(files.get("memory.events" if version == 2 else "memory.oom_control", ""))
    limit = _number(files.get("memory.max" if version == 2 else "memory.limit_in_bytes", ""))
    if version == 2:
        reached = counts.get("oom", 0) > 0
    else:
        reached = _number(files.get("memory.max_usage_in_bytes", "")) >= limit * FULL
    return MemoryEnd(counts.get("oom_kill", 0) > 0, limit if reached else 0)


MEMORY_FILES: Mapping[Version, tuple[str, ...]] = {
    1: ("memory.oom_control", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
    2: ("memory.events", "memory.max"),
}
"""Files that say whether memory ran out, by version."""


def _counts(text: str) -> dict[str, int]:
    return {name: _number(value) for name, _, value in (line.partition(" ") for line in text.splitlines())}


def _number(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdigit() else 0


def base_of_own(own: Path, leaf: str) -> Path:
    """Cgroup below which those of runs are made if the operator names none: the agent's own. `leaf`: name of the child that an
    agent moves into, because in version 2 a cgroup with processes gives its children no controllers."""
    return own.parent if own.name == leaf else own


def normal(path: str) -> str:
    """A path as an operator may write it, as the hierarchy has it."""
    return os.path.normpath("/" + path.strip().lstrip("/"))
