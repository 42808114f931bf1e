"""Witnesses of the log's length: its readers. A log that ends before a position that one of them has read was cut."""

from __future__ import annotations

from typing import Any

import nats.errors
from nats.aio.client import Client
from nats.js.api import Header
from nats.js.errors import Error as JetStreamError
from nats.js.errors import NotFoundError

from tenuto.kernel.eventlog import EventLog, Tampered
from tenuto.schemas import subjects
from tenuto.schemas.envelope import encode_event

STREAMS_PAGE = 10_000
BUS_SECONDS_MAX = 5.0

# One statement, so that all rows are of one moment: readers move on while the log grows, but never beyond its head.
_READERS = """
SELECT reader, position, (SELECT position FROM log_head) AS head
FROM (SELECT 'the checkpoint of ' || consumer, position FROM checkpoints
      UNION ALL SELECT 'a snapshot of ' || consumer, greatest(position, own_position) FROM snapshots
      UNION ALL SELECT 'the view ' || projection, position FROM projection_cursors
      UNION ALL SELECT consumer, position FROM effect_positions) AS readers (reader, position)
WHERE position > (SELECT position FROM log_head) ORDER BY position DESC, reader LIMIT 1"""
_STREAMS = """
SELECT s.stream, s.version, coalesce(e.version, 0) AS found, (SELECT position FROM log_head) AS head
FROM (SELECT stream, version FROM streams WHERE stream > $1 ORDER BY stream LIMIT $2) AS s
LEFT JOIN LATERAL (SELECT version FROM events WHERE stream = s.stream ORDER BY version DESC LIMIT 1) AS e ON true
ORDER BY s.stream"""


async def in_database(pool: Any) -> Tampered | None:
    """Tampering that the positions of consumers and the versions of streams in the database reveal; None if they fit the log."""
    row = await pool.fetchrow(_READERS)
    if row is not None:
        return cut(row["head"], f"{row['reader']} had read up to {row['position']}")
    after = ""
    while rows := await pool.fetch(_STREAMS, after, STREAMS_PAGE):
        for row in rows:
            if row["version"] > row["found"]:
                what = f"the stream {row['stream']} had {row['version']} events, of which {row['found']} are left"
                return cut(row["head"], what)
            if row["version"] < row["found"]:
                what = f"the stream {row['stream']} has {row['found']} events, but only {row['version']} were appended"
                return Tampered(row["head"], what)
        after = rows[-1]["stream"]
    return None


async def on_bus(bus: Client, log: EventLog) -> tuple[Tampered | None, str]:
    """Tampering that JetStream's copy of the log's end reveals, and the reason if it could not be compared."""
    js = bus.jetstream(timeout=BUS_SECONDS_MAX)
    try:
        state = (await js.stream_info(subjects.LOG_STREAM)).state
        head = await log.head()  # read after the stream, which an intact log is never behind
        if state.last_seq > head:
            return cut(head, f"the bus holds {state.last_seq} events of it"), ""
        message = await js.get_msg(subjects.LOG_STREAM, seq=state.last_seq) if state.messages else None
    except (JetStreamError, nats.errors.Error, TimeoutError, OSError) as error:
        if isinstance(error, NotFoundError):
            return None, f"the bus has no stream {subjects.LOG_STREAM} to compare with"
        return None, f"the bus could not be asked: {str(error) or type(error).__name__}"
    if message is None:
        return None, ""
    found = await log.read(state.last_seq - 1, 1)
    same = bool(found) and (message.headers or {}).get(Header.MSG_ID, "") == str(found[0].id)
    if not same or (message.data and message.data != encode_event(found[0])):
        return Tampered(state.last_seq, "the bus holds another event there"), ""
    return None, ""


def cut(head: int, witness: str) -> Tampered:
    return Tampered(head + 1, f"the end of the log is missing: it ends at position {head}, but {witness}")
