"""Directories of the node that a container sees: those of the run, and those that the configuration asks for and the agent's
operator allows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tenuto.schemas.config.environment import Mount
from tenuto.workers.agent.runtimes.docker import boot
from tenuto.workers.agent.runtimes.runtime import EnvironmentUnusable, RuntimeUnavailable

KEPT_BACK = ("/proc", "/sys", "/dev", boot.HOME)
"""Paths in a container that no configuration may mount over."""


@dataclass(frozen=True)
class Bind:
    source: str
    target: str
    writable: bool = False

    def described(self) -> dict[str, object]:
        """As Docker's interface has it. Such a mount makes no directory on the node, other than the older binds."""
        return {"Type": "bind", "Source": self.source, "Target": self.target, "ReadOnly": not self.writable}


@dataclass(frozen=True)
class Allowed:
    """What the operator allows, with links resolved."""

    readable: frozenset[Path]
    """Also what is below these may be mounted, read-only."""
    writable: frozenset[Path]
    """Only these themselves: whoever writes into one could replace something in it by a link to anywhere else."""


def read_allowed(text: str) -> Allowed:
    """The setting TENUTO_DOCKER_MOUNTS. Raises RuntimeUnavailable."""
    readable: set[Path] = set()
    writable: set[Path] = set()
    for item in (part.strip() for part in text.split(",")):
        path, colon, mode = item.partition(":")
        if not item:
            continue
        if not path.startswith("/") or (colon and mode not in ("rw", "ro")):
            raise RuntimeUnavailable(
                f"TENUTO_DOCKER_MOUNTS has {item!r}, but each entry must be an absolute path, with :rw if containers may write."
            )
        (writable if mode == "rw" else readable).add(Path(path).resolve())
    return Allowed(frozenset(readable), frozenset(writable))


def user_binds(asked: Sequence[Mount], allowed: Allowed, own: Iterable[Bind]) -> list[Bind]:
    """The mounts of a configuration. `own`: those of the run, which none may hide. Raises EnvironmentUnusable."""
    reserved = [*KEPT_BACK, *(bind.target for bind in own)]
    return [_bind(mount, allowed, reserved) for mount in asked]


def _bind(mount: Mount, allowed: Allowed, reserved: Collection[str]) -> Bind:
    what = f"environment.mounts has {mount.source}"
    target = PurePosixPath(os.path.normpath(mount.path))
    if any(target.is_relative_to(path) or PurePosixPath(path).is_relative_to(target) for path in reserved):
        raise EnvironmentUnusable(f"{what} for {target} in the container, which Tenuto needs itself: give it another target.")
    source = Path(mount.source).resolve()
    known = source in allowed.writable or any(source.is_relative_to(path) for path in allowed.readable)
    if not known or (mount.writable and source not in allowed.writable):
        how = "to write to " if mount.writable else ""
        names = [*sorted(map(str, allowed.readable)), *(f"{path} (writable)" for path in sorted(map(str, allowed.writable)))]
        offer = f"it allows {', '.join(names)}" if names else "it allows none"
        raise EnvironmentUnusable(f"{what}, which this agent's operator does not allow {how}(TENUTO_DOCKER_MOUNTS): {offer}.")
    if not source.exists():
        raise EnvironmentUnusable(f"{what}, which this agent's node does not have.")
    return Bind(str(source), str(target), mount.writable)
