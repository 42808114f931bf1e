"""Redirected answers of the bus itself: JetStream answers at the subject that a message names. Shared by the attack on a
cluster and by the proof that it is seen where it succeeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from nats.js import JetStreamContext
from nats.js.api import Header, StreamState

from tenuto.schemas import subjects


def replies(victim: str) -> tuple[str, ...]:
    """Into the log's stream; to JetStream, as the question to clear it; into the reports of another agent."""
    return "tenuto.log.trial.1-1", f"$JS.API.STREAM.PURGE.{subjects.LOG_STREAM}", subjects.ingress("tracker", victim)


async def log_stream(js: JetStreamContext) -> StreamState:
    return (await js.stream_info(subjects.LOG_STREAM)).state


async def intrusions(
    js: JetStreamContext, before: StreamState, after: StreamState, ids: Mapping[int, str], strangers: Iterable[str]
) -> list[str]:
    """A sentence for each trace of an answer that went where it must not. `ids`: of the log's events, by position, up to
    `after`. `strangers`: reports in the victim's lane that the victim did not send."""
    found = [f"in the victim's lane: {item}" for item in strangers]
    if after.first_seq != before.first_seq:
        found.append(f"the log's stream begins at {after.first_seq}, no more at {before.first_seq}")
    for sequence in range(max(before.last_seq + 1, after.first_seq), after.last_seq + 1):
        message = await js.get_msg(subjects.LOG_STREAM, seq=sequence)
        if (message.headers or {}).get(Header.MSG_ID, "") != ids.get(sequence):
            found.append(f"message {sequence} of the log's stream is no event")
    return found
