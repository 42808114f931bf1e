"""Experiments as they were at an earlier position of the log.

The projections of the present fold the experiment's events up to that position into temporary tables. These have the names of the
present tables and hide them from their connection, so that the queries of the present read them: there is one fold and one query
for both. A few connections keep what they folded, so that the next position of the same experiment folds only what is between.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from typing import Any, cast

import asyncpg

from tenuto.kernel.database_errors import DATABASE_AWAY
from tenuto.kernel.eventlog import EventLog
from tenuto.kernel.eventlog_postgres import CONNECT_SECONDS_MAX
from tenuto.schemas.envelope import Event
from tenuto.schemas.events.trial import CheckpointDamaged
from tenuto.schemas.ids import experiment_of
from tenuto.services.gateway.experiments.queries.experiments import ExperimentQueries
from tenuto.services.gateway.http.errors import DoorError
from tenuto.services.gateway.http.fair_queue import Turns

KEPT_MAX = 3
"""Most experiments whose past is kept, each with a connection: as many users look back at once without folding all again."""
WAITING_MAX = 32
"""Most requests that wait for a connection; with more, those behind would wait for longer than a browser does."""
EVENTS_MAX = 50_000
"""Most events folded for one request: half a minute on one core, in which a browser still waits for its answer."""
PAGE_EVENTS = 500
QUERY_SECONDS_MAX = 20.0
"""The same as for the present: a query that takes longer would only pile up."""
IDLE_SECONDS = 600
"""Time after which the server closes an unused connection, and frees its tables. Who plays the log asks often."""
TABLES = (
    "experiments", "trials", "trial_hyperparameters", "trial_validations", "trial_checkpoints", "allocations", "user_names",
    "foreign_events", "trial_logs",
)  # fmt: skip
"""Tables that the fold of one experiment writes; `trial_logs` stays empty, as lines are no events and show what came later."""
_SESSION = {"application_name": "tenuto", "jit": "off", "idle_session_timeout": str(IDLE_SECONDS * 1000)}
_COUNT = """
SELECT count(*) FROM (
    SELECT 1 FROM events WHERE correlation_id = $1 AND position > $2 AND position <= $3 AND type = ANY($4::text[]) LIMIT $5
) AS found"""
Fold = Callable[[asyncpg.Connection, Sequence[Event]], Awaitable[None]]


class PastViews:
    def __init__(self, url: str, log: EventLog, fold: Fold, types: Collection[str]) -> None:
        """`url`: the database. `fold`: writes events into the tables on a connection. `types`: types of the events that it
        knows."""
        self.types = sorted(types)
        self._kept = [_KeptViews(url, log, fold, self.types) for _ in range(KEPT_MAX)]
        """The least recently used first."""
        self._turns = Turns(of_one_user=1, at_once=KEPT_MAX)
        self._waiting = 0

    @contextlib.asynccontextmanager
    async def at(self, experiment_id: int, position: int, user: str) -> AsyncIterator[ExperimentQueries]:
        """The reads of the experiment as it was after the event at `position`, which the views of the present have reached.
        Raises DoorError."""
        if self._waiting >= WAITING_MAX:
            raise DoorError("too_many", "Too many look at earlier moments of experiments; try again in a few seconds.", "at")
        self._waiting += 1
        try:
            async with self._turns.turn(user):
                kept = self._taken(experiment_id, position)
                try:
                    await kept.move(experiment_id, position)
                    # It has the three methods of a pool that reads use.
                    yield ExperimentQueries(cast(asyncpg.Pool, kept))
                finally:
                    kept.busy = False
        finally:
            self._waiting -= 1

    def _taken(self, experiment_id: int, position: int) -> _KeptViews:
        """The free one that has the least to fold: of this experiment and nearest below the position, else the one that was not
        used for longest."""
        free = [kept for kept in self._kept if not kept.busy]
        near = [kept for kept in free if kept.experiment_id == experiment_id and kept.position <= position]
        # Going back must not cost what is kept of other experiments.
        same = [kept for kept in free if kept.experiment_id == experiment_id]
        found = max(near, key=lambda kept: kept.position) if near else (same or free)[0]
        self._kept.remove(found)
        self._kept.append(found)
        found.busy = True
        return found

    async def close(self) -> None:
        for kept in self._kept:
            await kept.close()


class _KeptViews:
    """The past of one experiment, in temporary tables of one connection."""

    def __init__(self, url: str, log: EventLog, fold: Fold, types: Sequence[str]) -> None:
        self._url, self._log, self._fold, self._types = url, log, fold, types
        self._connection: asyncpg.Connection | None = None
        self._present = ""
        """Schema of the present tables."""
        self._reading = asyncio.Lock()
        self.busy = False
        self.experiment_id = self.position = 0

    async def move(self, experiment_id: int, position: int) -> None:
        """Raises DoorError, and the errors of an unreachable database."""
        try:
            connection = await self._opened()
            if (self.experiment_id, self.position) == (experiment_id, position):
                return
            anew = self.experiment_id != experiment_id or self.position > position
            after = 0 if anew else self.position
            await self._check_few(connection, experiment_id, after, position)
            self.experiment_id = 0  # until it is done
            async with connection.transaction():
                if anew:
                    await connection.execute(f"TRUNCATE {', '.join(f'pg_temp.{name}' for name in TABLES)}")
                await self._fold_between(connection, experiment_id, after, position)
        except DoorError:
            raise
        except BaseException:
            await self.close()
            raise
        self.experiment_id, self.position = experiment_id, position

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        self.experiment_id = self.position = 0
        if connection is not None:
            connection.terminate()

    async def fetch(self, query: str, *values: Any) -> list[asyncpg.Record]:
        async with self.acquire() as connection:
            return list(await connection.fetch(query, *values))

    @contextlib.asynccontextmanager
    async def acquire(self) -> AsyncIterator[asyncpg.Connection]:
        async with self._reading:
            assert self._connection is not None
            yield self._connection

    async def expire_connections(self) -> None:
        """There is one, and its tables go with it: the next request makes both anew."""

    async def _opened(self) -> asyncpg.Connection:
        if self._connection is not None and not self._connection.is_closed():
            return self._connection
        await self.close()
        opened = await asyncpg.connect(
            self._url, timeout=CONNECT_SECONDS_MAX, command_timeout=QUERY_SECONDS_MAX, server_settings=_SESSION
        )
        self._connection = opened
        self._present = await opened.fetchval("SELECT current_schema()")
        # Before any other statement: a prepared one would go on reading the present tables.
        async with opened.transaction():
            for name in TABLES:
                await opened.execute(f'CREATE TEMPORARY TABLE {name} (LIKE "{self._present}".{name} INCLUDING ALL)')
        return opened

    async def _check_few(self, connection: asyncpg.Connection, experiment_id: int, after: int, position: int) -> None:
        values = (str(experiment_id), after, position, self._types, EVENTS_MAX + 1)
        if await connection.fetchval(_COUNT, *values) > EVENTS_MAX:
            raise DoorError(
                "too_large",
                f"Experiment {experiment_id} has more than {EVENTS_MAX:,} events up to position {position}, the most that one "
                "request folds; ask for an earlier position, or use `tenuto exp replay --at`.",
                "at",
            )

    async def _fold_between(self, connection: asyncpg.Connection, experiment_id: int, after: int, position: int) -> None:
        """Folds the experiment's events above `after` up to `position`, with those of others that change it, in their order."""
        foreign = await connection.fetch(
            f"""SELECT position FROM "{self._present}".foreign_events
                WHERE experiment_id IN (0, $1) AND position > $2 AND position <= $3 ORDER BY position""",
            experiment_id,
            after,
            position,
        )
        for place in (row["position"] for row in foreign):
            await self._fold_own(connection, experiment_id, after, place)
            for event in await self._log.read(place - 1, 1, upto=place):
                if event.correlation_id != str(experiment_id):
                    await self._fold_foreign(connection, event)
            after = place
        await self._fold_own(connection, experiment_id, after, position)

    async def _fold_own(self, connection: asyncpg.Connection, experiment_id: int, after: int, upto: int) -> None:
        while after < upto:
            page = await self._log.read(after, PAGE_EVENTS, upto=upto, types=self._types, correlation_id=str(experiment_id))
            await self._fold_or_skip(connection, page)
            if not page.more:
                return
            after = page[-1].position

    async def _fold_foreign(self, connection: asyncpg.Connection, event: Event) -> None:
        if isinstance(event.data, CheckpointDamaged):
            # It counts, as the present has found: by the owner of the experiment that says it, which never changes.
            await connection.execute(
                f"""INSERT INTO experiments SELECT * FROM "{self._present}".experiments WHERE experiment_id = $1
                    ON CONFLICT DO NOTHING""",
                experiment_of(event.data.trial_id),
            )
        await self._fold_or_skip(connection, [event])

    async def _fold_or_skip(self, connection: asyncpg.Connection, events: Sequence[Event]) -> None:
        """Skips an event that cannot be folded: the views of the present have parked it."""
        try:
            async with connection.transaction():
                await self._fold(connection, events)
        except DATABASE_AWAY:
            raise
        except Exception:
            if len(events) > 1:
                for event in events:
                    await self._fold_or_skip(connection, [event])
