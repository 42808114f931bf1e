"""Looks into one packed model directory: its files, or the text of one. Nothing of it is run or unpacked to disk."""

from __future__ import annotations

import posixpath
import tarfile
import zlib
from pathlib import Path
from typing import Any

FILES_LISTED_MAX = 5_000
"""Most files listed of one directory: a megabyte of names. Most have dozens."""
TEXT_BYTES_MAX = 1 << 20
"""Most bytes shown of a file: far beyond what people read; the rest of a larger one is left out."""
BINARY_LOOKED_BYTES = 8_192
"""Bytes that are searched for a zero byte: a file with one is binary, as git judges."""


class NoContext(Exception):
    """The archive is missing, or cannot be read."""


def listed(archive: Path) -> dict[str, Any]:
    """`files` as [path, size in bytes], by path, and whether there are `more`. Raises NoContext."""
    files: list[list[Any]] = []
    more = False
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if not member.isreg():
                    continue
                if len(files) >= FILES_LISTED_MAX:
                    more = True
                    break
                files.append([_shown(member.name), member.size])
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise NoContext(str(error)) from error
    return {"files": sorted(files), "more": more}


def content(archive: Path, path: str) -> dict[str, Any] | None:
    """`size_bytes` and `text` of a file; the text is None for one that is no text. None: no such file. Raises NoContext."""
    try:
        with tarfile.open(archive, "r|gz") as tar:
            for member in tar:
                if not member.isreg() or _shown(member.name) != path:
                    continue
                file = tar.extractfile(member)
                assert file is not None
                data = file.read(TEXT_BYTES_MAX)
                text = None if b"\0" in data[:BINARY_LOOKED_BYTES] else data.decode("utf-8", "replace").replace("\0", "\ufffd")
                return {"size_bytes": member.size, "text": text, "cut": member.size > len(data)}
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        raise NoContext(str(error)) from error
    return None


def _shown(name: str) -> str:
    """The path as people write it; a name that is no text is shown with its odd bytes replaced."""
    return posixpath.normpath(name).encode("utf-8", "replace").decode()
