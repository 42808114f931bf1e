"""Unpacking of tar archives from others. Python has a filter for that since 3.11.4; before, as in Debian 12, the same is
refused here: paths and links that lead outside the directory, devices, and excessive rights."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path

FILTERS = hasattr(tarfile, "data_filter")
MODE_KEPT = 0o755


def extract_all(archive: tarfile.TarFile, directory: Path) -> None:
    """Raises tarfile.TarError and OSError."""
    if FILTERS:
        archive.extractall(directory, filter="data")
        return
    for member in archive:
        extract(archive, member, directory)


def extract(archive: tarfile.TarFile, member: tarfile.TarInfo, directory: Path) -> None:
    """Raises tarfile.TarError and OSError."""
    if FILTERS:
        archive.extract(member, directory, filter="data")
    else:
        archive.extract(_checked(member, directory), directory)


def _checked(member: tarfile.TarInfo, directory: Path) -> tarfile.TarInfo:
    """Raises tarfile.TarError."""
    root = os.path.realpath(directory)
    targets = [member.name]
    if member.issym():
        targets.append(os.path.join(os.path.dirname(member.name), member.linkname))
    elif member.islnk():
        targets.append(member.linkname)
    elif not (member.isreg() or member.isdir()):
        raise tarfile.TarError(f"{member.name!r} is neither a file nor a directory")
    for target in targets:
        if os.path.isabs(target) or (member.issym() and os.path.isabs(member.linkname)):
            raise tarfile.TarError(f"{member.name!r} has an absolute path")
        if os.path.commonpath([os.path.realpath(os.path.join(root, target)), root]) != root:
            raise tarfile.TarError(f"{member.name!r} would be outside the directory")
    member.mode = member.mode & MODE_KEPT | 0o600 if member.isreg() or member.islnk() else 0o755
    member.uid, member.gid, member.uname, member.gname = os.geteuid(), os.getegid(), "", ""
    return member
