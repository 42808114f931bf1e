"""Cause of a failed write of files: the storage, or the code that wrote them."""

from __future__ import annotations

import errno
import os
from pathlib import Path

STORAGE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.EROFS})
"""Errors of the storage. Training goes on without that checkpoint; any other error is one of the code."""
PROBE_BYTES = 1 << 20
"""Bytes written to test whether the storage accepts any: more than a file system keeps back in its last block."""
_PROBE = ".tenuto-probe"
_CHAIN_MAX = 10


def storage_error(error: BaseException, directory: Path) -> OSError | None:
    """The storage's error behind an error that was raised while files were written into `directory`; None if the storage works.

    Libraries that write files themselves report a full disk in their own way (`torch.save` raises a RuntimeError, HDF5 an OSError
    without a number), so the storage is tested, too. Call this before the written files are removed.
    """
    if not isinstance(error, Exception):
        return None  # the process is told to end
    link: BaseException | None = error
    for _ in range(_CHAIN_MAX):
        if isinstance(link, OSError) and link.errno in STORAGE_ERRORS:
            return link
        link = link and (link.__cause__ or link.__context__)
    for number in sorted(STORAGE_ERRORS):
        if os.strerror(number) in str(error):
            return OSError(number, os.strerror(number), str(directory))
    return _tried(directory)


def _tried(directory: Path) -> OSError | None:
    path = directory / _PROBE
    try:
        try:
            with path.open("wb") as file:
                file.write(bytes(PROBE_BYTES))
                file.flush()
                os.fsync(file.fileno())
        finally:
            path.unlink(missing_ok=True)
    except OSError as error:
        return error if error.errno in STORAGE_ERRORS else None
    return None
