"""A store in one SQLite file, for a cluster whose processes are all on one machine: `tenuto store create NAME --type sqlite
--set file=/var/lib/tenuto/checkpoints.db`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Literal

from pydantic import Field

from tenuto.kernel.storage.definitions import StoreDefinition, StoreKind, joined
from tenuto.kernel.storage.store import READ_BYTES, Entry, NotStored, StoreError

WAIT_SECONDS_MAX = 60.0
"""Longest wait for another process that writes."""
TABLES = """
CREATE TABLE IF NOT EXISTS entries (key TEXT PRIMARY KEY, size_bytes INTEGER NOT NULL, modified_us INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS parts (key TEXT, number INTEGER, data BLOB NOT NULL, PRIMARY KEY (key, number));
"""


class SqliteDefinition(StoreDefinition):
    type: Literal["sqlite"]
    file: str = Field(pattern=r"^/[^\x00]+$")
    """Absolute path of the file; it is made if it does not exist."""

    @property
    def url(self) -> str:
        return f"sqlite://{self.file}"


class SqliteStore:
    """Each call has a connection of its own, as workers call from several threads. One transaction stores a whole file, so an
    interrupted one leaves nothing behind."""

    packs_small_files = True  # a transaction costs more than a small file's bytes

    def __init__(self, file: str, below: str) -> None:
        self._file, self._below = file, below

    @property
    def url(self) -> str:
        return joined(f"sqlite://{self._file}", self._below)

    def put_file(self, key: str, source: Path, consume: bool = False) -> None:
        with self._explaining(key), source.open("rb") as file:
            self._put(key, iter(lambda: file.read(READ_BYTES), b""))

    def put_bytes(self, key: str, data: bytes) -> None:
        with self._explaining(key):
            self._put(key, (data[start : start + READ_BYTES] for start in range(0, len(data), READ_BYTES)))

    def stream(self, key: str, offset: int = 0, size_bytes: int | None = None) -> Iterator[bytes]:
        found = self.stat(key)
        if found is None or (offset and offset >= found.size_bytes):
            raise NotStored(f"{self.url}/{key}: there is no such content")
        name, end = self._name(key), min(found.size_bytes, found.size_bytes if size_bytes is None else offset + size_bytes)
        for number in range(offset // READ_BYTES, -(-end // READ_BYTES)):
            start = number * READ_BYTES
            with self._explaining(key), self._database() as database:
                row = database.execute("SELECT data FROM parts WHERE key = ? AND number = ?", (name, number)).fetchone()
            if row is None:
                raise NotStored(f"{self.url}/{key}: it was deleted meanwhile")
            yield row[0][max(0, offset - start) : end - start]

    def local_path(self, key: str) -> Path | None:
        return None

    def stat(self, key: str) -> Entry | None:
        with self._explaining(key), self._database() as database:
            row = database.execute("SELECT size_bytes, modified_us FROM entries WHERE key = ?", (self._name(key),)).fetchone()
        return None if row is None else Entry(key, *row)

    def entries(self, prefix: str) -> Iterator[Entry]:
        start = joined(self._below, prefix)
        ends = (f"{start}/", f"{start}0") if start else ("", "\U0010ffff")  # 0 follows / in every character set
        with self._explaining(prefix), self._database() as database:
            rows = database.execute("SELECT * FROM entries WHERE key >= ? AND key < ?", ends).fetchall()
        skipped = len(self._below) + 1 if self._below else 0
        yield from (Entry(key[skipped:], size_bytes, modified_us) for key, size_bytes, modified_us in rows)

    def delete(self, keys: Sequence[str]) -> None:
        names = [(self._name(key),) for key in keys]
        with self._explaining("delete"), self._database() as database:
            database.executemany("DELETE FROM entries WHERE key = ?", names)
            database.executemany("DELETE FROM parts WHERE key = ?", names)

    def delete_unfinished(self, older_than_us: int, dry_run: bool = False) -> list[str]:
        return []

    def _put(self, key: str, chunks: Iterable[bytes]) -> None:
        name, size_bytes = self._name(key), 0
        with self._database() as database:
            database.execute("DELETE FROM parts WHERE key = ?", (name,))
            for number, chunk in enumerate(chunks):
                database.execute("INSERT INTO parts VALUES (?, ?, ?)", (name, number, chunk))
                size_bytes += len(chunk)
            database.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", (name, size_bytes, time.time_ns() // 1000))

    def _name(self, key: str) -> str:
        return joined(self._below, key)

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """One transaction."""
        with closing(sqlite3.connect(self._file, timeout=WAIT_SECONDS_MAX)) as database:
            database.executescript(TABLES)
            with database:
                yield database

    @contextmanager
    def _explaining(self, key: str) -> Iterator[None]:
        try:
            yield
        except StoreError:
            raise
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.url}/{key}: {error}") from error


def _open(definition: SqliteDefinition, below: str) -> SqliteStore:
    return SqliteStore(definition.file, below)


KIND = StoreKind(SqliteDefinition, _open)
