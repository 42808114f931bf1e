"""Positions of automations: how far each rule of a user's program has read the log, and what it could not handle.

They are in tables of their own. Each change is one transaction under the lock of the automation's row, and belongs to the run
that the process was given at its start: a process that another one has replaced changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import asyncpg

from tenuto.services.gateway.automations.bodies import (
    RETRIES_MAX,
    AutomationView,
    MoveAutomationBody,
    ParkedEventView,
    RetryView,
    RuleView,
    StartAutomationBody,
)

PER_USER_MAX = 50
PARKED_MAX = 1_000
"""Most parked events of one automation; then its rules wait at events that they cannot handle, as more would say nothing new."""
PARKED_SHOWN_MAX = 100
SILENT_US = 30_000_000
"""Time without a heartbeat after which a process is silent: six heartbeats."""


class RunSuperseded(Exception):
    """The run is no longer the automation's: it was started again, or removed."""


class NotYours(Exception):
    """Another user has made an automation of that name meanwhile."""


class ParkingFull(Exception):
    pass


class TooManyAutomations(Exception):
    pass


class Automations:
    def __init__(self, pool: asyncpg.Pool[Any]) -> None:
        self._pool = pool

    async def owner(self, name: str) -> str | None:
        found: str | None = await self._pool.fetchval("SELECT owner FROM automations WHERE name = $1", name)
        return found

    async def all(self, head: int, now_us: int) -> list[AutomationView]:
        names = [row["name"] for row in await self._pool.fetch("SELECT name FROM automations ORDER BY name")]
        found = [await self.one(name, head, now_us) for name in names]
        return [item for item in found if item is not None]

    async def one(self, name: str, head: int, now_us: int) -> AutomationView | None:
        row = await self._pool.fetchrow("SELECT * FROM automations WHERE name = $1", name)
        if row is None:
            return None
        counts: Mapping[str, int] = dict(
            await self._pool.fetch("SELECT rule, count(*) FROM automation_parked WHERE automation = $1 GROUP BY rule", name)
        )
        rules = await self._pool.fetch(
            "SELECT rule, position, attempts, problem, next_us FROM automation_rules WHERE automation = $1 ORDER BY rule", name
        )
        parked = await self._pool.fetch(
            """SELECT number, rule, position, event_type, reason, parked_us, retries, retry_asked FROM automation_parked
               WHERE automation = $1 ORDER BY number LIMIT $2""",
            name,
            PARKED_SHOWN_MAX,
        )
        silent = now_us - row["seen_us"] > SILENT_US
        return AutomationView(
            name=name,
            owner=row["owner"],
            run=row["run"],
            source=row["source"],
            state="ended" if row["ended"] else "silent" if silent else "running",
            created_us=row["created_us"],
            seen_us=row["seen_us"],
            rules=tuple(
                RuleView(**item, behind=max(0, head - item["position"]), parked=counts.get(item["rule"], 0)) for item in rules
            ),
            parked=tuple(ParkedEventView(**item) for item in parked),
        )

    async def start(
        self, name: str, user: str, body: StartAutomationBody, head: int, now_us: int, *, others: bool = False
    ) -> None:
        """Starts the next run; rules that were known go on at their positions. `others`: True if the user may also start those
        of other users. Raises TooManyAutomations and NotYours."""
        after = head if body.after is None else min(body.after, head)
        async with self._pool.acquire() as connection, connection.transaction():
            # Without this name: starting a known automation again adds none.
            made = await connection.fetchval("SELECT count(*) FROM automations WHERE owner = $1 AND name <> $2", user, name)
            if made >= PER_USER_MAX:
                raise TooManyAutomations
            run = await connection.fetchval(
                """INSERT INTO automations AS known (name, owner, run, source, created_us, seen_us) VALUES ($1, $2, 1, $3, $4, $4)
                   ON CONFLICT (name) DO UPDATE
                   SET run = known.run + 1, source = excluded.source, seen_us = excluded.seen_us, ended = false
                   WHERE known.owner = $2 OR $5 RETURNING run""",
                name,
                user,
                body.source,
                now_us,
                others,
            )
            # No row comes back where the name exists and its WHERE does not hold.
            if run is None:
                raise NotYours
            await connection.execute(
                """INSERT INTO automation_rules (automation, rule, position) SELECT $1, rule, $3 FROM unnest($2::text[]) AS rule
                   ON CONFLICT (automation, rule) DO NOTHING""",
                name,
                list(body.rules),
                after,
            )

    async def move(self, name: str, body: MoveAutomationBody, now_us: int) -> list[RetryView]:
        """Returns the parked events to try again. Raises RunSuperseded and ParkingFull; then nothing is changed."""
        async with self._pool.acquire() as connection, connection.transaction():
            # Locked to the end of the transaction, so that a process that is being replaced moves nothing beside its successor.
            run = await connection.fetchval("SELECT run FROM automations WHERE name = $1 FOR UPDATE", name)
            if run != body.run:
                raise RunSuperseded
            await connection.execute("UPDATE automations SET seen_us = $2, ended = $3 WHERE name = $1", name, now_us, body.ended)
            await self._park(connection, name, body, now_us)
            if body.handled:
                await connection.execute(
                    "DELETE FROM automation_parked WHERE automation = $1 AND number = ANY($2::bigint[])", name, list(body.handled)
                )
            await connection.executemany(
                """UPDATE automation_rules SET position = greatest(position, $3), attempts = $4, problem = $5, next_us = $6
                   WHERE automation = $1 AND rule = $2""",
                [(name, item.rule, item.position, item.attempts, _stored(item.problem), item.next_us) for item in body.rules],
            )
            rows = await connection.fetch(
                """SELECT number, rule, position FROM automation_parked WHERE automation = $1 AND retry_asked
                   ORDER BY number LIMIT $2""",
                name,
                RETRIES_MAX,
            )
        return [RetryView(**row) for row in rows]

    async def _park(self, connection: Any, name: str, body: MoveAutomationBody, now_us: int) -> None:
        """Parks events; one that was tried again and is parked again has one more retry."""
        if not body.parked:
            return
        await connection.executemany(
            """INSERT INTO automation_parked AS known (automation, rule, position, event_type, reason, parked_us)
               SELECT $1, $2, $3, $4, $5, $6
               WHERE EXISTS (SELECT FROM automation_rules WHERE automation = $1 AND rule = $2)
               ON CONFLICT (automation, rule, position) DO UPDATE
               SET retries = known.retries + 1, retry_asked = false, reason = excluded.reason""",
            [(name, item.rule, item.position, item.event_type, _stored(item.reason), now_us) for item in body.parked],
        )
        # Counted after the insertion: the exception rolls the whole move back.
        if await connection.fetchval("SELECT count(*) FROM automation_parked WHERE automation = $1", name) > PARKED_MAX:
            raise ParkingFull

    async def retry(self, name: str, numbers: Sequence[int]) -> list[int]:
        rows = await self._pool.fetch(
            """UPDATE automation_parked SET retry_asked = true
               WHERE automation = $1 AND (cardinality($2::bigint[]) = 0 OR number = ANY($2)) RETURNING number""",
            name,
            list(numbers),
        )
        return sorted(row["number"] for row in rows)

    async def remove(self, name: str) -> bool:
        """Removes an automation; its process ends at its next heartbeat. False if there was none."""
        return bool(await self._pool.fetch("DELETE FROM automations WHERE name = $1 RETURNING name", name))

    async def forget(self, user: str) -> None:
        """Removes all automations of a user."""
        await self._pool.execute("DELETE FROM automations WHERE owner = $1", user)


def _stored(text: str) -> str:
    return text.replace("\0", "\ufffd")
