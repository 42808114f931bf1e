"""Directories of the node that a container sees: those of the run, and those that the configuration asks for and the agent's
operator allows."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from tenuto.schemas.config.environment import AllowedMount, Mount
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
        """Description of the mount for Docker's API. Unlike the older binds, such a mount creates no directory on the node."""
        return {"Type": "bind", "Source": self.source, "Target": self.target, "ReadOnly": not self.writable}


FROM_POOL = "pool"
"""Entry of TENUTO_DOCKER_MOUNTS with which an operator lets the pool decide what may be mounted on the agent's node."""


@dataclass(frozen=True)
class Allowed:
    """Paths that an operator or a pool allows to mount, with links resolved."""

    readable: frozenset[Path]
    """Paths that may be mounted read-only, as may all paths below them."""
    writable: frozenset[Path]
    """Paths that may be mounted writable, but no path below them: a writer could replace that by a link to anywhere else."""
    from_pool: bool = False
    """True: whatever the pool allows is allowed, too."""

    def permits(self, source: Path, *, writable: bool) -> bool:
        """`source`: with links resolved."""
        if writable or source in self.writable:
            return source in self.writable
        around = [path for path in (*self.readable, *self.writable) if source.is_relative_to(path)]
        # The nearest decides: who writes to it could put a link in place of the source, between this look and the mount.
        return bool(around) and max(around, key=lambda path: len(path.parts)) in self.readable

    def told(self) -> str:
        names = [*sorted(map(str, self.readable)), *(f"{path} (writable)" for path in sorted(map(str, self.writable)))]
        return f"it allows {', '.join(names)}" if names else "it allows none"


def read_allowed(text: str) -> Allowed:
    """The setting TENUTO_DOCKER_MOUNTS. Raises RuntimeUnavailable."""
    readable: set[Path] = set()
    writable: set[Path] = set()
    from_pool = False
    for item in (part.strip() for part in text.split(",")):
        path, colon, mode = item.partition(":")
        if item == FROM_POOL:
            from_pool = True
            continue
        if not item:
            continue
        if not path.startswith("/") or (colon and mode not in ("rw", "ro")):
            raise RuntimeUnavailable(
                f"TENUTO_DOCKER_MOUNTS has {item!r}, but each entry must be an absolute path, with :rw if containers may write, "
                "or `pool` for what the agent's pool allows."
            )
        (writable if mode == "rw" else readable).add(Path(path).resolve())
    return Allowed(frozenset(readable), frozenset(writable), from_pool)


def of_pool(mounts: Sequence[AllowedMount]) -> Allowed:
    """Paths that a pool allows to mount, resolved on this node."""
    paths = [(Path(mount.path).resolve(), mount.writable) for mount in mounts]
    return Allowed(frozenset(path for path, rw in paths if not rw), frozenset(path for path, rw in paths if rw))


def user_binds(
    asked: Sequence[Mount], allowed: Allowed, own: Iterable[Bind], pool: Sequence[AllowedMount] | None = None
) -> list[Bind]:
    """The mounts of a configuration. `own`: those of the run, which none may hide. `pool`: mounts that the agent's pool allows;
    None: it says nothing. Raises EnvironmentUnusable."""
    reserved = [*KEPT_BACK, *(bind.target for bind in own)]
    by_pool = of_pool(pool) if pool is not None else None
    return [_bind(mount, allowed, by_pool, reserved) for mount in asked]


def _bind(mount: Mount, allowed: Allowed, by_pool: Allowed | None, reserved: Collection[str]) -> Bind:
    what = f"environment.mounts has {mount.source}"
    target = PurePosixPath(os.path.normpath(mount.path))
    if any(target.is_relative_to(path) or PurePosixPath(path).is_relative_to(target) for path in reserved):
        raise EnvironmentUnusable(f"{what} for {target} in the container, which Tenuto needs itself: give it another target.")
    source = Path(mount.source).resolve()
    how = "to write to " if mount.writable else ""
    # The operator's word first: control of the services alone gives nothing that it does not allow.
    if not (allowed.from_pool and by_pool is not None) and not allowed.permits(source, writable=mount.writable):
        offer = f"{allowed.told()}, and what its pool allows, which says nothing" if allowed.from_pool else allowed.told()
        raise EnvironmentUnusable(f"{what}, which this agent's operator does not allow {how}(TENUTO_DOCKER_MOUNTS): {offer}.")
    if by_pool is not None and not by_pool.permits(source, writable=mount.writable):
        raise EnvironmentUnusable(f"{what}, which this agent's pool does not allow {how}(tenuto pool mounts): {by_pool.told()}.")
    if not source.exists():
        raise EnvironmentUnusable(f"{what}, which this agent's node does not have.")
    return Bind(str(source), str(target), mount.writable)
