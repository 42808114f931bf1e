"""The hash chain of the log: each event's hash is sha256(hash of the event before + the event's fields).

The fields are laid out as in PostgreSQL's binary record format (`record_send`), because the database computes the hash while it
appends: the number of fields, then for each its type's number, its length and its bytes; NULL has length -1. Every field is
covered and none can run into the next. This module is an independent second implementation, for verification.
"""

from __future__ import annotations

from hashlib import sha256
from struct import Struct

from tenuto.schemas.envelope import Event

GENESIS = bytes(32)
"""The hash before the first event."""

# Type numbers that PostgreSQL has fixed for ever (pg_type.dat).
_BYTEA, _INT8, _INT4, _TEXT, _UUID = 17, 20, 23, 25, 2950
_HEADER = Struct(">ii")
_COUNT = Struct(">i").pack(13)
_INT8_FIELD = Struct(">iiq")
_INT4_FIELD = Struct(">iii")
_UUID_HEADER = _HEADER.pack(_UUID, 16)
_UUID_NULL = _HEADER.pack(_UUID, -1)


def _int8(value: int) -> bytes:
    return _INT8_FIELD.pack(_INT8, 8, value)


def _text(value: str) -> bytes:
    data = value.encode()
    return _HEADER.pack(_TEXT, len(data)) + data


def event_hash(previous: bytes, event: Event) -> bytes:
    """Hash of a recorded event (position and version are covered), given the hash of the event before it."""
    return sha256(
        b"".join(
            (
                previous,
                _COUNT,
                _int8(event.position),
                _UUID_HEADER + event.id.bytes,
                _text(event.stream),
                _int8(event.version),
                _text(event.type),
                _INT4_FIELD.pack(_INT4, 4, event.schema_version),
                _int8(event.time_us),
                _text(event.actor),
                _text(event.correlation_id),
                _UUID_NULL if event.causation_id is None else _UUID_HEADER + event.causation_id.bytes,
                _int8(event.seen_position),
                _text(event.trace),
                _HEADER.pack(_BYTEA, len(event.payload)),
                event.payload,
            )
        )
    ).digest()
