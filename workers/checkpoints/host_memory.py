"""Memory that this process may still take: of the machine, and within the limits of its control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

LEFT_BYTES = 256 << 20
"""Memory that is left to training beside a copy of the state: what a batch takes for a moment, several times over for most."""
LEFT_COPIES = 4
"""Less than LEFT_BYTES is left beside a small state: so many times its size. A copy of some megabytes fills no memory."""


def has_room(needed_bytes: int, root: Path = Path("/")) -> bool:
    """True if so much memory can be taken, as far as the system says."""
    left_bytes = min(LEFT_BYTES, LEFT_COPIES * needed_bytes)
    return all(available >= needed_bytes + left_bytes for available in _available(root))


def _available(root: Path) -> Iterator[int]:
    if (machine := _entries(root / "proc/meminfo").get("MemAvailable:")) is not None:
        yield machine * 1024
    for line in _lines(root / "proc/self/cgroup"):
        number, controllers, place = line.split(":", 2)
        if number == "0" or "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup" / ("" if number == "0" else "memory")
            below = mount / place.strip("/")
            for directory in (below, *below.parents):
                yield from _left_in(directory, number == "0")
                if directory == mount:
                    break


def _left_in(directory: Path, second: bool) -> Iterator[int]:
    limit = _number(directory / ("memory.max" if second else "memory.limit_in_bytes"))
    used = _number(directory / ("memory.current" if second else "memory.usage_in_bytes"))
    if limit is not None and used is not None:
        # Pages of files that were read or written count as used until the memory is needed.
        yield limit - used + _entries(directory / "memory.stat").get("inactive_file", 0)


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text().splitlines()
    except (OSError, ValueError):
        return []


def _entries(path: Path) -> dict[str, int]:
    rows = [line.split() for line in _lines(path)]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None
