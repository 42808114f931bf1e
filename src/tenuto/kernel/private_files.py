"""Files that only their owner may read, whatever the process's umask.

Root's own are its account's, unless their directory has the set-user-id bit: then they belong to the directory's owner. So a
cluster of root keeps its secrets from code that runs as root without the right to pass over permissions (`confinement.py`).
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path


def private(path: str, flags: int) -> int:
    """An `opener` for `open`: the file is made, or becomes, readable by its owner only. Raises OSError."""
    descriptor = os.open(path, flags, 0o600)
    try:
        os.fchmod(descriptor, 0o600)
        give_to_keeper(descriptor, Path(path).parent)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def write_private(file: Path, content: str | bytes) -> None:
    """Writes the file atomically, with mode 0600. Raises OSError."""
    with _temporary(file, content.encode() if isinstance(content, str) else content) as temporary:
        os.replace(temporary, file)


def make_private(file: Path, content: bytes) -> None:
    """Like `write_private`, but keeps an existing file: if several processes make it at once, the first one's stays."""
    if not file.exists():
        with _temporary(file, content) as temporary, contextlib.suppress(FileExistsError):
            os.link(temporary, file)


def keep_as(directory: Path, uid: int, gid: int, mode: int) -> None:
    """Gives a directory of root's, and the files in it, to another account, as well as private files that are made in it later.
    What is below its subdirectories stays as it is. Raises OSError."""
    _give(directory, uid, gid)
    directory.chmod(mode | stat.S_ISUID)


def take_back(directory: Path) -> None:
    """Undoes `keep_as`, also of kept directories in it; the mode stays without the bit. Raises OSError."""
    mode = directory.stat().st_mode
    if os.geteuid() == 0 and mode & stat.S_ISUID:
        _give(directory, 0, os.getegid())
        directory.chmod(stat.S_IMODE(mode) & ~stat.S_ISUID)
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                take_back(Path(entry.path))


def kept_bit(directory: Path) -> int:
    """The bit of `keep_as`, if the directory has it; else 0. Raises OSError."""
    return directory.stat().st_mode & stat.S_ISUID


def _give(directory: Path, uid: int, gid: int) -> None:
    before = {0, directory.stat().st_uid}
    os.chown(directory, uid, gid)
    for entry in os.scandir(directory):
        with contextlib.suppress(FileNotFoundError):
            if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_uid in before:
                os.chown(entry.path, uid, gid, follow_symlinks=False)


def make_private_directory(directory: Path) -> None:
    """Makes a directory that only its owner may enter: that of the directory above, if that one is kept. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    above = directory.parent.stat()
    if os.geteuid() == 0 and above.st_mode & stat.S_ISUID and not kept_bit(directory):
        keep_as(directory, above.st_uid, above.st_gid, 0o700)


def give_to_keeper(descriptor: int, directory: Path) -> None:
    """Gives a file that this process has made to the owner of its directory, if the directory is kept. Raises OSError."""
    if os.geteuid() == 0:
        state = directory.stat()
        if state.st_mode & stat.S_ISUID:
            os.fchown(descriptor, state.st_uid, state.st_gid)


@contextlib.contextmanager
def _temporary(file: Path, content: bytes) -> Iterator[str]:
    """A temporary file beside `file` with the content, synced to disk; the directory is synced afterwards, too. Its name is
    random: in containers, processes that share a directory often have the same id, and so has the process after a crash."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)  # mode 0600
    try:
        with os.fdopen(descriptor, "wb") as handle:
            give_to_keeper(descriptor, file.parent)
            handle.write(content)
            handle.flush()
            os.fsync(handle.fileno())
        yield name
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name)
    directory = os.open(file.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
