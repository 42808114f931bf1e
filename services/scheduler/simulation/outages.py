"""Times in which slots could not be used: closed by users, or without their agents."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from tenuto.schemas.events import EventData
from tenuto.schemas.events.agent import AgentJoined, AgentLost
from tenuto.schemas.events.request import SlotsClosed, SlotsOpened

Why = Literal["closed", "gone"]
Slot = tuple[str, int]


class SlotOutage(NamedTuple):
    """One slot for a time. closed: a user took it out of service. gone: its agent was lost."""

    agent_id: str
    slot_id: int
    start_us: int
    end_us: int
    why: Why


def outages(events: Iterable[tuple[int, EventData]]) -> list[SlotOutage]:
    """Outages that follow from all events with their times in us, in order. Slots still out of service after the last event count
    as out until then. The slots of an agent that never joined are unknown."""
    slots: dict[str, tuple[int, ...]] = {}
    lost: set[str] = set()
    closed: set[tuple[str, int | None]] = set()
    since: dict[tuple[Slot, Why], int] = {}
    found: list[SlotOutage] = []
    last_us = 0
    for time_us, data in events:
        last_us = time_us
        agent_id = getattr(data, "agent_id", "")
        if isinstance(data, AgentJoined):
            slots[agent_id] = tuple(slot.slot_id for slot in data.slots)
            lost.discard(agent_id)
        elif isinstance(data, AgentLost):
            lost.add(agent_id)
        elif isinstance(data, SlotsClosed):
            closed.add((agent_id, data.slot_id))
        elif isinstance(data, SlotsOpened):
            closed -= {(agent_id, data.slot_id)} if data.slot_id is not None else {item for item in closed if item[0] == agent_id}
        else:
            continue
        for slot in [(agent_id, slot_id) for slot_id in slots.get(agent_id, ())]:
            shut = slot in closed or (agent_id, None) in closed
            _note(since, found, slot, {"gone": agent_id in lost, "closed": shut and agent_id not in lost}, time_us)
    for (slot, why), start_us in sorted(since.items()):
        found.append(SlotOutage(*slot, start_us, last_us, why))
    return sorted(found)


def _note(since: dict[tuple[Slot, Why], int], found: list[SlotOutage], slot: Slot, out: Mapping[Why, bool], time_us: int) -> None:
    for why, is_out in out.items():
        if is_out:
            since.setdefault((slot, why), time_us)
        elif (slot, why) in since:
            found.append(SlotOutage(*slot, since.pop((slot, why)), time_us, why))
