"""Events as other services record them, for tests of one service against a real log."""

from __future__ import annotations

from tenuto.kernel.clock import SystemClock
from tenuto.kernel.eventlog import Append, EventLog
from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData
from tenuto.schemas.ids import experiment_of


async def recorded(log: EventLog, *payloads: EventData) -> int:
    """Appends the payloads to the log; returns the position of the last event."""
    clock = SystemClock()
    events = []
    for data in payloads:
        key = getattr(data, "experiment_id", None) or (experiment_of(data.trial_id) if hasattr(data, "trial_id") else "")
        events.append(
            Event(
                id=clock.new_id(),
                stream=data.stream(),
                type=data.TYPE,
                schema_version=1,
                time_us=clock.now_us(),
                payload=data.to_json(),
                actor="test/1",
                correlation_id=str(key),
            )
        )
    return (await log.append(Append(events=events))).events[-1].position
