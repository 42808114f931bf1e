"""Copies of files as links, where the disk allows them."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path


def link_tree(source: Path, into: Path) -> None:
    """Links the files; a move would leave none for another attempt."""
    shutil.copytree(source, into, copy_function=link_or_copy, dirs_exist_ok=True)


def link_or_copy(source: str, target: str) -> str:
    try:
        if os.path.islink(source):
            raise OSError(errno.EINVAL, "its target is wanted")
        os.link(source, target)
        return target
    except OSError:
        return str(shutil.copy2(source, target))
