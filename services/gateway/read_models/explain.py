"""Sentences of recorded decisions, made on reading: beside an event, and in a view that names the event."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic_core import from_json

from tenuto.schemas.envelope import Event, encode_event
from tenuto.schemas.sentences import sentence, sentence_of

DECISIONS = "SELECT position, type, actor, payload FROM events WHERE position = ANY($1::bigint[])"


def encode_told(event: Event) -> bytes:
    """Same as `encode_event`, with the member `sentence` if the event records a reason. `data` stays the payload byte for
    byte."""
    body, told = encode_event(event), sentence_of(event)
    if not told:
        return body
    head, mark, data = body.partition(b',"data":')
    return head + b',"sentence":' + json.dumps(told).encode() + mark + data


def positions_of(rows: Iterable[dict[str, Any]], column: str) -> list[int]:
    """Positions of the decisions that the rows name, sorted, each once."""
    return sorted({row[column] for row in rows if row[column] is not None})


def told(rows: Sequence[dict[str, Any]], column: str, decisions: Iterable[Any]) -> list[dict[str, Any]]:
    """The rows with the sentence in place of the position. `decisions`: what DECISIONS found."""
    sentences = {row["position"]: sentence(row["type"], from_json(row["payload"]), row["actor"]) for row in decisions}
    return [row if row[column] is None else {**row, column: sentences.get(row[column], "")} for row in rows]
