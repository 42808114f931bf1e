"""The proposer's part in a world of virtual time: asks the samplers as the service does."""

from __future__ import annotations

from tenuto.kernel.decision import step
from tenuto.schemas.events import EventData
from tenuto.services.searcher.adapters.samplers import propose, wanting
from tests.support.search_world import Recorder


def propose_all(recorder: Recorder) -> list[EventData]:
    """Records every proposal that the state asks for now; returns the events."""
    decided: list[EventData] = []
    while wanted := wanting(recorder.state):
        for experiment in wanted:
            seen = max((event.position for event in recorder.log if event.type in recorder.core.consumes), default=0)
            recorder.state, events = step(
                recorder.core, recorder.state, propose(experiment), seen_position=seen, time_us=recorder.time_us
            )
            assert events
            for event in events:
                recorder._append(event)
                decided.append(event.data)
    return decided
