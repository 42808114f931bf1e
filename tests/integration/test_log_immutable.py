"""Nobody changes the log, and who does it all the same is found, with the position."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest

from tenuto.kernel import eventlog_postgres
from tenuto.kernel.eventlog import Append
from tenuto.kernel.eventlog_postgres import PostgresEventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.ids import name_id

EVENTS = 10
EDITED = 7


def event(number: int) -> Event:
    return Event(
        id=name_id("immutable", str(number)),
        stream=f"trial/1-{number % 3}",
        type="TrialProgressed",
        schema_version=1,
        time_us=number,
        payload=b'{"number":%d}' % number,
        actor="tracker/1",
        correlation_id="1",
        causation_id=name_id("cause", str(number)),
        seen_position=number,
        trace="",
    )


@pytest.fixture
async def log(database: Any, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[PostgresEventLog]:
    monkeypatch.setattr(eventlog_postgres, "VERIFY_PAGE_EVENTS", 3)  # several pages, the last one not full
    log = await PostgresEventLog.connect(database.url)
    await log.append(Append([event(number) for number in range(1, EVENTS + 1)]))
    yield log
    await log.close()


async def execute(url: str, *statements: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        for statement in statements:
            await connection.execute(statement)
    finally:
        await connection.close()


CHANGES = [
    "UPDATE events SET payload = '{}'",
    f"UPDATE events SET actor = 'x' WHERE position = {EDITED}",
    "UPDATE events SET actor = 'x' WHERE false",
    "DELETE FROM events",
    "TRUNCATE events",
]


@pytest.mark.parametrize("change", CHANGES)
async def test_neither_service_nor_superuser_changes_the_log(log: PostgresEventLog, database: Any, change: str) -> None:
    for url in (database.url, database.owner_url):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await execute(url, change)
    with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
        await execute(database.owner_url, "SET session_replication_role = replica", change)
    verified = await log.verify()
    assert (verified.events, verified.tampered) == (EVENTS, None)


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO events SELECT * FROM events",
        "ALTER TABLE events DISABLE TRIGGER ALL",
        "SET session_replication_role = replica",
        "DROP TABLE events",
        "UPDATE log_head SET position = 0",
        "UPDATE streams SET version = 0",
        "UPDATE checkpoints SET position = 0",
        "CREATE TABLE mine ()",
        "CREATE FUNCTION public.sha256(bytea) RETURNS bytea LANGUAGE sql AS 'SELECT $1'",
    ],
)
async def test_the_service_role_cannot_go_around_the_append_function(
    log: PostgresEventLog, database: Any, statement: str
) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await execute(database.url, statement)


async def test_a_table_of_the_callers_own_does_not_stand_in_for_the_log(log: PostgresEventLog, database: Any) -> None:
    connection = await asyncpg.connect(database.url)
    await connection.execute("CREATE TEMP TABLE streams (stream text PRIMARY KEY, version bigint); SET search_path = pg_temp")
    await connection.execute(
        "SELECT (public.append_events($1, '{trial/1-0}', '{T}', '{1}', '{1}', '{a}', '{1}', '{null}', '{0}', '{t}', "
        "array['x'::bytea], '{}', '{}', null, 0, 0, 0)).first_position",
        [name_id("temp")],
    )
    assert await connection.fetchval("SELECT count(*) FROM pg_temp.streams") == 0
    await connection.close()
    assert (await log.read(EVENTS))[0].version == 4


def edit(column: str, value: str) -> str:
    return f"UPDATE events SET {column} = {value} WHERE position = {EDITED}"


def forged_hash(position: int) -> str:
    fields = (
        "position, id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id, seen_position, "
        "trace, payload"
    )
    before = f"(SELECT hash FROM events WHERE position = {position - 1})"
    return f"UPDATE events SET hash = sha256({before} || record_send(ROW({fields}))) WHERE position = {position}"


TAMPERING = [
    ([edit("id", "gen_random_uuid()")], EDITED),
    ([edit("stream", "'trial/9-9'")], EDITED),
    ([edit("version", "99")], EDITED),
    ([edit("type", "'TrialFailed'")], EDITED),
    ([edit("schema_version", "2")], EDITED),
    ([edit("time_us", "time_us + 1")], EDITED),
    ([edit("actor", "'tracker/2'")], EDITED),
    ([edit("correlation_id", "'2'")], EDITED),
    ([edit("causation_id", "null")], EDITED),
    ([edit("seen_position", "0")], EDITED),
    ([edit("trace", "'x'")], EDITED),
    ([edit("payload", "payload || ' '")], EDITED),
    ([edit("hash", "sha256('')")], EDITED),
    # A boundary moved between two neighbouring fields: lengths are hashed too.
    ([edit("(actor, correlation_id)", "('tracker/', '11')")], EDITED),
    # Its own hash computed anew: the next event does not fit.
    ([edit("payload", "'{}'"), forged_hash(EDITED)], EDITED + 1),
    # The whole tail computed anew: the head of the log does not fit.
    ([edit("payload", "'{}'"), *(forged_hash(position) for position in range(EDITED, EVENTS + 1))], EVENTS),
    ([f"DELETE FROM events WHERE position = {EDITED}"], EDITED),
    (["DELETE FROM events WHERE position = 1"], 1),
    ([f"DELETE FROM events WHERE position = {EVENTS}"], EVENTS),
    (["TRUNCATE events"], 1),
    (["UPDATE events SET position = 0 WHERE position = 10"], 0),
    (["INSERT INTO events SELECT 11, gen_random_uuid(), 'a/1', 1, type, 1, 1, '', '', null, 0, '', '', hash FROM events "
      "WHERE position = 10"], EVENTS + 1),
]  # fmt: skip


@pytest.mark.parametrize(("statements", "position"), TAMPERING, ids=[statements[0][:60] for statements, _ in TAMPERING])
async def test_tampering_by_a_superuser_is_found(
    log: PostgresEventLog, database: Any, statements: list[str], position: int
) -> None:
    await execute(database.owner_url, "ALTER TABLE events DISABLE TRIGGER ALL", *statements)
    tampered = (await log.verify()).tampered
    assert tampered is not None
    assert tampered.position == position
    assert tampered.reason


async def test_a_growing_log_is_verified_as_of_one_instant(log: PostgresEventLog) -> None:
    async def grow() -> None:
        for number in range(100, 130):
            await log.append(Append([event(number)]))

    growing = asyncio.create_task(grow())
    while not growing.done():
        verified = await log.verify()
        assert verified.tampered is None
        assert verified.events == verified.head >= EVENTS
    await growing
    assert (await log.verify()).events == EVENTS + 30
