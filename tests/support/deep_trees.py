"""Directories within each other, deeper than any path may be long."""

from __future__ import annotations

import os
from pathlib import Path


def dig(top: Path, levels: int) -> None:
    """The innermost one has a file."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(levels):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open("file", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
