"""The checks of the record notice what they should."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from uuid import UUID

import pytest

from tenuto.schemas.envelope import Event
from tenuto.schemas.events import EventData, parse
from tests.support.record import broken_rules

REASON = '"reason":{"rule":"r","numbers":{}}'
P = '"pool":"default","allocation_id":"1-1-1","trial_id":"1-1","experiment_id":1'
A = '"trial_id":"1-1","allocation_id":"1-1-1"'
REQUESTED = (
    "TrialRequested",
    f'{{"experiment_id":1,"trial_id":"1-1","trial_number":1,"hyperparameters":{{}},"seed":1,"target_length":1,{REASON}}}',
)
GRANTED = ("AllocationGranted", f'{{{P},"slots":[{{"agent_id":"a","slot_ids":[0]}}],{REASON}}}')
GRANTED_AGAIN = ("AllocationGranted", GRANTED[1].replace("1-1-1", "1-1-2"))
RELEASED = ("AllocationReleased", f"{{{P},{REASON}}}")
VALIDATED = ("ValidationReported", f'{{{A},"batches":1,"length":1,"metrics":{{}}}}')
STOPPED = ("TrialStopped", f'{{"experiment_id":1,"trial_id":"1-1","outcome":"completed",{REASON}}}')
EXTENDED = ("TrialExtended", f'{{"experiment_id":1,"trial_id":"1-1","target_length":2,{REASON}}}')
FINISHED = ("TrialFinished", '{"trial_id":"1-1","batches":1,"length":1,"checkpoint_id":null}')
COMPLETED = (
    "ExperimentCompleted",
    f'{{"experiment_id":1,"best_trial_id":null,"best_metric":null,"trials":1,{REASON}}}',
)


def log(*entries: tuple[str, str]) -> list[Event]:
    versions: Counter[str] = Counter()
    events = []
    for position, (name, payload) in enumerate(entries, start=1):
        data: EventData = parse(name, 1, payload.encode())
        versions[data.stream()] += 1
        events.append(
            Event(
                id=UUID(int=position), stream=data.stream(), type=name, schema_version=1, time_us=0, payload=payload.encode(),
                actor=f"{data.OWNER}/1", correlation_id="1", position=position, version=versions[data.stream()],
            )
        )  # fmt: skip
    return events


def test_a_sound_record() -> None:
    assert broken_rules(log(REQUESTED, GRANTED, VALIDATED, RELEASED, GRANTED_AGAIN, STOPPED, FINISHED, COMPLETED)) == []


@pytest.mark.parametrize(
    ("entries", "complaint"),
    [
        ([GRANTED, GRANTED_AGAIN], "slot 0 of a is in 1-1-1 and in 1-1-2"),
        ([GRANTED, RELEASED, GRANTED], "granted twice"),
        ([GRANTED, RELEASED, VALIDATED], "came after the allocation was released"),
        ([VALIDATED, VALIDATED], "2 validations"),
        ([REQUESTED, COMPLETED], "is lost"),
        ([REQUESTED, STOPPED, EXTENDED], "extended after it was stopped"),
        ([REQUESTED, REQUESTED], "requested twice"),
        ([FINISHED, FINISHED], "finished 2 times"),
    ],
)
def test_a_broken_record(entries: Sequence[tuple[str, str]], complaint: str) -> None:
    assert any(complaint in sentence for sentence in broken_rules(log(*entries)))


def test_gaps_and_wrong_owners() -> None:
    events = log(REQUESTED, GRANTED)
    assert any("stands where" in sentence for sentence in broken_rules(events[1:]))
    foreign = Event(**{**{k: v for k, v in vars(events[0]).items() if k != "data"}, "actor": "tracker/1"})
    assert any("not by the searcher" in sentence for sentence in broken_rules([foreign]))
