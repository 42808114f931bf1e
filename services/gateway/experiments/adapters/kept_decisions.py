"""Decisions of searches, read from the log once: a picture of a running search is asked for at each of its decisions."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

from tenuto.kernel.eventlog import EventLog
from tenuto.schemas.envelope import Event
from tenuto.services.gateway.experiments.policies.search_decisions import TYPES, Decision, decision_of
from tenuto.services.gateway.http.errors import DoorError

DECISIONS_MAX = 100_000
"""Most decisions of one experiment: more dots than a picture can show."""
KEPT_DECISIONS_MAX = 200_000
"""Most decisions kept of all experiments, some 200 MB at worst; those asked for longest ago are dropped first."""
PAGE_EVENTS = 1_000


@dataclass
class _Read:
    decisions: list[Decision] = field(default_factory=list)
    position: int = 0
    """Position up to which the log was read."""
    reading: asyncio.Lock = field(default_factory=asyncio.Lock)


class KeptDecisions:
    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._read: OrderedDict[int, _Read] = OrderedDict()

    async def upto(self, experiment_id: int, position: int) -> Sequence[Decision]:
        """Decisions up to the position, in order. Raises DoorError."""
        read = self._read.setdefault(experiment_id, _Read())
        self._read.move_to_end(experiment_id)
        async with read.reading:
            while read.position < position:
                page = await self._log.read(
                    read.position, PAGE_EVENTS, upto=position, types=TYPES, correlation_id=str(experiment_id)
                )
                read.decisions += await asyncio.to_thread(_decisions_of, page)
                read.position = page[-1].position if page.more else position
                if len(read.decisions) > DECISIONS_MAX:
                    self._read.pop(experiment_id, None)
                    message = (
                        f"Experiment {experiment_id} has more than {DECISIONS_MAX:,} decisions up to position {position}; "
                        "ask for an earlier position."
                    )
                    raise DoorError("too_large", message, "at")
            found = [decision for decision in read.decisions if decision.position <= position]
        self._trim()
        return found

    def _trim(self) -> None:
        while len(self._read) > 1 and sum(len(read.decisions) for read in self._read.values()) > KEPT_DECISIONS_MAX:
            self._read.popitem(last=False)


def _decisions_of(events: Sequence[Event]) -> list[Decision]:
    """A millisecond for some dozens, with their sentences: not on the event loop."""
    return [decision_of(event) for event in events]
