"""Contexts (model directories) on this node: unpacked once from the archive, named by the archive's SHA-256."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
import tarfile
from collections.abc import Callable, Iterable
from pathlib import Path

from tenuto.kernel.account import PASSING
from tenuto.kernel.archives import extract_all
from tenuto.kernel.tree_removal import remove_tree
from tenuto.workers.agent.archives import Archives, ContextUnavailable

CONTEXTS_KEPT_MAX = 50
"""Most unpacked contexts kept for the next run; code is small, and unpacking again takes well under a second."""
READ_BYTES = 1 << 20


class Contexts:
    def __init__(self, archives: Archives, directory: Path, *, for_others: bool = False) -> None:
        """`for_others`: workers run as another account, which may read unpacked contexts but not change them."""
        self._archives, self._directory, self._for_others = archives, directory, for_others
        self._locks: dict[str, asyncio.Lock] = {}

    def path(self, context_hash: str) -> Path:
        return self._directory / context_hash

    async def unpack(self, context_hash: str, allocation_id: str = "", wanted: Callable[[], bool] = lambda: True) -> Path:
        """Directory of the unpacked context, which this allocation runs. `wanted`: False once the run was killed. Raises
        ContextUnavailable."""
        async with self._locks.setdefault(context_hash, asyncio.Lock()):
            path = self.path(context_hash)
            if not path.is_dir():
                async with self._archives.of(context_hash, allocation_id, wanted) as archive:
                    await asyncio.to_thread(_unpack, archive, path, for_others=self._for_others)
            else:
                with contextlib.suppress(OSError):
                    os.utime(path)  # marks it as used: `prune` deletes the least recently used ones
            return path

    def prune(self, in_use: Iterable[str]) -> None:
        """Deletes the least recently used contexts beyond the limit, never one in use."""
        keep = set(in_use)
        with contextlib.suppress(OSError):
            paths = sorted(self._directory.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
            for path in paths[CONTEXTS_KEPT_MAX:]:
                if path.name not in keep:
                    remove_tree(path)


def _unpack(archive: Path, path: Path, *, for_others: bool) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    remove_tree(temporary)
    try:
        temporary.mkdir(parents=True)
        with archive.open("rb") as file:
            digest = hashlib.sha256()
            while block := file.read(READ_BYTES):
                digest.update(block)
            if digest.hexdigest() != path.name:
                raise ContextUnavailable(f"{archive} is damaged: its SHA-256 is {digest.hexdigest()}, not {path.name}.")
            file.seek(0)
            with tarfile.open(fileobj=file, mode="r:gz") as tar:
                extract_all(tar, temporary)
        if for_others:
            path.parent.chmod(PASSING)
            _open_for_reading(temporary)
        temporary.rename(path)
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ContextUnavailable(f"The model directory cannot be unpacked from {archive}: {error}.") from error
    finally:
        remove_tree(temporary)


def _open_for_reading(directory: Path) -> None:
    for parent, _, files in os.walk(directory):
        os.chmod(parent, 0o755)
        for name in files:
            path = Path(parent, name)
            if not path.is_symlink():
                os.chmod(path, path.stat().st_mode & 0o755 | 0o444)
