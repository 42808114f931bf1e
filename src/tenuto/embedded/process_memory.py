"""Arguments and environment that other programs see of a process (`ps`, /proc/PID/cmdline, /proc/PID/environ).

A fork shows those of the program that it was forked from. They are read from its memory, so it can write its own there, in the
room of the old ones: as setproctitle(3) and PostgreSQL do.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_FIELD_ARGUMENTS_START = 45
"""Field 48 of /proc/PID/stat, counted from the process state; the next three are the end of the arguments, and start and end of
the environment."""
_TITLE_MARK = b"\1"
"""Last byte of the arguments, any but NUL: by it the kernel knows that a title was written, which ends at its first NUL."""


class TitleTooLong(ValueError):
    pass


class _Areas(NamedTuple):
    arguments: int
    arguments_end: int
    environment: int
    environment_end: int


def show_as(command: Sequence[str], environment: Mapping[str, str]) -> None:
    """Shows this command and environment as this process's own. The caller has set os.environ anew before: the C library's
    variables must not lie in the memory that is overwritten. Raises OSError, or TitleTooLong."""
    areas = _areas()
    title = " ".join(command).encode(errors="surrogateescape")
    block = b"".join(f"{name}={value}\0".encode(errors="surrogateescape") for name, value in environment.items())
    title_bytes, block_bytes = areas.arguments_end - areas.arguments, areas.environment_end - areas.environment
    if len(title) + 2 > title_bytes or len(block) > block_bytes:
        raise TitleTooLong(
            f"a title of {len(title)} and an environment of {len(block)} bytes for {title_bytes} and {block_bytes}"
        )
    ctypes.memmove(areas.arguments, title.ljust(title_bytes - 1, b"\0") + _TITLE_MARK, title_bytes)
    ctypes.memmove(areas.environment, block.ljust(block_bytes, b"\0"), block_bytes)


def _areas() -> _Areas:
    stat = Path("/proc/self/stat").read_text()
    fields = stat[stat.rindex(")") + 2 :].split()
    return _Areas(*map(int, fields[_FIELD_ARGUMENTS_START : _FIELD_ARGUMENTS_START + 4]))
