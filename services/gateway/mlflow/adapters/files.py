"""Stores files of unmanaged runs: `artifacts/` on the shared directory, beside the checkpoints. A file is listed when all of it
is on disk; one that replaces another, or is deleted, leaves no bytes behind."""

from __future__ import annotations

import asyncio
import errno
import tempfile
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import asyncpg

from tenuto.kernel.storage.directory import DirectoryStore
from tenuto.schemas.sentences.amounts import stored
from tenuto.services.gateway.http.refusals import RequestRefused

FILES_MAX = 10_000
"""Most files of one run: each is a row."""
RUN_BYTES_FACTOR = 10
"""Most bytes of one run's files, in multiples of the most bytes of one file."""
EXPERIMENT_BYTES_FACTOR = 100
"""Most bytes of an experiment of unmanaged runs, in the same multiples: as many as ten runs may keep."""
USER_BYTES_FACTOR = 200
"""Most bytes of one user's runs, in the same multiples: a user's script in a loop leaves room for others on the shared
directory."""
FILES_OF_USER_MAX = 1_000_000
"""Each is a file on the shared directory, which has only so many."""
PATH_CHARACTERS_MAX = 500
DELETED_AT_ONCE = 500
UNLISTED_SECONDS = 3_600.0
"""A file that no row names after this time was left by a gateway that was killed between the two."""
_INCOMING, _BLOBS = "incoming", "blobs"
_OF = "experiment_id = $1 AND trial_number = $2"
_PUT = """INSERT INTO unmanaged_artifacts VALUES ($1, $2, $3, $4, $5, $6, $7)
    ON CONFLICT (experiment_id, trial_number, path) DO UPDATE
    SET size_bytes = excluded.size_bytes, blob = excluded.blob, stored_us = excluded.stored_us, user_name = excluded.user_name"""
_ADD = """INSERT INTO unmanaged_artifact_totals AS t SELECT * FROM unnest($1::text[], $2::bigint[], $3::bigint[])
    ON CONFLICT (owner) DO UPDATE SET files = t.files + excluded.files, size_bytes = t.size_bytes + excluded.size_bytes
    RETURNING owner, files, size_bytes"""


class ArtifactRefused(RequestRefused):
    """`str(error)` is one sentence for the user."""

    def __init__(self, message: str, code: str) -> None:
        super().__init__(message)
        self.code = code


@dataclass(frozen=True)
class Artifact:
    path: str
    size_bytes: int
    blob: str


def checked_path(path: str) -> str:
    """The path of a file or a directory among a run's artifacts. Raises ArtifactRefused."""
    parts = path.strip("/").split("/")
    if len(path) > PATH_CHARACTERS_MAX:
        raise ArtifactRefused(f"The path of the artifact is longer than {PATH_CHARACTERS_MAX} characters.", "invalid")
    if any(part in ("", ".", "..") or "\\" in part or not part.isprintable() for part in parts):
        raise ArtifactRefused(
            f"{path!r} is no path of an artifact: no part may be empty, `.` or `..`, or have a backslash or control characters.",
            "invalid",
        )
    return "/".join(parts)


class Artifacts:
    def __init__(self, pool: asyncpg.Pool, directory: Path, bytes_max: int) -> None:
        """`bytes_max`: most bytes of one file."""
        self._pool, self._directory, self.bytes_max = pool, directory, bytes_max
        self._store = DirectoryStore(directory)

    async def put(self, run: tuple[int, int], path: str, chunks: AsyncIterator[bytes], time_us: int, user: str) -> None:
        """`user`: who started the run. Raises ArtifactRefused, and what `chunks` raises; then the run has what it had before."""
        file = self._incoming()
        try:
            size_bytes = 0
            async for chunk in chunks:
                size_bytes += len(chunk)
                if size_bytes > self.bytes_max:
                    raise ArtifactRefused(
                        f"The artifact {path!r} has more than {self.bytes_max} bytes, the most (TENUTO_ARTIFACT_BYTES_MAX).",
                        "too_large",
                    )
                await asyncio.to_thread(file.write, chunk)  # a slow disk does not delay other requests
            name = uuid.uuid4().hex
            blob = f"{_BLOBS}/{name[:2]}/{name}"
            await asyncio.to_thread(self._keep, file, blob)
        except OSError as error:
            raise _explained(error) from error
        finally:
            file.close()
            Path(file.name).unlink(missing_ok=True)
        try:
            replaced = await self._list(run, path, size_bytes, blob, time_us, user)
        except BaseException:
            await asyncio.to_thread(self._store.delete, [blob])
            raise
        await asyncio.to_thread(self._store.delete, replaced)

    def _incoming(self) -> IO[bytes]:
        try:
            directory = self._directory / _INCOMING
            directory.mkdir(0o750, parents=True, exist_ok=True)
            return tempfile.NamedTemporaryFile(dir=directory, delete=False)
        except OSError as error:
            raise _explained(error) from error

    def _keep(self, file: IO[bytes], blob: str) -> None:
        file.flush()
        self._store.put_file(blob, Path(file.name), consume=True)

    async def _list(self, run: tuple[int, int], path: str, size_bytes: int, blob: str, time_us: int, user: str) -> list[str]:
        """Blobs that the file replaces. Raises ArtifactRefused."""
        async with self._pool.acquire() as connection, connection.transaction():
            # Uploads of one run take turns here: each counts what the one before has added.
            await connection.execute("SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", f"artifacts/{run[0]}-{run[1]}")
            rows = await connection.fetch(
                f"""SELECT path, blob, size_bytes, user_name FROM unmanaged_artifacts WHERE {_OF} AND
                    (path = $3 OR starts_with(path, $3 || '/') OR starts_with($3, path || '/'))""", *run, path,
            )  # fmt: skip
            if clash := next((row["path"] for row in rows if row["path"] != path), None):
                raise ArtifactRefused(f"{path!r} and {clash!r} cannot both be artifacts: one would be a directory.", "conflict")
            await connection.execute(_PUT, *run, path, size_bytes, blob, time_us, user)
            query = f"SELECT count(*), sum(size_bytes) FROM unmanaged_artifacts WHERE {_OF}"
            count, total = await connection.fetchrow(query, *run)
            if count > FILES_MAX:
                raise ArtifactRefused(f"The run would have {count} artifacts; the most is {FILES_MAX}.", "too_large")
            if total > RUN_BYTES_FACTOR * self.bytes_max:
                most = RUN_BYTES_FACTOR * self.bytes_max
                raise ArtifactRefused(
                    f"The artifacts of the run would have {total} bytes together; the most is {most}.", "too_large"
                )
            changes = [(f"experiment/{run[0]}", 1, size_bytes), (f"user/{user}", 1, size_bytes), *_removals(run[0], rows)]
            self._check(await _added(connection, changes), run[0], user)
            return [row["blob"] for row in rows]

    def _check(self, totals: Mapping[str, tuple[int, int]], experiment_id: int, user: str) -> None:
        """`totals`: files and bytes by owner. Raises ArtifactRefused."""
        files, user_bytes = totals[f"user/{user}"]
        for what, found, most in (
            (f"of experiment {experiment_id}", totals[f"experiment/{experiment_id}"][1], EXPERIMENT_BYTES_FACTOR),
            (f"of all runs of {user}", user_bytes, USER_BYTES_FACTOR),
        ):
            if found > most * self.bytes_max:
                raise ArtifactRefused(
                    f"The artifacts {what} would have {stored(found)} together, and the most is {stored(most * self.bytes_max)}: "
                    "delete experiments that are not needed any more (`tenuto exp delete`), or files of runs.",
                    "too_large",
                )
        if files > FILES_OF_USER_MAX:
            raise ArtifactRefused(
                f"All runs of {user} would have {files} artifacts; the most is {FILES_OF_USER_MAX}: delete experiments that are "
                "not needed any more (`tenuto exp delete`).",
                "too_large",
            )

    async def beneath(self, run: tuple[int, int], path: str) -> list[Artifact]:
        """Files at or below a path, by path; all of the run for an empty one."""
        rows = await self._pool.fetch(
            f"""SELECT path, size_bytes, blob FROM unmanaged_artifacts WHERE {_OF}
                AND ($3 = '' OR path = $3 OR starts_with(path, $3 || '/')) ORDER BY path""", *run, path,
        )  # fmt: skip
        return [Artifact(**row) for row in rows]

    def read(self, artifact: Artifact) -> Iterator[bytes]:
        """Raises StoreError."""
        return self._store.stream(artifact.blob)

    async def delete(self, run: tuple[int, int], path: str) -> int:
        """Deletes the files at or below a path, all for an empty one; returns their number."""
        async with self._pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(
                f"""DELETE FROM unmanaged_artifacts WHERE {_OF} AND ($3 = '' OR path = $3 OR starts_with(path, $3 || '/'))
                    RETURNING blob, size_bytes, user_name""", *run, path,
            )  # fmt: skip
            await _added(connection, _removals(run[0], rows))
        await asyncio.to_thread(self._store.delete, [row["blob"] for row in rows])
        return len(rows)

    async def delete_experiment(self, experiment_id: int) -> None:
        """Deletes the files of all its runs. May be done again: a file goes before its row. Raises StoreError."""
        query = "SELECT blob FROM unmanaged_artifacts WHERE experiment_id = $1 LIMIT $2"
        while rows := await self._pool.fetch(query, experiment_id, DELETED_AT_ONCE):
            blobs = [row["blob"] for row in rows]
            await asyncio.to_thread(self._store.delete, blobs)
            async with self._pool.acquire() as connection, connection.transaction():
                gone = await connection.fetch(
                    """DELETE FROM unmanaged_artifacts WHERE experiment_id = $1 AND blob = ANY($2::text[])
                        RETURNING size_bytes, user_name""", experiment_id, blobs,
                )  # fmt: skip
                await _added(connection, _removals(experiment_id, gone))
        await self._pool.execute("DELETE FROM unmanaged_artifact_totals WHERE owner = $1", f"experiment/{experiment_id}")

    async def clean(self) -> None:
        """Removes what a killed gateway left long ago, half received, or received and not listed. Call at start."""
        if not self._directory.is_dir():
            return
        before_us = (time.time() - UNLISTED_SECONDS) * 1e6
        for file in (self._directory / _INCOMING).glob("*"):
            if file.stat().st_mtime * 1e6 < before_us:
                file.unlink(missing_ok=True)
        old = await asyncio.to_thread(lambda: [e.key for e in self._store.entries(_BLOBS) if e.modified_us < before_us])
        for first in range(0, len(old), FILES_MAX):
            keys = old[first : first + FILES_MAX]
            rows = await self._pool.fetch("SELECT blob FROM unmanaged_artifacts WHERE blob = ANY($1::text[])", keys)
            listed = {row["blob"] for row in rows}
            await asyncio.to_thread(self._store.delete, [key for key in keys if key not in listed])


Change = tuple[str, int, int]
"""Owner, and what is added to its files and bytes."""


def _removals(experiment_id: int, rows: Sequence[Mapping[str, Any]]) -> list[Change]:
    return [
        change
        for row in rows
        for change in (
            (f"experiment/{experiment_id}", -1, -row["size_bytes"]),
            (f"user/{row['user_name']}", -1, -row["size_bytes"]),
        )
    ]


async def _added(connection: asyncpg.Connection, changes: Sequence[Change]) -> dict[str, tuple[int, int]]:
    """Files and bytes of the owners by now. Owners are sorted, so that two requests lock their rows in one order."""
    sums: dict[str, tuple[int, int]] = {}
    for owner, files, size_bytes in changes:
        before = sums.get(owner, (0, 0))
        sums[owner] = (before[0] + files, before[1] + size_bytes)
    owners = sorted(sums)
    rows = await connection.fetch(_ADD, owners, [sums[name][0] for name in owners], [sums[name][1] for name in owners])
    return {row["owner"]: (row["files"], row["size_bytes"]) for row in rows}


def children(files: Sequence[Artifact], path: str) -> list[tuple[str, bool, int]]:
    """Entries of a directory of artifacts by their whole path: (path, True for a directory, size in bytes)."""
    found: dict[str, tuple[str, bool, int]] = {}
    for file in files:
        rest = file.path[len(path) + 1 :] if path and file.path != path else file.path
        if path == file.path:
            found[file.path] = (file.path, False, file.size_bytes)
            continue
        head, mark, _ = rest.partition("/")
        whole = f"{path}/{head}" if path else head
        found[whole] = (whole, bool(mark), 0 if mark else file.size_bytes)
    return [found[name] for name in sorted(found)]


def _explained(error: OSError) -> ArtifactRefused:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ArtifactRefused("The cluster's shared directory has no space left; free some and try again.", "no_space")
    return ArtifactRefused(f"The cluster's shared directory cannot be written: {error.strerror or error}.", "no_space")
