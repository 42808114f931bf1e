"""Digests of files that have not changed since they were read, kept between runs on one node."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path
from types import TracebackType

FRESH_SECONDS = 2.0
"""Age below which a file is not cached: it may change again within one tick of the file system's clock, unseen."""
ROWS_MAX = 1_000_000
"""Most entries, about 200 MB; beyond it the oldest are removed."""
LOCK_SECONDS_MAX = 5.0

_SCHEMA = """
CREATE TABLE IF NOT EXISTS digests (
    path TEXT NOT NULL, whole INTEGER NOT NULL, state TEXT NOT NULL, digest TEXT NOT NULL, PRIMARY KEY (path, whole))"""


def default_cache_file() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tenuto" / "fingerprints.sqlite"


class DigestCache:
    """Use as a context manager. A cache that cannot be used costs time, never a run: all its errors are swallowed."""

    def __init__(self, file: Path | None) -> None:
        """`file`: the cache. None: nothing is kept."""
        self._file = file
        self._connection: sqlite3.Connection | None = None
        self._known: dict[tuple[str, bool], tuple[str, str]] = {}
        self._new: list[tuple[str, bool, str, str]] = []

    def __enter__(self) -> DigestCache:
        if self._file is not None:
            try:
                self._file.parent.mkdir(parents=True, exist_ok=True)
                self._connection = sqlite3.connect(self._file, timeout=LOCK_SECONDS_MAX)
                self._connection.execute(_SCHEMA)
            except (OSError, sqlite3.Error):
                self._connection = None
        return self

    def load(self, root: str) -> None:
        """Loads the entries of a file, or of everything below a directory, at once. `root` is absolute, as all paths are."""
        if self._connection is None:
            return
        try:
            # "0" is the character after "/".
            rows = self._connection.execute(
                "SELECT path, whole, state, digest FROM digests WHERE path = ? OR (path > ? AND path < ?)",
                (root, f"{root}/", f"{root}0"),
            )
            self._known = {(path, bool(whole)): (state, digest) for path, whole, state, digest in rows}
        except sqlite3.Error:
            self._known = {}

    def get(self, path: str, state: os.stat_result, whole: bool) -> str | None:
        known = self._known.get((path, whole))
        return known[1] if known is not None and known[0] == _key(state) else None

    def put(self, path: str, state: os.stat_result, whole: bool, digest: str) -> None:
        """Adds a digest. `state` is from before the file was read, so that a file that changed meanwhile is not found again."""
        if self._connection is not None and time.time() - max(state.st_mtime, state.st_ctime) > FRESH_SECONDS:
            self._new.append((path, whole, _key(state), digest))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        try:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO digests VALUES (?, ?, ?, ?)", self._new)
                connection.execute(
                    "DELETE FROM digests WHERE rowid <= (SELECT max(rowid) FROM digests) - ?",
                    (ROWS_MAX,),
                )
        except sqlite3.Error:
            pass
        finally:
            self._new.clear()
            connection.close()


def _key(state: os.stat_result) -> str:
    # The inode's time of change cannot be set by hand, as the content's can.
    return f"{state.st_dev}:{state.st_ino}:{state.st_size}:{state.st_mtime_ns}:{state.st_ctime_ns}"
