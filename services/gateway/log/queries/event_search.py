"""Searches events in the log, the newest first, and the events that one caused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tenuto.schemas.envelope import Event
from tenuto.services.gateway.read_models.rows import Fetching

LOOKED_MAX = 100_000
"""Most events that one request looks at: no index leads from a type or a service to its events, as each index makes every append
dearer."""
FOUND_BYTES_MAX = 8 << 20
"""Most bytes of payloads in one answer; the event that goes beyond it is its last."""
FOLLOWERS_MAX = 200
OUT_OF_ORDER_US = 3_600_000_000
"""Largest difference between the clocks of the services' machines: times of events grow with their positions except for this."""
_COLUMNS = """position, id, stream, version, type, schema_version, time_us, actor, correlation_id, causation_id, seen_position,
    trace, payload"""
_SEARCH = f"""
SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, sum(octet_length(payload)) OVER (ORDER BY position DESC) - octet_length(payload) AS bytes_before FROM (
        SELECT {_COLUMNS} FROM events WHERE {{}} ORDER BY position DESC LIMIT $3
    ) AS found
) AS sized WHERE bytes_before < $4 ORDER BY position DESC"""
_OF_EXPERIMENT = f"""
SELECT {_COLUMNS} FROM (
    SELECT {_COLUMNS}, sum(octet_length(payload)) OVER (ORDER BY position) - octet_length(payload) AS bytes_before FROM (
        SELECT {_COLUMNS} FROM events
        WHERE correlation_id = $1 AND position > $2 AND position <= $3 AND type = ANY($4::text[]) ORDER BY position LIMIT $5
    ) AS found
) AS sized WHERE bytes_before < $6 ORDER BY position"""
_LOOKED = """
SELECT max(position) AS last, count(*) AS looked FROM (
    SELECT position FROM events WHERE correlation_id = $1 AND position > $2 AND position <= $3
    ORDER BY position LIMIT $4
) AS looked"""
_FOLLOWERS = f"""
SELECT {_COLUMNS} FROM events
WHERE position > $1 AND position <= $1 + {LOOKED_MAX} AND causation_id = (SELECT id FROM events WHERE position = $1)
ORDER BY position LIMIT {FOLLOWERS_MAX}"""


class Wanted(NamedTuple):
    """Conditions of the events that are searched; all that are given must hold."""

    before: int
    """Only below this position of the log ..."""
    after: int = 0
    """... and above this one."""
    types: Sequence[str] = ()
    service: str = ""
    """Recorder of the event: a service, or `user`, or one user as `user:ada`; empty: any."""
    correlation_id: str = ""
    since_us: int | None = None
    until_us: int | None = None


class EventSearch(Fetching):
    async def find_events(self, wanted: Wanted, limit: int) -> tuple[list[Event], int | None]:
        """Events found, the newest first, and the position below which to go on; None: there are no more."""
        lowest = max(wanted.after + 1, wanted.before - LOOKED_MAX)
        where, values = ["position < $1", "position >= $2"], [wanted.before, lowest, limit, FOUND_BYTES_MAX]

        def also(condition: str, value: object) -> None:
            values.append(value)  # type: ignore[arg-type]
            where.append(condition.replace("?", f"${len(values)}"))

        if wanted.types:
            also("type = ANY(?::text[])", list(wanted.types))
        if wanted.service:
            also("(actor = ?::text OR starts_with(actor, ?::text || '/') OR starts_with(actor, ?::text || ':'))", wanted.service)
        if wanted.correlation_id:
            also("correlation_id = ?", wanted.correlation_id)
        if wanted.since_us is not None:
            also("time_us >= ?", wanted.since_us)
        if wanted.until_us is not None:
            also("time_us <= ?", wanted.until_us)
        rows = await self._rows(_SEARCH.format(" AND ".join(where)), *values)
        found = [Event(**row) for row in rows]
        full = len(found) == limit or sum(len(event.payload) for event in found) >= FOUND_BYTES_MAX
        onward = found[-1].position if full else lowest
        return found, None if onward <= wanted.after + 1 or await self._is_earlier(onward, wanted.since_us) else onward

    async def _is_earlier(self, position: int, since_us: int | None) -> bool:
        """True if all events below the position are from before the time."""
        if since_us is None:
            return False
        rows = await self._rows("SELECT time_us FROM events WHERE position = $1", position)
        return bool(rows) and rows[0]["time_us"] < since_us - OUT_OF_ORDER_US

    async def of_experiment(
        self, experiment_id: int, types: Sequence[str], after: int, upto: int, limit: int
    ) -> tuple[list[Event], int | None]:
        """Events of these types of one experiment above `after` and up to `upto`, in order, and the position behind which to go
        on; None: there are no more. One call looks at LOOKED_MAX of its events."""
        [looked] = await self._rows(_LOOKED, str(experiment_id), after, upto, LOOKED_MAX)
        if looked["last"] is None:
            return [], None
        values = (str(experiment_id), after, looked["last"], list(types), limit, FOUND_BYTES_MAX)
        found = [Event(**row) for row in await self._rows(_OF_EXPERIMENT, *values)]
        if len(found) == limit or sum(len(event.payload) for event in found) >= FOUND_BYTES_MAX:
            return found, found[-1].position
        return found, looked["last"] if looked["looked"] == LOOKED_MAX else None

    async def followers(self, position: int) -> list[Event]:
        """Events that this one caused, in order, among the next LOOKED_MAX."""
        return [Event(**row) for row in await self._rows(_FOLLOWERS, position)]
