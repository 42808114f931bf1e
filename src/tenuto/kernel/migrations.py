"""Migrations bring a database to this build's schema: numbered SQL files, each applied once, in order, and recorded with its
checksum.

Files: kernel/sql/*.sql, then services/<name>/sql/*.sql by service name; within a folder by number. A file that was applied must
never change; later changes go into a new file.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import asyncpg

PACKAGE = Path(__file__).resolve().parent.parent
LOCK = 7_310_579_421_133_072
"""Advisory lock of the database, so that two migrating processes take turns."""
CONNECT_SECONDS_MAX = 10.0

_RECORD = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       text        PRIMARY KEY,
    checksum   text        NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now()
)"""


class MigrationError(Exception):
    """`str(error)` is one sentence for the operator: what, why, what to do."""


@dataclass(frozen=True)
class Migration:
    name: str
    """Name such as kernel/0001_event_log."""
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def migrations(package: Path = PACKAGE) -> list[Migration]:
    """All migrations of this build, in the order in which they are applied."""
    # `services` is a link in a checkout and a folder in an installed package.
    folders = [package / "kernel" / "sql", *sorted((package / "services").glob("*/sql"))]
    return [
        Migration(f"{folder.parent.name}/{file.stem}", file.read_text(encoding="utf-8"))
        for folder in folders
        for file in sorted(folder.glob("*.sql"))
    ]


async def migrate(owner_url: str, wanted: list[Migration] | None = None) -> list[str]:
    """Applies the missing migrations; returns their names. Harmless if there are none, or if several processes run at once.

    Raises MigrationError if an applied file has changed since, if the database is newer than this build, or if a file fails (it
    is then undone as a whole; the ones before it stay). Raises OSError or asyncpg's errors if the server cannot be used.
    """
    wanted = migrations() if wanted is None else wanted
    connection = await asyncpg.connect(owner_url, timeout=CONNECT_SECONDS_MAX)
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK)
        await connection.execute("SET client_min_messages = warning")
        await connection.execute(_RECORD)
        await connection.execute("REVOKE ALL ON schema_migrations FROM PUBLIC")
        rows = await connection.fetch("SELECT name, checksum FROM schema_migrations")
        applied = {row["name"]: row["checksum"] for row in rows}
        _check(applied, wanted)
        done = []
        for migration in wanted:
            if migration.name not in applied:
                await _apply(connection, migration)
                done.append(migration.name)
        return done
    finally:
        await connection.close()  # ends the session, and with it the lock


def _check(applied: dict[str, str], wanted: list[Migration]) -> None:
    known = {migration.name: migration for migration in wanted}
    for name in sorted(applied):
        if name not in known:
            raise MigrationError(f"the database has migration {name}, which this Tenuto does not know: use the newer Tenuto.")
        if known[name].checksum != applied[name]:
            raise MigrationError(
                f"migration {name} was changed after it was applied to this database: restore the file and put the change into "
                "a new one."
            )


async def _apply(connection: asyncpg.Connection, migration: Migration) -> None:
    try:
        async with connection.transaction():
            await connection.execute(migration.sql)
            await connection.execute(
                "INSERT INTO schema_migrations (name, checksum) VALUES ($1, $2)", migration.name, migration.checksum
            )
    except asyncpg.PostgresError as error:
        raise MigrationError(f"migration {migration.name} failed and was undone: {error}") from error
