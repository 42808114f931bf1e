"""Fingerprints of files and directories. Equal content has equal fingerprints, wherever it is and whenever it was copied.

The fingerprint of a directory is the SHA-256 over its files in the order of their names, each with its size and digest: a Merkle
tree of depth one. Bounds keep a start quick: up to CONTENT_BYTES_MAX and CONTENT_FILES_MAX every byte is read (once: digests are
cached by size, times and inode); above the first bound, parts of each file are read; above the second, names and sizes only. The
method depends on the data alone, so two runs over equal data always compare.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tenuto.workers.errors import UserError
from tenuto.workers.record.cache import DigestCache

Method = Literal["content", "sampled", "listing"]
CONTENT_BYTES_MAX = 16 << 30
"""Most bytes read in full: some tens of seconds the first time, and none later while the files do not change."""
CONTENT_FILES_MAX = 200_000
"""Most files that are opened; more are only listed, because opening each one would take minutes."""
FILES_MAX = 5_000_000
"""Most files: a listing that long takes a minute and some gigabytes; declare a manifest file instead."""
SAMPLE_BYTES = 1 << 20
"""Bytes read at the beginning, the middle and the end of each file that is only sampled."""
READ_BYTES = 1 << 20
THREADS = 4
"""Threads that hash and read without the interpreter's lock; more would take the cores that others train on."""


@dataclass(frozen=True)
class Fingerprint:
    digest: str
    """SHA-256 (hex)."""
    method: Method
    files: int
    size_bytes: int


@dataclass(frozen=True)
class _File:
    name: str
    """Path relative to the directory, with slashes; empty for a single file."""
    path: str
    state: os.stat_result


def fingerprint(
    path: Path,
    cache: DigestCache | None = None,
    *,
    content_bytes_max: int = CONTENT_BYTES_MAX,
    content_files_max: int = CONTENT_FILES_MAX,
) -> Fingerprint:
    """Fingerprint of a path. Raises UserError if it does not exist or cannot be read."""
    path = path.absolute()
    try:
        files = sorted(_files(path), key=lambda file: file.name)
        size_bytes = sum(file.state.st_size for file in files)
        method: Method = "content"
        if len(files) > content_files_max:
            method = "listing"
        elif size_bytes > content_bytes_max:
            method = "sampled"
        digests = _digests(path, files, method, cache or DigestCache(None))
    except OSError as error:
        raise UserError(
            f"tenuto.data: {error.filename or path} cannot be read on this node: {error.strerror}. "
            "Declare a file or directory that every agent can read."
        ) from error
    whole = hashlib.sha256(f"{method}\n".encode())
    for file, digest in zip(files, digests, strict=True):
        whole.update(f"{file.name}\0{file.state.st_size}\0{digest}\n".encode(errors="surrogateescape"))
    return Fingerprint(whole.hexdigest(), method, len(files), size_bytes)


def _digests(root: Path, files: list[_File], method: Method, cache: DigestCache) -> list[str]:
    if method == "listing":
        return [""] * len(files)
    whole = method == "content"
    with cache, ThreadPoolExecutor(THREADS) as threads:
        cache.load(str(root))
        known = [cache.get(file.path, file.state, whole) for file in files]
        missing = [file for file, digest in zip(files, known, strict=True) if digest is None]
        read = iter(threads.map(lambda file: _read(file, whole), missing))
        digests = []
        for file, digest in zip(files, known, strict=True):
            if digest is None:
                digest = next(read)
                cache.put(file.path, file.state, whole, digest)
            digests.append(digest)
    return digests


def _read(file: _File, whole: bool) -> str:
    with open(file.path, "rb") as opened:
        if whole or file.state.st_size <= 3 * SAMPLE_BYTES:
            return hashlib.file_digest(opened, "sha256").hexdigest()
        digest = hashlib.sha256()
        for offset in (0, (file.state.st_size - SAMPLE_BYTES) // 2, file.state.st_size - SAMPLE_BYTES):
            opened.seek(offset)
            digest.update(opened.read(SAMPLE_BYTES))
        return digest.hexdigest()


def _files(path: Path) -> Iterator[_File]:
    """Regular files, also behind links. Raises OSError, and UserError if there are too many."""
    state = os.stat(path)
    if stat.S_ISREG(state.st_mode):
        yield _File("", str(path), state)
        return
    if not stat.S_ISDIR(state.st_mode):
        raise UserError(f"tenuto.data: {path} is neither a file nor a directory.")
    count = 0
    open_directories = [(str(path), "")]
    seen = {os.path.realpath(path)}  # a link to a directory above must not go round for ever
    while open_directories:
        directory, prefix = open_directories.pop()
        for entry in os.scandir(directory):
            name = prefix + entry.name
            try:
                state = entry.stat()
            except FileNotFoundError:  # a link to nothing
                continue
            if stat.S_ISDIR(state.st_mode):
                real = os.path.realpath(entry.path)
                if real not in seen:
                    seen.add(real)
                    open_directories.append((entry.path, f"{name}/"))
            elif stat.S_ISREG(state.st_mode):
                count += 1
                if count > FILES_MAX:
                    raise UserError(
                        f"tenuto.data: {path} has more than {FILES_MAX:,} files; declare a file that lists them with hashes."
                    )
                yield _File(name, entry.path, state)
